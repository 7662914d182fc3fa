"""The rows of a lane that were set aside, since their stored bytes cannot be read.

A checksum fails, or a release that this process does not know wrote them. Nothing is deleted: the row stays until it
expires. Its due id is noted before `last` moves over it, so that owners do not meet it again and repair leaves it
alone. The notes of a lane are one partition of `passed`, under a part that no row can have; a note lives as long as
what it names. A row of another family member that can be read is delivered, since the family is not noted as passed.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from uuid import UUID

from headgate.engines.context import Host
from headgate.engines.packed_row import PackedRun, RowBroken, unpack
from headgate.engines.timeline.model.layout import MessagePlace, RowPlace
from headgate.engines.timeline.model.settings import TimelineSettings
from headgate.engines.timeline.read.lane_records import part_key
from headgate.engines.timeline.read.passed_rows import decode_passed, encode_passed
from headgate.errors import InvalidRequest
from headgate.store.model.positions import position_order, time_us_of
from headgate.store.model.statements import Insert, Select
from headgate.store.model.types import Value

log = logging.getLogger("headgate.lanes")

UNREADABLE_PART = -1
PIECES_MAX = 1_000
"""Of the notes of one lane at most this many are read: each names what an owner passed at once. Where there are more,
the number is too low, and rows are noted again."""


def read_run(cell: bytes) -> PackedRun:
    """The messages of a row; `RowBroken` also where what they name is no place of this engine."""
    run = unpack(cell)
    if run.replaces is not None:
        try:
            MessagePlace.from_bytes(run.replaces)
        except InvalidRequest as error:
            raise RowBroken("A restamped row names no place", length=len(run.replaces)) from error
    return run


class UnreadableRows:
    """The notes of one lane. Two owners in a row may note the same row, which counts once."""

    def __init__(self, pieces: Iterable[bytes] = ()) -> None:
        self._due: set[UUID] = set().union(*map(decode_passed, pieces))

    def __contains__(self, due: UUID) -> bool:
        return due in self._due

    def add(self, rows: Iterable[RowPlace]) -> None:
        """These were noted after the notes were read."""
        self._due.update(row.due for row in rows)

    def count(self, purged_before_us: int) -> int:
        """How many there are. A purge declares those before it unwanted as well."""
        return sum(time_us_of(due) >= purged_before_us for due in self._due)


async def read_unreadable(host: Host, settings: TimelineSettings, generation: int, shard: int) -> UnreadableRows:
    """The notes of one lane: nearly always an empty partition."""
    key = part_key(settings, generation, shard, UNREADABLE_PART)
    rows = await host.store.read(Select(settings.tables.passed, key, ("ids",), limit=PIECES_MAX))
    return UnreadableRows(row.ids for row in rows if row.ids is not None)


def build_note(
    settings: TimelineSettings, rows: Sequence[RowPlace], *, writer: UUID, piece: int, stamp_us: int, ttl_s: int
) -> Insert:
    """The write that notes some rows of one lane."""
    first = rows[0]
    values: dict[str, Value] = {
        **part_key(settings, first.generation, first.shard, UNREADABLE_PART),
        "writer": writer,
        "piece": piece,
        "ids": encode_passed([row.due for row in rows]),
        "messages": len(rows),
        "up_to": max((row.due for row in rows), key=position_order),
    }
    return Insert(settings.tables.passed, values, timestamp_us=stamp_us, ttl_s=ttl_s)


def log_unreadable(settings: TimelineSettings, row: RowPlace, error: str) -> None:
    """One line for each row, once it is noted."""
    fields: dict[str, object] = {"queue": settings.name, "generation": row.generation, "shard": row.shard}
    fields |= {"part": row.part(settings.part_us), "sub": row.sub, "due": str(row.due), "error": error}
    log.error("an unreadable row is set aside; its messages are not delivered", extra=fields)
