"""The results that callers of a producer wait for, and the buffers of their messages until the next flush.

The plainest messages (no due time, group, attributes) are the majority: they wait as columns, so that one of them
costs no object of its own but the caller's future. All others are letters. Of a group one flush is under way at a
time: its messages wait in a line of their own, and a caller that needs a turn of a group waits in that line too.

It does no I/O and knows no clock.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Sequence
from itertools import islice

from headgate.engines.timeline.model.decide_flush import ROW_BYTES_MAX, ROW_MESSAGES_MAX, PendingMessage, run_length
from headgate.errors import HeadgateError

Ids = list[str]


class Call:
    """One put of several messages: done when each has its id, failed when one fails."""

    __slots__ = ("_ids", "_left", "future")

    def __init__(self, future: asyncio.Future[Ids], count: int) -> None:
        self.future = future
        self._ids = [""] * count
        self._left = count

    def take(self, start: int, ids: Ids) -> None:
        """The ids of some messages, from the `start`-th on."""
        self._ids[start : start + len(ids)] = ids
        self._left -= len(ids)
        if not self._left and not self.future.done():
            self.future.set_result(self._ids)

    def take_one(self, index: int, message_id: str) -> None:
        """The id of one message."""
        self._ids[index] = message_id
        self._left -= 1
        if not self._left and not self.future.done():
            self.future.set_result(self._ids)

    def fail(self, error: HeadgateError, start: int, count: int = 1) -> None:
        """These messages are not known to be durable, from the `start`-th on."""
        fail(self.future, error)


class EachCall(Call):
    """A put of several messages that is done when each has its id or its error; it never fails as a whole."""

    __slots__ = ()

    def fail(self, error: HeadgateError, start: int, count: int = 1) -> None:
        """In the place of its id each of these messages has the error."""
        for index in range(start, start + count):
            if not self._ids[index]:
                self._ids[index] = error  # type: ignore[call-overload]  # read as outcomes by `Producer.put_each`
                self._left -= 1
        if not self._left and not self.future.done():
            self.future.set_result(self._ids)


def fail(future: asyncio.Future[Ids], error: HeadgateError) -> None:
    """Notify one caller, by an error of its own: each adds its own traceback to the error it raises."""
    if not future.done():
        mine = type(error)(error.message, remedy=error.remedy, **error.facts)
        mine.__cause__ = error
        future.set_exception(mine)


Segment = asyncio.Future[Ids] | tuple[Call, int, int]
"""The callers of a row's messages: the future of a put of one message, else (call, the first's index, count)."""

Turn = asyncio.Future[None]
"""Of a group, awaited by a caller that stamps its message itself."""


def resolve_ids(segments: Iterable[Segment], ids: Ids) -> None:
    """Pass the ids of a row to the waiting callers, in the order of the row."""
    at = 0
    for segment in segments:
        if type(segment) is tuple:
            call, start, count = segment
            call.take(start, ids[at : at + count])
            at += count
        else:
            try:  # noqa: SIM105 - the usual way costs nothing so
                segment.set_result([ids[at]])  # type: ignore[union-attr]  # any other than a tuple is a future
            except asyncio.InvalidStateError:  # its caller was cancelled
                pass
            at += 1


def fail_segments(segments: Iterable[Segment], error: HeadgateError) -> None:
    """Notify the waiting callers of a row that it is not known to be durable."""
    for segment in segments:
        if isinstance(segment, tuple):
            call, start, count = segment
            call.fail(error, start, count)
        else:
            fail(segment, error)


def _future_of(segment: Segment) -> asyncio.Future[Ids]:
    return segment[0].future if isinstance(segment, tuple) else segment


class PlainBuffer:
    """The buffer of the plainest messages: two columns, payloads and their callers."""

    def __init__(self) -> None:
        self.payloads: list[bytes] = []
        self.segments: list[Segment] = []
        self.size_bytes = 0

    @property
    def fills_a_row(self) -> bool:
        """Whether more waits than one row holds."""
        return len(self.payloads) >= ROW_MESSAGES_MAX or self.size_bytes >= ROW_BYTES_MAX

    def take_row(self) -> tuple[list[bytes], list[Segment]]:
        """As much as one row holds, from the front; both are empty if nobody waits any more."""
        if any(
            [  # noqa: C419 - half the time
                segment[0].future.cancelled() if type(segment) is tuple else segment.cancelled()  # type: ignore[union-attr]
                for segment in self.segments
            ]
        ):
            self._drop_cancelled()
        if len(self.payloads) <= ROW_MESSAGES_MAX and self.size_bytes <= ROW_BYTES_MAX:
            taken = self.payloads, self.segments
            self.payloads, self.segments, self.size_bytes = [], [], 0
            return taken
        count = run_length(map(len, islice(self.payloads, ROW_MESSAGES_MAX + 1)))
        payloads, self.payloads = self.payloads[:count], self.payloads[count:]
        self.size_bytes -= sum(map(len, payloads))
        return payloads, self._cut_segments(count)

    def take_all_segments(self) -> list[Segment]:
        """All waiting callers; nothing is left."""
        segments = self.segments
        self.payloads, self.segments, self.size_bytes = [], [], 0
        return segments

    def _cut_segments(self, count: int) -> list[Segment]:
        left = count
        for place, segment in enumerate(self.segments):
            length = segment[2] if isinstance(segment, tuple) else 1
            if length >= left:
                taken = self.segments[: place + 1]
                rest = self.segments[place + 1 :]
                if length > left and isinstance(segment, tuple):
                    call, start, _ = segment
                    taken[-1] = (call, start, left)
                    rest.insert(0, (call, start + left, length - left))
                self.segments = rest
                return taken
            left -= length
        taken, self.segments = self.segments, []
        return taken

    def _drop_cancelled(self) -> None:
        """A caller that was cancelled before its message was sent gets nothing written."""
        payloads: list[bytes] = []
        segments: list[Segment] = []
        at = 0
        for segment in self.segments:
            count = segment[2] if isinstance(segment, tuple) else 1
            if not _future_of(segment).cancelled():
                payloads += self.payloads[at : at + count]
                segments.append(segment)
            at += count
        self.payloads, self.segments = payloads, segments
        self.size_bytes = sum(map(len, payloads))


class GroupLines:
    """A line for each group with waiting callers, and the groups that have a flush under way."""

    def __init__(self) -> None:
        self._lines: dict[bytes, deque[PendingMessage | Turn]] = {}
        self._free: dict[bytes, None] = {}
        self._busy: set[bytes] = set()
        self.messages = 0

    @property
    def anybody_free(self) -> bool:
        """Whether a group could be flushed now."""
        return bool(self._free)

    def join(self, group: bytes, waiter: PendingMessage | Turn) -> None:
        """Wait in the line of a group."""
        line = self._lines.get(group)
        if line is None:
            line = self._lines[group] = deque()
        line.append(waiter)
        self.messages += isinstance(waiter, PendingMessage)
        if group not in self._busy:
            self._free[group] = None

    def take(self, messages_max: int, bytes_max: int) -> list[PendingMessage]:
        """The heads of the lines of free groups, in their order; their groups are under way from now on.

        A turn that a caller waits for at the head of a line is granted.
        """
        taken: list[PendingMessage] = []
        size = 0
        while self._free and len(taken) < messages_max and size < bytes_max:
            group = next(iter(self._free))
            del self._free[group]
            run = self._take_line(group)
            taken += run
            size += sum(pending.size for pending in run)
        return taken

    def _take_line(self, group: bytes) -> list[PendingMessage]:
        line = self._lines[group]
        run: list[PendingMessage] = []
        size = 0
        while line:
            waiter = line[0]
            if isinstance(waiter, PendingMessage):
                if run and (size + waiter.size > ROW_BYTES_MAX or len(run) == ROW_MESSAGES_MAX):
                    break
                line.popleft()
                self.messages -= 1
                if not waiter.call.future.cancelled():
                    run.append(waiter)
                    size += waiter.size
            elif run:
                break
            else:
                line.popleft()
                if not waiter.done():
                    waiter.set_result(None)
                    self._busy.add(group)
                    return []
        if run:
            self._busy.add(group)
        elif not line:
            del self._lines[group]
        return run

    def release(self, groups: Iterable[bytes]) -> None:
        """A flush of these groups has ended, or a turn was returned."""
        for group in groups:
            self._busy.discard(group)
            if self._lines.get(group):
                self._free[group] = None
            else:
                self._lines.pop(group, None)

    def take_all(self) -> Sequence[PendingMessage | Turn]:
        """All waiting callers; only flushes under way are left."""
        waiting = [waiter for line in self._lines.values() for waiter in line]
        self._lines.clear()
        self._free.clear()
        self.messages = 0
        return waiting
