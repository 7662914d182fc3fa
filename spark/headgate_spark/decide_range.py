"""The part of a queue that a query's filters select: a range of positions, generations, shards. Pure.

A filter only ever narrows the read; Spark applies all of them again to the rows. So unknown filters are ignored. A
message's own `due` and `put`, which are at or before its position's time, bound it from below.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

LOWER_BY = ("at", "due", "put")
EARLIER, LATER = (">", ">=", "="), ("<", "<=", "=")


@dataclass(frozen=True, slots=True)
class Told:
    """One filter: a column, a comparison, and a value; times are in µs since 1970."""

    column: str
    operator: str
    value: object


@dataclass(frozen=True)
class Wanted:
    """Where to read: both orders belong to the range; None is no bound."""

    first: int | None = None
    last: int | None = None
    generations: frozenset[int] | None = None
    shards: frozenset[int] | None = None

    def has_lane(self, generation: int, shard: int) -> bool:
        """Whether a lane is read at all."""
        return (self.generations is None or generation in self.generations) and (
            self.shards is None or shard in self.shards
        )


def narrow(
    wanted: Wanted, told: Iterable[Told], *, first_at: Callable[[int], int], last_at: Callable[[int], int]
) -> Wanted:
    """The part left to read. The functions return the lowest and the highest order of a microsecond."""
    for each in told:
        if each.column in LOWER_BY and isinstance(each.value, int):
            wanted = _by_moment(wanted, each, each.value, first_at, last_at)
        elif each.column == "generation":
            wanted = replace(wanted, generations=_both(wanted.generations, _numbers(each)))
        elif each.column == "shard":
            wanted = replace(wanted, shards=_both(wanted.shards, _numbers(each)))
    return wanted


def _by_moment(
    wanted: Wanted, told: Told, moment_us: int, first_at: Callable[[int], int], last_at: Callable[[int], int]
) -> Wanted:
    if told.operator in EARLIER:
        lowest = first_at(moment_us)
        wanted = replace(wanted, first=lowest if wanted.first is None else max(wanted.first, lowest))
    if told.operator in LATER and told.column == "at":
        highest = last_at(moment_us)
        wanted = replace(wanted, last=highest if wanted.last is None else min(wanted.last, highest))
    return wanted


def _numbers(told: Told) -> frozenset[int] | None:
    values = told.value if told.operator == "in" else (told.value,) if told.operator == "=" else None
    if not isinstance(values, tuple | list | frozenset | set):
        return None
    return frozenset(value for value in values if isinstance(value, int))


def _both(one: frozenset[int] | None, other: frozenset[int] | None) -> frozenset[int] | None:
    if one is None or other is None:
        return other if one is None else one
    return one & other
