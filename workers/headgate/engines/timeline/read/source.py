"""One lane of a timeline queue, as a dispatcher works it: its rows, its records, the places of its copies.

Rows come from reading.py. This module writes the owner's records under the uuid of its lease term, and builds the
deliveries. Every write is plain, carries its own timestamp, and may be sent again (rule R4).
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any
from uuid import UUID

from headgate.engines.context import Host
from headgate.engines.contract import Delivery
from headgate.engines.lanes.delivery.rows import HandOut, LaneRow, Move, Why
from headgate.engines.lanes.log.settle_log import Piece
from headgate.engines.lanes.log.settle_log_format import Facts, merge_facts
from headgate.engines.lanes.ownership.decide_lease import LeaseTerm
from headgate.engines.lanes.source import RangeReservation
from headgate.engines.lanes.source import RowSlice as LaneSlice
from headgate.engines.packed_row import PackedRun, attributes_of
from headgate.engines.receipts import receipts_of
from headgate.engines.timeline.model.layout import PLACE_BYTES, SECOND_US, MessagePlace, id_suffix, id_text, row_text
from headgate.engines.timeline.put.copies import Copy, write_copies
from headgate.engines.timeline.put.row_sender import Sender
from headgate.engines.timeline.read.ended_places import see_to_late_copy
from headgate.engines.timeline.read.lane_records import part_key, read_passed, read_pieces
from headgate.engines.timeline.read.logged_rows import LoggedRows, expired_row
from headgate.engines.timeline.read.part_index import PartIndex
from headgate.engines.timeline.read.passed_rows_log import Passing, kept_s, write_by_part
from headgate.engines.timeline.read.reading import LaneReader, RowContent, family_of, put_before
from headgate.engines.timeline.read.restamp_families import Families
from headgate.engines.timeline.read.unreadable_rows import read_unreadable
from headgate.errors import Bug, Unavailable
from headgate.process.live import Live
from headgate.store.model.positions import first_at, last_at, position_at, position_order, time_us_of
from headgate.store.model.statements import Insert, Plain
from headgate.store.model.types import Value

RESTAMPS_WITHIN_US = 60 * SECOND_US
"""A row is restamped within this time, or repair has noted its move on the first: the facts of a row include those of
restamped rows up to this far behind it."""
RECALLED_AHEAD_US = 60 * SECOND_US
"""So far ahead records are read at once: reading them part by part would cost short parts a round trip each."""
_RESERVATION = struct.Struct("<16s16s16sq")


class DeadLetterQueueElsewhere(Unavailable):
    """A dead letter was started to a queue that no longer takes them: it waits until that queue does again."""


class TimelineSource:
    """A `LaneSource` for one lease term of one lane."""

    def __init__(
        self,
        host: Host,
        sender: Sender,
        dead_letters: Live[Sender | None],
        *,
        generation: int,
        shard: int,
        lease_term: LeaseTerm,
        index: PartIndex | None = None,
    ) -> None:
        self._host = host
        self._settings = settings = sender.live
        self._sender = sender
        self._dead_letters = dead_letters
        self._generation = generation
        self._shard = shard
        self._writer = lease_term.lock
        self._epoch = lease_term.epoch
        self._stamped_us = 0
        self._recorded_until_us = lease_term.since_us + settings.now.skew_us
        """Nobody recorded anything about rows that are due later: earlier owners and jobs deliver what is due."""
        self._next_recalled = 0
        """The first part whose records are not read yet."""
        self._readable_to: int | None = None
        """Rows may be read up to here, by the records that are read; None: all are read, or none were asked for."""
        self._index = index or PartIndex(host, settings, generation)
        self._passed = Passing(host, settings, generation=generation, shard=shard, writer=lease_term.lock)
        read = partial(read_passed, host, settings.now, generation, shard)
        self._families = Families(settings.now.part_us, read, epoch=lease_term.epoch)
        self._logged = LoggedRows()
        self.reading = LaneReader(
            host,
            settings,
            self._index,
            self._families,
            generation=generation,
            shard=shard,
            purged_before_us=lease_term.purged_before_us,
        )

    # ---- orders

    def order_of(self, stored: Value) -> int:
        """A position as a number; of null, before everything."""
        return position_order(stored) if isinstance(stored, UUID) else position_order(first_at(0))

    def stored(self, order: int) -> Value:
        """A number as the position that a lane's row keeps."""
        return position_at(order)

    def order_at(self, time_us: int) -> int:
        """Above everything due up to that time."""
        return position_order(last_at(time_us))

    # ---- reading

    async def read(self, after: int, *, bytes_max: int) -> LaneSlice:
        """The next rows, and in their order those that the settle log names and that have expired."""
        self._logged.forget(after)
        rows = await self.reading.read(after, bytes_max=bytes_max, up_to=self._readable_to)
        logged = self._logged.between(after, rows.reached)
        stored = {row.key for row in rows.rows} if logged else ()
        expired = [
            expired_row(
                key, order, generation=self._generation, shard=self._shard, part_us=self._settings.now.part_us
            )
            for order, key in logged
            if key not in stored
        ]
        if not expired:
            return rows
        return replace(rows, rows=sorted([*rows.rows, *expired], key=lambda row: row.order))

    def quiet_up_to(self, after: int) -> int | None:
        """Where the index names nothing from there on, by the poll that the empty lanes of the process share."""
        return self.reading.quiet_up_to(after)

    async def known(self, after: int, up_to: int) -> Facts:
        """The records of all owners and jobs for the parts from one position to another."""
        part_us, whole = self._settings.now.part_us, Facts()
        part, last = _due_us(after) // part_us, (_due_us(up_to) + RESTAMPS_WITHIN_US) // part_us
        while True:
            await self._add_facts(whole, part, begin=after)
            if part >= last:
                return whole
            part = await self._index.next_part(part + 1, last)

    async def recall(self, after: int) -> Facts:
        """The records of the parts ahead, as far as earlier owners and jobs can have come. Empty parts are
        skipped."""
        if self._next_recalled and (self._readable_to is None or after < self._readable_to):
            return {}
        if not self._next_recalled:
            self._passed.resume(await read_unreadable(self._host, self._settings.now, self._generation, self._shard))
        part_us, whole = self._settings.now.part_us, Facts()
        part, last = max(self._next_recalled, _due_us(after) // part_us), self._recorded_until_us // part_us
        ahead = (_due_us(after) + RECALLED_AHEAD_US + RESTAMPS_WITHIN_US) // part_us
        while part <= min(ahead, last):
            await self._add_facts(whole, part, begin=after)
            part = await self._index.next_part(part + 1, last) if part < last else last + 1
        self._next_recalled = part
        self._readable_to = None if part > last else self.order_at(part * part_us - 1 - RESTAMPS_WITHIN_US)
        return whole

    async def _add_facts(self, whole: Facts, part: int, *, begin: int) -> None:
        async for facts in read_pieces(self._host, self._settings.now, self._key(part), begin=begin):
            merge_facts(whole, facts)
            for key, of_row in facts.items():
                self._logged.add(key, self._begun(key, of_row.epoch))

    def met(self, keys: Iterable[bytes]) -> None:
        """The owner of this lease term has these rows in flight."""
        for key in keys:
            self._begun(key, self._epoch)

    def _begun(self, key: bytes, epoch: int) -> UUID:
        """The row was started, also where it is the first: that may have expired, and its restamped rows not yet. The
        due id of the row."""
        due, first = family_of(key)
        self._families.begun(first, due, epoch=epoch)
        return due

    def settled_elsewhere(self, rows: Iterable[LaneRow], facts: Facts) -> dict[bytes, int]:
        """By its key, the messages of a row that were settled as another row of its lineage. A job may have met the
        restamped row alone, where the owner delivers the first."""
        lineages: dict[UUID, list[tuple[bytes, int]]] = {}
        for key, each in facts.items():
            if each.settled:
                lineages.setdefault(family_of(key)[1], []).append((key, each.settled))
        elsewhere: dict[bytes, int] = {}
        for row in rows:
            for key, settled in lineages.get(row.content.first, ()):
                if key != row.key:
                    elsewhere[row.key] = elsewhere.get(row.key, 0) | settled
        return elsewhere

    def purge(self, before_us: int) -> None:
        """Rows that come from now on are settled where they were put before."""
        self.reading.purge(before_us)

    def put_before(self, row: LaneRow, time_us: int) -> int:
        """The bits of the messages of a row first put before a given time."""
        content: RowContent = row.content
        return put_before(content.run, time_us)

    # ---- records

    async def write_record(self, pieces: Sequence[Piece[Any]]) -> None:
        """Overwrite pieces of this lease term's settle log."""
        stamp_us = self._stamp()
        table = self._settings.now.tables.settled
        by_part: dict[int, list[Plain]] = {}
        for piece in pieces:
            values: dict[str, Value] = {**self._key(piece.where), "writer": self._writer, "piece": piece.number}
            values["facts"] = piece.content
            ttl_s = kept_s(self._settings.now, piece.where, now_us=stamp_us, last_expiry_s=self._host.last_expiry_s)
            insert = Insert(table, values, timestamp_us=stamp_us, ttl_s=ttl_s)
            by_part.setdefault(piece.where, []).append(insert)
        await write_by_part(self._host, by_part)

    async def write_passed(self, rows: Sequence[LaneRow]) -> None:
        """Add a piece of passed rows to each part they lie in."""
        await self._passed.write(rows)
        self.forget(rows)

    @property
    def unreadable_rows(self) -> int:
        """How many rows of the lane were set aside, by this owner and those before it."""
        return self._passed.unreadable.count(self.reading.purged_before_us)

    def forget(self, rows: Iterable[LaneRow]) -> None:
        """These rows are on record as passed: that record is what their families are known by from now on."""
        self._families.forget((row.content.first, row.content.place.due) for row in rows)

    def _key(self, part: int) -> dict[str, Value]:
        return part_key(self._settings.now, self._generation, self._shard, part)

    def _stamp(self) -> int:
        """A piece that is overwritten has to win, also twice in one microsecond."""
        self._stamped_us = max(self._stamped_us + 1, self._host.now_us())
        return self._stamped_us

    # ---- copies

    def fix_place(self, move: Move) -> bytes:
        """A place in this queue for a retry, in the other for a dead letter. The latter names its queue too, since
        the process that finishes it has no other way to determine it."""
        dead = self._dead_letters.now if move.why is Why.DEAD else None
        if dead is None and move.why is Why.DEAD:
            raise Bug("A dead letter has no dead-letter queue", queue=self._settings.now.name)
        run = _run_of(move.row)
        group = run.group[move.index] or None if run.group is not None else None
        size = len(run.payload[move.index])
        place = (dead or self._sender).fix_place(move.due_us, group=group, size_bytes=size).to_bytes()
        return place if dead is None else place + dead.settings.queue.bytes

    async def write_copy(self, move: Move) -> None:
        """The message at the place that was fixed."""
        if move.place is None:
            raise Bug("A copy was written to a fixed place", reason=move.reason)
        place, queue = MessagePlace.from_bytes(move.place[:PLACE_BYTES]), move.place[PLACE_BYTES:]
        due_us = time_us_of(place.row.due)  # which an owner that finishes the copy knows as well
        copy = copy_of(move.row, move.index)
        if queue:
            attributes = _with_reason(copy.attributes, self._settings.now.name, move)
            copy = replace(copy, due_us=due_us, attributes=attributes, attempt=0)
        elif move.why is not Why.MOVED:
            copy = replace(copy, due_us=due_us, attempt=move.attempt)
        sender = self._sender_to(queue) if queue else self._sender
        await carry(sender, [(place, copy)])

    def _sender_to(self, queue: bytes) -> Sender:
        dead_letters = self._dead_letters.now
        if dead_letters is None or dead_letters.settings.queue.bytes != queue:
            raise DeadLetterQueueElsewhere(queue=self._settings.now.name, begun_in=UUID(bytes=queue))
        return dead_letters

    # ---- deliveries

    def deliveries(self, given: Iterable[HandOut], epoch: int) -> list[Delivery]:
        """The deliveries for consumers. The common part of messages in one row is computed once."""
        made: list[Delivery] = []
        of_row: Callable[[HandOut], Delivery] | None = None
        row: LaneRow | None = None
        attempt = 0
        for each in given:
            if of_row is None or each.row is not row or each.attempt != attempt:
                row, attempt = each.row, each.attempt
                of_row = self._deliveries_of(row, attempt, epoch)
            made.append(of_row(each))
        return made

    def _deliveries_of(self, row: LaneRow, attempt: int, epoch: int) -> Callable[[HandOut], Delivery]:
        settings = self._settings.now
        run = _run_of(row)
        payloads, dues_us, puts_us, own_ids = run.payload, run.due_us, run.put_us, run.message_id
        attributes, groups = run.attributes, run.group
        start = row_text(row.content.place)
        receipt = (
            receipts_of(settings.queue, settings.receipt_key)
            .of_row((self._generation, self._shard), epoch, attempt, row.key, count=row.count)
            .text
        )

        def delivery(given: HandOut) -> Delivery:
            index = given.index
            own_id = own_ids[index] if own_ids is not None else b""
            return Delivery(
                id_text(own_id) if own_id else start + id_suffix(index),
                payloads[index],
                attributes_of(attributes[index]) if attributes is not None else {},
                groups[index].decode() or None if groups is not None else None,
                attempt,
                dues_us[index],
                puts_us[index],
                epoch,
                given.until_us,
                receipt(index),
                given.suspect,
            )

        return delivery

    # ---- reservations

    def decode_reservation(self, reserved: bytes) -> RangeReservation:
        """A range that a job has reserved."""
        return unpack_reservation(reserved)

    def encode_reservation(self, reservation: RangeReservation) -> bytes:
        """As a lane's row keeps it."""
        return pack_reservation(
            reservation.job, position_at(reservation.first), position_at(reservation.last), reservation.deadline_us
        )


def _due_us(order: int) -> int:
    return max(time_us_of(position_at(order)), 0)


def pack_reservation(job: UUID, first: UUID, last: UUID, deadline_us: int) -> bytes:
    """As a lane's row keeps it; both positions belong to the range."""
    return _RESERVATION.pack(job.bytes, first.bytes, last.bytes, deadline_us)


def unpack_reservation(reserved: bytes) -> RangeReservation:
    """The reservation in a lane's row."""
    job, first, last, deadline_us = _RESERVATION.unpack(reserved)
    return RangeReservation(
        UUID(bytes=job), position_order(UUID(bytes=first)), position_order(UUID(bytes=last)), deadline_us
    )


def _with_reason(stored: bytes, queue: str, move: Move) -> bytes:
    attributes = json.loads(stored) if stored else {}
    attributes |= {"headgate.dead.queue": queue, "headgate.dead.reason": move.reason}
    attributes["headgate.dead.attempts"] = str(move.attempt)
    return json.dumps(attributes, ensure_ascii=False, separators=(",", ":")).encode()


async def carry(sender: Sender, copies: Sequence[tuple[MessagePlace, Copy]]) -> None:
    """Write copies at the places that were fixed for them; then their originals can be passed."""
    for place, _ in await write_copies(sender, copies):
        await see_to_late_copy(sender, place.row)


def copy_of(row: LaneRow, index: int = 0) -> Copy:
    """A message as it is, to be written at another place."""
    run = _run_of(row)
    return Copy(
        payload=run.payload[index],
        message_id=_message_id(row, index),
        put_us=run.put_us[index],
        due_us=run.due_us[index],
        attributes=run.attributes[index] if run.attributes is not None else b"",
        group=run.group[index] or None if run.group is not None else None,
        attempt=run.attempt[index] if run.attempt is not None else 0,
    )


def _run_of(row: LaneRow) -> PackedRun:
    content: RowContent = row.content
    if content.run is None:
        raise Bug("A row without messages was delivered", key=row.key.hex())
    return content.run


def _message_id(row: LaneRow, index: int) -> bytes:
    run = _run_of(row)
    own = run.message_id[index] if run.message_id is not None else b""
    return own or MessagePlace(row.content.place, index).to_bytes()
