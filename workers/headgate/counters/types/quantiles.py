"""`quantiles`: below which number a tenth, a half, 99 of 100 of all numbers lie, estimated from a few kilobytes (KLL,
k = 200).

The error is one of rank: the number returned for 0.5 has a true rank from 0.5 - e to 0.5 + e, where e is 1.33 % with
a confidence of 99 %; `rank_error` states it. Up to 200 numbers it is exact; count, minimum and maximum always are.

Numbers are floats; whole ones beyond 2^53 are rounded to one. Which numbers the sketch keeps is random, so two merges
of the same shards give different bytes, both within the error. That is the equality the laws mean: the same count,
least and greatest, and every rank within the errors of both. dump(load(bytes)) = bytes holds.

Body: a KllDoublesSketch of DataSketches.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headgate.counters.types.contract import Example, Json, is_number
from headgate.counters.types.sketches import LoadedSketch, Sketch, SketchType

K = 200
RANKS = (0.5, 0.9, 0.99)
RANKS_MAX = 1_000
SAME_RANKS = tuple(number / 20 for number in range(1, 20))
ROUNDING = 1e-9
"""Of a rank, which is a quotient."""
SAME_ERRORS = 4.0
"""The distance of two sketches of the same numbers, in multiples of the error: each has its own, at 99 %."""


@dataclass(frozen=True)
class QuantilesValue:
    count: int
    least: float | None
    greatest: float | None
    quantiles: dict[float, float]
    """From each requested rank to the number at it; none where there are no numbers."""
    rank_error: float
    """By how much a rank may be wrong, with a confidence of 99 %."""


class Quantiles(SketchType[float]):
    name = "quantiles"

    def parse(self, verb: str, arguments: Sequence[Json], at_us: int) -> float:
        self.require_verb(verb)
        given = self.one_number(arguments)
        try:
            return float(given)
        except OverflowError:
            raise self.wrong("a number that a float can hold", "a greater one") from None

    def new_sketch(self) -> Sketch:
        return self._library.kll_doubles_sketch(K)

    def read_sketch(self, body: bytes) -> Sketch:
        sketch = self._library.kll_doubles_sketch.deserialize(body)
        if sketch.k != K:
            raise ValueError("a sketch of another size")
        return sketch

    def take(self, sketch: Sketch, update: float) -> None:
        sketch.update(update)

    def value(self, state: LoadedSketch, question: Mapping[str, Any]) -> QuantilesValue:
        """`ranks`: numbers from 0 to 1. Default: the median and the highest tenth and hundredth."""
        self.require_question(question, "ranks")
        ranks = tuple(question.get("ranks", RANKS))
        if len(ranks) > RANKS_MAX or not all(is_number(rank) and 0 <= rank <= 1 for rank in ranks):
            raise self.wrong(f"at most {RANKS_MAX} ranks from 0 to 1", list(ranks))
        sketch = state.sketch
        if sketch.is_empty():
            return QuantilesValue(0, None, None, {}, 0.0)
        return QuantilesValue(
            count=sketch.n,
            least=sketch.get_min_value(),
            greatest=sketch.get_max_value(),
            quantiles={float(rank): sketch.get_quantile(float(rank), True) for rank in ranks},
            rank_error=sketch.normalized_rank_error(False) if sketch.is_estimation_mode() else 0.0,
        )

    def same(self, one: LoadedSketch, other: LoadedSketch) -> bool:
        left, right = one.sketch, other.sketch
        if left.n != right.n or left.is_empty():
            return bool(left.n == right.n)
        if (left.get_min_value(), left.get_max_value()) != (right.get_min_value(), right.get_max_value()):
            return False
        estimated = left.is_estimation_mode() or right.is_estimation_mode()
        within = SAME_ERRORS * left.normalized_rank_error(False) if estimated else ROUNDING
        return all(_rank_distance(left, right, rank) <= within for rank in SAME_RANKS)

    def examples(self) -> Sequence[Example]:
        return [Example("add", (12.5,)), Example("add", (-3,)), Example("add", (0.1,))]


def _rank_distance(one: Sketch, other: Sketch, rank: float) -> float:
    """The distance from `rank` of the other sketch's rank for this one's number; a frequent number has many ranks."""
    number = one.get_quantile(rank, True)
    low, high = other.get_rank(number, False), other.get_rank(number, True)
    return float(max(low - rank, rank - high, 0.0))
