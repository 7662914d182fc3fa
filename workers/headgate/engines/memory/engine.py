"""A queue in memory for one connection: the engines' contract over the lane that all connections share."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from headgate.engines.context import KnownQueue
from headgate.engines.contract import (
    Cancelled,
    Delivery,
    Engine,
    LaneHolding,
    MessageLocation,
    NewMessage,
    Ownership,
    Peeked,
    Settle,
    Settled,
    Stats,
)
from headgate.engines.memory.server import MemoryServer
from headgate.engines.memory.settings import SECOND_US, MemorySettings
from headgate.errors import HeadgateError, OperationRefused
from headgate.store.model.deadline import Deadline
from headgate.store.store import NotSent


class MemoryQueue(Engine):
    """One queue, for one connection, which is a consumer from its first receive on."""

    def __init__(
        self, server: MemoryServer, settings: MemorySettings, *, name: str, dead_letters: MemorySettings | None = None
    ) -> None:
        self._server = server
        self._name = name
        self._epoch = 0
        self._closed = self._leaving = False
        with server.step():
            self._lane = server.lane(settings)
            self._lane.change_dead_letters(None if dead_letters is None else server.lane(dead_letters))

    @property
    def settings(self) -> MemorySettings:
        """Those of all connections."""
        return self._lane.settings

    def now_us(self) -> int:
        """The time of the address."""
        return self._server.now_us()

    # ---- life

    def settings_changed(self, settings: MemorySettings, *, read_us: int) -> None:
        """The result of a read of the catalogue, which is never out of date here."""
        with self._server.step():
            self._lane.change(settings)

    def dead_letters_changed(self, known: KnownQueue | None) -> None:
        """The same for the dead-letter queue."""
        with self._server.step():
            self._lane.change_dead_letters(None if known is None else self._server.lane(known.settings))

    async def leave(self) -> None:
        """Receivers stop waiting, and get nothing more. Messages in flight can be settled."""
        with self._server.step():
            self._leaving = True

    async def close(self) -> None:
        """Receivers stop waiting. Receipts are stale; messages in flight stay hidden as promised."""
        self._end()

    def crash(self) -> None:
        """End it as kill -9 ends a process: messages in flight are crash suspects when they are visible again."""
        self._end(crashed=True)

    def _end(self, *, crashed: bool = False) -> None:
        self._closed = self._leaving = True
        with self._server.step():
            self._lane.remove_consumer(self._epoch, crashed=crashed)
            self._epoch = 0

    # ---- putting

    async def put(self, messages: Sequence[NewMessage], *, deadline: Deadline | None = None) -> list[str]:
        """All of them, or none."""
        self._require_open()
        await asyncio.sleep(0)
        if deadline is not None and deadline.is_over(asyncio.get_running_loop().time()):
            raise self._not_sent()
        with self._server.step() as now_us:
            for message in messages:
                self._lane.check(message, now_us)
            return self._lane.put(messages, now_us)

    async def put_each(
        self, messages: Sequence[NewMessage], *, deadline: Deadline | None = None
    ) -> list[str | HeadgateError]:
        """Each for itself."""
        self._require_open()
        await asyncio.sleep(0)
        if deadline is not None and deadline.is_over(asyncio.get_running_loop().time()):
            return [self._not_sent() for _ in messages]
        with self._server.step() as now_us:
            refusals = [self._refusal(message, now_us) for message in messages]
            fit = [message for message, refusal in zip(messages, refusals, strict=True) if refusal is None]
            ids = iter(self._lane.put(fit, now_us))
            return [next(ids) if refusal is None else refusal for refusal in refusals]

    def _not_sent(self) -> NotSent:
        remedy = "put it again, or allow more time"
        return NotSent("The time limit ended before the message was sent", remedy=remedy, queue=self.settings.name)

    def _refusal(self, message: NewMessage, now_us: int) -> HeadgateError | None:
        try:
            self._lane.check(message, now_us)
        except HeadgateError as error:
            return error
        return None

    def _require_open(self) -> None:
        if self._closed:
            raise OperationRefused("The producer is closed", queue=self.settings.name)

    async def cancel(self, message_id: str) -> Cancelled:
        """Never deliver it, if it is not due soon."""
        with self._server.step() as now_us:
            return self._lane.cancel(message_id, now_us)

    async def reschedule(self, message_id: str, due_us: int) -> tuple[Cancelled, str | None]:
        """Deliver it at another time, under another id."""
        with self._server.step() as now_us:
            return self._lane.reschedule(message_id, due_us, now_us)

    # ---- receiving

    async def receive(self, limit: int, *, visibility_us: int | None = None, wait_us: int = 0) -> list[Delivery]:
        """Up to `limit` messages; waits at most `wait_us` for the first."""
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + wait_us / SECOND_US
        await asyncio.sleep(0)  # a receiver that calls again at once also yields to others
        with self._server.receiver() as changed:
            while True:
                changed.clear()
                deliveries = self._receive_now(limit, visibility_us)
                left_s = deadline_s - loop.time()
                if deliveries or self._leaving or left_s <= 0:
                    return deliveries
                await self._server.wait(changed, left_s)

    def _receive_now(self, limit: int, visibility_us: int | None) -> list[Delivery]:
        with self._server.step(changes=False) as now_us:
            if self._leaving:
                return []
            self._epoch = self._epoch or self._lane.add_consumer(self._name)
            return self._lane.hand_out(
                limit,
                visibility_us=self.settings.visibility_us if visibility_us is None else visibility_us,
                now_us=now_us,
                epoch=self._epoch,
            )

    async def settle(self, settles: Sequence[Settle]) -> list[Settled]:
        """Each for itself, in order."""
        await asyncio.sleep(0)
        with self._server.step() as now_us:
            return self._lane.settle(settles, epoch=self._epoch, now_us=now_us)

    # ---- reading, and the whole queue

    async def peek(self, limit: int, *, from_us: int | None = None) -> list[Peeked]:
        """Live messages in their order, without taking them."""
        with self._server.step(changes=False) as now_us:
            return self._lane.peek(limit, from_us, now_us)

    async def where(self, message_id: str) -> MessageLocation:
        """The state of a message."""
        with self._server.step(changes=False):
            return self._lane.locate(message_id)

    async def stats(self) -> Stats:
        """The contents of the queue."""
        with self._server.step(changes=False) as now_us:
            return self._lane.count(now_us, epoch=self._epoch)

    def ownership(self) -> Ownership:
        """One lane, which all consumers share."""
        holdings = (LaneHolding("1/0", self._epoch, self.now_us()),) if self._epoch else ()
        return Ownership(holdings, sharers=max(1, len(self._lane.consumers)))

    async def purge(self, before_us: int | None = None) -> int:
        """End all messages put before that time, or before now; returns that time."""
        with self._server.step() as now_us:
            return self._lane.purge(before_us, now_us)
