"""The distance of a baseline from its earlier figure; below half of that, nothing compared with it counts."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median

from bench.known import Known
from bench.rounds import Rounds, Window

SOUND_FROM = 0.5


@dataclass(frozen=True)
class Distance:
    """One quantity of a baseline: now, and before."""

    case: str
    quantity: str
    measured: float
    known: float

    @property
    def ratio(self) -> float:
        """Now to before."""
        return self.measured / self.known

    @property
    def sound(self) -> bool:
        """Whether comparisons with it count."""
        return self.ratio >= SOUND_FROM


def distances(rounds: Rounds, baseline: str, known: Known) -> list[Distance]:
    """Of each quantity that was measured before."""
    quantities = (
        ("rows per Cassandra CPU second", known.per_cassandra_cpu_s, _per_cassandra_cpu_s),
        ("rows per client CPU second", known.per_client_cpu_s, _per_client_cpu_s),
        ("rows per second", known.per_s, _per_s),
    )
    windows = rounds.windows[baseline]
    return [
        Distance(rounds.case, name, median(of(window) for window in windows), before)
        for name, before, of in quantities
        if before is not None
    ]


def _per_cassandra_cpu_s(window: Window) -> float:
    return window.rows / window.cassandra_cpu_s


def _per_client_cpu_s(window: Window) -> float:
    return window.rows / window.clients_cpu_s


def _per_s(window: Window) -> float:
    return window.rows / window.wall_s
