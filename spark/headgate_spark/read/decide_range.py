"""The part of a queue that a query's filters select: a range of positions, generations, shards. Pure.

A filter only ever narrows the read; Spark applies all of them again to the rows. So unknown filters are ignored. A
message's own `due` and `put`, which are at or before its position's time, bound it from below.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from headgate_spark.engines.contract import ReadRange

LOWER_BY = ("at", "due", "put")
EARLIER, LATER = (">", ">=", "="), ("<", "<=", "=")


@dataclass(frozen=True, slots=True)
class ColumnFilter:
    """One filter: a column, a comparison, and a value; times are in µs since 1970."""

    column: str
    operator: str
    value: object


def decide_range(
    wanted: ReadRange,
    filters: Iterable[ColumnFilter],
    *,
    first_at: Callable[[int], int],
    last_at: Callable[[int], int],
) -> ReadRange:
    """The part left to read. The functions return the lowest and the highest order of a microsecond."""
    for each in filters:
        if each.column in LOWER_BY and isinstance(each.value, int):
            wanted = _by_time(wanted, each, each.value, first_at, last_at)
        elif each.column == "generation":
            wanted = replace(wanted, generations=_both(wanted.generations, _numbers(each)))
        elif each.column == "shard":
            wanted = replace(wanted, shards=_both(wanted.shards, _numbers(each)))
    return wanted


def _by_time(
    wanted: ReadRange,
    column_filter: ColumnFilter,
    time_us: int,
    first_at: Callable[[int], int],
    last_at: Callable[[int], int],
) -> ReadRange:
    if column_filter.operator in EARLIER:
        lowest = first_at(time_us)
        wanted = replace(wanted, first=lowest if wanted.first is None else max(wanted.first, lowest))
    if column_filter.operator in LATER and column_filter.column == "at":
        highest = last_at(time_us)
        wanted = replace(wanted, last=highest if wanted.last is None else min(wanted.last, highest))
    return wanted


def _numbers(column_filter: ColumnFilter) -> frozenset[int] | None:
    values = {"in": column_filter.value, "=": (column_filter.value,)}.get(column_filter.operator)
    if not isinstance(values, tuple | list | frozenset | set):
        return None
    return frozenset(value for value in values if isinstance(value, int))


def _both(one: frozenset[int] | None, other: frozenset[int] | None) -> frozenset[int] | None:
    if one is None or other is None:
        return other if one is None else one
    return one & other
