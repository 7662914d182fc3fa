"""The content of a producer's flush: which messages share a row, in which generation and shard, due when; and which
rows share a write. The prose is "Put" in docs/internals/protocols/timeline.md.

Pure: times, generations and the turn are passed in. It does not know the stored form of a row.

Invariants: nothing is due earlier than requested; messages of one group are in one shard, and their rows are in the
order in which they were put, unless their due times require otherwise; every message is in exactly one row.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import accumulate
from typing import Any, Protocol

from headgate.errors import Bug

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
SECOND_US = 1_000_000


class WrittenGeneration(Protocol):
    """A generation, as far as a flush needs it."""

    @property
    def number(self) -> int:
        """Which one."""
        ...

    @property
    def shards(self) -> int:
        """How many shards it has."""
        ...

    @property
    def from_us(self) -> int:
        """Due times from this one on belong to it."""
        ...


@dataclass(slots=True)
class PendingMessage:
    """One pending message that is not of the plainest kind. `claim` is the caller's, and not read by this module."""

    payload: bytes
    due_us: int | None
    attributes: bytes
    group: bytes | None
    call: Any
    index: int
    size: int = field(init=False)
    """Its bytes in a row."""

    def __post_init__(self) -> None:
        self.size = len(self.payload) + len(self.attributes)


@dataclass(frozen=True, slots=True)
class RowPlan:
    """Messages that will share a row, and where."""

    generation: int
    shard: int
    due_us: int
    pending_messages: Sequence[PendingMessage]


@dataclass(frozen=True, slots=True)
class SinglePlans:
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


def generation_at(generations: Iterable[WrittenGeneration], due_us: int) -> WrittenGeneration:
    """The generation of a due time: the latest that has started by then."""
    latest = None
    for generation in generations:
        if generation.from_us <= due_us and (latest is None or generation.number > latest.number):
            latest = generation
    if latest is None:
        raise Bug("No generation of the queue has started", due_us=due_us)
    return latest


def shard_of_group(group: bytes, shards: int) -> int:
    """The shard of a group: the same from every process, with any hash seed."""
    return int.from_bytes(blake2b(group, digest_size=8).digest(), "big") % shards


def shard_in_turn(terms: FlushTerms, shards: int, due_us: int, turns: int = 0) -> int:
    """The shard of a row without a group: in turn by flush, or the origin's way, by the due second."""
    return (due_us // SECOND_US if terms.by_second else terms.turn + turns) % shards


def decide_single_rows(pending_messages: Sequence[PendingMessage], terms: FlushTerms) -> SinglePlans:
    """Rows for messages without a group: shared by immediate ones, one for each delayed one."""
    ready, later = _parted(pending_messages, terms.ready_us)
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


def decide_grouped_rows(pending_messages: Sequence[PendingMessage], terms: FlushTerms) -> list[list[RowPlan]]:
    """Rows for messages with groups: a list for each shard, to be acknowledged together (attack C3)."""
    by_shard: dict[int, list[PendingMessage]] = {}
    ready_in = generation_at(terms.generations, terms.ready_us)
    for pending in pending_messages:
        by_shard.setdefault(shard_of_group(pending.group or b"", ready_in.shards), []).append(pending)
    return [_plan_shard(shard, of_shard, terms, ready_in) for shard, of_shard in by_shard.items()]


def _plan_shard(
    shard: int, pending_messages: Sequence[PendingMessage], terms: FlushTerms, ready_in: WrittenGeneration
) -> list[RowPlan]:
    ready, later = _parted(pending_messages, terms.ready_us)
    plans = [RowPlan(ready_in.number, shard, terms.ready_us, run) for run in _runs(ready)]
    for pending, due_us in later:
        generation = generation_at(terms.generations, due_us)
        shard_then = shard_of_group(pending.group or b"", generation.shards)
        plans.append(RowPlan(generation.number, shard_then, due_us, (pending,)))
    return plans


def _parted(
    pending_messages: Iterable[PendingMessage], ready_us: int
) -> tuple[list[PendingMessage], list[tuple[PendingMessage, int]]]:
    ready: list[PendingMessage] = []
    later: list[tuple[PendingMessage, int]] = []
    for pending in pending_messages:
        if pending.due_us is None or pending.due_us <= ready_us:
            ready.append(pending)
        else:
            later.append((pending, pending.due_us))
    return ready, later


def _runs(pending_messages: Sequence[PendingMessage]) -> list[Sequence[PendingMessage]]:
    runs = []
    start = 0
    while start < len(pending_messages):
        length = run_length([pending.size for pending in pending_messages[start : start + ROW_MESSAGES_MAX]])
        runs.append(pending_messages[start : start + length])
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
