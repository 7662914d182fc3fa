"""The result of a pass of repair, counted during the pass."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from enum import Enum

from headgate.engines.contract import PassEnd, Repaired
from headgate.errors import HeadgateError

PROBLEMS_MAX = 20


class LateRowOutcome(Enum):
    """The outcome for a row below its lane's position that is not among the passed."""

    PUT_AGAIN = "restamped"
    ELSEWHERE = "its family is at another place"
    SETTLED = "one of its family was passed"
    CANCELLED = "cancelled"
    PURGED = "purged"
    EMPTY = "holds nothing"
    UNREADABLE = "cannot be read"
    WAITS = "waits for its lane to be drained"


@dataclass
class RepairPassReport:
    """The tally of one pass."""

    checked: int = 0
    """Scans of parts that hold rows."""
    outcomes: Counter[LateRowOutcome] = field(default_factory=Counter)
    lanes_retired: int = 0
    left: list[int] = field(default_factory=list)
    """Generations that left the catalogue."""
    owed_us: int | None = None
    waits_for_all_us: int | None = None
    problems: list[str] = field(default_factory=list)

    def checked_part(self) -> None:
        """One more scan of a part."""
        self.checked += 1

    def retired_lane(self) -> None:
        """One more lane was left for good."""
        self.lanes_retired += 1

    def owes(self, since_us: int, *, waits_for_all: bool = False) -> None:
        """A scan that was due at that time did not run; perhaps only because not all replicas answer."""
        if waits_for_all:
            self.waits_for_all_us = min(since_us, self.waits_for_all_us or since_us)
        else:
            self.owed_us = min(since_us, self.owed_us or since_us)

    def failed(self, error: HeadgateError) -> None:
        """Something could not be done in this pass; the next one tries again."""
        line = str(error)
        if line not in self.problems and len(self.problems) < PROBLEMS_MAX:
            self.problems.append(line)

    def value(self, end: PassEnd) -> Repaired:
        """The report of it."""
        return Repaired(
            end=end,
            checked=self.checked,
            late=sum(self.outcomes.values()),
            put_again=self.outcomes[LateRowOutcome.PUT_AGAIN],
            waiting=self.outcomes[LateRowOutcome.WAITS],
            lanes_retired=self.lanes_retired,
            generations_left=tuple(sorted(self.left)),
            owed_us=self.owed_us,
            waits_for_all_us=self.waits_for_all_us,
            problems=tuple(self.problems),
        )
