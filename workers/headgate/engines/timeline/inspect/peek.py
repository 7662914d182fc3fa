"""Reads live messages without taking them: all lanes merged by due time, from the oldest unsettled or a given time
on.

The tables determine the live messages: rows above `last` that are not cancelled, purged, replaced or moved, less
those in the settle log. For lanes that this process owns, the books determine them exactly.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from headgate.engines.context import Host
from headgate.engines.contract import Peeked, Visibility
from headgate.engines.lanes.delivery.rows import LaneRow
from headgate.engines.lanes.log.settle_log_format import RowFacts, bits_of
from headgate.engines.packed_row import PackedRun, attributes_of
from headgate.engines.timeline.lanes.lane_snapshot import Held, LaneRows, LaneView, list_lane_views, part_at
from headgate.engines.timeline.model.layout import id_text, ids_of
from headgate.engines.timeline.model.settings import TimelineSettings
from headgate.engines.timeline.read.part_index import PartIndex
from headgate.engines.timeline.read.part_list import parts_from
from headgate.engines.timeline.read.reading import RowContent
from headgate.engines.timeline.read.unreadable_rows import log_unreadable
from headgate.errors import InvalidRequest
from headgate.process.live import Live
from headgate.store.model.positions import first_at, last_at, position_order

LIMIT_MAX = 1_000
SLICE_BYTES = 256 * 1024
SLICES_MAX = 200
"""Of one lane in one part: at most this many slices of settled rows are searched."""

_Candidate = tuple[int, int, Peeked]
"""Order of the row, index in it, message."""


async def peek(
    host: Host, settings: TimelineSettings, held: Held, limit: int, *, from_us: int | None = None
) -> list[Peeked]:
    """Up to `limit` live messages, the earliest by due time."""
    if not 1 <= limit <= LIMIT_MAX:
        raise InvalidRequest("Peek shows 1 to 1,000 messages", limit=limit)
    now_us = host.now_us()
    views = await list_lane_views(host, settings, held)
    candidates: list[_Candidate] = []
    for generation in settings.generations:
        lanes = [each for each in views if each.generation == generation.number and not each.state.is_retired]
        if lanes:
            candidates += await _Generation(host, settings, lanes, now_us, from_us).peek(limit)
    candidates.sort(key=lambda each: each[:2])
    first: dict[str, Peeked] = {}
    for _, _, each in candidates:
        first.setdefault(each.message_id, each)  # a message on its way to another place may be visible at both
    return list(first.values())[:limit]


class _Generation:
    """The lanes of one generation."""

    def __init__(
        self, host: Host, settings: TimelineSettings, lanes: Sequence[LaneView], now_us: int, from_us: int | None
    ) -> None:
        self._host = host
        self._settings = settings
        self._now_us = now_us
        self._begin = position_order(first_at(from_us)) - 1 if from_us is not None else 0
        index = PartIndex(host, Live(settings), lanes[0].generation)
        self._lanes = [(view, LaneRows(host, settings, view, index)) for view in lanes]

    async def peek(self, limit: int) -> list[_Candidate]:
        """The first `limit`, part by part: within one the lanes are merged."""
        generation = self._lanes[0][0].generation
        candidates: list[_Candidate] = []
        after = {id(view): max(view.position, self._begin) for view, _ in self._lanes}
        part_us = self._settings.part_us
        async for part, _ in parts_from(
            self._host, self._settings, generation, part_at(min(after.values()), part_us)
        ):
            end = position_order(last_at((part + 1) * part_us - 1))
            works = [
                self._of_lane(view, rows, part, after[id(view)], end, limit)
                for view, rows in self._lanes
                if after[id(view)] < end
            ]
            of_part = [each for one in await asyncio.gather(*works) for each in one]
            of_part.sort(key=lambda each: each[:2])
            candidates += of_part
            if len({each.message_id for _, _, each in candidates}) >= limit:
                break
        return candidates

    async def _of_lane(
        self, view: LaneView, rows: LaneRows, part: int, after: int, end: int, limit: int
    ) -> list[_Candidate]:
        """The first live messages of one lane in one part."""
        facts = await rows.facts(part)
        candidates: list[_Candidate] = []
        for _ in range(SLICES_MAX):
            some, after, cut = await rows.reading.read_part(part, after, end, SLICE_BYTES)
            for row in some:
                candidates += self._live(view, row, facts.get(row.key, RowFacts()))
            if not cut or len(candidates) >= limit:
                break
        return candidates

    def _live(self, view: LaneView, row: LaneRow, facts: RowFacts) -> list[_Candidate]:
        """The live messages of a row, from its owner or the record."""
        settled = row.settled | facts.settled
        tried = {index: it.attempt for index, it in facts.tried.items()}
        hidden = {index: it.hidden_until_us for index, it in facts.tried.items()}
        if view.mine is not None:
            delivery_state = view.mine.delivery_state
            stand = delivery_state.row_status(row.key)
            if stand is not None:
                settled |= stand.settled
                tried |= stand.tried
                hidden = dict(stand.hidden_until_us)
            elif delivery_state.horizon is not None and row.order <= delivery_state.horizon:
                return []
        content: RowContent = row.content
        if content.unreadable:
            log_unreadable(self._settings, content.place, content.unreadable)
        if content.run is None or settled == bits_of(0, row.count):
            return []
        ids = ids_of(content.place, row.count)
        return [
            (row.order, index, self._peeked(content.run, row, index, ids[index], tried, hidden))
            for index in range(row.count)
            if not settled >> index & 1 and index not in row.moved
        ]

    def _peeked(
        self, run: PackedRun, row: LaneRow, index: int, own_id: str, tried: dict[int, int], hidden: dict[int, int]
    ) -> Peeked:
        first_id = run.message_id[index] if run.message_id is not None else b""
        before = run.attempt[index] if run.attempt is not None else 0
        hidden_until_us = hidden.get(index, 0)
        standing = Visibility.READY
        if row.order > position_order(last_at(self._now_us)):
            standing = Visibility.LATER
        elif hidden_until_us > self._now_us:
            standing = Visibility.IN_FLIGHT
        return Peeked(
            message_id=id_text(first_id) if first_id else own_id,
            payload=run.payload[index],
            attributes=attributes_of(run.attributes[index]) if run.attributes is not None else {},
            group=run.group[index].decode() or None if run.group is not None else None,
            due_us=run.due_us[index],
            put_us=run.put_us[index],
            attempt=tried.get(index, before),
            standing=standing,
            hidden_until_us=hidden_until_us if standing is Visibility.IN_FLIGHT else 0,
        )
