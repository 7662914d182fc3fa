"""The job's side of a range reservation: a bulk job reserves a range of a lane, reads it, settles its messages, and
returns it (docs/internals/protocols/dispatcher.md, "Reserving a range"; the owner's side is reservation_by_owner.py).
It knows no engine.

`RangeReserver` is the driver's part: it reserves the range and waits until the owner has answered, or nobody owns the
lane. `ReservedRange` is a task's part: it reads rows and settles messages under a writer uuid of its own, as a
promise that ends with the reservation's deadline. `GrantedReservation` passes from the driver to the tasks.

Invariants: a task starts only after the answer. It touches no message that was open with the owner, hidden, on its
way elsewhere or settled by then, and of a group nothing behind such a message. Nothing is confirmed after the
deadline. Messages that it does not settle belong to the owner again, whatever happens to the job.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, field
from typing import Any

from headgate.engines.context import Host
from headgate.engines.contract import Settled
from headgate.engines.lanes.delivery.rows import LaneRow
from headgate.engines.lanes.log.settle_log import Record
from headgate.engines.lanes.log.settle_log_format import Facts, RowFacts, bits_of, decode_in_flight, encode_in_flight
from headgate.engines.lanes.ownership.decide_lease import LaneState, LeaseTerm
from headgate.engines.lanes.ownership.lease import Lane
from headgate.engines.lanes.source import LaneSource, RangeReservation
from headgate.errors import Conflict, OperationRefused, Unavailable
from headgate.expiry import Promise, others_may_act

POLL_S = 0.25
TRIES = 5
SLICE_BYTES = 1024 * 1024


class RangeTaken(Conflict):
    """Another job has reserved a range of this lane."""


class ReservationNotGranted(Unavailable):
    """The lane's owner did not answer before the reservation's deadline."""


class ReservationOver(OperationRefused):
    """The reservation is over: its deadline has passed, or another job has the range by now."""


@dataclass(frozen=True)
class GrantedReservation:
    """A range that may be worked now, until its deadline."""

    reservation: RangeReservation
    stored: bytes
    """As the lane's row shows it."""
    epoch: int
    opened: frozenset[tuple[bytes, int]]
    """Row and index of the messages that the owner keeps."""

    def promise(self, sent_us: int) -> Promise:
        """The owner takes the range back two clock differences after the deadline."""
        return Promise.until(self.reservation.deadline_us, sent_us=sent_us)


class RangeReserver:
    """Reserves one range of one lane. A job that dies and restarts with the same reservation resumes it."""

    def __init__(self, host: Host, lane: Lane, source: LaneSource) -> None:
        self._host = host
        self._lane = lane
        self._source = source

    async def reserve(self, reservation: RangeReservation) -> GrantedReservation:
        """Reserve the range, and wait until it may be processed. A reservation that is not granted is released."""
        stored = self._source.encode_reservation(reservation)
        await self._reserve(reservation, stored)
        while self._host.now_us() < reservation.deadline_us:
            state = await self._read_state(stored)
            if state.reservation_answer is not None:
                opened = frozenset((key, index) for key, index, _ in decode_in_flight(state.reservation_answer))
                return GrantedReservation(reservation, stored, state.epoch, opened)
            if state.lock is None:
                await self._answer_in_place(state, stored)
            else:
                await asyncio.sleep(POLL_S)
        await self._lane.end_reservation(stored)
        raise ReservationNotGranted(
            job=reservation.job, remedy="set the reservation longer than a lease and its renewal interval"
        )

    async def give_back(self, granted: GrantedReservation) -> bool:
        """Unsettled messages belong to the owner again. False if the reservation was no longer ours."""
        return await self._lane.end_reservation(granted.stored)

    async def _reserve(self, reservation: RangeReservation, stored: bytes) -> None:
        for _ in range(TRIES):
            state = await self._lane.read_state()
            if state is None or state.is_retired:
                raise OperationRefused("The lane no longer exists", remedy="read the queue's generations again")
            if state.reserved == stored:
                return
            if state.reserved is not None:
                await self._end_if_overdue(state.reserved)
            else:
                up_to = max(reservation.last, self._source.order_of(state.reserved_up_to))
                if await self._lane.lend(stored, state, up_to=self._source.stored(up_to)):
                    return
        raise Unavailable("The lane changed too often to reserve a range", remedy="try again")

    async def _end_if_overdue(self, stored_other: bytes) -> None:
        other = self._source.decode_reservation(stored_other)
        skew_us = 2 * self._lane.terms.skew_us
        if not others_may_act(other.deadline_us, now_us=self._host.now_us(), skew_us=skew_us):
            raise RangeTaken(
                job=other.job, until_us=other.deadline_us, remedy="wait until the reservation is released"
            )
        await self._lane.end_reservation(stored_other)

    async def _read_state(self, stored: bytes) -> LaneState:
        state = await self._lane.read_state()
        if state is None or state.reserved != stored:
            raise ReservationOver(remedy="reserve the range again")
        return state

    async def _answer_in_place(self, state: LaneState, stored: bytes) -> None:
        """Nobody owns the lane: take it, so that the previous owner is over for sure, answer, and release it."""
        lease_term: LeaseTerm | None = await self._lane.take(state)
        if lease_term is None:
            return
        await self._lane.answer_reservation(lease_term, stored, encode_in_flight([]))
        await self._lane.release(lease_term, last=state.last, read_to=state.read_to)


@dataclass(slots=True)
class ReservedRow:
    """A row of the range, and which of its messages are the job's."""

    row: LaneRow
    mine: int
    """A bit for each index."""


@dataclass
class _Known:
    """The messages that were settled, hidden or on their way elsewhere before the job started."""

    facts: Facts
    begin: Any
    blocked: set[bytes] = field(default_factory=set)


class ReservedRange:
    """A reserved range, for one task. `source` writes under the task's own uuid: two tasks never share one."""

    def __init__(self, host: Host, lane: Lane, source: LaneSource, granted: GrantedReservation) -> None:
        self._host = host
        self._lane = lane
        self._source = source
        self._granted = granted
        self._record: Record[Any] = Record(granted.epoch)
        self._writing = asyncio.Lock()

    @property
    def reservation(self) -> RangeReservation:
        """The range, and until when."""
        return self._granted.reservation

    async def rows(self) -> AsyncIterator[ReservedRow]:
        """The rows of the range that are due, in order, those in which something is the job's."""
        known = await self._begin()
        after, more = known.begin, True
        while more and after < self.reservation.last:
            piece = await self._source.read(after, bytes_max=SLICE_BYTES)
            for row in piece.rows:
                if row.order > self.reservation.last:
                    return
                mine = self._mine(row, known)
                if mine and not row.order < self.reservation.first:
                    yield ReservedRow(row, mine)
            after, more = piece.reached, piece.more

    async def _begin(self) -> _Known:
        """First the record, then the position: everything dropped from the record by then is below it."""
        state = await self._lane.read_state()
        if state is None or state.reserved != self._granted.stored:
            raise ReservationOver(remedy="reserve the range again")
        last = self._source.order_of(state.last)
        facts = await self._source.known(last, self.reservation.last)
        self._source.met(key for key, _ in self._granted.opened)
        state = await self._lane.read_state()
        if state is None or state.reserved != self._granted.stored:
            raise ReservationOver(remedy="reserve the range again")
        self._source.purge(state.purged_before_us)
        return _Known(facts, self._source.order_of(state.last))

    def _mine(self, row: LaneRow, known: _Known) -> int:
        """The bits of the messages that the job may handle. Rows before the range show which groups wait for
        others."""
        facts = known.facts.get(row.key, RowFacts())
        settled = row.settled | facts.settled
        in_range = not row.order < self.reservation.first
        now_us = self._host.now_us()
        mine = 0
        for index in range(row.count):
            if settled >> index & 1:
                continue
            group = row.groups[index] if row.groups is not None else b""
            tried = facts.tried.get(index)
            free = (
                in_range
                and (row.key, index) not in self._granted.opened
                and index not in facts.moved
                and index not in row.moved
                and (tried is None or tried.hidden_until_us <= now_us)
                and not (group and group in known.blocked)
            )
            if free:
                mine |= bits_of(index, index + 1)
            elif group:
                known.blocked.add(group)
        return mine

    async def settle(self, done: Iterable[ReservedRow]) -> Settled:
        """Make durable that these messages (`mine` of each) are done. Stale: the reservation was over before anything
        was sent. Unknown: it may count, or not; they may come again."""
        async with self._writing:
            promise = self._granted.promise(self._host.now_us())
            if not promise.still_holds(self._host.now_us()):
                return Settled.STALE
            pieces = self._record.add((each.row, RowFacts(settled=each.mine)) for each in done)
            try:
                if pieces:
                    await self._source.write_record(pieces)
            except Unavailable:
                return Settled.UNKNOWN
            return Settled.DONE if promise.still_holds(self._host.now_us()) else Settled.UNKNOWN
