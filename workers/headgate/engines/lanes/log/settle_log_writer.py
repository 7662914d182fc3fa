"""Makes the facts of a lane's books durable: facts that arrive during one write share the next.

A flush is confirmed only if its write was acknowledged while the lease held (rule R2): the next owner has read the
record by then, or will. It knows no engine and decides nothing else.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from headgate.engines.lanes.delivery.delivery_state import DeliveryState, PendingFacts
from headgate.engines.lanes.log.settle_log import Record
from headgate.engines.lanes.source import LaneSource
from headgate.store.store import STORE_ERRORS

RETRY_PAUSE_S = 0.1


class Recorder:
    """The one writer of a lease term's settle log."""

    def __init__(
        self, delivery_state: DeliveryState, source: LaneSource, record: Record[Any], *, may_act: Callable[[], bool]
    ) -> None:
        self.delivery_state = delivery_state
        self.source = source
        self.record = record
        self.failed_writes = 0
        self._may_act = may_act
        self._wanted = asyncio.Event()
        self._waiting: list[asyncio.Future[bool]] = []

    def wake(self) -> None:
        """There are facts that will be needed durable, but no caller waits for them."""
        self._wanted.set()

    async def flush(self) -> bool:
        """Wait until all current facts of the books are durable; False when that is not known."""
        return await self.request_flush()

    def request_flush(self) -> asyncio.Future[bool]:
        """The result of `flush`, for a caller that waits for several."""
        waiter: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._waiting.append(waiter)
        self._wanted.set()
        return waiter

    async def run(self) -> None:
        """Write, one at a time, until cancelled; callers that still wait then get an unknown outcome."""
        try:
            while True:
                await self._wanted.wait()
                self._wanted.clear()
                while self._waiting or self.delivery_state.has_pending_facts():
                    await self._write_once()
        finally:
            self._resolve(self._waiting, False)

    async def _write_once(self) -> None:
        waiting, self._waiting = self._waiting, []
        pending_facts = self.delivery_state.take_pending_facts()
        try:
            await self._write(pending_facts)
        except STORE_ERRORS:
            await self._not_known(pending_facts, waiting)
        except BaseException:
            self._resolve(waiting, False)
            raise
        else:
            if self._may_act():
                self.delivery_state.durable(pending_facts)
                self._resolve(waiting, True)
            else:
                await self._not_known(pending_facts, waiting)

    async def _not_known(self, pending_facts: PendingFacts, waiting: list[asyncio.Future[bool]]) -> None:
        """To be written again: also a lease that does not hold now may, where it was the clock that was in doubt."""
        self.failed_writes += 1
        self.delivery_state.give_back(pending_facts)
        self._resolve(waiting, False)
        await asyncio.sleep(RETRY_PAUSE_S)

    async def _write(self, pending_facts: PendingFacts) -> None:
        pieces = self.record.add(pending_facts.by_row())
        if pieces:
            await self.source.write_record(pieces)

    @staticmethod
    def _resolve(waiting: list[asyncio.Future[bool]], durable: bool) -> None:
        for waiter in waiting:
            if not waiter.done():
                waiter.set_result(durable)
