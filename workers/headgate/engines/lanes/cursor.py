"""The position up to which a lane is settled, the bound up to which it may be delivered, and the facts to make
durable before they are passed.

`last` moves to the lowest settled end, never beyond a row whose passing is not on record. `reach` limits the messages
that a dying process may have had in flight (attack D3). Both only grow. The lane's row lags behind by a renewal;
facts below `last` are dropped only once the row is known to contain it (attack D5).
"""

from __future__ import annotations

from typing import Any

from headgate.engines.lanes.delivery_state import DeliveryState
from headgate.engines.lanes.rows import LaneRow
from headgate.engines.lanes.settle_log import Record
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
        self._passed: list[LaneRow] = []

    def gave(self, messages: int) -> None:
        """The number of deliveries: those between two renewals show how far reach has to lead."""
        self._given += messages

    def note_head(self, at_head: bool) -> None:
        """Whether the last read ended at the head of the lane."""
        self.at_head = at_head

    @property
    def wants_to_move(self) -> bool:
        """Whether a touch now would move something."""
        moved = self._given or self._passed or self._to_be_passed or self._delivery_state.has_settled_rows()
        return bool(moved or not self._has_stood)

    async def advance(self) -> None:
        """Pass settled rows, after making durable that they were passed."""
        self._to_be_passed += self._delivery_state.advance()
        if self._to_be_passed:
            passing = self._to_be_passed
            try:
                await self._source.write_passed(passing)
            except STORE_ERRORS:
                return
            self._to_be_passed = self._to_be_passed[len(passing) :]
            self._passed += passing
            self.last = max(self.last, passing[-1].order)
        idle = self._delivery_state.lowest_unsettled is None and not self._to_be_passed
        if idle and self._delivery_state.horizon is not None and not self._delivery_state.is_lending:
            self.last = max(self.last, self._delivery_state.horizon)

    def wanted_reach(self, now_us: int) -> Any:
        """Up to where hand-outs shall be allowed: in a backlog bounded by count, at the head by time."""
        bound = self._delivery_state.order_after(max(self._messages_min, 3 * self._given_before, 3 * self._given))
        if bound is None:
            bound = self._source.order_at(now_us + self._lead_us) if self.at_head else self._delivery_state.horizon
        return self.reach if bound is None else max(self.reach, bound)

    def mark(self) -> list[LaneRow]:
        """The facts below the `last` that is about to be sent."""
        return list(self._passed)

    def stands(self, reach: Any, marked: list[LaneRow]) -> None:
        """A renewal with this reach was applied: so was its `last`."""
        self.reach = reach
        self._has_stood = True
        self._given_before, self._given = self._given, 0
        by_where: dict[Any, list[bytes]] = {}
        for row in marked:
            by_where.setdefault(row.where, []).append(row.key)
        self._record.forget(by_where)
        self._passed = self._passed[len(marked) :]
