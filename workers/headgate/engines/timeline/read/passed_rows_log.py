"""Records the passed rows of a lane: each process that passes some writes pieces of its own (attacks A3, A4).

A piece is written once. After a failure, its writer returns with the same rows and more, and overwrites it. So a
concurrent process that passes rows needs another writer. This module does not know why a row was passed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from uuid import UUID

from headgate.engines.context import Host
from headgate.engines.lanes.delivery.rows import LaneRow
from headgate.engines.timeline.model.layout import SECOND_US, TTL_S_MAX, RowPlace
from headgate.engines.timeline.model.settings import TimelineSettings
from headgate.engines.timeline.read.lane_records import part_key
from headgate.engines.timeline.read.passed_rows import encode_passed
from headgate.engines.timeline.read.reading import RowContent
from headgate.engines.timeline.read.unreadable_rows import (
    UNREADABLE_PART,
    UnreadableRows,
    build_note,
    log_unreadable,
)
from headgate.process.live import Live
from headgate.store.model.positions import position_at, time_us_of
from headgate.store.model.statements import Batch, Insert, Plain
from headgate.store.model.types import Value

HOUR_US = 3_600 * SECOND_US
PARTS_MAX = 1_000
"""A lane may be held for months: the number of the last piece is remembered for this number of parts."""


class Passing:
    """The rows of one lane that one writer passes."""

    def __init__(
        self, host: Host, settings: Live[TimelineSettings], *, generation: int, shard: int, writer: UUID
    ) -> None:
        self._settings = settings
        self._host = host
        self._generation = generation
        self._shard = shard
        self._writer = writer
        self._pieces: dict[int, int] = {}
        self.unreadable = UnreadableRows()
        """Those that are noted already, as far as the writer has read."""
        self._stamped_us = 0

    def resume(self, noted: UnreadableRows) -> None:
        """These were noted by earlier writers."""
        self.unreadable = noted

    async def write(self, rows: Sequence[LaneRow]) -> None:
        """Add a piece to each part that they are in; for a restamped row, its family's first place to that part's.
        Those that cannot be read are noted by themselves, once."""
        ids: dict[int, set[UUID]] = {}
        messages: dict[int, int] = {}
        unreadable: list[RowContent] = []
        for row in rows:
            content: RowContent = row.content
            of_part = ids.setdefault(row.where, set())
            if not content.unreadable:
                of_part.add(content.place.due)
            elif content.place.due not in self.unreadable:
                unreadable.append(content)
            messages[row.where] = messages.get(row.where, 0) + content.counted
            if content.first != content.place.due:
                ids.setdefault(time_us_of(content.first) // self._settings.now.part_us, set()).add(content.first)
        self._stamped_us = stamp_us = max(self._stamped_us + 1, self._host.now_us())
        by_part: dict[int, list[Plain]] = {}
        numbers = {part: self._pieces.get(part, -1) + 1 for part in ids}
        for part, passed in ids.items():
            key = part_key(self._settings.now, self._generation, self._shard, part)
            values: dict[str, Value] = {**key, "writer": self._writer, "piece": numbers[part]}
            values |= {"ids": encode_passed(passed), "messages": messages.get(part, 0)}
            values["up_to"] = position_at(rows[-1].order)
            ttl_s = passed_kept_s(self._settings.now, part, now_us=stamp_us, last_expiry_s=self._host.last_expiry_s)
            by_part[part] = [Insert(self._settings.now.tables.passed, values, timestamp_us=stamp_us, ttl_s=ttl_s)]
        if unreadable:
            numbers[UNREADABLE_PART] = self._pieces.get(UNREADABLE_PART, -1) + 1
            by_part[UNREADABLE_PART] = [self._note(unreadable, numbers[UNREADABLE_PART], stamp_us)]
        await write_by_part(self._host, by_part)
        self._pieces |= numbers
        self.unreadable.add(content.place for content in unreadable)
        for content in unreadable:
            log_unreadable(self._settings.now, content.place, content.unreadable)
        if len(self._pieces) > PARTS_MAX:  # nothing is in doubt now, so no piece is counted under two writers
            self._writer, self._pieces = self._host.uuid(), {}

    def _note(self, contents: Sequence[RowContent], piece: int, stamp_us: int) -> Insert:
        """Kept as long as what is passed in the latest of their parts."""
        settings = self._settings.now
        places = [content.place for content in contents]
        ttl_s = max(note_kept_s(settings, place, now_us=stamp_us, host=self._host) for place in places)
        return build_note(settings, places, writer=self._writer, piece=piece, stamp_us=stamp_us, ttl_s=ttl_s)


def kept_s(settings: TimelineSettings, part: int, *, now_us: int, last_expiry_s: int) -> int:
    """How long a record of a part is kept: as long as any row of it."""
    end_us = (part + 1) * settings.part_us + settings.retention_us + HOUR_US
    ttl_s = max(end_us - now_us, HOUR_US) // SECOND_US
    return min(ttl_s, TTL_S_MAX, last_expiry_s - now_us // SECOND_US)


def passed_kept_s(settings: TimelineSettings, part: int, *, now_us: int, last_expiry_s: int) -> int:
    """How long passed rows are recorded: as long as any row of the part, and until repair's last scan is over, also
    where the retention was lowered since the rows were put."""
    wanted_s = max(
        kept_s(settings, part, now_us=now_us, last_expiry_s=last_expiry_s),
        settings.check_terms.record_us // SECOND_US,
    )
    return min(wanted_s, TTL_S_MAX, last_expiry_s - now_us // SECOND_US)


def note_kept_s(settings: TimelineSettings, place: RowPlace, *, now_us: int, host: Host) -> int:
    """How long a row that cannot be read is noted."""
    return passed_kept_s(settings, place.part(settings.part_us), now_us=now_us, last_expiry_s=host.last_expiry_s)


async def note_unreadable(host: Host, settings: TimelineSettings, place: RowPlace, error: str) -> None:
    """Set a row aside that no owner has met: one that landed late."""
    now_us = host.now_us()
    ttl_s = note_kept_s(settings, place, now_us=now_us, host=host)
    await host.store.write(build_note(settings, [place], writer=host.uuid(), piece=0, stamp_us=now_us, ttl_s=ttl_s))
    log_unreadable(settings, place, error)


async def write_by_part(host: Host, by_part: dict[int, list[Plain]]) -> None:
    """A write for each part, all at once."""
    writes = [each[0] if len(each) == 1 else Batch(each) for each in by_part.values()]
    if len(writes) == 1:
        await host.store.write(writes[0])
    else:
        await asyncio.gather(*map(host.store.write, writes))
