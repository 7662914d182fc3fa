"""Whether the collector may run, how far its passes over a counter have come, and whether one is overdue. Pure.

It has to know how long the nodes keep hints before it considers a shard final. The store queries the nodes
(`store/cassandra/node_queries.py`, or the simulation).

A pass is named by its start time. It is full when every bucket was visited to its end and no key of it had to be
skipped; a full one is due within half of gc_grace."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from headgate.errors import OperationRefused, Unavailable

DAY_US = 86_400_000_000
PASS_US_MAX = DAY_US
"""An older pass is not continued: another starts."""


class HintWindows(Protocol):
    async def read(self) -> Mapping[str, int]:
        """By node, in µs; Unavailable if one of them does not report it."""


class GcAfterTooShort(OperationRefused):
    """The setting gc.after is not longer than a node's hint window plus maxClockSkew: a late hint could be lost."""


class HintWindowsUnknown(Unavailable):
    """Not every node reports its hint window, so nothing can be considered final."""


def decide_hint_windows(windows_us: Mapping[str, int], *, after_us: int, skew_us: int) -> None:
    for node, window_us in sorted(windows_us.items()):
        if after_us <= window_us + skew_us:
            raise GcAfterTooShort(
                node=node,
                hint_window_s=window_us / 1e6,
                gc_after_s=after_us / 1e6,
                remedy="raise spec.gc.after, or lower max_hint_window on that node",
            )


@dataclass(frozen=True, slots=True)
class BucketMark:
    bucket: int
    after: str | None = None
    done: bool = False
    keys: int = 0
    shards: int = 0
    expired: int = 0
    """Final shards that it left."""
    skipped: int = 0


@dataclass(frozen=True)
class PassHistory:
    marks: dict[int, dict[int, BucketMark]] = field(default_factory=dict)
    """By pass, then by bucket."""
    full_us: int | None = None
    """When the last full pass began."""
    refused: str | None = None
    """Why nothing is collected."""

    @classmethod
    def of(cls, rows: Iterable[Any]) -> PassHistory:
        marks: dict[int, dict[int, BucketMark]] = {}
        full_us = refused = None
        for row in rows:
            full_us, refused = row.full_us, row.refused
            if row.bucket is not None and row.pass_us is not None:
                marks.setdefault(row.pass_us, {})[row.bucket] = BucketMark(
                    row.bucket, row.after, bool(row.done), row.keys, row.shards, row.expired, row.skipped
                )
        return cls(marks, full_us, refused)

    @property
    def last_pass_us(self) -> int | None:
        return max(self.marks, default=None)

    def is_over(self, pass_us: int, buckets: int) -> bool:
        marks = self.marks.get(pass_us, {})
        return len(marks) == buckets and all(mark.done for mark in marks.values())

    def is_full(self, pass_us: int, buckets: int) -> bool:
        marks = self.marks.get(pass_us, {})
        return self.is_over(pass_us, buckets) and not any(mark.skipped for mark in marks.values())

    def counted(self) -> tuple[int, int, int]:
        """Keys, rows and final shards, as the last walk over each bucket met them."""
        newest: dict[int, BucketMark] = {}
        for pass_us in sorted(self.marks):
            newest.update(self.marks[pass_us])
        marks = newest.values()
        return sum(m.keys for m in marks), sum(m.shards for m in marks), sum(m.expired for m in marks)

    def is_overdue(self, *, made_us: int, now_us: int, gc_grace_us: int) -> bool:
        return now_us > (self.full_us or made_us) + gc_grace_us // 2


def decide_next_pass(standing: PassHistory, now_us: int, buckets: int) -> int:
    """The pass to work at: the one under way, unless it is over or too old."""
    last = standing.last_pass_us
    if last is None or standing.is_over(last, buckets) or now_us - last > PASS_US_MAX:
        return now_us
    return last


def places_left(standing: PassHistory, pass_us: int, buckets: int) -> list[BucketMark]:
    marks = standing.marks.get(pass_us, {})
    places = [marks.get(bucket, BucketMark(bucket)) for bucket in range(buckets)]
    return [mark for mark in places if not mark.done]
