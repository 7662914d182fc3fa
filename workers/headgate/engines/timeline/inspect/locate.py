"""Locates a message by its id: follows it from its first place to its current one, and determines its state.

The path is recorded in rows (`cancelled`, `moved`), in the settle log (settled, tried, and the places of copies)
and in `last`. Settled facts below `last` expire in time: then a row that was passed is settled. Reads only. A message
that moves meanwhile may be read between two places, and is then located by another call.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from headgate.engines.context import Host
from headgate.engines.contract import MessageLocation, MessageState
from headgate.engines.lanes.log.settle_log_format import RowFacts
from headgate.engines.packed_row import PackedRun, RowBroken
from headgate.engines.timeline.lanes.lane_snapshot import Held, LaneView, read_lane_view
from headgate.engines.timeline.model.decide_place import decide_shard
from headgate.engines.timeline.model.layout import PLACE_BYTES, SECOND_US, MessagePlace, RowPlace, id_bytes, id_text
from headgate.engines.timeline.model.settings import TimelineSettings
from headgate.engines.timeline.read.lane_records import read_facts, read_passed
from headgate.engines.timeline.read.reading import family_of, row_key
from headgate.engines.timeline.read.unreadable_rows import read_run
from headgate.store.model.consistency import Consistency
from headgate.store.model.positions import first_at, last_at, position_order, time_us_of
from headgate.store.model.statements import Select, Slice, SliceBound
from headgate.store.model.table import Table

PLACES_MAX = 64
"""A message that failed more often is not followed further."""
RESTAMP_WITHIN_US = 60 * SECOND_US
RESTAMP_ROWS_MAX = 2_000
"""If no row is at a first place, its restamped row is searched among this many rows behind it."""


@dataclass(frozen=True)
class _Met:
    """The message in one row."""

    place: MessagePlace
    run: PackedRun
    row: Any
    first: RowPlace

    @property
    def index(self) -> int:
        """Which of the row's messages it is."""
        return self.place.index


class Finder:
    """Locates messages of one queue, and in its dead-letter queue where that is known."""

    def __init__(
        self,
        host: Host,
        settings: TimelineSettings,
        held: Held,
        *,
        dead_letters: tuple[Host, TimelineSettings] | None = None,
    ) -> None:
        self._host = host
        self._settings = settings
        self._held = held
        self._dead_letters = dead_letters

    async def where(self, message_id: str) -> MessageLocation:
        """Its place, and its state."""
        stored = id_bytes(message_id)
        place = MessagePlace.from_bytes(stored)
        places: list[str] = []
        location = MessageLocation(id_text(stored), MessageState.NOT_FOUND, ())
        while len(places) < PLACES_MAX:
            try:
                met = await self._meet(place, stored)
            except RowBroken:
                return _with(location, MessageState.UNREADABLE, (*places, _words(place)))
            if met is None:
                fate = await self._of_nothing(place, stored, known=bool(places))
                return _with(location, fate, (*places, _words(place)))
            places.append(_words(met.place))
            location, onward = await self._judge(met, location)
            location = _with(location, location.fate, tuple(places))
            if onward is None:
                return location
            place = onward
        return location

    # ---- one place

    async def _meet(self, place: MessagePlace, stored: bytes) -> _Met | None:
        """The message at a place, or in the restamped row of a row that never landed."""
        row = await _read_row(self._host, self._settings, place.row)
        if row is not None and row.run is not None:
            run = read_run(row.run)
            first = MessagePlace.from_bytes(run.replaces).row if run.replaces is not None else place.row
            if run.message_id is not None and stored in run.message_id:
                place = MessagePlace(place.row, list(run.message_id).index(stored))
            return _Met(place, run, row, first) if place.index < len(run) else None
        if row is not None and row.moved is not None:  # its family has a place, though this row never landed
            return await self._meet(MessagePlace(MessagePlace.from_bytes(row.moved).row, place.index), stored)
        return await self._restamp_of(place, stored)

    async def _is_at(self, place: MessagePlace, location: MessageLocation) -> bool:
        """Whether the message is at that place, readable or not."""
        try:
            return await self._meet(place, id_bytes(location.message_id)) is not None
        except RowBroken:
            return True

    async def _restamp_of(self, place: MessagePlace, stored: bytes) -> _Met | None:
        begin_us = time_us_of(place.row.due)
        part_us = self._settings.part_us
        left = RESTAMP_ROWS_MAX
        for part in range(begin_us // part_us, (begin_us + RESTAMP_WITHIN_US) // part_us + 1):
            lane = RowPlace(place.row.generation, place.row.sub, place.row.shard, place.row.due)
            for row in await self._rows_of(lane, part, begin_us, left):
                left -= 1
                run = _run_or_none(row.run)
                if run is None or run.replaces is None or run.message_id is None:
                    continue
                if MessagePlace.from_bytes(run.replaces).row == place.row and stored in run.message_id:
                    at = RowPlace(lane.generation, lane.sub, lane.shard, row.due)
                    return _Met(MessagePlace(at, list(run.message_id).index(stored)), run, row, place.row)
            if left <= 0:
                break
        return None

    async def _rows_of(self, lane: RowPlace, part: int, begin_us: int, limit: int) -> Any:
        if limit <= 0:
            return ()
        table, key = _key_of(self._settings, lane, part)
        within = Slice(
            "due", SliceBound(first_at(begin_us), False), SliceBound(last_at(begin_us + RESTAMP_WITHIN_US), True)
        )
        columns = ("due", "run", "cancelled", "moved")
        return await self._host.store.read(Select(table, key, columns, within=within, limit=limit))

    # ---- its state at that place

    async def _judge(self, met: _Met, location: MessageLocation) -> tuple[MessageLocation, MessagePlace | None]:
        """Its state at this place, and the place that it moved to."""
        due_us, before = met.run.due_us[met.index], met.run.attempt[met.index] if met.run.attempt is not None else 0
        location = MessageLocation(
            location.message_id, MessageState.WAITING, location.places, due_us, max(location.attempt, before)
        )
        if met.row.cancelled is not None:
            return _with(location, MessageState.CANCELLED), None
        if met.row.moved is not None:
            return location, self._moved_to(met)
        place = met.place.row
        view = await read_lane_view(self._host, self._settings, self._held, place.generation, place.shard)
        if view is None:
            return location, None
        part = place.part(self._settings.part_us)
        of_row = RowFacts()
        for key, facts in (await read_facts(self._host, self._settings, place.generation, place.shard, part)).items():
            if family_of(key)[1] == met.first.due:
                of_row.merge(facts)
        moved = of_row.moved.get(met.index)
        if moved is not None and moved.attempt >= location.attempt:
            location = _with(location, MessageState.SETTLED, attempt=moved.attempt)
            to, is_dead = MessagePlace.from_bytes(moved.place[:PLACE_BYTES]), len(moved.place) > PLACE_BYTES
            return await self._follow(location, met, to, of_row, is_dead=is_dead)
        return await self._judge_in_lane(met, location, view, of_row, part), None

    def _moved_to(self, met: _Met) -> MessagePlace:
        """Where its row went: as it is, but for its groups, which part where the number of shards changes."""
        row = MessagePlace.from_bytes(met.row.moved).row
        of_row = next((each for each in self._settings.generations if each.number == row.generation), None)
        group = met.run.group[met.index] if met.run.group is not None else b""
        if group and of_row is not None and row.generation != met.place.row.generation:
            row = replace(row, shard=decide_shard(group, of_row.shards))
        return MessagePlace(row, met.index)

    async def _follow(
        self, location: MessageLocation, met: _Met, to: MessagePlace, of_row: RowFacts, *, is_dead: bool
    ) -> tuple[MessageLocation, MessagePlace | None]:
        """It was copied: to another place of this queue, or to the dead-letter queue."""
        if not is_dead and await self._is_at(to, location):
            return location, to
        if is_dead and self._dead_letters is not None:
            host, settings = self._dead_letters
            if await Finder(host, settings, {})._is_at(to, location):
                return _with(location, MessageState.DEAD), None
        settled = of_row.settled >> met.index & 1
        return _with(location, MessageState.SETTLED if settled else MessageState.WAITING), None

    async def _judge_in_lane(
        self, met: _Met, location: MessageLocation, view: LaneView, of_row: RowFacts, part: int
    ) -> MessageLocation:
        """Settled, hidden or waiting in the lane of its place."""
        key = row_key(met.place.row.sub, met.place.row.due, met.first.due)
        order = position_order(met.place.row.due)
        settled, tried = of_row.settled, of_row.tried.get(met.index)
        attempt = location.attempt if tried is None else tried.attempt
        hidden_until_us = 0 if tried is None else tried.hidden_until_us
        stand = view.mine.delivery_state.row_status(key) if view.mine is not None else None
        if stand is not None:
            settled |= stand.settled
            attempt = stand.tried.get(met.index, attempt)
            hidden_until_us = stand.hidden_until_us.get(met.index, 0)
        if settled >> met.index & 1:
            return _with(location, MessageState.SETTLED, attempt=attempt)
        purged = met.run.put_us[met.index] < view.state.purged_before_us
        if order <= view.position:
            passed = await read_passed(self._host, self._settings, view.generation, view.shard, part)
            if passed.among({met.place.row.due, met.first.due}):
                return _with(location, MessageState.PURGED if purged else MessageState.SETTLED)
            return _with(location, MessageState.PURGED if purged else MessageState.LATE)
        if purged:
            return _with(location, MessageState.PURGED)
        if hidden_until_us > self._host.now_us():
            return _with(location, MessageState.IN_FLIGHT, attempt=attempt, hidden_until_us=hidden_until_us)
        return _with(location, MessageState.WAITING, attempt=attempt)

    async def _of_nothing(self, place: MessagePlace, stored: bytes, *, known: bool) -> MessageState:
        """There is no row: it expired, or its copy is on its way, or it never was."""
        if known:
            return MessageState.WAITING
        row = place.row
        part = row.part(self._settings.part_us)
        passed = await read_passed(self._host, self._settings, row.generation, row.shard, part)
        return MessageState.SETTLED if passed.among({row.due}) else MessageState.NOT_FOUND


def _run_or_none(cell: bytes | None) -> PackedRun | None:
    """The messages of a row that may be another one's."""
    if cell is None:
        return None
    try:
        return read_run(cell)
    except RowBroken:
        return None


async def _read_row(host: Host, settings: TimelineSettings, place: RowPlace) -> Any:
    table, key = _key_of(settings, place, place.part(settings.part_us))
    columns = ("due", "run", "cancelled", "moved")
    select = Select(table, {**key, "due": place.due}, columns, consistency=Consistency.SERIAL)
    return next(iter(await host.store.read(select)), None)


def _key_of(settings: TimelineSettings, place: RowPlace, part: int) -> tuple[Table, dict[str, Any]]:
    key = {
        "queue": settings.queue,
        "generation": place.generation,
        "part": part,
        "sub": place.sub,
        "shard": place.shard,
    }
    return settings.tables.later if place.lies_later else settings.tables.work, key


def _with(
    location: MessageLocation, fate: MessageState, places: tuple[str, ...] | None = None, **changes: int
) -> MessageLocation:
    values = {
        "due_us": location.due_us,
        "attempt": location.attempt,
        "hidden_until_us": location.hidden_until_us,
    } | changes
    return MessageLocation(location.message_id, fate, location.places if places is None else places, **values)


def _words(place: MessagePlace) -> str:
    row = place.row
    due = datetime.fromtimestamp(time_us_of(row.due) / SECOND_US, UTC).isoformat(timespec="milliseconds")
    table = "later" if row.lies_later else "work"
    return (
        f"generation {row.generation}, shard {row.shard}, {table} due {due.replace('+00:00', 'Z')}, "
        f"sub {row.sub}, row {row.due}, index {place.index}"
    )
