"""Rows of a timeline queue as statements: messages, index rows, put counts. Values in, statements out.

A row's statement is made once and sent as often as needed: it carries its own timestamp (rule R4).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from penstock.engines.packed import PackedRun, pack
from penstock.engines.timeline.layout import (
    DAY_US,
    DAYS,
    SECOND_US,
    TTL_S_MAX,
    RowPlace,
    day_of,
    id_text,
    row_text,
)
from penstock.engines.timeline.own_parts import Count, IndexKey
from penstock.engines.timeline.settings import TimelineSettings
from penstock.store.positions import moment_us_of
from penstock.store.statements import Batch, Insert, Write

OUTLIVES_US = 3_600 * SECOND_US
"""What tells of messages lives so much longer than they: of two cells that expire, the one that explains goes last."""
_SUFFIX_INDEXES = 512
_ROW_TEXT = 40
"""A message id is 27 bytes: 25 of its row, which are 40 letters, and 2 of its index, which are the last 4."""


def _suffix(index: int) -> str:
    return id_text(bytes(25) + index.to_bytes(2, "little"))[_ROW_TEXT:]


_SUFFIXES = tuple(_suffix(index) for index in range(_SUFFIX_INDEXES))


def ids_of(row: RowPlace, count: int) -> list[str]:
    """The ids of the messages of a row, in order. All share their beginning, so this costs little."""
    start = row_text(row)
    if count == 1:
        return [start + _SUFFIXES[0]]
    suffixes = _SUFFIXES if count <= _SUFFIX_INDEXES else [_suffix(index) for index in range(count)]
    return [start + suffix for suffix in suffixes[:count]]


@dataclass(slots=True)
class StampedRow:
    """A row with its place, as it is sent, and whom it is for. `first` is the place it was stamped with at first."""

    place: RowPlace
    due_us: int
    part: int
    run: PackedRun
    cell: bytes
    statement: Insert
    owners: Sequence[Any]
    first: RowPlace
    sent_us: int
    known: Any
    tried: bool = False
    in_doubt: bool = False
    late_is_found: bool = False
    """It can have no twin any more: being durable is enough, repair finds it."""

    @property
    def partition(self) -> tuple[int, int, int, int]:
        """Rows with the same one can share a write."""
        return self.place.generation, self.part, self.place.sub, self.place.shard

    @property
    def index_key(self) -> IndexKey:
        """Its row of the index."""
        return IndexKey(self.place.generation, self.part, self.place.sub)


def ttl_s_kept(due_us: int, settings: TimelineSettings, *, now_us: int, last_expiry_s: int) -> int:
    """How long a row is kept that was accepted: as `ttl_s_of`, cut where a second of rounding leads past the end."""
    ttl_s = -(-(max(due_us - now_us, 0) + settings.retention_us) // SECOND_US)
    return max(1, min(ttl_s, TTL_S_MAX, last_expiry_s - now_us // SECOND_US))


def row_statement(
    settings: TimelineSettings, place: RowPlace, part: int, cell: bytes, *, timestamp_us: int, ttl_s: int
) -> Insert:
    """The write of one row of messages."""
    return Insert(
        settings.tables.later if place.lies_later else settings.tables.work,
        {
            "queue": settings.queue,
            "generation": place.generation,
            "part": part,
            "sub": place.sub,
            "shard": place.shard,
            "due": place.due,
            "run": cell,
        },
        timestamp_us=timestamp_us,
        ttl_s=ttl_s,
    )


def index_statement(settings: TimelineSettings, key: IndexKey, *, now_us: int, last_expiry_s: int) -> Insert:
    """The write of one index row: it lives longer than anything in its part can, as the records of the part do.

    Its timestamp is the retention, so of two producers that know different ones the longer wins, in whatever order
    they write, and those who know the same write the same (attack A13).
    """
    end_us = (key.part + 1) * settings.part_us + OUTLIVES_US
    return Insert(
        settings.tables.parts,
        {
            "queue": settings.queue,
            "generation": key.generation,
            "day": day_of(key.part, settings.part_us),
            "part": key.part,
            "sub": key.sub,
            "put_us": now_us,
        },
        timestamp_us=max(1, settings.retention_us),
        ttl_s=ttl_s_kept(end_us, settings, now_us=now_us, last_expiry_s=last_expiry_s),
    )


def day_statement(
    settings: TimelineSettings, generation: int, day: int, *, now_us: int, last_expiry_s: int
) -> Insert:
    """The write of a day into the list of days that hold something: as an index row, and living as long."""
    end_us = (day + 1) * DAY_US + settings.part_us
    return Insert(
        settings.tables.parts,
        {
            "queue": settings.queue,
            "generation": generation,
            "day": DAYS,
            "part": day,
            "sub": 0,
            "put_us": now_us,
        },
        timestamp_us=max(1, settings.retention_us),
        ttl_s=ttl_s_kept(end_us, settings, now_us=now_us, last_expiry_s=last_expiry_s),
    )


def count_statement(settings: TimelineSettings, count: Count, *, now_us: int, last_expiry_s: int) -> Insert:
    """The write of one put count."""
    end_us = (count.part + 1) * settings.part_us
    return Insert(
        settings.tables.put_counts,
        {
            "queue": settings.queue,
            "generation": count.generation,
            "part": count.part,
            "writer": count.writer,
            "messages": count.messages,
            "bytes": count.size_bytes,
        },
        timestamp_us=now_us,
        ttl_s=ttl_s_kept(end_us, settings, now_us=now_us, last_expiry_s=last_expiry_s),
    )


def one_write(rows: Sequence[StampedRow]) -> Write:
    """The rows as one request."""
    return rows[0].statement if len(rows) == 1 else Batch([row.statement for row in rows])


def stamped(  # noqa: PLR0913 - a row is all of this at once
    settings: TimelineSettings,
    place: RowPlace,
    run: PackedRun,
    *,
    owners: Sequence[Any],
    first: RowPlace | None,
    now_us: int,
    timestamp_us: int,
    last_expiry_s: int,
    known: Any,
) -> StampedRow:
    """A row ready to be sent."""
    due_us = moment_us_of(place.due)
    part = due_us // settings.part_us
    cell = pack(run)
    ttl_s = ttl_s_kept(due_us, settings, now_us=now_us, last_expiry_s=last_expiry_s)
    statement = row_statement(settings, place, part, cell, timestamp_us=timestamp_us, ttl_s=ttl_s)
    return StampedRow(place, due_us, part, run, cell, statement, owners, first or place, now_us, known)
