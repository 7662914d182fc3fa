"""Cancel and reschedule by message id. The prose is "Cancel and reschedule" in docs/internals/protocols/timeline.md.

A message with a row of its own is cancelled by a cell of that row. That is promised only if it was acknowledged
before due - 2 maxClockSkew: no reader has met the row by then, and every later one sees the cell. All else is "too
late".

Invariants: a message whose cancel succeeded is never delivered, also where repair moves the row meanwhile (the copy
keeps the id, and its origin's cell is read at delivery). A reschedule that fails or dies anywhere leaves at least one
of the two messages (attack A15).
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from enum import Enum
from typing import Any

from headgate.engines.contract import Cancelled
from headgate.engines.packed_row import PackedRun, unpack
from headgate.engines.timeline.model.layout import (
    OUTLIVES_US,
    SECOND_US,
    MessagePlace,
    RowPlace,
    id_bytes,
    id_text,
    ttl_s_kept,
)
from headgate.engines.timeline.put.copies import Copy, write_copies
from headgate.engines.timeline.put.producer import Producer
from headgate.errors import HeadgateError
from headgate.expiry import Promise
from headgate.store.model.consistency import Consistency
from headgate.store.model.positions import time_us_of
from headgate.store.model.statements import Select, Update
from headgate.store.model.table import Table
from headgate.store.store import OutcomeUnknown


@dataclass(frozen=True, slots=True)
class _PlacedMessage:
    """A message that may still be cancelled: its content, and its place."""

    run: PackedRun
    places: tuple[RowPlace, ...]
    was_cancelled: bool


class _Ending(Enum):
    """How a cancel ended."""

    PROMISED = "acknowledged in time"
    SENT = "sent, but not acknowledged in time: the write may still take effect"
    NOT_SENT = "not sent"


class Cancels:
    """Takes messages of one queue back before they are due."""

    def __init__(self, producer: Producer) -> None:
        self._producer = producer
        self._sender = producer.sender
        self._host = producer.sender.host

    async def cancel(self, message_id: str) -> Cancelled:
        """Never deliver it, if that can still be promised. Raises Unknown where the outcome is not known."""
        placed = await self._find(MessagePlace.from_bytes(id_bytes(message_id)))
        if placed is None:
            return Cancelled.TOO_LATE
        ending = await self._cancel(placed)
        return Cancelled.CANCELLED if ending is _Ending.PROMISED else Cancelled.TOO_LATE

    async def reschedule(self, message_id: str, due_us: int) -> tuple[Cancelled, str | None]:
        """Put it for another time, then cancel it: cancelled, and the new id. Or too late: without an id it stays as
        it is; with one it comes under the old id or the new one, and may come under both."""
        self._producer.check_keepable(due_us, self._host.now_us())
        placed = await self._find(MessagePlace.from_bytes(id_bytes(message_id)))
        if placed is None:
            return Cancelled.TOO_LATE, None
        new_id = await self._put_again(placed.run, due_us)
        try:
            ending = await self._cancel(placed)
        except OutcomeUnknown:
            ending = _Ending.SENT
        if ending is _Ending.PROMISED:
            return Cancelled.CANCELLED, new_id
        if ending is _Ending.SENT:  # the old one may be gone: the new one has to stay
            return Cancelled.TOO_LATE, new_id
        taken_back = await self.cancel(new_id)
        return Cancelled.TOO_LATE, None if taken_back is Cancelled.CANCELLED else new_id

    async def _put_again(self, run: PackedRun, due_us: int) -> str:
        """The same message under an id of its own, since the old one is cancelled for good. It keeps the time of its
        first put, which a purge uses."""
        group = run.group[0] if run.group is not None and run.group[0] else None
        turns = [] if group is None else [group]
        await self._producer.take_turns(turns)
        try:
            place = self._sender.fix_place(due_us, group=group, size_bytes=len(run.payload[0]))
            copy = Copy(
                payload=run.payload[0],
                message_id=place.to_bytes(),
                put_us=run.put_us[0],
                due_us=due_us,
                attributes=b"" if run.attributes is None else run.attributes[0],
                group=group,
                attempt=0 if run.attempt is None else run.attempt[0],
            )
            await write_copies(self._sender, [(place, copy)], late_is_repaired=False)
        finally:
            self._producer.give_turns_back(turns)
        return id_text(place.to_bytes())

    async def _find(self, place: MessagePlace) -> _PlacedMessage | None:
        """The message, if it is in a row of its own that no reader can have met; else it is too late for it."""
        now_us = self._host.now_us()
        if not self._promise([place.row], now_us).still_holds(now_us):
            return None
        table, key = self._row(place.row)
        select = Select(table, key, ("run", "moved", "cancelled"), consistency=Consistency.SERIAL)
        for row in await self._host.store.read(select):
            if row.run is None or place.index:
                return None
            run = unpack(row.run)
            if len(run) != 1:
                return None
            moved = () if row.moved is None else (MessagePlace.from_bytes(row.moved).row,)
            return _PlacedMessage(run, (place.row, *moved), row.cancelled is not None)
        return None

    async def _cancel(self, placed: _PlacedMessage) -> _Ending:
        now_us = self._host.now_us()
        promise = self._promise(placed.places, now_us)
        if not promise.still_holds(now_us):
            return _Ending.NOT_SENT
        within_s = min(self._host.store.within_s, promise.left_us(now_us) / SECOND_US)
        writes = [self._host.store.write(self._mark(place, now_us), within_s=within_s) for place in placed.places]
        ended = await asyncio.gather(*writes, return_exceptions=True)
        failed = next((error for error in ended if isinstance(error, BaseException)), None)
        try:
            in_time = promise.still_holds(self._host.now_us())
        except HeadgateError as error:  # the clock may not be relied on: nothing is promised by it
            raise OutcomeUnknown("A cancel was sent, and may have been applied", last=error.message) from error
        if in_time and failed is not None:
            raise failed
        if in_time and not placed.was_cancelled:
            self._sender.records.take_off(placed.places)
        return _Ending.PROMISED if in_time else _Ending.SENT

    def _promise(self, places: tuple[RowPlace, ...] | list[RowPlace], now_us: int) -> Promise:
        """Two differences of clocks: ours against the reader's, and the reader's against the one that it follows."""
        due_us = min(time_us_of(place.due) for place in places)
        return Promise.until(due_us, sent_us=now_us, margin_us=2 * self._sender.settings.skew_us)

    def _mark(self, place: RowPlace, now_us: int) -> Update:
        settings = self._sender.settings
        table, key = self._row(place)
        until_us = time_us_of(place.due) + OUTLIVES_US  # never deleted before the message that it is about
        ttl_s = ttl_s_kept(
            until_us,
            now_us=now_us,
            retention_us=settings.retention_us,
            last_expiry_s=self._host.last_expiry_s,
        )
        return Update(table, key, {"cancelled": now_us}, timestamp_us=now_us, ttl_s=ttl_s)

    def _row(self, place: RowPlace) -> tuple[Table, dict[str, Any]]:
        settings = self._sender.settings
        key = {
            "queue": settings.queue,
            "generation": place.generation,
            "part": place.part(settings.part_us),
            "sub": place.sub,
            "shard": place.shard,
            "due": place.due,
        }
        return settings.tables.later if place.lies_later else settings.tables.work, key
