"""The control row of a lane: taken, renewed, released, stopped and reserved by LWT. The rules:
docs/internals/protocols/lease.md.

Thin: `lanes/ownership/decide_lease.py` interprets an answer; this module sends and reads. It knows no engine: `last`
and `read_to` are passed and returned as the table stores them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headgate.engines.context import Host
from headgate.engines.lanes.ownership.decide_lease import (
    RETIRED,
    LaneState,
    LeaseTerm,
    LeaseTerms,
    RenewalResult,
    decide_touch,
    may_take,
)
from headgate.store.model.consistency import Consistency
from headgate.store.model.statements import BatchIf, CellCondition, Select, UpdateIf, below, is_
from headgate.store.model.table import Table
from headgate.store.model.types import Value
from headgate.store.store import STORE_ERRORS, Outcome, Verdict

TAKE_WITHIN_S = 5.0
ANSWER_WITHIN_S = 2.0
"""Longer than a coordinator keeps trying (cas_contention_timeout, 1.8 s): a request is over when it is looked up
after that."""


class Lane:
    """One lane's row, for one process."""

    def __init__(self, host: Host, table: Table, key: Mapping[str, Value], terms: LeaseTerms) -> None:
        self.host = host
        self.table = table
        self.key = dict(key)
        self.terms = terms

    async def read_state(self) -> LaneState | None:
        """The lane as it is now, by a serial read; None where there is no such lane."""
        select = Select(self.table, self.key, limit=1, consistency=Consistency.SERIAL)
        rows = await self.host.store.read(select, within_s=TAKE_WITHIN_S)
        return lane_state(rows[0]) if rows and rows[0].epoch is not None else None

    async def inspect_state(self) -> LaneState | None:
        """The same by a plain read, which may be a little behind: nothing may be decided by it that matters for
        safety."""
        rows = await self.host.store.read(Select(self.table, self.key, limit=1))
        return lane_state(rows[0]) if rows and rows[0].epoch is not None else None

    async def take(self, state: LaneState) -> LeaseTerm | None:
        """Take the lane in the state that was read, if it is still so; None if another process was first."""
        if not may_take(state):
            return None
        lock = self.host.uuid()
        attempt = self.host.uuid()
        sent_us = self.host.now_us()
        epoch = state.epoch + 1
        batch = BatchIf(
            [
                self._update(
                    {"epoch": epoch, "taken": sent_us, "touched": sent_us, "progress": 0},
                    is_("epoch", state.epoch),
                    is_("touched", state.touched_us or None),  # `last` is as it was read
                    is_("lent", state.reserved),
                    is_("lent_to", state.reserved_up_to),
                    is_("purged_before", state.purged_before_us),  # a purge meanwhile saw no owner to wait for
                    attempt=attempt,
                ),
                self._update({"lock": lock}, is_("lock", None), attempt=attempt, ttl_s=self.terms.ttl_s),
            ]
        )
        outcome = await self.host.store.decide(batch, within_s=TAKE_WITHIN_S)
        if not outcome.applied:
            return None
        now_us = self.host.now_us()
        lease_term = LeaseTerm(
            lock, epoch, self.terms.promise(sent_us), state.reserved, state.purged_before_us, now_us
        )
        return lease_term if lease_term.may_act(now_us) else None

    async def touch(
        self, lease_term: LeaseTerm, *, last: Value, read_to: Value, progress: int
    ) -> tuple[RenewalResult, LeaseTerm, LaneState | None]:
        """Renew the lease and move the position, in one conditional batch; returns its meaning, and the lane if it
        was rejected.

        An abandoned renewal may still be applied, after later ones. IF touched < its own time rejects it then, so
        `last` never goes back.
        """
        sent_us = self.host.now_us()
        attempt = self.host.uuid()
        moved = {"touched": sent_us, "progress": progress, "last": last, "read_to": read_to}
        batch = BatchIf(
            [
                self._update(
                    moved,
                    is_("lock", lease_term.lock),
                    below("touched", sent_us),
                    below("stop", lease_term.epoch),
                    is_("lent", lease_term.reserved),
                    is_("purged_before", lease_term.purged_before_us),
                    attempt=attempt,
                ),
                self._update({"lock": lease_term.lock}, attempt=attempt, ttl_s=self.terms.ttl_s),
            ]
        )
        outcome = await self._decide(batch)
        state = refusal_state(outcome.rows[0], lease_term) if outcome is not None and outcome.rows else None
        touched = decide_touch(
            lease_term,
            applied=outcome is not None and outcome.applied,
            known=outcome is not None and outcome.verdict is Verdict.REFUSED,
            state=state,
            now_us=self.host.now_us(),
        )
        if touched is RenewalResult.RENEWED:
            lease_term = lease_term.renewed(self.terms.promise(sent_us))
        return touched, lease_term, state

    async def release(self, lease_term: LeaseTerm, *, last: Value, read_to: Value) -> bool:
        """Release the lane. False if this process no longer owned it. It needs no clock: `touched` is another one
        than any taker has read before."""
        touched_us = lease_term.promise.sent_us + 1
        final: dict[str, Value] = {"lock": None, "last": last, "read_to": read_to, "touched": touched_us}
        update = self._update(final, is_("lock", lease_term.lock), attempt=self.host.uuid())
        outcome = await self._decide(update)
        return outcome is not None and outcome.applied

    async def retire(self, lease_term: LeaseTerm, *, last: Value) -> bool:
        """Leave the lane for good: nobody takes it again. False where this process no longer owned it, a range of it
        is reserved, or the end is not known; then a scan resolves it, or the next owner does it again."""
        final = {"lock": None, "epoch": RETIRED, "last": last}
        update = self._update(final, is_("lock", lease_term.lock), is_("lent", None), attempt=self.host.uuid())
        outcome = await self._decide(update)
        return outcome is not None and outcome.applied

    async def stop(self, epoch: int) -> bool:
        """Order the owner of that epoch to stop (an emergency stop). It never shortens its lease."""
        update = self._update({"stop": epoch}, is_("epoch", epoch), attempt=self.host.uuid())
        return (await self.host.store.decide(update, within_s=TAKE_WITHIN_S)).applied

    async def stop_earlier(self, epoch: int, *, state: LaneState) -> bool:
        """Stop every process that still acts by an epoch before the one that was read. The current owner continues:
        its renewals accept a stop below its own epoch."""
        conditions = (is_("epoch", state.epoch), below("stop", epoch))
        update = self._update({"stop": epoch}, *conditions, attempt=self.host.uuid())
        return (await self.host.store.decide(update, within_s=TAKE_WITHIN_S)).applied

    async def lend(self, reserved: bytes, state: LaneState, *, up_to: Value) -> bool:
        """Reserve a range for a bulk job, if the lane is as it was read and nothing is reserved. `up_to` is the end
        of all ranges ever reserved of it: every owner reads the record that far."""
        conditions = (is_("epoch", state.epoch), is_("lent", None), is_("lent_to", state.reserved_up_to))
        to: dict[str, Value] = {"lent": reserved, "lent_seen": None, "lent_to": up_to}
        update = self._update(to, *conditions, attempt=self.host.uuid())
        return (await self.host.store.decide(update, within_s=TAKE_WITHIN_S)).applied

    async def end_reservation(self, reserved: bytes) -> bool:
        """Give the range back."""
        update = self._update({"lent": None, "lent_seen": None}, is_("lent", reserved), attempt=self.host.uuid())
        return (await self.host.store.decide(update, within_s=TAKE_WITHIN_S)).applied

    async def answer_reservation(self, lease_term: LeaseTerm, reserved: bytes, answer: bytes) -> bool:
        """Report to the job the messages that the owner still has in flight in its range."""
        conditions = (is_("lock", lease_term.lock), is_("lent", reserved))
        update = self._update({"lent_seen": answer}, *conditions, attempt=self.host.uuid())
        outcome = await self._decide(update)
        return outcome is not None and outcome.applied

    async def purge(self, before_us: int) -> bool:
        """Messages put before this time count as settled. It only grows; lanes are created with 0."""
        conditions = below("purged_before", before_us)
        update = self._update({"purged_before": before_us}, conditions, attempt=self.host.uuid())
        return (await self.host.store.decide(update, within_s=TAKE_WITHIN_S)).applied

    async def _decide(self, statement: BatchIf | UpdateIf) -> Outcome | None:
        """None when the end is not known."""
        try:
            return await self.host.store.decide(statement, within_s=ANSWER_WITHIN_S)
        except STORE_ERRORS:
            return None

    def _update(
        self, to: Mapping[str, Value], *conditions: CellCondition, attempt: Any, ttl_s: int | None = None
    ) -> UpdateIf:
        return UpdateIf(self.table, self.key, to, *conditions, attempt=attempt, ttl_s=ttl_s)


def lane_state(row: Any) -> LaneState:
    """A row of the lanes' table as a value."""
    return LaneState(
        lock=row.lock,
        epoch=row.epoch,
        stop=row.stop or 0,
        reserved=row.lent,
        last=row.last,
        read_to=row.read_to,
        progress=row.progress or 0,
        touched_us=row.touched or 0,
        purged_before_us=row.purged_before or 0,
        reservation_answer=row.lent_seen,
        reserved_up_to=row.lent_to,
    )


def refusal_state(row: Any, lease_term: LeaseTerm) -> LaneState:
    """The content of a rejected renewal: the columns of its conditions and no others."""
    return LaneState(
        lock=row.lock,
        epoch=lease_term.epoch,
        stop=row.stop or 0,
        reserved=row.lent,
        purged_before_us=row.purged_before or 0,
    )
