"""Puts messages into a timeline queue: checks them, buffers them for the next flush, answers when they are durable.
The prose is "Put" in docs/internals/protocols/timeline.md; flushes.py decides the times of flushes.

Invariants: a caller is answered once, with ids of durable messages or with an error; a message that cannot be kept is
rejected before anything is written; the buffers are bounded, and callers wait while they are full.
"""

from __future__ import annotations

import asyncio
import base64
import json
from collections import deque
from collections.abc import Sequence

from headgate.engines.context import Host
from headgate.engines.contract import Attributes, NewMessage
from headgate.engines.timeline.model.decide_flush import PendingMessage
from headgate.engines.timeline.model.layout import ttl_s_of
from headgate.engines.timeline.model.settings import TimelineSettings
from headgate.engines.timeline.put.group_commit import Flushes
from headgate.engines.timeline.put.row_sender import Sender
from headgate.engines.timeline.put.waiting import Call, EachCall, Ids
from headgate.errors import HeadgateError, InvalidRequest, OperationRefused

WAITING_BYTES_MAX = 64 * 1024 * 1024


class Producer:
    """The putting side of one queue in one process."""

    def __init__(self, host: Host, settings: TimelineSettings, *, read_us: int, summary: Host | None = None) -> None:
        self.sender = Sender(host, settings, read_us=read_us, summary=summary)
        self._flushes = Flushes(self.sender, after=self._release_senders)
        self._plain = self._flushes.plain
        self._create_future = asyncio.get_running_loop().create_future
        self._senders_waiting: deque[asyncio.Future[None]] = deque()
        self._closed = False
        self._set_limits(settings)

    def _set_limits(self, settings: TimelineSettings) -> None:
        self._at_once = settings.delay_us == 0
        self._takes_alone = self._at_once and not self._closed
        self._bytes_max = settings.message_bytes_max

    def settings_changed(self, settings: TimelineSettings, *, read_us: int) -> None:
        """The result of a read of the catalogue, and its start; called at every read."""
        self.sender.settings_changed(settings, read_us=read_us)
        self._set_limits(settings)
        self._flushes.soon()

    async def put(self, messages: Sequence[NewMessage]) -> Ids:
        """The ids of these messages, durable by then. Once keys are `put/once.py`'s."""
        await self._enter()
        alone = self.put_alone(messages[0]) if len(messages) == 1 else None
        return await (self._put_several(messages, Call) if alone is None else alone)

    async def put_each(self, messages: Sequence[NewMessage]) -> list[str | HeadgateError]:
        """As `put`, for messages without once keys: in the order of the messages each one's id, or its error.
        InvalidRequest if one cannot be kept; then nothing was written."""
        await self._enter()
        return await self._put_several(messages, EachCall)  # type: ignore[return-value]  # an EachCall has errors too

    def find_refusals(self, messages: Sequence[NewMessage]) -> dict[int, HeadgateError]:
        """The messages that cannot be kept, by their index, each with the reason."""
        refusals: dict[int, HeadgateError] = {}
        for index, message in enumerate(messages):
            try:
                self.check([message])
            except InvalidRequest as refusal:
                refusals[index] = refusal
        return refusals

    async def _enter(self) -> None:
        """Refuse after the end, and wait for capacity."""
        if self._closed:
            raise OperationRefused("The producer is closed", queue=self.sender.settings.name)
        if self._senders_waiting or self._flushes.waiting_bytes >= WAITING_BYTES_MAX:
            await self._wait_for_space()

    def put_alone(self, message: NewMessage) -> asyncio.Future[Ids] | None:
        """The hot path: a single message that has nothing but a due time, with its waiting caller. None if it is of
        another kind or cannot be kept, or if there is no capacity or no trusted time now; then nothing was done, and
        `put` reports the reason."""
        plain, flushes = self._plain, self._flushes
        if (
            message.group is not None
            or message.once is not None
            or message.attributes
            or not self._takes_alone
            or self._senders_waiting
            or plain.size_bytes + flushes.pending_bytes >= WAITING_BYTES_MAX
        ):
            return None
        payload = message.payload
        size = len(payload)
        due_us = message.due_us
        if size > self._bytes_max or (due_us is not None and not self._may_be_due(due_us)):
            return None
        future: asyncio.Future[Ids] = self._create_future()
        if due_us is None:
            plain.payloads.append(payload)
            plain.segments.append(future)
            plain.size_bytes += size
        else:
            flushes.wait([PendingMessage(payload, due_us, b"", None, Call(future, 1), 0)])
        if not flushes.is_flush_due:
            flushes.soon()
        return future

    def _may_be_due(self, due_us: int) -> bool:
        try:
            now_us = self.sender.host.now_us()
            if due_us > now_us:
                self.check_keepable(due_us, now_us)
        except HeadgateError:
            return False
        return True

    async def _put_several(self, messages: Sequence[NewMessage], kind: type[Call]) -> Ids:
        if not messages:
            return []
        call = kind(self._create_future(), len(messages))
        if self._at_once and not any(
            [message.due_us is not None or message.group is not None or message.attributes for message in messages]  # noqa: C419 - half the time
        ):
            self._wait_plain(call, [message.payload for message in messages])
        else:
            self._flushes.wait(self._pending_messages(messages, call))
        self._flushes.soon()
        return await call.future

    def _wait_plain(self, call: Call, payloads: list[bytes]) -> None:
        sizes = [len(payload) for payload in payloads]
        if max(sizes) > self._bytes_max:
            raise _too_large(max(sizes), self._bytes_max)
        self._plain.payloads += payloads
        self._plain.segments.append((call, 0, len(payloads)))
        self._plain.size_bytes += sum(sizes)

    def _pending_messages(self, messages: Sequence[NewMessage], call: Call) -> list[PendingMessage]:
        """Messages in their pending form, checked: one that cannot be kept is rejected before anything is written."""
        now_us = self.sender.host.now_us()
        delay_us = self.sender.settings.delay_us
        delayed_us = now_us + delay_us if delay_us else None
        pending_messages = []
        last_us = now_us
        for index, message in enumerate(messages):
            due_us = delayed_us if message.due_us is None else message.due_us
            if due_us is not None and due_us > last_us:
                last_us = due_us
            attributes = attribute_bytes(message.attributes) if message.attributes else b""
            group = None if message.group is None else message.group.encode()
            pending = PendingMessage(message.payload, due_us, attributes, group, call, index)
            if pending.size > self._bytes_max:
                raise _too_large(pending.size, self._bytes_max)
            pending_messages.append(pending)
        if last_us > now_us:
            self.check_keepable(last_us, now_us)
        return pending_messages

    def check(self, messages: Sequence[NewMessage]) -> None:
        """Refuse what could not be kept, before anything is written."""
        self._pending_messages(messages, Call(self._create_future(), len(messages)))

    def check_keepable(self, due_us: int, now_us: int) -> None:
        """Reject a message that the store cannot keep until it is due and for the queue's retention."""
        host = self.sender.host
        ttl_s_of(
            due_us,
            now_us=now_us,
            retention_us=self.sender.settings.retention_us,
            last_expiry_s=host.last_expiry_s,
        )

    # ---- backpressure

    async def _wait_for_space(self) -> None:
        """Too many messages are pending: wait in order of arrival, until there is capacity."""
        while self._senders_waiting or self._flushes.waiting_bytes >= WAITING_BYTES_MAX:
            turn: asyncio.Future[None] = self._create_future()
            self._senders_waiting.append(turn)
            try:
                await turn
            except asyncio.CancelledError:
                self._release_senders()
                raise
            if self._flushes.waiting_bytes < WAITING_BYTES_MAX:
                break
        self._release_senders()

    def _release_senders(self) -> None:
        while self._senders_waiting and (
            self._senders_waiting[0].done() or self._flushes.waiting_bytes < WAITING_BYTES_MAX
        ):
            turn = self._senders_waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return

    # ---- turns of groups, for once keys

    async def take_turns(self, groups: Sequence[bytes]) -> None:
        """Wait until these groups have nothing under way, and hold them: in one order, so none waits forever."""
        held: list[bytes] = []
        try:
            for group in sorted(set(groups)):
                turn: asyncio.Future[None] = self._create_future()
                self._flushes.groups.join(group, turn)
                self._flushes.soon()
                try:
                    await turn
                except asyncio.CancelledError:
                    if turn.done() and not turn.cancelled():
                        held.append(group)
                    raise
                held.append(group)
        except BaseException:
            self.give_turns_back(held)
            raise

    def give_turns_back(self, groups: Sequence[bytes]) -> None:
        """Let others continue with these groups."""
        self._flushes.groups.release(set(groups))
        self._flushes.soon()

    # ---- the end

    async def close(self) -> None:
        """Take nothing more, write pending messages, and wait for those in flight."""
        self._closed, self._takes_alone = True, False
        await self._flushes.drain()
        await self.sender.close()


def _too_large(size: int, size_max: int) -> InvalidRequest:
    return InvalidRequest(
        "A message is too large",
        remedy="raise maxMessageSize, or store the payload elsewhere",
        size=size,
        size_max=size_max,
    )


def attribute_bytes(attributes: Attributes) -> bytes:
    """Attributes as they are stored: docs/internals/formats.md."""
    if not attributes:
        return b""
    stored = {
        name: value if isinstance(value, str) else {"binary": base64.b64encode(value).decode()}
        for name, value in attributes.items()
    }
    return _json(stored).encode()


_json = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
