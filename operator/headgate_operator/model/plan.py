"""A decision as frozen values: its effects, the plan of one key, and the parts that a plan is composed of. No I/O.

Effects are complete, and are performed in order by `reconcile/apply_plan.py`. Each is idempotent: performed twice, or
by two leaders, it makes the same. Nothing here knows how.

A part of a decision adds to the results of the parts before it. If the parts after it would make no sense, it sets
`blocked_by`, with the message for people.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from headgate.api.resources.reasons import Reason
from headgate.applying.decide_steps import Step
from headgate_operator.model.names import MANAGER, Key
from headgate_operator.model.world import ChildName, DecisionMemory, NamespaceState, ResourceFailure, StoreConnection


@dataclass(frozen=True)
class StoreStep:
    """One step in the store, by the functions of `headgate apply`."""

    step: Step
    connection: StoreConnection


@dataclass(frozen=True)
class ApplyObject:
    """Server-side apply of a whole document, with force. With a uid in it, it never makes what is not there."""

    document: Mapping[str, Any]
    manager: str = MANAGER
    force: bool = True
    merges: bool = False
    """By a merge patch at the resourceVersion that it names: lists are replaced whole, including items of other
    writers. For finalizers: one that came with a backup, or by `kubectl apply`, would not go by an apply of ours."""


@dataclass(frozen=True)
class DeleteObject:
    """Delete this very object: the uid is a precondition, and not to find it is success."""

    kind: str
    namespace: str
    name: str
    uid: str
    propagation: Literal["Background", "Foreground"] = "Background"
    """Foreground: it stays, marked, until all that it owns is gone; so its pods' end can be waited for."""


@dataclass(frozen=True)
class PatchStatus:
    """The whole status of the resource, by server-side apply on /status."""

    key: Key
    uid: str
    status: Mapping[str, Any]


@dataclass(frozen=True)
class StopLane:
    """Order the owner of this epoch to stop: by LWT, once, and it never shortens a lease (attack E3)."""

    key: Key
    lane: str
    epoch: int
    connection: StoreConnection


@dataclass(frozen=True)
class Emit:
    """An event about the resource: for convenience, since conditions have everything."""

    key: Key
    uid: str
    reason: str
    note: str
    type: Literal["Normal", "Warning"] = "Normal"


Effect = StoreStep | ApplyObject | DeleteObject | PatchStatus | StopLane | Emit


@dataclass(frozen=True)
class ReconcilePlan:
    effects: tuple[Effect, ...] = ()
    memory: DecisionMemory = field(default_factory=DecisionMemory)
    again_at_us: int | None = None
    """To be decided again then, even if nothing happens."""
    ask: frozenset[Any] = frozenset()
    """`ChildName`s whose places have to be asked for by GET before they are made."""
    trail: tuple[str, ...] = ()
    """A sentence for each thing that was decided, for `kubectl headgate why`."""
    namespace: NamespaceState | None = None
    """Of a namespace's key: what the resources of the namespace wait for."""
    left_behind: bool = False
    """The resource goes with its namespace, before its data could be dropped."""

    @property
    def is_settled(self) -> bool:
        """Whether all is as it should be."""
        return not self.effects and not self.ask

    @property
    def settles(self) -> bool:
        """Whether all is as wanted, apart from reports: a report changes no decision."""
        return not self.ask and all(isinstance(effect, PatchStatus | Emit) for effect in self.effects)


Status = Literal["True", "False", "Unknown"]


@dataclass(frozen=True)
class ConditionUpdate:
    type: str
    status: Status
    reason: Reason
    message: str = ""
    """Empty: what the reason means."""

    @property
    def text(self) -> str:
        return self.message or self.reason.meaning


@dataclass(frozen=True)
class PartialPlan:
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
    left_behind: bool = False
    """As of `ReconcilePlan`."""

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
            left_behind=self.left_behind or after.left_behind,
        )

    def with_condition(self, finding: ConditionUpdate) -> PartialPlan:
        return replace(self, findings=(*self.findings, finding))

    @property
    def is_stopped(self) -> bool:
        """Whether the parts after it have nothing to do."""
        return self.blocked_by is not None or bool(self.missing_input)

    def finding(self, type_: str) -> ConditionUpdate | None:
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
    return min((time for time in times if time is not None), default=None)


def format_names(names: Iterable[str], most: int = 5) -> str:
    """Some names, so that a sentence stays one."""
    shown = sorted(names)
    more = f" and {len(shown) - most} more" if len(shown) > most else ""
    return ", ".join(shown[:most]) + more
