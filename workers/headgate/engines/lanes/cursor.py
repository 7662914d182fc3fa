"""The position up to which a lane is settled, and the facts to make durable before they are passed.

`last` moves to the lowest settled end, never beyond a row whose passing is not on record, and never back. The lane's
row lags behind by a renewal; facts below `last` are dropped only once the row is known to contain it (attack D5).
"""

from __future__ import annotations

import asyncio
from typing import Any

from headgate.engines.lanes.delivery.delivery_state import DeliveryState
from headgate.engines.lanes.delivery.rows import LaneRow
from headgate.engines.lanes.log.settle_log import Record
from headgate.engines.lanes.source import LaneSource
from headgate.store.store import STORE_ERRORS


class Position:
    """How far a lease term has come."""

    def __init__(
        self,
        delivery_state: DeliveryState,
        source: LaneSource,
        record: Record[Any],
        *,
        last: Any,
    ) -> None:
        self.last = last
        self.at_head = False
        self._delivery_state = delivery_state
        self._source = source
        self._record = record
        self._to_be_passed: list[LaneRow] = []
        self._passing = asyncio.Lock()
        self._passed_to = self._stands_at = self._stands_read_to = last
        """The last row that was passed, and what is known to be in the lane's row."""

    @property
    def read_to(self) -> Any:
        """How far the owner has read: nothing beyond it was delivered by it. For figures alone, since the lane's row
        lags behind."""
        horizon = self._delivery_state.horizon
        return self.last if horizon is None else max(self.last, horizon)

    def note_head(self, at_head: bool) -> None:
        """Whether the last read ended at the head of the lane."""
        self.at_head = at_head

    @property
    def wants_to_move(self) -> bool:
        """Whether a touch now would move something."""
        if self._to_be_passed or self._stands_at < self._passed_to:
            return True
        if self._delivery_state.unsettled and self._stands_read_to < self.read_to:
            return True
        return self._delivery_state.has_settled_rows()

    async def advance(self) -> None:
        """Pass settled rows, after making durable that they were passed: one write at a time, so that each moves the
        position over its own rows alone."""
        async with self._passing:
            self._to_be_passed += self._delivery_state.advance()
            if self._to_be_passed:
                try:
                    await self._source.write_passed(self._to_be_passed)
                except STORE_ERRORS:
                    return
                self.last = self._passed_to = max(self.last, self._to_be_passed[-1].order)
                self._to_be_passed = []
            idle = self._delivery_state.lowest_unsettled is None
            if idle and self._delivery_state.horizon is not None and not self._delivery_state.is_lending:
                self.last = max(self.last, self._delivery_state.horizon)

    def stands(self, last: Any, *, read_to: Any) -> None:
        """A renewal with these was applied."""
        self._stands_at, self._stands_read_to = last, read_to
        self._record.forget(last)
