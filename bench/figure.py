"""A figure: a measured value of ours, always with a baseline measured in the same interleaved rounds.

Noise of a shared machine affects neighbours in a round alike, so a ratio is computed for each round and only then its
median; a target is compared with that. A figure whose baseline comes from another run, or from other rounds, cannot
be built. Pure values: no clock, no process.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from statistics import median

from headgate.errors import Bug


class FigureBroken(Bug):
    """A meaningless figure cannot be built."""


@dataclass(frozen=True)
class Spread:
    """The median of some values, and their spread."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """Of at least one value, all of them finite."""
        if not values or not all(math.isfinite(value) for value in values):
            raise FigureBroken("no measurement", values=list(values))
        return cls(median(values), min(values), max(values))


@dataclass(frozen=True)
class Series:
    """One quantity of one contender: a value for each round of one run, in order."""

    run: str
    contender: str
    values: tuple[float, ...]

    @property
    def spread(self) -> Spread:
        """Its median and ends."""
        return Spread.of(self.values)


class Side(Enum):
    """Which side of the bound is the good one."""

    AT_MOST = "at most"
    AT_LEAST = "at least"


class Of(Enum):
    """The quantity of the bound."""

    RATIO = "ratio"
    VALUE = "value"


@dataclass(frozen=True)
class Target:
    """The target."""

    side: Side
    bound: float
    of: Of = Of.RATIO

    def is_met_by(self, measured: float) -> bool:
        """Whether it holds; the bound itself does."""
        return measured <= self.bound if self.side is Side.AT_MOST else measured >= self.bound


@dataclass(frozen=True)
class Figure:
    """One line of a result."""

    case: str
    metric: str
    unit: str
    ours: Series
    baseline: Series
    target: Target | None = None

    def __post_init__(self) -> None:
        if self.ours.run != self.baseline.run:
            raise FigureBroken("the baseline is from another run", case=self.case, metric=self.metric)
        if len(self.ours.values) != len(self.baseline.values):
            raise FigureBroken("the baseline is from other rounds", case=self.case, metric=self.metric)
        if self.ours.contender == self.baseline.contender:
            raise FigureBroken("a contender is its own baseline", case=self.case, contender=self.ours.contender)
        if not all(value > 0 for value in self.baseline.values):
            raise FigureBroken("the baseline is zero", case=self.case, metric=self.metric)

    @property
    def value(self) -> Spread:
        """Ours."""
        return self.ours.spread

    @property
    def ratio(self) -> Spread:
        """Ours to the baseline, round by round."""
        return Spread.of([ours / base for ours, base in zip(self.ours.values, self.baseline.values, strict=True)])

    @property
    def met(self) -> bool | None:
        """Whether the target is met; None where nothing was promised."""
        if self.target is None:
            return None
        return self.target.is_met_by((self.ratio if self.target.of is Of.RATIO else self.value).median)
