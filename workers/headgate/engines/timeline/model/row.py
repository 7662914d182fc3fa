"""Rows that have a place: in the form for sending, with their waiting callers. Values in, rows out; no I/O.

A row's write may be sent as often as needed: it carries its own timestamp (rule R4). Its messages are packed once,
too: a caller that needs them again, for a restamped row, unpacks them, which is rare.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple
from uuid import UUID

from headgate.engines.packed_row import PackedRun, pack, pack_alone, unpack
from headgate.engines.timeline.model.decide_flush import PendingMessage
from headgate.engines.timeline.model.layout import LATER_SUBS_FROM, RowPlace
from headgate.engines.timeline.model.partitions import IndexKey
from headgate.engines.timeline.model.row_writes import ttl_s_kept
from headgate.engines.timeline.model.settings import TimelineSettings
from headgate.store.model.positions import time_us_of
from headgate.store.model.shapes import InsertShape, insert_shape
from headgate.store.model.statements import Batch, Insert, RowsOf, Write
from headgate.store.model.types import Value

_COLUMNS = ("queue", "generation", "part", "sub", "shard", "due", "run")


class RowPartition(NamedTuple):
    """Where rows lie that can share a write."""

    generation: int
    part: int
    sub: int
    shard: int


@dataclass(frozen=True, slots=True)
class StampTerms:
    """The common part of all rows stamped at one time."""

    settings: TimelineSettings
    now_us: int
    last_expiry_s: int
    known: Any
    """The knowledge of the generations by which they are stamped."""


@dataclass(frozen=True, slots=True)
class Into:
    """The common part of the write of rows into one partition."""

    shape: InsertShape
    lead: tuple[Value, ...]


@dataclass(slots=True)
class StampedRow:
    """A row with its place, and its waiting caller. `named` is the place of its lineage, where it is not its own.
    `stamp` is the timestamp of its write and its time to live."""

    partition: RowPartition
    due: UUID
    due_us: int
    count: int
    cell: bytes
    into: Into
    stamp: tuple[int, int]
    owners: Sequence[Any]
    named: RowPlace | None
    sent_us: int
    known: Any
    tried: bool = False
    in_doubt: bool = False
    late_is_repaired: bool = False
    """It can have no restamped row any more: being durable is enough, repair finds it."""

    @property
    def statement(self) -> Insert:
        """Its write."""
        timestamp_us, ttl_s = self.stamp
        into = self.into
        return Insert.of(into.shape, (*into.lead, self.due, self.cell), timestamp_us=timestamp_us, ttl_s=ttl_s)

    @property
    def place(self) -> RowPlace:
        """Its place."""
        return RowPlace(self.partition.generation, self.partition.sub, self.partition.shard, self.due)

    @property
    def first(self) -> RowPlace:
        """Its first stamped place: its messages' ids contain it."""
        return self.named or self.place

    @property
    def run(self) -> PackedRun:
        """Its messages."""
        return unpack(self.cell)


def index_key_of(partition: RowPartition) -> IndexKey:
    """Its index row."""
    return IndexKey(partition.generation, partition.part, partition.sub)


def stamped(
    terms: StampTerms,
    place: RowPlace,
    run: PackedRun,
    *,
    timestamp_us: int,
    owners: Sequence[Any] = (),
    named: RowPlace | None = None,
) -> StampedRow:
    """A row ready to be sent."""
    due_us = time_us_of(place.due)
    partition = RowPartition(place.generation, due_us // terms.settings.part_us, place.sub, place.shard)
    cell = pack(run)
    ttl_s = ttl_s_kept(due_us, terms.settings, now_us=terms.now_us, last_expiry_s=terms.last_expiry_s)
    return StampedRow(
        partition,
        place.due,
        due_us,
        len(run),
        cell,
        _into(terms.settings, partition),
        (timestamp_us, ttl_s),
        owners,
        named,
        terms.now_us,
        terms.known,
    )


def stamped_alone(
    terms: StampTerms,
    partition: RowPartition,
    pending_messages: Sequence[tuple[PendingMessage, int]],
    position_at: Callable[[int], UUID],
) -> list[StampedRow]:
    """Rows of one partition, each of one delayed message, given with its due time."""
    settings, now_us, known = terms.settings, terms.now_us, terms.known
    into = _into(settings, partition)
    rows = []
    stamp_of_us, stamp = -1, (0, 0)
    for pending, due_us in pending_messages:
        if due_us != stamp_of_us:  # usually many are due at the same time
            stamp_of_us = due_us
            stamp = now_us, ttl_s_kept(due_us, settings, now_us=now_us, last_expiry_s=terms.last_expiry_s)
        due = position_at(due_us)
        if pending.attributes or pending.group is not None:
            cell = pack(run_of((pending,), now_us))
        else:
            cell = pack_alone(pending.payload, due_us=due_us, put_us=now_us)
        rows.append(StampedRow(partition, due, due_us, 1, cell, into, stamp, (pending,), None, now_us, known))
    return rows


def _into(settings: TimelineSettings, partition: RowPartition) -> Into:
    table = settings.tables.later if partition.sub >= LATER_SUBS_FROM else settings.tables.work
    return Into(insert_shape(table, _COLUMNS, False), (settings.queue, *partition))


def one_write(rows: Sequence[StampedRow]) -> Write:
    """The rows as one request."""
    first = rows[0]
    if len(rows) == 1:
        return first.statement
    into = first.into
    if all([row.into is into or row.partition == first.partition for row in rows]):  # noqa: C419 - half the time
        return RowsOf(into.shape, into.lead, [(row.due, row.cell) for row in rows], [row.stamp for row in rows])
    return Batch([row.statement for row in rows])


def run_of(pending_messages: Sequence[PendingMessage], now_us: int) -> PackedRun:
    """The stored form of letters that share a row."""
    return PackedRun(
        due_us=[now_us if pending.due_us is None else pending.due_us for pending in pending_messages],
        put_us=[now_us] * len(pending_messages),
        payload=[pending.payload for pending in pending_messages],
        attributes=_column([pending.attributes for pending in pending_messages]),
        group=_column([pending.group or b"" for pending in pending_messages]),
    )


def _column(values: Sequence[bytes]) -> Sequence[bytes] | None:
    return values if any(values) else None
