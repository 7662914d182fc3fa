"""The life of a mutator: when it takes updates, and until when it may acknowledge one. Pure.

    born                              rejects from now on   silent from now on      end
     |------- takes updates --------------|--- acknowledges -----|--------------------|--- gc.after ---> final

The collector waits `gc.after` past the end, by its own clock, and the mutator is silent half of `refuseWithin` before
it: so no update is acknowledged that a collection could have missed (attack B6; docs/internals/protocols/expiry.md).
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LifeTerms:
    lifetime_us: int
    refuse_within_us: int


@dataclass(frozen=True, slots=True)
class Life:
    """From birth to end; the promise at birth holds until the end, whatever the resource sets meanwhile."""

    born_us: int
    end_us: int
    refuse_within_us: int

    @classmethod
    def begin(cls, now_us: int, terms: LifeTerms) -> Life:
        return cls(now_us, now_us + terms.lifetime_us, terms.refuse_within_us)

    @property
    def silent_after_us(self) -> int:
        """From this time on nothing is acknowledged, nor sent again."""
        return self.end_us - self.refuse_within_us // 2

    def accepts(self, now_us: int) -> bool:
        """Whether it takes one more update; else it is done, and another is born."""
        return now_us < self.end_us - self.refuse_within_us

    def acknowledges(self, now_us: int) -> bool:
        """Whether a write that was answered now counts (rule R2); later it is unknown."""
        return now_us < self.silent_after_us


def decide_stamp_us(now_us: int, last_us: int) -> int:
    """Strictly growing, also when the clock stands still or was set back: of two writes of one mutator the later
    wins, in any order of arrival."""
    return max(now_us, last_us + 1)
