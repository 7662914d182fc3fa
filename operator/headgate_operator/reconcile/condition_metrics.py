"""The failing conditions of all resources, for metrics, from their statuses.

They are noted at each decision, so that a scrape reads known values and parses nothing. It knows neither decisions
nor metrics.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from headgate_operator.model.effects import PatchStatus, ReconcilePlan
from headgate_operator.model.names import Key
from headgate_operator.model.world import ResourceWorld

BAD_WHEN_TRUE: Final = frozenset(("Reconciling", "Stalled"))
READY: Final = "Ready"


@dataclass(frozen=True)
class ResourceConditions:
    """One resource."""

    ready: str
    """True, False or Unknown."""
    problems: tuple[tuple[str, str], ...]
    """(condition, reason) of each failing condition."""


class ConditionMetrics:
    """All resources."""

    def __init__(self) -> None:
        self._conditions: dict[Key, ResourceConditions] = {}

    def note(self, key: Key, world: ResourceWorld, plan: ReconcilePlan) -> None:
        """Note the status of this decision, or else the present one."""
        if world.resource is None:
            self._conditions.pop(key, None)
            return
        status: Mapping[str, Any] = world.resource.document.get("status") or {}
        for effect in plan.effects:
            if isinstance(effect, PatchStatus):
                status = effect.status
        self._conditions[key] = conditions_in(status)

    def forget(self, key: Key) -> None:
        """It is gone."""
        self._conditions.pop(key, None)

    def problems(self) -> Iterator[tuple[Key, str, str]]:
        """Each failing condition, with its reason."""
        for key, conditions in self._conditions.items():
            for condition, reason in conditions.problems:
                yield key, condition, reason

    def counted(self) -> Mapping[tuple[str, str], int]:
        """The number of resources of each kind and readiness."""
        return Counter((key.kind, conditions.ready) for key, conditions in self._conditions.items())


def conditions_in(status: Mapping[str, Any]) -> ResourceConditions:
    """A status in short."""
    ready, problems = "Unknown", []
    for each in status.get("conditions") or ():
        condition, holds = str(each["type"]), str(each["status"])
        if condition == READY:
            ready = holds
        if holds == ("True" if condition in BAD_WHEN_TRUE else "False"):
            problems.append((condition, str(each.get("reason", ""))))
    return ResourceConditions(ready, tuple(problems))
