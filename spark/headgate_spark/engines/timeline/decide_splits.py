"""How a read is cut into splits: ranges of about equal weight, none of which spans lanes. Pure.

A *stretch* is a range of positions in one partition (generation, part, sub, shard) with a weight: the estimated
number of its messages, evenly distributed. Stretches come in the order of their lane; a split is some of them, and a
heavy stretch is cut into several. Positions are orders, as in headgate.store.model.positions.

Invariant: the pieces of all splits together cover exactly the stretches, and nothing twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

PIECES_MAX = 400
"""Of one split: many parts that hold next to nothing go into one, but each costs a read or two."""
SPLITS_MAX = 10_000
PROBES = 8
PROBE_ROWS = 64


@dataclass(frozen=True, slots=True)
class SplitStretch:
    """Positions above `after`, up to `up_to`, in one partition."""

    generation: int
    shard: int
    part: int
    sub: int
    after: int
    up_to: int
    weight: float

    @property
    def lane(self) -> tuple[int, int]:
        """The boundary that a split never crosses."""
        return self.generation, self.shard


@dataclass(frozen=True, slots=True)
class Probe:
    """The first rows of a range: their number, of at most PROBE_ROWS, and their end."""

    after: int
    up_to: int
    rows: int
    reached: int

    @property
    def rows_estimated(self) -> float:
        """Exact, where those were all rows; else extrapolated."""
        if self.rows < PROBE_ROWS:
            return float(self.rows)
        return self.rows * (self.up_to - self.after) / max(self.reached - self.after, 1)


def ranges_to_probe(after: int, first: int, last: int, count: int = PROBES) -> list[tuple[int, int]]:
    """Equal ranges from below the first row to the last: after and up to."""
    start, width = max(after, first - 1), last - max(after, first - 1)
    bounds = [start + width * at // count for at in range(count + 1)]
    return [(low, high) for low, high in pairwise(bounds) if high > low]


def weigh(stretch: SplitStretch, probes: Sequence[Probe], *, messages_a_row: float) -> list[SplitStretch]:
    """The stretch after its probes: empty parts are left out, since they hold nothing."""
    return [
        replace(stretch, after=probe.after, up_to=probe.up_to, weight=probe.rows_estimated * messages_a_row)
        for probe in probes
        if probe.rows
    ]


def decide_splits(stretches: Iterable[SplitStretch], *, weight_max: float) -> list[list[SplitStretch]]:
    """Splits of about that weight, by lane and in its order."""
    ordered = sorted(stretches, key=lambda each: (each.lane, each.part, each.after, each.sub))
    weight_max = max(weight_max, sum(each.weight for each in ordered) / SPLITS_MAX)
    splits: list[list[SplitStretch]] = []
    now: list[SplitStretch] = []
    weight_left = weight_max
    for stretch in ordered:
        for piece in cut(stretch, weight_max):
            if now and (now[0].lane != piece.lane or piece.weight > weight_left or len(now) >= PIECES_MAX):
                splits.append(now)
                now, weight_left = [], weight_max
            now.append(piece)
            weight_left -= piece.weight
    return [*splits, now] if now else splits


def cut(stretch: SplitStretch, weight_max: float) -> list[SplitStretch]:
    """One that is too heavy, in equal ranges."""
    count = int(-(-stretch.weight // weight_max)) if stretch.weight > weight_max else 1
    width = stretch.up_to - stretch.after
    if count <= 1 or width < count:
        return [stretch]
    bounds = [stretch.after + width * at // count for at in range(count + 1)]
    return [replace(stretch, after=low, up_to=high, weight=stretch.weight / count) for low, high in pairwise(bounds)]


def heaviest(weights: Sequence[float], *, above: float, most: int) -> set[int]:
    """The stretches worth a probe: those above a bound, at most this many of them, the heaviest first."""
    large = sorted((at for at, weight in enumerate(weights) if weight > above), key=lambda at: -weights[at])
    return set(large[:most])
