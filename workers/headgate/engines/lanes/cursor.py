"""The position up to which a lane is settled, the bound up to which it may be delivered, and the facts to make
durable before they are passed.

`last` moves to the lowest settled end, never beyond a row whose passing is not on record. `reach` limits the messages
that a dying process may have had in flight (attack D3). Both only grow. The lane's row lags behind by a renewal;
facts below `last` are dropped only once the row is known to contain it (attack D5).
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
    """The two ends of a lease term's work."""

    def __init__(
        self,
        delivery_state: DeliveryState,
        source: LaneSource,
        record: Record[Any],
        *,
        last: Any,
        reach: Any,
        messages_min: int,
        lead_us: int,
    ) -> None:
        self.last = last
        self.reach = reach
        self.at_head = False
        self._delivery_state = delivery_state
        self._source = source
        self._record = record
        self._messages_min = messages_min
        self._lead_us = lead_us
        self._given = 0
        self._given_before = 0
        self._has_stood = False
        """Whether a renewal of this lease term was applied: until then the previous reach limits the deliveries."""
        self._to_be_passed: list[LaneRow] = []
        self._passing = asyncio.Lock()
        self._passed_to = self._stands_at = last
        """The last row that was passed, and the position that is known to be in the lane's row."""

    def gave(self, messages: int) -> None:
        """The number of deliveries: those between two renewals show how far reach has to lead."""
        self._given += messages

    def note_head(self, at_head: bool) -> None:
        """Whether the last read ended at the head of the lane."""
        self.at_head = at_head

    @property
    def wants_to_move(self) -> bool:
        """Whether a touch now would move something."""
        if self._given or self._to_be_passed or not self._has_stood or self._stands_at < self._passed_to:
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

    def wanted_reach(self, now_us: int) -> Any:
        """Up to where hand-outs shall be allowed: in a backlog bounded by count, at the head by time."""
        bound = self._delivery_state.order_after(max(self._messages_min, 3 * self._given_before, 3 * self._given))
        if bound is None:
            bound = self._source.order_at(now_us + self._lead_us) if self.at_head else self._delivery_state.horizon
        return self.reach if bound is None else max(self.reach, bound)

    def stands(self, reach: Any, last: Any) -> None:
        """A renewal with these was applied."""
        self.reach = reach
        self._has_stood = True
        self._given_before, self._given = self._given, 0
        self._stands_at = last
        self._record.forget(last)
