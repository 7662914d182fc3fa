"""The failing conditions of all resources, for metrics, from their statuses.

They are noted at each decision, so that a scrape reads known values and parses nothing. It knows neither decisions
nor metrics.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from headgate_operator.effects import PatchStatus, Plan
from headgate_operator.names import Key
from headgate_operator.world import World

BAD_WHEN_TRUE: Final = frozenset(("Reconciling", "Stalled"))
READY: Final = "Ready"


@dataclass(frozen=True)
class Told:
    """One resource."""

    ready: str
    """True, False or Unknown."""
    troubles: tuple[tuple[str, str], ...]
    """(condition, reason) of each failing condition."""


class ConditionsTold:
    """All resources."""

    def __init__(self) -> None:
        self._told: dict[Key, Told] = {}

    def note(self, key: Key, world: World, plan: Plan) -> None:
        """Note the status of this decision, or else the present one."""
        if world.resource is None:
            self._told.pop(key, None)
            return
        status: Mapping[str, Any] = world.resource.document.get("status") or {}
        for effect in plan.effects:
            if isinstance(effect, PatchStatus):
                status = effect.status
        self._told[key] = told_by(status)

    def forget(self, key: Key) -> None:
        """It is gone."""
        self._told.pop(key, None)

    def troubles(self) -> Iterator[tuple[Key, str, str]]:
        """Each failing condition, with its reason."""
        for key, told in self._told.items():
            for condition, reason in told.troubles:
                yield key, condition, reason

    def counted(self) -> Mapping[tuple[str, str], int]:
        """The number of resources of each kind and readiness."""
        return Counter((key.kind, told.ready) for key, told in self._told.items())


def told_by(status: Mapping[str, Any]) -> Told:
    """A status in short."""
    ready, troubles = "Unknown", []
    for each in status.get("conditions") or ():
        condition, holds = str(each["type"]), str(each["status"])
        if condition == READY:
            ready = holds
        if holds == ("True" if condition in BAD_WHEN_TRUE else "False"):
            troubles.append((condition, str(each.get("reason", ""))))
    return Told(ready, tuple(troubles))
