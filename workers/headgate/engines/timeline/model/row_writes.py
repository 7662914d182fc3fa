"""The writes that accompany the rows of a timeline queue, as statements: index rows, days, put counts; and the time
to live of rows, and the ids of their messages. Values in, statements out. The rows themselves are stamped.py's.
"""

from __future__ import annotations

from uuid import UUID

from headgate.engines.timeline.model.layout import (
    DAY_US,
    DAYS,
    SECOND_US,
    TTL_S_MAX,
    RowPlace,
    day_of,
    due_text,
    id_text,
    row_text,
)
from headgate.engines.timeline.model.partitions import Count, IndexKey
from headgate.engines.timeline.model.settings import TimelineSettings
from headgate.store.model.statements import Insert

OUTLIVES_US = 3_600 * SECOND_US
"""Rows about messages live this much longer than the messages: of two cells that expire, the explaining one is
last."""
_SUFFIX_INDEXES = 512
_ROW_TEXT = 40
"""A message id is 27 bytes: 25 of its row, which are 40 letters, and 2 of its index, which are the last 4."""


def _suffix(index: int) -> str:
    return id_text(bytes(25) + index.to_bytes(2, "little"))[_ROW_TEXT:]


_SUFFIXES = tuple(_suffix(index) for index in range(_SUFFIX_INDEXES))


def id_suffix(index: int) -> str:
    """The part of a message's id after its row's text."""
    return _SUFFIXES[index] if index < _SUFFIX_INDEXES else _suffix(index)


def id_alone(generation: int, shard: int, sub: int, due: UUID) -> str:
    """The id of the first message of a row, which is the only one of a row of its own."""
    return due_text(generation, shard, sub, due) + _SUFFIXES[0]


def ids_of(row: RowPlace, count: int) -> list[str]:
    """The ids of the messages of a row, in order. All share their beginning, so this costs little."""
    start = row_text(row)
    if count == 1:
        return [start + _SUFFIXES[0]]
    suffixes = _SUFFIXES if count <= _SUFFIX_INDEXES else [_suffix(index) for index in range(count)]
    return [start + suffix for suffix in suffixes[:count]]


def ttl_s_kept(due_us: int, settings: TimelineSettings, *, now_us: int, last_expiry_s: int) -> int:
    """How long a row is kept that was accepted: as `ttl_s_of`, cut where a second of rounding leads past the end."""
    ttl_s = -(-(max(due_us - now_us, 0) + settings.retention_us) // SECOND_US)
    return max(1, min(ttl_s, TTL_S_MAX, last_expiry_s - now_us // SECOND_US))


def index_statement(settings: TimelineSettings, key: IndexKey, *, now_us: int, last_expiry_s: int) -> Insert:
    """The write of one index row: it lives longer than anything in its part can, as the records of the part do.

    Its timestamp is the retention. So of two producers with different retentions the longer wins, in any order, and
    those with the same one write the same (attack A13).
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
            "sent_us": count.sent_us,
        },
        timestamp_us=now_us,
        ttl_s=ttl_s_kept(end_us, settings, now_us=now_us, last_expiry_s=last_expiry_s),
    )
