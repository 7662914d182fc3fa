"""Rows that are under way together, and the state of each. Each caller is notified once, when its row's outcome is
known.

It sends nothing and judges nothing: `put/row_sender.py` does, by decide_ack.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from headgate.engines.timeline.model.row import StampedRow
from headgate.engines.timeline.put.decide_ack import Sent, WriteOutcome
from headgate.errors import HeadgateError
from headgate.store.store import OutcomeUnknown


def sent_of(row: StampedRow) -> Sent:
    """The facts that decide it."""
    return Sent(row.partition.generation, row.due_us, row.sent_us, row.known)


class PendingWrite:
    """Some rows, from their first send until the outcome of the last was reported."""

    def __init__(
        self,
        rows: list[StampedRow],
        give_up_us: int,
        joint: bool,
        late_is_repaired: bool,
        acknowledged: Callable[[Sequence[StampedRow]], None],
        given_up: Callable[[StampedRow, HeadgateError], None],
    ) -> None:
        self.rows = rows
        self.give_up_us = give_up_us
        self.joint = joint
        self.late_is_repaired = late_is_repaired
        self.fates = [WriteOutcome.AGAIN] * len(rows)
        self._reported = [False] * len(rows)
        self._acknowledged = acknowledged
        self._given_up = given_up

    def begin(self, now_us: int, skew_us: int) -> None:
        """A place that may have been passed already is not written: its restamped row is."""
        if min([row.due_us for row in self.rows]) - skew_us > now_us:
            return
        for place, row in enumerate(self.rows):
            row.sent_us = min(row.sent_us, now_us)
            if not sent_of(row).promise(skew_us).still_holds(now_us):
                self.fates[place] = WriteOutcome.RESTAMP

    @property
    def goes_on(self) -> bool:
        """Whether the outcome of a row is open."""
        return WriteOutcome.AGAIN in self.fates or WriteOutcome.RESTAMP in self.fates

    def pairs(self) -> list[tuple[StampedRow, WriteOutcome]]:
        """Each row and its current outcome."""
        return list(zip(self.rows, self.fates, strict=True))

    def acknowledge_rows(self, count: Callable[[Sequence[StampedRow]], None]) -> None:
        """Report acknowledged rows: each at once, or all when the last is."""
        if self.joint and self.goes_on:
            return
        rows = []
        for place, fate in enumerate(self.fates):
            if fate is WriteOutcome.ACKNOWLEDGED and not self._reported[place]:
                self._reported[place] = True
                rows.append(self.rows[place])
        if rows:
            count(rows)
            self._acknowledged(rows)

    def give_up(self, place: int, error: HeadgateError) -> None:
        """The outcome of this row will not be known; a row that was never in doubt keeps its own error."""
        row = self.rows[place]
        self.fates[place] = WriteOutcome.GIVEN_UP
        if not self._reported[place]:
            self._reported[place] = True
            if row.in_doubt and not isinstance(error, OutcomeUnknown):
                error = OutcomeUnknown("The message may have been written, or may still be", last=error.message)
            self._given_up(row, error)

    def give_up_all(self, error: HeadgateError) -> None:
        """None of those that are still open."""
        for place, fate in enumerate(self.fates):
            if fate in (WriteOutcome.AGAIN, WriteOutcome.RESTAMP):
                self.give_up(place, error)
