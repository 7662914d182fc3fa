"""Locates a message by its id: follows it from its first place to its current one, and determines its state.

The path is recorded in rows (`cancelled`, `moved`), in the settle record (settled, tried, and the places of copies)
and in `last`. Settled facts below `last` expire in time: then a row that was passed is settled. Reads only. A message
that moves meanwhile may be read between two places, and is then located by another call.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from headgate.engines.contract import Fate, Whereabouts
from headgate.engines.host import Host
from headgate.engines.packed import PackedRun, unpack
from headgate.engines.settled import RowFacts
from headgate.engines.timeline.decide_flush import shard_of_group
from headgate.engines.timeline.layout import PLACE_BYTES, SECOND_US, Place, RowPlace, id_bytes, id_text
from headgate.engines.timeline.looking import Held, LaneView, look_at_lane, read_facts, read_passed
from headgate.engines.timeline.reading import family_of, row_key
from headgate.engines.timeline.settings import TimelineSettings
from headgate.store.consistency import Consistency
from headgate.store.positions import first_at, last_at, moment_us_of, position_order
from headgate.store.statements import Bound, Select, Slice
from headgate.store.table import Table

PLACES_MAX = 64
"""A message that failed more often is not followed further."""
TWIN_WITHIN_US = 60 * SECOND_US
TWIN_ROWS_MAX = 2_000
"""If no row is at a first place, its restamped row is searched among this many rows behind it."""


@dataclass(frozen=True)
class _Met:
    """The message in one row."""

    place: Place
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
        graves: tuple[Host, TimelineSettings] | None = None,
    ) -> None:
        self._host = host
        self._settings = settings
        self._held = held
        self._graves = graves

    async def where(self, message_id: str) -> Whereabouts:
        """Its place, and its state."""
        stored = id_bytes(message_id)
        place = Place.from_bytes(stored)
        places: list[str] = []
        told = Whereabouts(id_text(stored), Fate.NOT_FOUND, ())
        while len(places) < PLACES_MAX:
            met = await self._meet(place, stored)
            if met is None:
                fate = await self._of_nothing(place, stored, known=bool(places))
                return _with(told, fate, (*places, _words(place)))
            places.append(_words(met.place))
            told, onward = await self._judge(met, told)
            told = _with(told, told.fate, tuple(places))
            if onward is None:
                return told
            place = onward
        return told

    # ---- one place

    async def _meet(self, place: Place, stored: bytes) -> _Met | None:
        """The message at a place, or in the restamped row of a row that never landed."""
        row = await _read_row(self._host, self._settings, place.row)
        if row is not None and row.run is not None:
            run = unpack(row.run)
            first = Place.from_bytes(run.replaces).row if run.replaces is not None else place.row
            if run.message_id is not None and stored in run.message_id:
                place = Place(place.row, list(run.message_id).index(stored))
            return _Met(place, run, row, first) if place.index < len(run) else None
        if row is not None and row.moved is not None:  # its family has a place, though this row never landed
            return await self._meet(Place(Place.from_bytes(row.moved).row, place.index), stored)
        return await self._twin_of(place, stored)

    async def _twin_of(self, place: Place, stored: bytes) -> _Met | None:
        begin_us = moment_us_of(place.row.due)
        part_us = self._settings.part_us
        left = TWIN_ROWS_MAX
        for part in range(begin_us // part_us, (begin_us + TWIN_WITHIN_US) // part_us + 1):
            lane = RowPlace(place.row.generation, place.row.sub, place.row.shard, place.row.due)
            for row in await self._rows_of(lane, part, begin_us, left):
                left -= 1
                run = unpack(row.run) if row.run is not None else None
                if run is None or run.replaces is None or run.message_id is None:
                    continue
                if Place.from_bytes(run.replaces).row == place.row and stored in run.message_id:
                    at = RowPlace(lane.generation, lane.sub, lane.shard, row.due)
                    return _Met(Place(at, list(run.message_id).index(stored)), run, row, place.row)
            if left <= 0:
                break
        return None

    async def _rows_of(self, lane: RowPlace, part: int, begin_us: int, limit: int) -> Any:
        if limit <= 0:
            return ()
        table, key = _key_of(self._settings, lane, part)
        within = Slice("due", Bound(first_at(begin_us), False), Bound(last_at(begin_us + TWIN_WITHIN_US), True))
        columns = ("due", "run", "cancelled", "moved")
        return await self._host.store.read(Select(table, key, columns, within=within, limit=limit))

    # ---- its state at that place

    async def _judge(self, met: _Met, told: Whereabouts) -> tuple[Whereabouts, Place | None]:
        """Its state at this place, and the place that it moved to."""
        due_us, before = met.run.due_us[met.index], met.run.attempt[met.index] if met.run.attempt is not None else 0
        told = Whereabouts(told.message_id, Fate.WAITING, told.places, due_us, max(told.attempt, before))
        if met.row.cancelled is not None:
            return _with(told, Fate.CANCELLED), None
        if met.row.moved is not None:
            return told, self._moved_to(met)
        place = met.place.row
        view = await look_at_lane(self._host, self._settings, self._held, place.generation, place.shard)
        if view is None:
            return told, None
        part = place.part(self._settings.part_us)
        of_row = RowFacts()
        for key, facts in (await read_facts(self._host, self._settings, place.generation, place.shard, part)).items():
            if family_of(key)[1] == met.first.due:
                of_row.merge(facts)
        moved = of_row.moved.get(met.index)
        if moved is not None and moved.attempt >= told.attempt:
            told = _with(told, Fate.SETTLED, attempt=moved.attempt)
            to, is_dead = Place.from_bytes(moved.place[:PLACE_BYTES]), len(moved.place) > PLACE_BYTES
            return await self._follow(told, met, to, of_row, is_dead=is_dead)
        return await self._judge_here(met, told, view, of_row, part), None

    def _moved_to(self, met: _Met) -> Place:
        """Where its row went: as it is, but for its groups, which part where the number of shards changes."""
        row = Place.from_bytes(met.row.moved).row
        of_row = next((each for each in self._settings.generations if each.number == row.generation), None)
        group = met.run.group[met.index] if met.run.group is not None else b""
        if group and of_row is not None and row.generation != met.place.row.generation:
            row = replace(row, shard=shard_of_group(group, of_row.shards))
        return Place(row, met.index)

    async def _follow(
        self, told: Whereabouts, met: _Met, to: Place, of_row: RowFacts, *, is_dead: bool
    ) -> tuple[Whereabouts, Place | None]:
        """It was copied: to another place of this queue, or to the dead-letter queue."""
        if not is_dead and await self._meet(to, id_bytes(told.message_id)) is not None:
            return told, to
        if is_dead and self._graves is not None:
            host, settings = self._graves
            finder = Finder(host, settings, {})
            if await finder._meet(to, id_bytes(told.message_id)) is not None:
                return _with(told, Fate.DEAD), None
        settled = of_row.settled >> met.index & 1
        return _with(told, Fate.SETTLED if settled else Fate.WAITING), None

    async def _judge_here(
        self, met: _Met, told: Whereabouts, view: LaneView, of_row: RowFacts, part: int
    ) -> Whereabouts:
        """Settled, hidden or waiting in the lane of its place."""
        key = row_key(met.place.row.sub, met.place.row.due, met.first.due)
        order = position_order(met.place.row.due)
        settled, tried = of_row.settled, of_row.tried.get(met.index)
        attempt = told.attempt if tried is None else tried.attempt
        hidden_until_us = 0 if tried is None else tried.hidden_until_us
        stand = view.mine.books.stand_of(key) if view.mine is not None else None
        if stand is not None:
            settled |= stand.settled
            attempt = stand.tried.get(met.index, attempt)
            hidden_until_us = stand.hidden_until_us.get(met.index, 0)
        if settled >> met.index & 1:
            return _with(told, Fate.SETTLED, attempt=attempt)
        purged = met.run.put_us[met.index] < view.state.purged_before_us
        if order <= view.position:
            passed = await read_passed(self._host, self._settings, view.generation, view.shard, part)
            if met.place.row.due in passed or met.first.due in passed:
                return _with(told, Fate.PURGED if purged else Fate.SETTLED)
            return _with(told, Fate.PURGED if purged else Fate.LATE)
        if purged:
            return _with(told, Fate.PURGED)
        if hidden_until_us > self._host.now_us():
            return _with(told, Fate.IN_FLIGHT, attempt=attempt, hidden_until_us=hidden_until_us)
        return _with(told, Fate.WAITING, attempt=attempt)

    async def _of_nothing(self, place: Place, stored: bytes, *, known: bool) -> Fate:
        """There is no row: it expired, or its copy is on its way, or it never was."""
        if known:
            return Fate.WAITING
        row = place.row
        part = row.part(self._settings.part_us)
        passed = await read_passed(self._host, self._settings, row.generation, row.shard, part)
        return Fate.SETTLED if row.due in passed else Fate.NOT_FOUND


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


def _with(told: Whereabouts, fate: Fate, places: tuple[str, ...] | None = None, **changes: int) -> Whereabouts:
    values = {"due_us": told.due_us, "attempt": told.attempt, "hidden_until_us": told.hidden_until_us} | changes
    return Whereabouts(told.message_id, fate, told.places if places is None else places, **values)


def _words(place: Place) -> str:
    row = place.row
    due = datetime.fromtimestamp(moment_us_of(row.due) / SECOND_US, UTC).isoformat(timespec="milliseconds")
    table = "later" if row.lies_later else "work"
    return (
        f"generation {row.generation}, shard {row.shard}, {table} due {due.replace('+00:00', 'Z')}, "
        f"sub {row.sub}, row {row.due}, index {place.index}"
    )
