"""The messages of one producer that wait for the next flush, the callers that wait for their ids, and the bound on
both. It does no I/O and knows no clock.

The plainest messages (no due time, no group) are the majority: they wait as columns of their row, so that one of them
costs no object of its own but the caller's future. Others are pending messages. Of a group one flush is under way at
a time: its messages wait in a line of their own, and a caller that needs a turn of a group waits in that line too.

Invariants: a caller is answered once. A message whose caller has left, or whose time is up, before a flush took it is
never sent; one that a flush took may have been sent.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from headgate.engines.timeline.model.row import ROW_BYTES_MAX, ROW_MESSAGES_MAX, PendingMessage, run_length
from headgate.errors import HeadgateError
from headgate.store.model.deadline import Deadline
from headgate.store.store import NotSent, OutcomeUnknown

WAITING_BYTES_MAX = 64 * 1024 * 1024

Ids = list[str]


# ---- callers


class Call:
    """One put of several messages: done when each has its id, failed when one is not known to be durable. It fails
    with an error by which nothing was done only when nothing was done for any of them."""

    __slots__ = ("_failed", "_ids", "_is_sent", "_left", "deadline", "future")

    def __init__(self, future: asyncio.Future[Ids], count: int, deadline: Deadline | None = None) -> None:
        self.future = future
        self.deadline = deadline
        self._ids = [""] * count
        self._left = count
        self._failed: HeadgateError | None = None
        self._is_sent = bytearray(0 if deadline is None else count)

    def take(self, start: int, ids: Ids) -> None:
        """The ids of some messages, from the `start`-th on."""
        if self.future.done():
            return
        self._ids[start : start + len(ids)] = ids
        self._left -= len(ids)
        if self._failed is not None:
            fail(self.future, _only_some(self._failed))
        elif not self._left:
            self.future.set_result(self._ids)

    def fail(self, error: HeadgateError, start: int, count: int) -> None:
        """These messages are not known to be durable, from the `start`-th on."""
        self._left -= count
        self._failed = self._failed or error
        if isinstance(error, OutcomeUnknown) or any(self._ids):
            fail(self.future, _only_some(error))
        elif self._left <= 0:
            fail(self.future, self._failed)

    def mark_sent(self, start: int, count: int) -> None:
        """A flush has taken these messages: from now on they may be stored."""
        if self._is_sent:
            self._is_sent[start : start + count] = b"\1" * count

    def expire(self) -> None:
        """Its time is up."""
        fail(self.future, outcome_unknown() if any(self._is_sent) else not_sent())


class EachCall(Call):
    """A put of several messages that is done when each has its id or its error; it never fails as a whole."""

    __slots__ = ()

    def fail(self, error: HeadgateError, start: int, count: int) -> None:
        """In the place of its id each of these messages has the error."""
        if self.future.done():
            return
        for index in range(start, start + count):
            if not self._ids[index]:
                self._ids[index] = error  # type: ignore[call-overload]  # read as outcomes by `Producer.put_each`
                self._left -= 1
        if not self._left:
            self.future.set_result(self._ids)

    def expire(self) -> None:
        """Its time is up, for the messages that have no outcome yet."""
        for index, is_sent in enumerate(self._is_sent):
            self.fail(outcome_unknown() if is_sent else not_sent(), index, 1)


def fail(future: asyncio.Future[Any], error: HeadgateError) -> None:
    """Notify one caller, by an error of its own: each adds its own traceback to the error it raises."""
    if not future.done():
        mine = type(error)(error.message, remedy=error.remedy, **error.facts)
        mine.__cause__ = error
        future.set_exception(mine)


def _only_some(error: HeadgateError) -> HeadgateError:
    """What is not known of a whole call, of which some messages failed."""
    if isinstance(error, OutcomeUnknown):
        return error
    return OutcomeUnknown("Only some of the messages may be put", last=error.message)


def not_sent() -> NotSent:
    """The time limit of a caller ended first."""
    return NotSent("The time limit ended before the message was sent", remedy="put it again, or allow more time")


def outcome_unknown() -> OutcomeUnknown:
    """The time limit of a caller ended after its message was sent."""
    return OutcomeUnknown(
        "The time limit ended before the write was answered",
        remedy="put it again with the same once key, or where a second message does no harm",
    )


Owner = asyncio.Future[Ids] | tuple[Call, int, int]
"""The caller of some messages: the future of a put of one message, else (call, the first's index, count)."""

Turn = asyncio.Future[None]
"""Of a group, awaited by a caller that stamps its message itself."""


def has_left(owner: Owner) -> bool:
    """Whether this caller no longer waits."""
    return owner[0].future.done() if type(owner) is tuple else owner.done()  # type: ignore[union-attr]  # a future


def resolve_ids(owners: Iterable[Owner], ids: Ids) -> None:
    """Pass the ids of a row to the waiting callers, in the order of the row."""
    at = 0
    for owner in owners:
        if type(owner) is tuple:
            call, start, count = owner
            call.take(start, ids[at : at + count])
            at += count
        else:
            try:  # noqa: SIM105 - the usual way costs nothing so
                owner.set_result([ids[at]])  # type: ignore[union-attr]  # any other than a tuple is a future
            except asyncio.InvalidStateError:  # its caller was cancelled
                pass
            at += 1


def fail_owners(owners: Iterable[Owner | Turn], error: HeadgateError) -> None:
    """Notify the waiting callers of a row that it is not known to be durable."""
    for owner in owners:
        if isinstance(owner, tuple):
            call, start, count = owner
            call.fail(error, start, count)
        else:
            fail(owner, error)


def mark_sent(owners: Iterable[Owner]) -> list[Deadline | None]:
    """A flush has taken the messages of these callers; the deadlines of the calls among them."""
    deadlines = []
    for call, start, count in [owner for owner in owners if type(owner) is tuple]:
        call.mark_sent(start, count)
        deadlines.append(call.deadline)
    return deadlines


# ---- messages


class PlainRow(NamedTuple):
    """The columns of a row of the plainest messages: attributes of none, or of each. Empty if nobody waits."""

    payloads: list[bytes]
    attributes: list[bytes]
    owners: list[Owner]
    size_bytes: int


class PlainBuffer:
    """The buffer of the plainest messages, as columns: payloads, attributes as they are stored, callers."""

    def __init__(self) -> None:
        self.payloads: list[bytes] = []
        self._attributes: list[bytes] = []
        """Shorter than the payloads, where the last of them have none: then they cost nothing."""
        self._owners: list[Owner] = []
        self.size_bytes = 0

    def add(self, payload: bytes, attributes: bytes, size: int, owner: Owner) -> None:
        """One message of this size."""
        if attributes:
            if len(self._attributes) < len(self.payloads):
                self._fill_up()
            self._attributes.append(attributes)
        self.payloads.append(payload)
        self._owners.append(owner)
        self.size_bytes += size

    def add_all(self, payloads: list[bytes], attributes: list[bytes], size: int, call: Call) -> None:
        """The messages of one call, of this size together; attributes of none, or of each of them."""
        if attributes:
            self._fill_up()
            self._attributes += attributes
        self._owners.append((call, 0, len(payloads)))
        self.payloads += payloads
        self.size_bytes += size

    def _fill_up(self) -> None:
        missing = len(self.payloads) - len(self._attributes)
        if missing:
            self._attributes += [b""] * missing

    @property
    def fills_a_row(self) -> bool:
        """Whether more waits than one row holds."""
        return len(self.payloads) >= ROW_MESSAGES_MAX or self.size_bytes >= ROW_BYTES_MAX

    def take_row(self) -> PlainRow:
        """As much as one row holds, from the front."""
        if any(
            [  # noqa: C419 - half the time
                owner[0].future.done() if type(owner) is tuple else owner.done()  # type: ignore[union-attr]
                for owner in self._owners
            ]
        ):
            self._drop_left()
        if self._attributes:
            self._fill_up()
        if len(self.payloads) <= ROW_MESSAGES_MAX and self.size_bytes <= ROW_BYTES_MAX:
            return self._take_all()
        sizes = [len(payload) for payload in self.payloads[: ROW_MESSAGES_MAX + 1]]
        if self._attributes:
            sizes = [size + len(stored) for size, stored in zip(sizes, self._attributes, strict=False)]
        count = run_length(sizes)
        size = sum(sizes[:count])
        row = PlainRow(self.payloads[:count], self._attributes[:count], self._cut_owners(count), size)
        self.payloads, self._attributes = self.payloads[count:], self._attributes[count:]
        self.size_bytes -= size
        return row

    def take_all_owners(self) -> list[Owner]:
        """All waiting callers; nothing is left."""
        return self._take_all().owners

    def _take_all(self) -> PlainRow:
        row = PlainRow(self.payloads, self._attributes, self._owners, self.size_bytes)
        self.payloads, self._attributes, self._owners, self.size_bytes = [], [], [], 0
        return row

    def _cut_owners(self, count: int) -> list[Owner]:
        left = count
        for place, owner in enumerate(self._owners):
            length = owner[2] if isinstance(owner, tuple) else 1
            if length >= left:
                taken = self._owners[: place + 1]
                rest = self._owners[place + 1 :]
                if length > left and isinstance(owner, tuple):
                    call, start, _ = owner
                    taken[-1] = (call, start, left)
                    rest.insert(0, (call, start + left, length - left))
                self._owners = rest
                return taken
            left -= length
        taken, self._owners = self._owners, []
        return taken

    def _drop_left(self) -> None:
        """A caller that left before its message was sent gets nothing written."""
        self._fill_up()
        payloads: list[bytes] = []
        attributes: list[bytes] = []
        owners: list[Owner] = []
        at = 0
        for owner in self._owners:
            count = owner[2] if isinstance(owner, tuple) else 1
            if not has_left(owner):
                payloads += self.payloads[at : at + count]
                attributes += self._attributes[at : at + count]
                owners.append(owner)
            at += count
        self.payloads, self._attributes, self._owners = payloads, attributes, owners
        self.size_bytes = sum(map(len, payloads)) + sum(map(len, attributes))


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

    def take(self, messages_max: int, bytes_max: int) -> tuple[list[PendingMessage], int]:
        """The heads of the lines of free groups, in their order; their groups are under way from now on. And the
        bytes that left the lines with them, those of callers that left included.

        A turn that a caller waits for at the head of a line is granted.
        """
        taken: list[PendingMessage] = []
        size = 0
        while self._free and len(taken) < messages_max and size < bytes_max:
            group = next(iter(self._free))
            del self._free[group]
            run, run_bytes = self._take_line(group)
            taken += run
            size += run_bytes
        return taken, size

    def _take_line(self, group: bytes) -> tuple[list[PendingMessage], int]:
        line = self._lines[group]
        run: list[PendingMessage] = []
        size = left_bytes = 0
        while line:
            waiter = line[0]
            if isinstance(waiter, PendingMessage):
                if run and (size + waiter.size > ROW_BYTES_MAX or len(run) == ROW_MESSAGES_MAX):
                    break
                line.popleft()
                self.messages -= 1
                if has_left(waiter.owner):
                    left_bytes += waiter.size
                else:
                    run.append(waiter)
                    size += waiter.size
            elif run:
                break
            else:
                line.popleft()
                if not waiter.done():
                    waiter.set_result(None)
                    self._busy.add(group)
                    return [], left_bytes
        if run:
            self._busy.add(group)
        elif not line:
            del self._lines[group]
        return run, size + left_bytes

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


class PutBuffer:
    """All messages of one producer that were not sent yet. Callers wait while it is full."""

    def __init__(self) -> None:
        self.plain = PlainBuffer()
        self.pending: deque[PendingMessage] = deque()
        self.groups = GroupLines()
        self.pending_bytes = 0
        self.bytes_max = WAITING_BYTES_MAX
        self.callers_waiting: deque[asyncio.Future[None]] = deque()

    @property
    def is_empty(self) -> bool:
        """Whether no message waits."""
        return not (self.plain.payloads or self.pending or self.groups.messages)

    @property
    def is_full(self) -> bool:
        """Whether a caller has to wait for space."""
        return bool(self.callers_waiting) or not self._has_space

    def add(self, messages: Iterable[PendingMessage]) -> None:
        """Messages join their buffer; those of a group its line."""
        for pending in messages:
            self.pending_bytes += pending.size
            if pending.group is None:
                self.pending.append(pending)
            else:
                self.groups.join(pending.group, pending)

    def take_pending(self, count_max: int) -> list[PendingMessage]:
        """Messages without a group whose callers still wait, from the front."""
        taken: list[PendingMessage] = []
        while self.pending and len(taken) < count_max:
            pending = self.pending.popleft()
            self.pending_bytes -= pending.size
            if not has_left(pending.owner):
                taken.append(pending)
        return taken

    def take_groups(self, messages_max: int, bytes_max: int) -> list[PendingMessage]:
        """Messages of free groups."""
        taken, size = self.groups.take(messages_max, bytes_max)
        self.pending_bytes -= size
        return taken

    def take_all_owners(self) -> list[Owner | Turn]:
        """All waiting callers; nothing is left."""
        waiting = (*self.pending, *self.groups.take_all())
        self.pending.clear()
        self.pending_bytes = 0
        others = [each.owner if isinstance(each, PendingMessage) else each for each in waiting]
        return [*self.plain.take_all_owners(), *others]

    async def wait_for_space(self, deadline: Deadline | None) -> None:
        """Too many messages wait: wait in order of arrival, until there is space. NotSent if the time ends first."""
        try:
            async with asyncio.timeout_at(None if deadline is None else deadline.at_s):
                while self.is_full:
                    turn = asyncio.get_running_loop().create_future()
                    self.callers_waiting.append(turn)
                    try:
                        await turn
                    except asyncio.CancelledError:
                        self.release_callers()
                        raise
                    if self._has_space:
                        break
        except TimeoutError:
            raise not_sent() from None
        self.release_callers()

    @property
    def _has_space(self) -> bool:
        return self.plain.size_bytes + self.pending_bytes < self.bytes_max

    def release_callers(self) -> None:
        """The buffer may have become emptier: the first waiting caller may continue."""
        while self.callers_waiting and (self.callers_waiting[0].done() or self._has_space):
            turn = self.callers_waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return
