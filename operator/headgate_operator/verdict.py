"""The result of one part of a decision, and the composition of parts: frozen values, no I/O.

A part adds to the results of the parts before it. If the parts after it would make no sense, it sets `stop`, with the
message for people.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Literal

from headgate.api.status import REASON_MEANINGS, Reason
from headgate_operator.effects import Effect
from headgate_operator.world import ChildName, Memory, Trouble

Status = Literal["True", "False", "Unknown"]


@dataclass(frozen=True)
class Finding:
    """The value of one condition."""

    type: str
    status: Status
    reason: Reason
    message: str = ""
    """Empty: what the reason means."""

    @property
    def says(self) -> str:
        """The message for people."""
        return self.message or REASON_MEANINGS[self.reason]


@dataclass(frozen=True)
class Verdict:
    """The effects and findings so far."""

    memory: Memory
    effects: tuple[Effect, ...] = ()
    ask: frozenset[ChildName] = frozenset()
    findings: tuple[Finding, ...] = ()
    trail: tuple[str, ...] = ()
    again_at_us: int | None = None
    stop: Trouble | None = None
    """Why nothing further down the order is done."""
    awaits: Trouble | None = None
    """A change under way; the other parts continue."""
    blind: str = ""
    """The state that was not read, so that nothing is done about it and its previous condition stays."""
    is_refused: bool = False
    """Whether what is to be done was tried, and refused."""
    figures: dict[str, object] = field(default_factory=dict, hash=False)
    """Fields of the status."""

    def then(self, after: Verdict) -> Verdict:
        """This and what followed, which knew what this remembers."""
        return Verdict(
            memory=after.memory,
            effects=(*self.effects, *after.effects),
            ask=self.ask | after.ask,
            findings=(*self.findings, *after.findings),
            trail=(*self.trail, *after.trail),
            again_at_us=earliest(self.again_at_us, after.again_at_us),
            stop=self.stop or after.stop,
            awaits=self.awaits or after.awaits,
            blind=self.blind or after.blind,
            is_refused=self.is_refused or after.is_refused,
            figures=self.figures | after.figures,
        )

    def found(self, finding: Finding) -> Verdict:
        """With one finding more."""
        return replace(self, findings=(*self.findings, finding))

    @property
    def is_stopped(self) -> bool:
        """Whether the parts after it have nothing to do."""
        return self.stop is not None or bool(self.blind)

    def finding(self, type_: str) -> Finding | None:
        """The finding of a condition; the first one counts."""
        return next((finding for finding in self.findings if finding.type == type_), None)


def blind(memory: Memory, what: str, *, again_at_us: int | None = None) -> Verdict:
    """Nothing further, since this was not read."""
    return Verdict(memory, trail=(f"{what} is unknown: no decision about it",), blind=what, again_at_us=again_at_us)


def stopped(memory: Memory, reason: Reason, says: str, *, trail: str = "", again_at_us: int | None = None) -> Verdict:
    """Nothing further, and why."""
    return Verdict(memory, trail=(trail or says,), stop=Trouble(reason, says), again_at_us=again_at_us)


def earliest(*moments: int | None) -> int | None:
    """The earliest of those that are set."""
    return min((moment for moment in moments if moment is not None), default=None)


def listed(names: Iterable[str], most: int = 5) -> str:
    """Some names, so that a sentence stays one."""
    told = sorted(names)
    more = f" and {len(told) - most} more" if len(told) > most else ""
    return ", ".join(told[:most]) + more
