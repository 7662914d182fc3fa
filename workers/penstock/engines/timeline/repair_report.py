"""What a pass of repair did, as it is counted while the pass goes on, and the value that it comes to."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from enum import Enum

from penstock.engines.contract import PassEnd, Repaired
from penstock.errors import PenstockError

PROBLEMS_MAX = 20


class Found(Enum):
    """What a row came to that lies below its lane's position and is not among the passed."""

    PUT_ANEW = "put anew"
    ELSEWHERE = "its family is at another place"
    SETTLED = "one of its family was passed"
    CANCELLED = "cancelled"
    PURGED = "purged"
    EMPTY = "holds nothing"
    WAITS = "waits for its lane to be drained"


@dataclass
class PassReport:
    """The tally of one pass."""

    looked: int = 0
    """Looks taken at parts that hold something."""
    found: Counter[Found] = field(default_factory=Counter)
    lanes_retired: int = 0
    left: list[int] = field(default_factory=list)
    """Generations that left the catalogue."""
    waits_for_all: bool = False
    problems: list[str] = field(default_factory=list)
    oldest_owed_us: int | None = None

    def owes(self, since_us: int) -> None:
        """A look that was due at that moment was not taken."""
        if self.oldest_owed_us is None or since_us < self.oldest_owed_us:
            self.oldest_owed_us = since_us

    def failed(self, error: PenstockError) -> None:
        """Something could not be done in this pass; the next one tries again."""
        line = str(error)
        if line not in self.problems and len(self.problems) < PROBLEMS_MAX:
            self.problems.append(line)

    def value(self, end: PassEnd) -> Repaired:
        """What is told of it."""
        return Repaired(
            end=end,
            looked=self.looked,
            late=sum(self.found.values()),
            put_anew=self.found[Found.PUT_ANEW],
            waiting=self.found[Found.WAITS],
            lanes_retired=self.lanes_retired,
            generations_left=tuple(sorted(self.left)),
            waits_for_all=self.waits_for_all,
            oldest_owed_us=self.oldest_owed_us,
            problems=tuple(self.problems),
        )
