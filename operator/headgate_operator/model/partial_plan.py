"""The result of one part of a decision, and the composition of parts: frozen values, no I/O.

A part adds to the results of the parts before it. If the parts after it would make no sense, it sets `blocked_by`,
with the message for people.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Literal

from headgate.api.resources.reasons import Reason
from headgate_operator.model.effects import Effect
from headgate_operator.model.world import ChildName, DecisionMemory, ResourceFailure

Status = Literal["True", "False", "Unknown"]


@dataclass(frozen=True)
class ConditionUpdate:
    """The value of one condition."""

    type: str
    status: Status
    reason: Reason
    message: str = ""
    """Empty: what the reason means."""

    @property
    def text(self) -> str:
        """The message for people."""
        return self.message or self.reason.meaning


@dataclass(frozen=True)
class PartialPlan:
    """The effects and findings so far."""

    memory: DecisionMemory
    effects: tuple[Effect, ...] = ()
    ask: frozenset[ChildName] = frozenset()
    findings: tuple[ConditionUpdate, ...] = ()
    trail: tuple[str, ...] = ()
    again_at_us: int | None = None
    blocked_by: ResourceFailure | None = None
    """Why nothing further down the order is done."""
    waiting_for: ResourceFailure | None = None
    """A change under way; the other parts continue."""
    missing_input: str = ""
    """The state that was not read, so that nothing is done about it and its previous condition stays."""
    is_refused: bool = False
    """Whether what is to be done was tried, and refused."""
    figures: dict[str, object] = field(default_factory=dict, hash=False)
    """Fields of the status."""

    def then(self, after: PartialPlan) -> PartialPlan:
        """This and what followed, which knew what this remembers."""
        return PartialPlan(
            memory=after.memory,
            effects=(*self.effects, *after.effects),
            ask=self.ask | after.ask,
            findings=(*self.findings, *after.findings),
            trail=(*self.trail, *after.trail),
            again_at_us=earliest(self.again_at_us, after.again_at_us),
            blocked_by=self.blocked_by or after.blocked_by,
            waiting_for=self.waiting_for or after.waiting_for,
            missing_input=self.missing_input or after.missing_input,
            is_refused=self.is_refused or after.is_refused,
            figures=self.figures | after.figures,
        )

    def with_condition(self, finding: ConditionUpdate) -> PartialPlan:
        """With one finding more."""
        return replace(self, findings=(*self.findings, finding))

    @property
    def is_stopped(self) -> bool:
        """Whether the parts after it have nothing to do."""
        return self.blocked_by is not None or bool(self.missing_input)

    def finding(self, type_: str) -> ConditionUpdate | None:
        """The finding of a condition; the first one counts."""
        return next((finding for finding in self.findings if finding.type == type_), None)


def missing_input(memory: DecisionMemory, what: str, *, again_at_us: int | None = None) -> PartialPlan:
    """Nothing further, since this was not read."""
    return PartialPlan(
        memory, trail=(f"{what} is unknown: no decision about it",), missing_input=what, again_at_us=again_at_us
    )


def blocked(
    memory: DecisionMemory, reason: Reason, message: str, *, trail: str = "", again_at_us: int | None = None
) -> PartialPlan:
    """Nothing further, and why."""
    return PartialPlan(
        memory, trail=(trail or message,), blocked_by=ResourceFailure(reason, message), again_at_us=again_at_us
    )


def earliest(*times: int | None) -> int | None:
    """The earliest of those that are set."""
    return min((time for time in times if time is not None), default=None)


def format_names(names: Iterable[str], most: int = 5) -> str:
    """Some names, so that a sentence stays one."""
    shown = sorted(names)
    more = f" and {len(shown) - most} more" if len(shown) > most else ""
    return ", ".join(shown[:most]) + more
