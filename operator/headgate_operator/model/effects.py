"""Effects of a decision: complete, frozen values, performed in order by `perform`.

Each is idempotent: performed twice, or by two leaders, it makes the same. Nothing here knows how.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from headgate.applying.decide_steps import Step
from headgate_operator.model.names import MANAGER, Key
from headgate_operator.model.world import DecisionMemory, StoreConnection


@dataclass(frozen=True)
class StoreStep:
    """One step in the store, by the functions of `headgate apply`."""

    step: Step
    owner: str
    """The owner in the entry."""
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
    """The decision about one key."""

    effects: tuple[Effect, ...] = ()
    memory: DecisionMemory = field(default_factory=DecisionMemory)
    again_at_us: int | None = None
    """To be decided again then, even if nothing happens."""
    ask: frozenset[Any] = frozenset()
    """`ChildName`s whose places have to be asked for by GET before they are made."""
    trail: tuple[str, ...] = ()
    """A sentence for each thing that was decided, for `kubectl headgate why`."""
    notes: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_settled(self) -> bool:
        """Whether all is as it should be."""
        return not self.effects and not self.ask

    @property
    def settles(self) -> bool:
        """Whether all is as wanted, apart from reports: a report changes no decision."""
        return not self.ask and all(isinstance(effect, PatchStatus | Emit) for effect in self.effects)
