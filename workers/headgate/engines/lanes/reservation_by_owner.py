"""Obeys a range reservation of a bulk job on a lane: delivers nothing from it, reports the open messages to the job,
and takes the range back when the job releases it or its deadline is over (docs/internals/protocols/dispatcher.md).

Immediate reactions are decided where the renewal learns of the reservation. Longer work (making accepted settles
durable, answering, reading the job's settles) runs next to the renewals, so that a slow store does not cost the
lease.

Invariant: before the answer is written, every accepted settle in the range is on record, and the answer contains all
open messages of the range.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from headgate.engines.lanes.cursor import Position
from headgate.engines.lanes.delivery.delivery_state import DeliveryState
from headgate.engines.lanes.log.settle_log_format import Facts, encode_in_flight
from headgate.engines.lanes.log.settle_log_writer import Recorder
from headgate.engines.lanes.ownership.decide_lease import LeaseTerm
from headgate.engines.lanes.ownership.lease import Lane
from headgate.engines.lanes.source import LaneSource, RangeReservation
from headgate.expiry import others_may_act
from headgate.process.live import Live
from headgate.store.store import STORE_ERRORS

RETRY_PAUSE_S = 0.3


class RangeReservations:
    """The reservation of one lane, if there is one, for one lease term."""

    def __init__(
        self,
        delivery_state: DeliveryState,
        source: LaneSource,
        lane: Lane,
        recorder: Recorder,
        position: Position,
        *,
        lease_term: Live[LeaseTerm],
        learned: Callable[[Facts], None],
    ) -> None:
        self._delivery_state = delivery_state
        self._source = source
        self._lane = lane
        self._recorder = recorder
        self._lease_term = lease_term
        self._position = position
        self._learned = learned
        self._reserved: bytes | None = None
        self._reservation: RangeReservation | None = None
        self._unanswered = False
        self._overdue = False
        self._returned: list[RangeReservation] = []
        self._owed = asyncio.Event()

    def adopt(self, reserved: bytes | None, *, answered: bool = False) -> None:
        """From now on this is reserved, and nothing else: deliver nothing more of it."""
        if reserved == self._reserved:
            return
        if self._reservation is not None:
            self._returned.append(self._reservation)
        self._reserved, self._reservation = (
            reserved,
            None if reserved is None else self._source.decode_reservation(reserved),
        )
        self._unanswered = reserved is not None and not answered
        self._overdue = False
        if self._reservation is not None:
            self._delivery_state.lend(self._reservation.first, self._reservation.last)
        self._owed.set()

    def watch(self, now_us: int) -> None:
        """Take back a range whose job let its deadline pass."""
        if self._reservation is None:
            return
        skew_us = 2 * self._lane.terms.skew_us
        if others_may_act(self._reservation.deadline_us, now_us=now_us, skew_us=skew_us):
            self._overdue = True
            self._owed.set()

    async def run(self) -> None:
        """Do the owed work, until cancelled."""
        while True:
            await self._owed.wait()
            self._owed.clear()
            try:
                await self._see_to_it()
            except STORE_ERRORS:
                self._owed.set()
            if self._owed.is_set():
                await asyncio.sleep(RETRY_PAUSE_S)

    async def _see_to_it(self) -> None:
        if self._returned:
            await self._take_back(self._returned[0])
            del self._returned[0]
            self._owed.set()
        elif self._overdue and self._reserved is not None:
            # applied or not, the next renewal returns the reservation of that time
            await self._lane.end_reservation(self._reserved)
        elif self._unanswered and self._reserved is not None:
            await self._answer(self._reserved)

    async def _answer(self, reserved: bytes) -> None:
        """Report to the job the messages that it must not touch. Nothing is added to them after they were
        collected."""
        is_durable = await self._recorder.flush()
        opened = [(row.key, index, attempt) for row, index, attempt in self._delivery_state.open_in_reservation()]
        if reserved != self._reserved:
            return
        if is_durable and await self._lane.answer_reservation(
            self._lease_term.now, reserved, encode_in_flight(opened)
        ):
            self._unanswered = reserved != self._reserved and self._unanswered
        else:
            self._owed.set()

    async def _take_back(self, reservation: RangeReservation) -> None:
        """The job's settles are applied, also in rows that are not read yet; the rest is delivered as before."""
        known = await self._source.known(max(reservation.first, self._position.last), reservation.last)
        rows = list(self._delivery_state.rows())
        elsewhere = self._source.settled_elsewhere(rows, known)
        for row in rows:
            self._delivery_state.strike(row, elsewhere.get(row.key, 0))
        self._learned(self._delivery_state.take_back(known))
