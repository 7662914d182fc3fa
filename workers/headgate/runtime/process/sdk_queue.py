"""An SDK queue, adapted to the interface of the worker runtime.

Its lanes are those that the queue's engine shares with the other members (docs/internals/protocols/balance.md).
"""

from __future__ import annotations

from collections.abc import Sequence

from headgate.client.connection import Headgate
from headgate.client.queue import Queue
from headgate.engines.contract import Delivery, Settle, Settled
from headgate.errors import Unavailable
from headgate.expiry import SECOND_US
from headgate.runtime.worker.port import LeaseStatus
from headgate.store.clock.clock import ClockFigures


class ClientQueue:
    def __init__(self, connection: Headgate, queue: Queue, *, visibility_us: int | None = None) -> None:
        self.name = queue.name
        self._connection = connection
        self._queue = queue
        settings = queue.engine.settings
        self.visibility_us = visibility_us or settings.visibility_us
        if settings.free_visibility_us is not None:
            # It needs no record before delivery, and is extended while the message is in flight. If this process
            # dies, the end of the lease makes the message visible earlier than 30 s would.
            self.visibility_us = min(self.visibility_us, max(settings.free_visibility_us, SECOND_US))
        # In a child, or behind a URL: no suspect runs in this process (docs/decisions/0007).
        queue.engine.isolate_suspects()

    @property
    def max_receives(self) -> int | None:
        settings = self._queue.engine.settings
        return settings.max_receives if settings.dead_letter is not None else None

    @property
    def stops(self) -> int:
        return self._queue.engine.ownership().stops

    def dead_loops(self) -> Sequence[str]:
        return [*self._queue.engine.ownership().dead_loops, *self._connection.dead_loops()]

    @property
    def sharers(self) -> int:
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
        return self._connection.process_context.clock.figures()

    async def leave(self) -> None:
        await self._queue.engine.leave()

    async def close(self) -> None:
        await self._connection.close()
