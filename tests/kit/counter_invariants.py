"""Invariants of every counter, whatever fails: one ledger of updates and reads, checked at each read and at the end.

Each update of a key is a number of its own, and adds `1 << 4 * number` to a sum: so a value that is read shows
how often each update was counted, as one hexadecimal digit. The ledger knows the contract of a counter and nothing
below it, so simulation, conformance and real servers are judged by the same rules:

- an update that was acknowledged before a read began is in it, exactly once;
- one that is unknown, or is still under way, is in it once or not at all;
- one that was refused, or certainly not sent, is never in it; nor is anything that nobody sent.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum

from headgate.errors import HeadgateError
from headgate.store.store import OutcomeUnknown

BITS = 4
DIGIT = (1 << BITS) - 1


class Fate(Enum):
    """The known outcome of an update."""

    UNDER_WAY = "under way"
    COUNTED = "acknowledged"
    UNKNOWN = "unknown"
    NOT_SENT = "not sent"


@dataclass(eq=False)
class UpdateTale:
    """One update, however often it was sent."""

    key: str
    number: int
    sent_us: int
    token: str | None = None
    attempts: int = 0
    under_way: int = 0
    acknowledged_us: int | None = None
    in_doubt: bool = False
    events: list[str] = field(default_factory=list)

    @property
    def amount(self) -> int:
        """The amount that it adds."""
        return 1 << BITS * self.number

    @property
    def fate(self) -> Fate:
        """Its known outcome by now."""
        if self.acknowledged_us is not None:
            return Fate.COUNTED
        if self.under_way:
            return Fate.UNDER_WAY
        return Fate.UNKNOWN if self.in_doubt else Fate.NOT_SENT

    def __str__(self) -> str:
        return f"{self.key}#{self.number} ({self.fate.value}; {'; '.join(self.events) or 'no event'})"


class CounterLedger:
    """All updates and reads of one counter."""

    def __init__(self, now_us: Callable[[], int]) -> None:
        self.now_us = now_us
        self.tales: dict[str, list[UpdateTale]] = {}
        self.reads = 0
        self.broken: list[str] = []

    # ---- updates

    def begin(self, key: str, token: str | None = None) -> UpdateTale:
        """A new update."""
        tales = self.tales.setdefault(key, [])
        tale = UpdateTale(key, len(tales), self.now_us(), token)
        tales.append(tale)
        return tale

    def attempt(self, tale: UpdateTale) -> None:
        """It is sent now, for the first time or again. Its sender may die: then nobody ever learns how it ended,
        and it may have been counted."""
        tale.attempts += 1
        tale.under_way += 1

    def acknowledged(self, tale: UpdateTale, by: str = "") -> None:
        """Its answer was: durable."""
        tale.under_way -= 1
        tale.events.append(f"ok at {self.now_us()} by {by}")
        if tale.acknowledged_us is None:
            tale.acknowledged_us = self.now_us()

    def failed(self, tale: UpdateTale, error: BaseException, by: str = "") -> None:
        """Its answer was: unknown, or not sent."""
        tale.under_way -= 1
        tale.events.append(f"{type(error).__name__} at {self.now_us()} by {by}")
        if isinstance(error, OutcomeUnknown) or not isinstance(error, HeadgateError):
            tale.in_doubt = True

    # ---- reads

    def check(self, key: str, value: int, *, began_us: int, by: str = "") -> None:
        """Judge the result of a read that began then."""
        self.reads += 1
        for tale in self.tales.get(key, []):
            counted = value >> BITS * tale.number & DIGIT
            if counted > 1:
                self._note(f"counted {counted} times: {tale}", by)
            elif counted and tale.fate is Fate.NOT_SENT:
                self._note(f"counted, although reported as not sent: {tale}", by)
            elif not counted and tale.acknowledged_us is not None and tale.acknowledged_us < began_us:
                self._note(f"acknowledged before the read of {began_us} began, and not in it: {tale}", by)
        if value < 0 or value >> BITS * len(self.tales.get(key, [])):
            self._note(f"{key} holds what nobody sent: {value:#x}", by)

    def least(self, key: str) -> int:
        """The value of all that was acknowledged."""
        return sum(tale.amount for tale in self.tales.get(key, []) if tale.fate is Fate.COUNTED)

    def _note(self, what: str, by: str) -> None:
        if len(self.broken) < 20:
            self.broken.append(f"{what} (read by {by or 'somebody'} at {self.now_us()})")

    @property
    def acknowledged_count(self) -> int:
        """How many updates were acknowledged."""
        return sum(tale.fate is Fate.COUNTED for tales in self.tales.values() for tale in tales)
