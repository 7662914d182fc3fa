"""The recorder: an accepted fact stays to be written until it is known to be durable, whatever is in doubt."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, cast

from headgate.engines.lanes.log.settle_log import Piece, Record
from headgate.engines.lanes.log.settle_log_format import decode
from headgate.engines.lanes.log.settle_log_writer import Recorder
from headgate.engines.lanes.source import LaneSource
from headgate.errors import Unavailable
from tests.unit.engines.test_delivery_state import give, row, state_with

EPOCH = 7


class Store:
    """Keeps its arguments, and gives prepared answers."""

    def __init__(self) -> None:
        self.settled = 0
        self.fails = False

    async def write_record(self, pieces: Sequence[Piece[Any]]) -> None:
        """Durable, or not known to be."""
        if self.fails:
            raise Unavailable("no quorum")
        for piece in pieces:
            for facts in decode(piece.content).values():
                self.settled |= facts.settled


async def _settled_while(*, lease_holds: bool, store_answers: bool) -> None:
    delivery_state = state_with(row(1, 1))
    (given,) = give(delivery_state)
    store, holds = Store(), lease_holds
    store.fails = not store_answers
    recorder = Recorder(delivery_state, cast(LaneSource, store), Record(EPOCH), may_act=lambda: holds)
    running = asyncio.get_running_loop().create_task(recorder.run())
    try:
        delivery_state.ack(given.row.key, given.index, given.attempt)
        assert not await recorder.flush()
        assert delivery_state.lowest_unsettled is not None and not delivery_state.advance()
        store.fails, holds = False, True
        assert await recorder.flush()
        assert store.settled == 1 and delivery_state.unsettled == 0
        assert [1] == [each.order for each in delivery_state.advance()]
    finally:
        running.cancel()


def test_what_was_written_while_the_clock_was_in_doubt_is_written_again_and_counts_then() -> None:
    asyncio.run(_settled_while(lease_holds=False, store_answers=True))


def test_what_could_not_be_written_is_written_again() -> None:
    asyncio.run(_settled_while(lease_holds=True, store_answers=False))
