"""The length of a measurement, and its result: the values that a benchmark gives to the report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from bench.baseline import Distance
from bench.figure import Figure
from bench.rounds import ROUNDS_MIN, Metric, Rounds
from dev.servers.cassandra import Profile
from headgate.errors import InvalidRequest

ROUNDS_MAX = 50
SECONDS_MAX = 60.0


@dataclass(frozen=True)
class Plan:
    """The length. Any value is bounded: a case ends after the round in which its time is up."""

    run: str
    rounds: int = 5
    seconds: float = 1.0
    warm_up_s: float = 0.5
    server_warm_up_cpu_s: float = 35.0
    """CPU seconds of the server itself: its compiler needs work to learn from, which takes time where it is busy."""
    server_warm_up_s_max: float = 60.0
    total_s_max: float = 510.0
    """After this no case is started and no second round: a slow machine ends within ten minutes, too, but invalid."""
    quick: bool = False
    only: tuple[str, ...] = ()
    """The parts to be measured; all of them if none is named."""

    def __post_init__(self) -> None:
        if not 1 <= self.rounds <= ROUNDS_MAX:
            raise InvalidRequest("too few or too many rounds", remedy=f"from 1 to {ROUNDS_MAX}", rounds=self.rounds)
        if not 0 < self.seconds <= SECONDS_MAX:
            raise InvalidRequest(
                "the window is too short or too long", remedy=f"above 0, at most {SECONDS_MAX:.0f} s", s=self.seconds
            )

    @property
    def rounds_min(self) -> int:
        """Below this a median means nothing; a quick run shows that the benchmark works, not how fast anything is."""
        return 1 if self.quick else ROUNDS_MIN

    @property
    def server_profile(self) -> Profile:
        """How Cassandra runs: a quick run does with one that starts in seconds and is never fast."""
        return Profile.FUNCTIONAL if self.quick else Profile.THROUGHPUT

    def case_s_max(self, contenders: int) -> float:
        """After this no round of a case is started: twice the time that it should take."""
        return 2 * self.rounds * contenders * self.seconds


def quick_plan(run: str) -> Plan:
    """Enough to see that everything works."""
    return Plan(run, rounds=2, seconds=0.25, warm_up_s=0.1, server_warm_up_cpu_s=0.0, quick=True)


@dataclass(frozen=True)
class Measured:
    """One case: its rounds, and their results. A case that is measured once per run has no rounds."""

    rounds: Rounds | None
    figures: tuple[Figure, ...]
    distances: tuple[Distance, ...] = ()
    part: str = ""


@dataclass
class Results:
    """All cases of one benchmark, in the order in which they were measured."""

    cases: list[Measured] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    """Cases that were not started, since time was up."""
    checked: list[str] = field(default_factory=list)
    """The assertions on the way: a run in which one fails has no result."""

    @property
    def figures(self) -> list[Figure]:
        """Of all cases."""
        return [figure for case in self.cases for figure in case.figures]

    @property
    def distances(self) -> list[Distance]:
        """Of all baselines that were measured before."""
        return [distance for case in self.cases for distance in case.distances]

    @property
    def rounds(self) -> list[Rounds]:
        """Of all cases."""
        return [case.rounds for case in self.cases if case.rounds is not None]


def figures_of(
    rounds: Rounds, metrics: Sequence[Metric], ours: str, baseline: str, *, case: str | None = None
) -> list[Figure]:
    """A figure for each quantity of two contenders of the same rounds."""
    return [
        Figure(
            case=case or rounds.case,
            metric=metric.name,
            unit=metric.unit,
            ours=rounds.series(ours, metric),
            baseline=rounds.series(baseline, metric),
        )
        for metric in metrics
    ]
