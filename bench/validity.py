"""Whether a run counts, and the warnings for its reader. A mark states a finding in one line; a bad one voids the
run.

The bounds are for a machine shared with others: figures per CPU second and ratios of neighbours in a round tolerate
much noise, those by wall clock do not, which the marks between the bounds report.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from bench.baseline import SOUND_FROM, Distance
from bench.rounds import ROUNDS_MIN, Rounds, Window

OTHERS_NOTED, OTHERS_MAX = 0.15, 0.50
STOLEN_NOTED, STOLEN_MAX = 0.02, 0.10
FAILED_MAX = 0.01


@dataclass(frozen=True)
class Mark:
    """One fact for the reader; if it is bad, the run does not count."""

    bad: bool
    text: str


@dataclass(frozen=True)
class Load:
    """The others' share of the machine, of all cores: the median over windows."""

    others: float
    stolen: float


def load_of(windows: Iterable[Window], cores: int) -> Load:
    """Others' share: all that neither clients nor Cassandra used. Nothing, where all was measured but once."""
    taken = list(windows)
    if not taken:
        return Load(0.0, 0.0)
    return Load(
        others=median(max(window.others_cpu_s, 0.0) / (window.span_s * cores) for window in taken),
        stolen=median(window.stolen_cpu_s / (window.span_s * cores) for window in taken),
    )


def load_marks(load: Load) -> list[Mark]:
    """Of a machine that others use."""
    marks = []
    if load.others > OTHERS_NOTED:
        bad = load.others > OTHERS_MAX
        doubt = f"more than {OTHERS_MAX:.0%}" if bad else "wall-clock figures are low, and their spread is wide"
        marks.append(Mark(bad, f"others used {load.others:.0%} of the machine: {doubt}"))
    if load.stolen > STOLEN_NOTED:
        bad = load.stolen > STOLEN_MAX
        doubt = f"more than {STOLEN_MAX:.0%}" if bad else "wall-clock figures are low"
        marks.append(Mark(bad, f"{load.stolen:.0%} of the machine's time was stolen by its host: {doubt}"))
    return marks


def baseline_marks(distances: Sequence[Distance]) -> list[Mark]:
    """Of baselines that differ from their earlier figures."""
    return [
        Mark(
            True,
            f"the baseline of {distance.case} does {distance.measured:,.0f} {distance.quantity}, "
            f"{distance.ratio:.2f} times its known rate; below {SOUND_FROM} nothing compared with it counts",
        )
        for distance in distances
        if not distance.sound
    ]


def rounds_marks(rounds: Sequence[Rounds], *, at_least: int = ROUNDS_MIN) -> list[Mark]:
    """Of cases that had too few rounds for a median to mean something."""
    return [
        Mark(True, f"{case.case} had {case.count} rounds; a median needs at least {at_least}")
        for case in rounds
        if case.count < at_least
    ]


def left_out_marks(names: Sequence[str]) -> list[Mark]:
    """Of cases for which no time was left."""
    return [Mark(True, f"the time limit came before: {'; '.join(names)}")] if names else []


def failure_marks(rounds: Sequence[Rounds]) -> list[Mark]:
    """Of requests that failed: a fast failure is not fast."""
    marks = []
    for case in rounds:
        for contender, windows in case.windows.items():
            failed, sent = sum(one.failed for one in windows), sum(one.requests + one.failed for one in windows)
            if failed:
                share = failed / sent
                marks.append(Mark(share > FAILED_MAX, f"{case.case}, {contender}: {share:.2%} of requests failed"))
    return marks


def is_valid(marks: Iterable[Mark]) -> bool:
    """Whether nothing voids the run."""
    return not any(mark.bad for mark in marks)
