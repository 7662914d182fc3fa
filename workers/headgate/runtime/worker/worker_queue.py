"""A queue of the SDK as the worker uses it: the engine's contract, and a few facts about lanes and health.

Its lanes are those that the queue's engine shares with the other members (docs/internals/protocols/balance.md). Tests
bring one of their own with the same calls (`tests/kit/worker_queue.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headgate.engines.contract import Delivery, Settle, Settled
from headgate.errors import Unavailable
from headgate.expiry import SECOND_US
from headgate.store.clock.clock import ClockFigures

if TYPE_CHECKING:  # the SDK is imported once the queue is opened: it may bring the driver
    from headgate.client.connection import Headgate
    from headgate.client.queue import Queue


@dataclass(frozen=True, slots=True)
class LeaseStatus:
    lane: str
    age_s: float
    """Since the last renewal that counts was sent."""
    epoch: int


class WorkerQueue:
    def __init__(self, connection: Headgate, queue: Queue, *, visibility_us: int | None = None) -> None:
        self.name = queue.name
        self._connection = connection
        self._queue = queue
        settings = queue.engine.settings
        self.visibility_us = visibility_us or settings.visibility_us
        """How long a received message is hidden by default."""
        if settings.free_visibility_us is not None:
            # Extending it needs no record while the message is in flight. If this process dies, the message is
            # visible earlier than 30 s later.
            self.visibility_us = min(self.visibility_us, max(settings.free_visibility_us, SECOND_US))

    @property
    def max_receives(self) -> int | None:
        """The maximum number of receives before a dead letter; None without a dead-letter queue."""
        settings = self._queue.engine.settings
        return settings.max_receives if settings.dead_letter is not None else None

    @property
    def stops(self) -> int:
        """How many lanes had to be taken from this process: their loop made no turn, or they were another's."""
        return self._queue.engine.ownership().stops

    @property
    def unreadable_rows(self) -> int:
        """How many rows of its lanes were set aside."""
        return self._queue.engine.ownership().unreadable_rows

    def dead_loops(self) -> Sequence[str]:
        """Why background loops of lanes, members, catalogue and clock do nothing any more; none while all run."""
        return [*self._queue.engine.ownership().dead_loops, *self._connection.dead_loops()]

    @property
    def sharers(self) -> int:
        """Among how many processes its lanes are shared, this one too; at least one."""
        return self._queue.engine.ownership().sharers

    async def receive(self, limit: int, *, visibility_us: int, wait_us: int) -> list[Delivery]:
        return await self._queue.receive_deliveries(limit, visibility_us=visibility_us, wait_us=wait_us)

    async def settle(self, settles: Sequence[Settle]) -> list[Settled]:
        return await self._queue.settle(settles)

    def leases(self) -> Sequence[LeaseStatus]:
        try:
            now_us = self._connection.now_us()
        except Unavailable:
            return []
        return [
            LeaseStatus(each.lane, (now_us - each.renewed_us) / SECOND_US, each.epoch)
            for each in self._queue.engine.ownership().holdings
        ]

    def clock(self) -> ClockFigures | None:
        """The measured offset of the nodes' clocks from this one; None without nodes."""
        return self._connection.process_context.clock.figures()

    async def leave(self) -> None:
        """Acquire no more lanes, and hand each lane over as soon as nothing of it is open; open messages can still be
        settled."""
        await self._queue.engine.leave()

    async def close(self) -> None:
        await self._connection.close()
