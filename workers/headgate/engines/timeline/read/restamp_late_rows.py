"""Restamps one late row: a row below its lane's position that no owner has read. The prose and its argument are
"Restamping a late row" in docs/internals/protocols/repair.md; the decisions are decide_repair.py.

All rows of a lineage go to one place. An LWT fixes it on the row that the lineage is named after, also where that row
itself never landed. This module knows neither scans nor cursors.

Invariants: nothing is written before its place is fixed; every process that continues from that point, any number of
times, writes the same bytes at the same key, or a restamped row of the lineage; a copy was acknowledged in time when
this reports so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from headgate.engines.context import Host
from headgate.engines.lanes.ownership.decide_lease import LaneState
from headgate.engines.lanes.ownership.lease import Lane
from headgate.engines.packed_row import PackedRun, RowBroken
from headgate.engines.timeline.model.decide_place import decide_shard, generation_at
from headgate.engines.timeline.model.decide_repair import (
    Fixed,
    LateRowStep,
    Where,
    decide_place,
    decide_step,
    is_purged,
    shares,
)
from headgate.engines.timeline.model.lane_rows import lane_key
from headgate.engines.timeline.model.layout import MessagePlace, RowPlace, ttl_s_kept
from headgate.engines.timeline.model.repair_report import LateRowOutcome
from headgate.engines.timeline.model.settings import GenerationSettings, TimelineSettings
from headgate.engines.timeline.put.copies import write_restamp
from headgate.engines.timeline.put.row_sender import Sender
from headgate.engines.timeline.read.lane_records import read_passed
from headgate.engines.timeline.read.passed_rows import PassedRows
from headgate.engines.timeline.read.passed_rows_log import note_unreadable
from headgate.engines.timeline.read.unreadable_rows import read_run
from headgate.store.model.consistency import Consistency
from headgate.store.model.positions import is_after, time_us_of
from headgate.store.model.statements import Select, UpdateIf, is_
from headgate.store.model.table import Table
from headgate.store.model.types import Value
from headgate.store.store import OutcomeUnknown

T = TypeVar("T")

TRIES_MAX = 5
FIXING_US = 3_000_000
"""How long fixing a place may take, so that the copy still comes in time: longer than an LWT is contended."""


@dataclass(frozen=True, slots=True)
class PassedLane:
    """A lane whose rows below its position are inspected, as a serial read showed it."""

    generation: int
    shard: int
    is_retired: bool
    purged_before_us: int


@dataclass(frozen=True, slots=True)
class _Late:
    """A late row."""

    lane: PassedLane
    place: RowPlace
    run: PackedRun
    first: RowPlace
    """The name of its lineage: its own place, unless it is a restamped row."""
    holder: RowPlace
    """The row whose `moved` holds its new place."""


class LateRows:
    """Late rows of one queue. The sender, whose knowledge is current, provides the generations."""

    def __init__(self, host: Host, settings: TimelineSettings, sender: Sender) -> None:
        self._host = host
        self._settings = settings
        self._sender = sender

    async def put_again(self, lane: PassedLane, place: RowPlace, *, consistency: Consistency) -> LateRowOutcome:
        """The outcome of it. Raises where that is not known, or could not be done now."""
        row = await self._read_row(place, ("run", "cancelled", "moved"), consistency)
        if row is None or row.run is None:
            return LateRowOutcome.EMPTY
        if row.cancelled is not None:
            return LateRowOutcome.CANCELLED
        try:
            run = read_run(row.run)
        except RowBroken as error:
            await note_unreadable(self._host, self._settings, place, str(error))
            return LateRowOutcome.UNREADABLE
        if is_purged(run.put_us, lane.purged_before_us):
            return LateRowOutcome.PURGED
        first = place if run.replaces is None else MessagePlace.from_bytes(run.replaces).row
        if first != place and await self._is_passed(lane.generation, lane.shard, first):
            return LateRowOutcome.SETTLED
        late = _Late(lane, place, run, first, place if row.moved is not None else first)
        return await self._bring(late)

    async def _bring(self, late: _Late) -> LateRowOutcome:
        """Fix a place and write to it, or continue another process's move."""
        for _ in range(TRIES_MAX):
            holder = await self._read_row(late.holder, ("cancelled", "moved"), Consistency.SERIAL)
            if holder is not None and holder.cancelled is not None and len(late.run) == 1:
                return LateRowOutcome.CANCELLED
            moved: bytes | None = None if holder is None else holder.moved
            step = (
                LateRowStep.FIX_AGAIN
                if moved is None
                else await self._step_for(late, MessagePlace.from_bytes(moved).row)
            )
            if step is LateRowStep.DONE:
                return LateRowOutcome.ELSEWHERE
            if step is LateRowStep.WAIT:
                return LateRowOutcome.WAITS
            if step is LateRowStep.WRITE and moved is not None:
                await self._write(late, MessagePlace.from_bytes(moved).row)
                return LateRowOutcome.PUT_AGAIN
            target = self._choose(late)
            if target is None:
                return LateRowOutcome.WAITS
            if await self._fix(late, target, known=moved):
                await self._write(late, target)
                return LateRowOutcome.PUT_AGAIN
        raise OutcomeUnknown("Too much contention while moving a late row", queue=self._settings.name)

    # ---- the place

    async def _step_for(self, late: _Late, target: RowPlace) -> LateRowStep:
        """The action for the fixed place."""
        now_us = self._sender.now_fresh_us()
        generation = self._generation(target.generation)
        is_there = await self.is_there(target)
        lane = await self._read_state(target)  # later: a row that was there before the position came by is not lost
        is_retired = generation is None or (lane is not None and lane.is_retired)
        fixed = Fixed(
            is_this_row=late.place == replace(target, shard=late.place.shard),
            is_passed=await self._is_passed(target.generation, target.shard, target)
            or await self._is_passed(target.generation, target.shard, late.first),
            is_there=is_there,
            is_ahead=lane is not None and not is_retired and is_after(target.due, lane.last),
            is_retired=is_retired,
            is_writable=self._is_writable(target, now_us),
        )
        return decide_step(fixed)

    async def is_there(self, place: RowPlace) -> bool:
        """Whether a row with messages is at that place; cells that only a lineage's LWT wrote do not count."""
        select = Select(self._table(place), self._key(place), ("due",), write_times_of=("run",))
        return any(row.run_written_us is not None for row in await self._host.store.read(select))

    def _choose(self, late: _Late) -> RowPlace | None:
        """A new place, due as before or now; None while it has to wait."""
        now_us = self._sender.now_fresh_us()
        due_us = max(*late.run.due_us, self._soon_us(now_us))
        generation = generation_at(self._sender.settings.generations, due_us)
        where = decide_place(
            generation=late.lane.generation, writable=generation.number, is_retired=late.lane.is_retired
        )
        if where is Where.NOWHERE:
            return None
        shard = late.lane.shard
        if where is Where.NOW:
            group = next(filter(None, late.run.group or ()), None)
            turn = self._sender.next_turn() % generation.shards
            shard = turn if group is None else decide_shard(group, generation.shards)
        size = sum(map(len, late.run.payload))
        return self._sender.place_row(generation.number, shard, due_us, now_us=now_us, size_bytes=size)

    def _soon_us(self, now_us: int) -> int:
        return now_us + self._sender.lag.in_use_us(now_us) + FIXING_US

    def _is_writable(self, place: RowPlace, now_us: int) -> bool:
        """Whether a put for that place, or for now if its time is over, would go to its generation."""
        due_us = max(time_us_of(place.due), self._soon_us(now_us))
        return generation_at(self._sender.settings.generations, due_us).number == place.generation

    async def _fix(self, late: _Late, target: RowPlace, *, known: bytes | None) -> bool:
        """One place by LWT, kept as long as the row at it."""
        due_us = time_us_of(target.due)
        now_us = self._host.now_us()
        update = UpdateIf(
            self._table(late.holder),
            self._key(late.holder),
            {"moved": MessagePlace(target, 0).to_bytes()},
            is_("moved", known),
            attempt=self._host.uuid(),
            ttl_s=ttl_s_kept(
                due_us,
                now_us=now_us,
                retention_us=self._settings.retention_us,
                last_expiry_s=self._host.last_expiry_s,
            ),
        )
        return (await self._host.store.decide(update)).applied

    async def _write(self, late: _Late, target: RowPlace) -> None:
        """Each share of the row in its shard; that of the place itself is last, so where it is, all are."""
        generation = self._generation(target.generation)
        shards = None if generation is None or target.generation == late.lane.generation else generation.shards
        ids = late.run.message_id or [b""] * len(late.run)
        named = [given or MessagePlace(late.first, index).to_bytes() for index, given in enumerate(ids)]
        whole = replace(late.run, message_id=named, replaces=MessagePlace(late.first, 0).to_bytes())
        for shard, indexes in shares(late.run.group, len(late.run), shard=target.shard, shards=shards).items():
            share = whole if len(indexes) == len(whole) else _share(whole, indexes)
            await write_restamp(self._sender, replace(target, shard=shard), share, first=late.first)

    # ---- reading

    async def _read_state(self, place: RowPlace) -> LaneState | None:
        settings = self._settings
        key = lane_key(settings, place.generation, place.shard)
        return await Lane(self._host, settings.tables.lanes, key, settings.lease).read_state()

    async def _is_passed(self, generation: int, shard: int, place: RowPlace) -> bool:
        """Whether an owner of that lane noted it as passed: as a row of its own, or as the name of a family."""
        passed = await self.read_passed(generation, shard, place.part(self._settings.part_us))
        return bool(passed.among({place.due}))

    async def read_passed(self, generation: int, shard: int, part: int) -> PassedRows:
        """The record of the rows that owners of a lane passed in a part."""
        return await read_passed(self._host, self._settings, generation, shard, part)

    async def _read_row(self, place: RowPlace, columns: Sequence[str], consistency: Consistency) -> Any:
        select = Select(self._table(place), self._key(place), columns, consistency=consistency)
        rows = await self._host.store.read(select)
        return rows[0] if rows else None

    def _generation(self, number: int) -> GenerationSettings | None:
        """None where it has left the catalogue."""
        return next((each for each in self._sender.settings.generations if each.number == number), None)

    def _table(self, place: RowPlace) -> Table:
        return self._settings.tables.later if place.lies_later else self._settings.tables.work

    def _key(self, place: RowPlace) -> Mapping[str, Value]:
        return {
            "queue": self._settings.queue,
            "generation": place.generation,
            "part": place.part(self._settings.part_us),
            "sub": place.sub,
            "shard": place.shard,
            "due": place.due,
        }


def _share(run: PackedRun, indexes: Sequence[int]) -> PackedRun:
    """Some of the messages of a row."""

    def picked(column: Sequence[T]) -> list[T]:
        return [column[index] for index in indexes]

    return PackedRun(
        due_us=picked(run.due_us),
        put_us=picked(run.put_us),
        payload=picked(run.payload),
        attempt=None if run.attempt is None else picked(run.attempt),
        attributes=None if run.attributes is None else picked(run.attributes),
        group=None if run.group is None else picked(run.group),
        message_id=None if run.message_id is None else picked(run.message_id),
        replaces=run.replaces,
    )
