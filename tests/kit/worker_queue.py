"""The engine in memory as a worker sees a queue, with faults on demand: for tests of the worker runtime.

The time is the event loop's. Faults: `break_receive`, `settle_as`, `lose`.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from uuid import UUID

from headgate.engines.contract import Delivery, MessageState, NewMessage, Settle, Settled
from headgate.engines.memory.engine import MemoryQueue
from headgate.engines.memory.lane import MemoryLane
from headgate.engines.memory.server import MemoryServer
from headgate.engines.memory.settings import DAY_US, SECOND_US, MemorySettings
from headgate.errors import HeadgateError
from headgate.runtime.worker.worker_queue import LeaseStatus
from headgate.store.clock.clock import ClockFigures
from headgate.store.model.deadline import Deadline


@dataclass(frozen=True)
class DeadLetter:
    """A message in the dead-letter queue."""

    message_id: str
    payload: bytes
    reason: str
    attempts: int


@dataclass
class FaultyQueue:
    """One `WorkerQueue`. To be used on one event loop."""

    name: str = "test/queue"
    visibility_us: int = 30 * SECOND_US
    max_receives: int | None = 5
    """None: there is no dead-letter queue."""
    stops: int = 0
    sharers: int = 1
    unreadable_rows: int = 0
    dead_loop_reasons: list[str] = field(default_factory=list)
    deliveries: list[Delivery] = field(default_factory=list)
    settles: list[Settle] = field(default_factory=list)
    """Those that were honoured."""
    closed: bool = False
    left: bool = False
    break_receive: list[HeadgateError] = field(default_factory=list)
    """Raised by the next receives, one each."""
    settle_as: list[Settled | HeadgateError] = field(default_factory=list)
    """The outcomes of the next calls of settle, for any messages."""
    _watchers: list[asyncio.Future[None]] = field(default_factory=list)

    @cached_property
    def _server(self) -> MemoryServer:
        return MemoryServer(self.now_us)

    @cached_property
    def engine(self) -> MemoryQueue:
        """The queue without faults."""
        dead = None if self.max_receives is None else self._settings(2)
        return MemoryQueue(self._server, self._settings(1), name="test", dead_letters=dead)

    def _settings(self, number: int) -> MemorySettings:
        return MemorySettings(
            UUID(int=number),
            self.name,
            visibility_us=self.visibility_us,
            delay_us=0,
            max_receives=self.max_receives or 1,
            message_bytes_max=1024 * 1024,
            retention_us=14 * DAY_US,
            once_window_us=DAY_US,
            skew_us=0,
        )

    def _lane(self, number: int = 1) -> MemoryLane:
        assert self.engine
        return self._server.lane(self._settings(number))

    # ---- as a worker sees it

    async def receive(self, limit: int, *, visibility_us: int | None = None, wait_us: int = 0) -> list[Delivery]:
        """From the engine."""
        if self.break_receive:
            raise self.break_receive.pop(0)
        deliveries = await self.engine.receive(limit, visibility_us=visibility_us, wait_us=wait_us)
        self.deliveries += deliveries
        self._notify()
        return deliveries

    async def settle(self, settles: Sequence[Settle]) -> list[Settled]:
        """By the engine, or as the test wants it."""
        self._notify()
        if self.settle_as:
            await asyncio.sleep(0)
            outcome = self.settle_as.pop(0)
            if isinstance(outcome, HeadgateError):
                raise outcome
            return [outcome] * len(settles)
        outcomes = await self.engine.settle(settles)
        self.settles += [each for each, outcome in zip(settles, outcomes, strict=True) if outcome is Settled.DONE]
        return outcomes

    def dead_loops(self) -> list[str]:
        """As the test sets it: this queue has no loops."""
        return self.dead_loop_reasons

    def leases(self) -> Sequence[LeaseStatus]:
        """One lane, renewed just now."""
        return [LeaseStatus("1/0", 0.0, 1)]

    def clock(self) -> ClockFigures | None:
        """That of one node, which is a little ahead."""
        return ClockFigures(True, {"127.0.0.1": 1_000}, {"127.0.0.1": 500}, (), 250_000, 0, 0)

    async def leave(self) -> None:
        """Noted."""
        self.left = True

    async def close(self) -> None:
        """Noted."""
        self.closed = True

    # ---- for tests

    def now_us(self) -> int:
        """By the event loop's clock."""
        return round(asyncio.get_running_loop().time() * SECOND_US)

    def put_now(self, message: NewMessage | bytes, *, suspect: bool = False, attempts: int = 0) -> str:
        """Put one message; as a crash suspect, or tried before, if a test needs that."""
        lane = self._lane()
        with self._server.step() as now_us:
            new = message if isinstance(message, NewMessage) else NewMessage(message)
            (message_id,) = lane.put([new], now_us)
            lane.messages[message_id].attempt = attempts
            if suspect:
                lane.messages[message_id].level = 1
                lane.suspects.add(message_id)
        return message_id

    async def put(self, messages: Sequence[NewMessage], *, deadline: Deadline | None = None) -> list[str]:
        """As the engine does."""
        return await self.engine.put(messages, deadline=deadline)

    async def put_each(
        self, messages: Sequence[NewMessage], *, deadline: Deadline | None = None
    ) -> list[str | HeadgateError]:
        """By `put`, one after the other."""
        outcomes: list[str | HeadgateError] = []
        for message in messages:
            try:
                outcomes += await self.put([message], deadline=deadline)
            except HeadgateError as error:
                outcomes.append(error)
        return outcomes

    def message_of(self, receipt: str) -> str:
        """The id of the message that was delivered with this receipt."""
        return next(each.message_id for each in self.deliveries if each.receipt == receipt)

    def lose(self, message_id: str) -> None:
        """Its lane has another owner now: the open receipt is stale, and no receiver of this process gets it
        again."""
        lane = self._lane()
        with self._server.step() as now_us:
            lane.end(lane.messages[message_id], MessageState.PURGED, now_us)

    @property
    def live(self) -> int:
        """The number of messages that are not settled."""
        return len(self._lane().messages)

    @property
    def dead(self) -> list[DeadLetter]:
        """The contents of the dead-letter queue."""
        return [
            DeadLetter(
                each.id,
                each.payload,
                str(each.attributes["headgate.dead.reason"]),
                int(each.attributes["headgate.dead.attempts"]),
            )
            for each in self._lane(2).messages.values()
        ]

    def is_settled(self, message_id: str) -> bool:
        """Acknowledged, dead-lettered, cancelled or lost."""
        return message_id not in self._lane().messages

    def attempts_of(self, message_id: str) -> int:
        """The number of receives that are charged to a live message."""
        return self._lane().messages[message_id].attempt

    async def next_event(self) -> None:
        """Until something is received or settled; half a second at most."""
        waiter = asyncio.get_running_loop().create_future()
        self._watchers.append(waiter)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(waiter, 0.5)

    def _notify(self) -> None:
        watchers, self._watchers = self._watchers, []
        for each in watchers:
            if not each.done():
                each.set_result(None)
