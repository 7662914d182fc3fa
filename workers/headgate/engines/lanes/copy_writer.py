"""Writes the copies that a lane's books request: retries with a long backoff, and dead letters.

A copy's place is fixed, and durable as such, before the copy is written; only then is the original settled (rule R7).
So if the process dies in between, it leaves a place at which the next owner writes the same copy once more, and no
second one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from headgate.engines.lanes.delivery.delivery_state import DeliveryState
from headgate.engines.lanes.delivery.rows import Move
from headgate.engines.lanes.log.settle_log_writer import Recorder
from headgate.engines.lanes.source import LaneSource
from headgate.store.store import STORE_ERRORS

COPIES_AT_ONCE = 64
RETRY_PAUSE_S = 0.4


class Copier:
    """The copies of one lease term."""

    def __init__(
        self,
        delivery_state: DeliveryState,
        source: LaneSource,
        recorder: Recorder,
        *,
        wait: Callable[[], Awaitable[None]],
    ) -> None:
        self._delivery_state = delivery_state
        self._source = source
        self._recorder = recorder
        self._wait = wait

    async def run(self) -> None:
        """See to copies as they come, until cancelled."""
        while True:
            moves = self._delivery_state.take_moves()
            if not moves:
                await self._wait()
            elif await self._fix(moves):
                done = True
                for start in range(0, len(moves), COPIES_AT_ONCE):
                    done &= all(await asyncio.gather(*map(self._write, moves[start : start + COPIES_AT_ONCE])))
                self._recorder.wake()
                if not done:
                    await asyncio.sleep(RETRY_PAUSE_S)
            else:
                for move in moves:
                    self._delivery_state.move_failed(move.row, move.index)
                await asyncio.sleep(RETRY_PAUSE_S)

    async def _fix(self, moves: list[Move]) -> bool:
        """Whether every place is durable, unlike a place on its way into the record. A chosen place stays chosen,
        also when this fails: none can be chosen while the clock or the knowledge of the catalogue is not trusted."""
        try:
            for number, move in enumerate(moves):
                if move.place is None:
                    place = self._source.fix_place(move)
                    self._delivery_state.place_fixed(move.row, move.index, place)
                    moves[number] = move.at(place)
        except STORE_ERRORS:
            return False
        return await self._recorder.flush()

    async def _write(self, move: Move) -> bool:
        if not self._delivery_state.is_moving(move.row, move.index):
            return True  # it was purged while its place was made durable
        try:
            await self._source.write_copy(move)
        except STORE_ERRORS:
            self._delivery_state.move_failed(move.row, move.index)
            return False
        self._delivery_state.move_done(move.row, move.index)
        return True
