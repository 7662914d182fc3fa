"""One producer's writes into each part: its current sub, its index rows, and its counts; and their statements.

It does no I/O. The prose is "Put" in docs/internals/protocols/timeline.md.

Invariants: an index row counts as written only once its write was acknowledged, and only for the memory in which that
write started: a write under way at a reset does not count (attack A13). A writer's count of a part never decreases: a
part that was evicted and comes again is counted under another writer's uuid. At most `PARTS_MAX` parts are
remembered, and as many counts wait to be written.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple
from uuid import UUID

from headgate.engines.timeline.model.layout import (
    DAY_US,
    DAYS,
    LATER_SUBS_FROM,
    OUTLIVES_US,
    SUBS_MAX,
    day_of,
    ttl_s_kept,
)
from headgate.engines.timeline.model.settings import TimelineSettings
from headgate.store.model.statements import Insert

SUB_ROWS_MAX = 100_000
SUB_BYTES_MAX = 32 * 1024 * 1024
"""Both of one producer alone, over all shards (attack E5). A lane reads the keys of all subs of a part and then the
rows that come next, so a further sub costs it a small read."""
PARTS_MAX = 20_000
INDEXED_MAX = 100_000


class IndexKey(NamedTuple):
    """One row of the index."""

    generation: int
    part: int
    sub: int


@dataclass(slots=True)
class Count:
    """This producer's acknowledged puts in one part."""

    generation: int
    part: int
    writer: UUID
    messages: int = 0
    size_bytes: int = 0
    sent_us: int = 0
    """The send time of the latest of them: a purge from then on covers the whole part."""


@dataclass(slots=True)
class _Part:
    count: Count
    sub: int = 0
    rows: int = 0
    size_bytes: int = 0


class OwnParts:
    """The parts that one producer wrote to last; one that was evicted starts again."""

    def __init__(self, uuid: Callable[[], UUID]) -> None:
        self._uuid = uuid
        self._parts: OrderedDict[tuple[int, int, bool], _Part] = OrderedDict()
        self._changed: dict[UUID, Count] = {}
        self._indexed: set[IndexKey] = set()

    def sub_for(self, generation: int, part: int, *, later: bool, size_bytes: int) -> int:
        """The sub for one more row of this size."""
        mine = self._of(generation, part, later)
        if mine.rows >= SUB_ROWS_MAX or (mine.rows and mine.size_bytes + size_bytes > SUB_BYTES_MAX):
            mine.sub = min(mine.sub + 1, SUBS_MAX - 1)
            mine.rows = mine.size_bytes = 0
        mine.rows += 1
        mine.size_bytes += size_bytes
        return mine.sub + (LATER_SUBS_FROM if later else 0)

    def sub_for_all(self, generation: int, part: int, *, later: bool, rows: int, size_bytes: int) -> int | None:
        """The sub for this many rows of this total size; None if no single sub has room for all of them."""
        mine = self._of(generation, part, later)
        if mine.rows + rows > SUB_ROWS_MAX or mine.size_bytes + size_bytes > SUB_BYTES_MAX:
            return None
        mine.rows += rows
        mine.size_bytes += size_bytes
        return mine.sub + (LATER_SUBS_FROM if later else 0)

    def acknowledged(
        self, generation: int, part: int, *, later: bool, messages: int, size_bytes: int, sent_us: int = 0
    ) -> None:
        """Count messages that are durable."""
        count = self._of(generation, part, later).count
        count.sent_us = max(count.sent_us, sent_us)
        count.messages += messages
        count.size_bytes += size_bytes
        self._owe(count)

    def take_changed(self, most: int) -> list[Count]:
        """Counts to write, the longest changed first; the caller writes them, or returns them."""
        return [self._changed.pop(writer) for writer in list(self._changed)[:most]]

    def give_back(self, counts: Iterable[Count]) -> None:
        """They could not be written."""
        for count in counts:
            self._owe(count)

    def _owe(self, count: Count) -> None:
        self._changed.setdefault(count.writer, count)
        if len(self._changed) > PARTS_MAX:
            del self._changed[next(iter(self._changed))]

    @property
    def changed(self) -> int:
        """How many counts have to be written."""
        return len(self._changed)

    # ---- the index

    @property
    def indexed(self) -> set[IndexKey]:
        """The index rows known to be durable: the current memory. A writer keeps a reference to this very set and
        adds to it, so that an answer from before a change does not count after it."""
        return self._indexed

    def forget_index(self) -> None:
        """The catalogue changed: believe in no index row made before."""
        self._indexed = set()

    def not_indexed(self, rows: Iterable[IndexKey]) -> Iterator[IndexKey]:
        """Those of which no index row is known to be durable."""
        if len(self._indexed) > INDEXED_MAX:
            self.forget_index()
        indexed = self._indexed
        return (key for key in dict.fromkeys(rows) if key not in indexed)

    def _of(self, generation: int, part: int, later: bool) -> _Part:
        key = (generation, part, later)
        mine = self._parts.get(key)
        if mine is None:
            if len(self._parts) >= PARTS_MAX:
                self._parts.popitem(last=False)
            mine = self._parts[key] = _Part(Count(generation, part, self._uuid()))
        else:
            self._parts.move_to_end(key)
        return mine


def index_statement(
    settings: TimelineSettings, key: IndexKey, *, now_us: int, last_expiry_s: int, announced: bool = False
) -> Insert:
    """The write of one index row: it lives longer than anything in its part can, as the records of the part do.
    `announced`: what it names may come late, so repair checks the part again.

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
            **({"late_us": now_us} if announced else {}),
        },
        timestamp_us=max(1, settings.retention_us),
        ttl_s=ttl_s_kept(end_us, now_us=now_us, retention_us=settings.retention_us, last_expiry_s=last_expiry_s),
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
        ttl_s=ttl_s_kept(end_us, now_us=now_us, retention_us=settings.retention_us, last_expiry_s=last_expiry_s),
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
        ttl_s=ttl_s_kept(end_us, now_us=now_us, retention_us=settings.retention_us, last_expiry_s=last_expiry_s),
    )
