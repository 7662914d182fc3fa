"""Faults of the simulated API server, on demand: the next requests of a kind are refused, broken or lost.

Cuts and lost messages are the network's business (`world.network`, kinds `api request`, `api answer`, `api event`).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from headgate_operator.cluster.requests import ApiRequest, Verb
from headgate_operator.model.kinds import ResourceKind


class Wrong(Enum):
    """The fault of a request."""

    THROTTLED = "throttled"
    """429 with Retry-After; not done."""
    CONFLICT = "conflict"
    """409, as if somebody had written meanwhile; not done."""
    BROKEN = "broken"
    """500; not done."""
    BROKEN_AFTER = "broken after"
    """500; done all the same."""
    UNHEARD = "unheard"
    """Never arrives; not done, no answer."""
    UNANSWERED = "unanswered"
    """Done, and the answer is lost."""


@dataclass
class ApiFault:
    """A fault of the next requests, by number, that match this; None: any request."""

    wrong: Wrong
    verb: Verb | None = None
    kind: ResourceKind | None = None
    name: str | None = None
    source: str | None = None
    """The process that asks."""
    left: int = 1
    retry_after_s: float = 1.0

    def meets(self, request: ApiRequest, source: str) -> bool:
        """Whether it strikes here."""
        name = request.name or (request.body or {}).get("metadata", {}).get("name")
        return (
            self.left > 0
            and self.verb in (None, request.verb)
            and self.kind in (None, request.kind)
            and self.name in (None, name)
            and self.source in (None, source)
        )


class Faults:
    """Those that are still to come."""

    def __init__(self) -> None:
        self._faults: list[ApiFault] = []

    def order(self, fault: ApiFault) -> None:
        """Have it strike."""
        self._faults.append(fault)

    def calm(self) -> None:
        """Nothing is to go wrong any more."""
        self._faults.clear()

    def strike(self, request: ApiRequest, source: str) -> ApiFault | None:
        """The fault of this request, if any."""
        for fault in self._faults:
            if fault.meets(request, source):
                fault.left -= 1
                self._faults = [one for one in self._faults if one.left > 0]
                return fault
        return None
