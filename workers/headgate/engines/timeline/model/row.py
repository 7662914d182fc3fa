"""The rows of a flush: which messages share one, in which generation and shard, due when; the row with its place, in
the form for sending; and which rows share a write. The prose is "Put" in docs/internals/protocols/timeline.md.

Pure: times, generations, positions and the turn are passed in. A row's write may be sent as often as needed: it
carries its own timestamp (rule R4). Its messages are packed once, too: a caller that needs them again, for a
restamped row, unpacks them, which is rare.

Invariants: nothing is due earlier than requested; messages of one group are in one shard, and their rows are in the
order in which they were put, unless their due times require otherwise; every message is in exactly one row.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any, NamedTuple
from uuid import UUID

from headgate.engines.packed_row import PackedRun, pack, pack_alone, unpack
from headgate.engines.timeline.model.decide_place import WrittenGeneration, decide_shard, generation_at
from headgate.engines.timeline.model.layout import LATER_SUBS_FROM, SECOND_US, RowPlace, ttl_s_kept
from headgate.engines.timeline.model.partitions import IndexKey
from headgate.engines.timeline.model.settings import TimelineSettings
from headgate.store.model.positions import time_us_of
from headgate.store.model.shapes import InsertShape, insert_shape
from headgate.store.model.statements import Batch, Insert, RowsOf, Write
from headgate.store.model.types import Value

ROW_MESSAGES_MAX = 512
"""The cost of a request is spread over enough messages from some hundred on; a restamp, a lost answer or a settled
set with holes is about one row, and should stay small."""
ROW_BYTES_MAX = 128 * 1024
"""A cell of this size is read and written in one piece without hurting the server; a larger message is alone."""
WRITE_ROWS_MAX = 200
MIXED_PARTITIONS_MAX = 10
"""Cassandra logs a warning for an unlogged batch of more partitions than this,"""
MIXED_BYTES_MAX = 4 * 1024
"""and for one of several partitions that is larger than 5 KiB (and refuses it from 50 KiB on)."""

_COLUMNS = ("queue", "generation", "part", "sub", "shard", "due", "run")


# ---- which messages share a row


@dataclass(slots=True)
class PendingMessage:
    """One pending message with a due time or a group. `owner` is its waiting caller, and not read by this module."""

    payload: bytes
    due_us: int | None
    attributes: bytes
    group: bytes | None
    owner: Any
    size: int = field(init=False)
    """Its bytes in a row."""

    def __post_init__(self) -> None:
        self.size = len(self.payload) + len(self.attributes)


class RowPlan(NamedTuple):
    """Messages that will share a row, and where."""

    generation: int
    shard: int
    due_us: int
    messages: Sequence[PendingMessage]


class SinglePlans(NamedTuple):
    """The rows of messages without a group: shared ones, and for each generation and shard those of messages with
    rows of their own, each with its due time."""

    shared: Sequence[RowPlan]
    alone: Mapping[tuple[int, int], Sequence[tuple[PendingMessage, int]]]


@dataclass(frozen=True, slots=True)
class FlushTerms:
    """The inputs of one flush: `ready_us` is the due time of immediate messages, `turn` the shard in turn."""

    generations: Sequence[WrittenGeneration]
    ready_us: int
    turn: int
    by_second: bool


def shard_in_turn(terms: FlushTerms, shards: int, due_us: int, turns: int = 0) -> int:
    """The shard of a row without a group: in turn by flush, or the origin's way, by the due second."""
    return (due_us // SECOND_US if terms.by_second else terms.turn + turns) % shards


def decide_single_rows(messages: Sequence[PendingMessage], terms: FlushTerms) -> SinglePlans:
    """Rows for messages without a group: shared by immediate ones, one for each delayed one."""
    ready, later = _parted(messages, terms.ready_us)
    shared = []
    generation = generation_at(terms.generations, terms.ready_us)
    for turns, run in enumerate(_runs(ready)):
        shard = shard_in_turn(terms, generation.shards, terms.ready_us, turns)
        shared.append(RowPlan(generation.number, shard, terms.ready_us, run))
    alone: dict[tuple[int, int], list[tuple[PendingMessage, int]]] = {}
    known_us, where = -1, (0, 0)
    for each in later:
        due_us = each[1]
        if due_us != known_us:  # usually many are due at the same time
            generation = generation_at(terms.generations, due_us)
            known_us, where = due_us, (generation.number, shard_in_turn(terms, generation.shards, due_us))
        alone.setdefault(where, []).append(each)
    return SinglePlans(shared, alone)


def decide_grouped_rows(messages: Sequence[PendingMessage], terms: FlushTerms) -> list[list[RowPlan]]:
    """Rows for messages with groups: a list for each shard, to be acknowledged together (attack C3)."""
    by_shard: dict[int, list[PendingMessage]] = {}
    ready_in = generation_at(terms.generations, terms.ready_us)
    for pending in messages:
        by_shard.setdefault(decide_shard(pending.group or b"", ready_in.shards), []).append(pending)
    return [_plan_shard(shard, of_shard, terms, ready_in) for shard, of_shard in by_shard.items()]


def _plan_shard(
    shard: int, messages: Sequence[PendingMessage], terms: FlushTerms, ready_in: WrittenGeneration
) -> list[RowPlan]:
    ready, later = _parted(messages, terms.ready_us)
    plans = [RowPlan(ready_in.number, shard, terms.ready_us, run) for run in _runs(ready)]
    for pending, due_us in later:
        generation = generation_at(terms.generations, due_us)
        shard_then = decide_shard(pending.group or b"", generation.shards)
        plans.append(RowPlan(generation.number, shard_then, due_us, (pending,)))
    return plans


def _parted(
    messages: Iterable[PendingMessage], ready_us: int
) -> tuple[list[PendingMessage], list[tuple[PendingMessage, int]]]:
    ready: list[PendingMessage] = []
    later: list[tuple[PendingMessage, int]] = []
    for pending in messages:
        if pending.due_us is None or pending.due_us <= ready_us:
            ready.append(pending)
        else:
            later.append((pending, pending.due_us))
    return ready, later


def _runs(messages: Sequence[PendingMessage]) -> list[Sequence[PendingMessage]]:
    runs = []
    start = 0
    while start < len(messages):
        length = run_length([pending.size for pending in messages[start : start + ROW_MESSAGES_MAX]])
        runs.append(messages[start : start + length])
        start += length
    return runs


def run_length(sizes: Iterable[int]) -> int:
    """How many of these messages, from the first on, fit into one row; the first always does."""
    length = 0
    for total in accumulate(sizes):
        if length and (total > ROW_BYTES_MAX or length == ROW_MESSAGES_MAX):
            break
        length += 1
    return length


# ---- rows with a place


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

    def ttl_s(self, due_us: int) -> int:
        """The time to live of a row due then."""
        return ttl_s_kept(
            due_us,
            now_us=self.now_us,
            retention_us=self.settings.retention_us,
            last_expiry_s=self.last_expiry_s,
        )


@dataclass(frozen=True, slots=True)
class Into:
    """The common part of the write of rows into one partition."""

    shape: InsertShape
    lead: tuple[Value, ...]


@dataclass(slots=True)
class StampedRow:
    """A row with its place, and its waiting callers. `named` is the place of its lineage, where it is not its own.
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
    return StampedRow(
        partition,
        place.due,
        due_us,
        len(run),
        pack(run),
        _into(terms.settings, partition),
        (timestamp_us, terms.ttl_s(due_us)),
        owners,
        named,
        terms.now_us,
        terms.known,
    )


def stamped_alone(
    terms: StampTerms,
    partition: RowPartition,
    messages: Sequence[tuple[PendingMessage, int]],
    position_at: Callable[[int], UUID],
) -> list[StampedRow]:
    """Rows of one partition, each of one delayed message, given with its due time."""
    now_us, known = terms.now_us, terms.known
    into = _into(terms.settings, partition)
    rows = []
    stamp_of_us, stamp = -1, (0, 0)
    for pending, due_us in messages:
        if due_us != stamp_of_us:  # usually many are due at the same time
            stamp_of_us = due_us
            stamp = now_us, terms.ttl_s(due_us)
        due = position_at(due_us)
        if pending.attributes or pending.group is not None:
            cell = pack(run_of((pending,), now_us))
        else:
            cell = pack_alone(pending.payload, due_us=due_us, put_us=now_us)
        rows.append(StampedRow(partition, due, due_us, 1, cell, into, stamp, (pending.owner,), None, now_us, known))
    return rows


def _into(settings: TimelineSettings, partition: RowPartition) -> Into:
    table = settings.tables.later if partition.sub >= LATER_SUBS_FROM else settings.tables.work
    return Into(insert_shape(table, _COLUMNS, False), (settings.queue, *partition))


def run_of(messages: Sequence[PendingMessage], now_us: int) -> PackedRun:
    """The columns of messages that share a row."""
    return PackedRun(
        due_us=[now_us if pending.due_us is None else pending.due_us for pending in messages],
        put_us=[now_us] * len(messages),
        payload=[pending.payload for pending in messages],
        attributes=column([pending.attributes for pending in messages]),
        group=column([pending.group or b"" for pending in messages]),
    )


def column(values: Sequence[bytes]) -> Sequence[bytes] | None:
    """A column of byte strings, of which none may hold anything."""
    return values if any(values) else None


# ---- which rows share a write


def share_writes(rows: Sequence[tuple[Hashable, int]]) -> list[list[int]]:
    """The rows of one batch, each given by its partition and size: those of a partition, then the rest, a few small
    ones together."""
    by_partition: dict[Hashable, list[int]] = {}
    for place, (partition, _) in enumerate(rows):
        by_partition.setdefault(partition, []).append(place)
    writes: list[list[int]] = []
    single: list[int] = []
    for places in by_partition.values():
        if len(places) == 1 and rows[places[0]][1] <= MIXED_BYTES_MAX:
            single += places
        else:
            writes += _cut(places, rows, WRITE_ROWS_MAX, ROW_BYTES_MAX)
    return writes + _cut(single, rows, MIXED_PARTITIONS_MAX, MIXED_BYTES_MAX)


def _cut(
    places: Sequence[int], rows: Sequence[tuple[Hashable, int]], rows_max: int, bytes_max: int
) -> list[list[int]]:
    cut: list[list[int]] = []
    total = 0
    for place in places:
        size = rows[place][1]
        if not cut or len(cut[-1]) == rows_max or total + size > bytes_max:
            cut.append([])
            total = 0
        cut[-1].append(place)
        total += size
    return cut


def is_one_write(rows: Sequence[StampedRow]) -> bool:
    """Whether rows of one partition may go as one batch."""
    return len(rows) == 1 or (len(rows) <= WRITE_ROWS_MAX and sum([len(row.cell) for row in rows]) <= ROW_BYTES_MAX)


def one_write(rows: Sequence[StampedRow]) -> Write:
    """The rows as one request."""
    first = rows[0]
    if len(rows) == 1:
        return first.statement
    into = first.into
    if all([row.into is into or row.partition == first.partition for row in rows]):  # noqa: C419 - half the time
        return RowsOf(into.shape, into.lead, [(row.due, row.cell) for row in rows], [row.stamp for row in rows])
    return Batch([row.statement for row in rows])
