"""Leaving a generation: the actions for the rows ahead in a lane of it, and the lanes that hold back the groups of a
later one. The prose is "Leaving a generation" in docs/internals/protocols/generations.md.

Pure: rows, times and generations in, decisions out. `lanes/retire_lane.py` reads, moves and retires.

Invariants: one order separates the rows delivered from this lane from the moved ones: nothing of a group is delivered
from it after a row of the group has moved, for any owner.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from enum import Enum
from typing import Any, Protocol, TypeVar

from headgate.engines.lanes.delivery.rows import LaneRow
from headgate.engines.lanes.lane_name import LaneName
from headgate.engines.lanes.log.settle_log_format import bits_of
from headgate.expiry import others_may_act_after

BATCH_ROWS_MAX = 100
"""In one conditional batch: a rejected batch is repeated, and the server limits the size of a batch."""

Item = TypeVar("Item")


class EndingGeneration(Protocol):
    """A generation, as far as its end goes."""

    @property
    def number(self) -> int:
        """Which one."""
        ...

    @property
    def shards(self) -> int:
        """How many lanes it has."""
        ...

    @property
    def sure_us(self) -> int | None:
        """From this time on nobody writes to it any more."""
        ...


class Ahead(Enum):
    """The action for a row ahead."""

    NOTHING = "cancelled, purged, expired, replaced, or moved and finished: the row can be passed"
    FINISH = "a process moved the row and died before its copy was known to be written"
    LEAVE = "the row is delivered from this lane"
    MOVE = "the row belongs to the current generation of its due time"


def lead_us(*, lag_us_max: int, lease_ttl_s: int, skew_us: int) -> int:
    """A row that is due within this time is not moved: it falls due while the owner waits.

    Longer than any producer stamps immediate messages ahead, so a row shared by several stays. It is also long enough
    for another owner to come and finish this one's moves before they fall due.
    """
    return max(lag_us_max + 2 * skew_us, 2_000_000 * lease_ttl_s)


def over_after_us(generation: EndingGeneration, skew_us: int) -> int | None:
    """From this time on, by the reader's own clock, nobody writes to it; None while that is not sure."""
    return None if generation.sure_us is None else others_may_act_after(generation.sure_us, skew_us)


def is_over(generation: EndingGeneration, *, now_us: int, skew_us: int) -> bool:
    """Whether it is no longer written: as `decide_generation.is_over`, from an engine's knowledge of it."""
    over_us = over_after_us(generation, skew_us)
    return over_us is not None and now_us >= over_us


def decide_row(row: LaneRow, cutoff: Any, *, has_gone: bool) -> Ahead:
    """The action for a row. `cutoff`: later due times are not delivered from this lane; `has_gone`: it was moved to a
    later generation already."""
    if row.settled == bits_of(0, row.count):
        return Ahead.NOTHING
    if has_gone:
        return Ahead.FINISH
    if row.order <= cutoff or row.count > 1:
        return Ahead.LEAVE
    return Ahead.FINISH if row.moved else Ahead.MOVE


def batches(rows: Iterable[tuple[Hashable, Item]], rows_max: int) -> Iterator[list[list[Item]]]:
    """Rows, each with its partition, as conditional batches: a list for each partition, in the order of sending;
    those of different partitions may be under way together."""
    by_partition: dict[Hashable, list[Item]] = {}
    for partition, row in rows:
        by_partition.setdefault(partition, []).append(row)
    for of_one in by_partition.values():
        yield [of_one[start : start + rows_max] for start in range(0, len(of_one), rows_max)]


def lanes_before(generations: Sequence[EndingGeneration], number: int) -> list[LaneName]:
    """The lanes that hold back the groups of a generation until they are retired (attack C2), oldest first. Those of
    generations that left the catalogue are retired."""
    return [
        (each.number, shard)
        for each in sorted(generations, key=lambda each: each.number)
        if each.number < number
        for shard in range(each.shards)
    ]
