"""Works one lane for the length of one lease term: reads ahead, delivers, settles, moves the position, releases it.

The loops around `DeliveryState` (pure) and `Lane` (the control row): docs/internals/protocols/dispatcher.md and
lease.md. It knows no engine; rows, records and copies are a `LaneSource`'s. It survives an unavailable store (it
waits, the lease holds or expires), a pause of its process (trust is checked before each delivery and after each
write), and its own end at any await: the next owner repeats all work that was not recorded.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, deque
from collections.abc import Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from headgate.engines.contract import Ack, DeadLetterDelivery, Delivery, NackDelivery, Settle, Settled
from headgate.engines.crash_suspects import DeliveredGroup, NoPeers, Peers, decide_group
from headgate.engines.lanes.copy_writer import Copier
from headgate.engines.lanes.cursor import Position
from headgate.engines.lanes.delivery.delivery_state import NEVER_US, DeliveryState
from headgate.engines.lanes.delivery.rows import ROWS_A_TURN, DeliveryTerms, HandOut
from headgate.engines.lanes.log.settle_log import Record
from headgate.engines.lanes.log.settle_log_format import Facts, merge_facts
from headgate.engines.lanes.log.settle_log_writer import Recorder
from headgate.engines.lanes.ownership.decide_lease import LaneState, LeaseTerm, RenewalResult, ends_lease_term
from headgate.engines.lanes.ownership.lease import Lane
from headgate.engines.lanes.poll_schedule import Beat
from headgate.engines.lanes.reservation_by_owner import RangeReservations
from headgate.engines.lanes.source import LaneSource
from headgate.errors import Unavailable
from headgate.process.background_tasks import start_task
from headgate.process.live import Live
from headgate.store.store import STORE_ERRORS

log = logging.getLogger("headgate.lanes")

RETIRED = "retired"
TOUCHES_IN_A_ROW = 4
"""The number of times that a renewal is resent at once when it meets another reservation each time."""
EMPTY_S = 30.0
"""How long a loop of an empty lane waits for a change."""
NEARLY = 0.9
"""The part of an interval that counts as all of it: timers of the beat may be a little early."""


@dataclass(frozen=True)
class DispatchTerms:
    """The bounds of one lane's work."""

    deliveries: Live[DeliveryTerms]
    read_ahead_bytes: int = 8 * 1024 * 1024
    slice_bytes: int = 1024 * 1024
    poll_s_min: float = 0.05
    poll_s_max: float = 0.4
    quiet_poll_s: float = 2.5
    """While its source is quiet, an empty lane is read this seldom."""
    pause_s_max: float = 2.0
    """Failed reads are retried after a pause that doubles from `poll_s_max` to this."""
    turn_s: float = 1.0
    """A lane's row is written at most once in this time."""


@dataclass(frozen=True)
class SharedByLanes:
    """What the lanes of a queue have in common in one process."""

    beat: Beat = field(default_factory=Beat)
    changed: asyncio.Event | None = None
    """Set whenever something may be handed out, or not any more."""
    peers: Peers = field(default_factory=NoPeers)


@dataclass(slots=True)
class SettleRequest:
    """A settle, and the delivery that its receipt names. A value; not frozen, since one is created for each
    message."""

    key: bytes
    index: int
    attempt: int
    epoch: int
    settle: Settle


class Dispatcher:
    """One lease term of one lane. Created by `Dispatcher.start`."""

    def __init__(
        self,
        lane: Lane,
        source: LaneSource,
        terms: DispatchTerms,
        lease_term: LeaseTerm,
        state: LaneState,
        *,
        groups_held: bool = False,
        shared: SharedByLanes | None = None,
    ) -> None:
        shared = shared or SharedByLanes()
        self.host = lane.host
        self.lane = lane
        self.source = source
        self.terms = terms
        self._lease_term = Live(lease_term)
        self._beat = shared.beat
        self.delivery_state = DeliveryState(
            terms.deliveries,
            lease_term.epoch,
            groups_held=groups_held,
            budget=lane.host.read_budget,
            life_of=partial(shared.peers.life_of, since_us=lease_term.since_us + lane.terms.skew_us),
        )
        self.progress = 0
        self.answered = 0
        """Deliveries whose answers were accepted."""
        self.failed_reads = 0
        self.ended: str | None = None
        self.failure: Exception | None = None
        record: Record[Any] = Record(lease_term.epoch, shared.peers.me)
        self.recorder = Recorder(self.delivery_state, source, record, may_act=self.may_act)
        self.position = Position(self.delivery_state, source, record, last=source.order_of(state.last))
        self._known: Facts = {}
        """The recorded facts of rows that are not read yet."""
        self.reservations = RangeReservations(
            self.delivery_state,
            source,
            lane,
            self.recorder,
            self.position,
            lease_term=self._lease_term,
            learned=self._learn,
        )
        self.marking = asyncio.Lock()
        """While rows ahead are marked as moved, no range is reserved and the lane is not released."""
        self._changes = [asyncio.Event()] if shared.changed is None else [asyncio.Event(), shared.changed]
        """Set at every change: this lane's own event, and the one of all lanes of the queue."""
        self._woken = asyncio.Event()
        self._busy = asyncio.Event()
        """Set unless the lane is empty, and waits for a hint."""
        self._busy.set()
        self._pauses_quietly = False
        self._renewed_s = -EMPTY_S
        self._over = asyncio.Event()
        self._draining = False
        self._logged: set[type[Exception]] = set()
        self._tasks: list[asyncio.Task[None]] = []

    # ---- its life

    @classmethod
    async def start(
        cls,
        lane: Lane,
        source: LaneSource,
        terms: DispatchTerms,
        lease_term: LeaseTerm,
        state: LaneState,
        *,
        groups_held: bool = False,
        shared: SharedByLanes | None = None,
    ) -> Dispatcher:
        """Start with a lane in its state at the take: read the first of its records, and begin."""
        self = cls(lane, source, terms, lease_term, state, groups_held=groups_held, shared=shared)
        self._known = await source.recall(self.position.last)
        if state.reserved is not None:
            self.reservations.adopt(state.reserved, answered=state.reservation_answer is not None)
        copier = Copier(self.delivery_state, source, self.recorder, wait=self._wait_for_moves)
        self._run("record", self.recorder.run())
        self._run("read ahead", self._read_ahead())
        self._run("position", self._keep_moving())
        self._run("reservations", self.reservations.run())
        self._run("lease", self._keep_touching())
        self._run("copies", copier.run())
        return self

    @property
    def lease_term(self) -> LeaseTerm:
        """The lease as it was renewed last."""
        return self._lease_term.now

    @lease_term.setter
    def lease_term(self, lease_term: LeaseTerm) -> None:
        self._lease_term.set(lease_term)

    def may_act(self) -> bool:
        """Whether the lease holds now; not while the clock is not to be relied on."""
        try:
            return self.ended is None and self.lease_term.may_act(self.host.now_us())
        except Unavailable:
            return False

    def is_over(self) -> bool:
        """Whether this process no longer owns the lane. While the clock is in doubt this is unknown, and the lane is
        kept."""
        try:
            return self.ended is not None or not self.lease_term.may_act(self.host.now_us())
        except Unavailable:
            return False

    def owns_at(self, now_us: int) -> bool:
        """Whether this process owns the lane at that time, which is now or slightly earlier."""
        return self.ended is None and self.lease_term.may_act(now_us)

    async def has_lost(self) -> bool:
        """Read the owner from the lane's row; if it is another process, or none, this lease term ends, whatever the
        lease was."""
        state = await self.lane.read_state()
        if self.ended is not None or state is None or state.lock == self.lease_term.lock:
            return False
        self._end(RenewalResult.LOST.value)
        return True

    def drain(self) -> None:
        """Deliver nothing more; open deliveries can still be settled."""
        self._draining = True
        self._notify_change()

    def resume(self) -> None:
        """Deliver again: the lane is not released after all."""
        self._draining = False
        self._notify_change()

    async def give_back(self) -> bool:
        """End the lease term cleanly: all settles are recorded, open deliveries stay hidden as promised."""
        self.drain()
        async with self.marking:  # the next owner of the lane reads all marks
            self.delivery_state.hand_over()
        released = False
        if self.may_act() and await self.recorder.flush():
            await self.position.advance()
            last, read_to = self.position.last, self.position.read_to
            self._end("given back")  # before it may have another owner: the next owner misses settles from here on
            released = await self.lane.release(
                self.lease_term, last=self.source.stored(last), read_to=self.source.stored(read_to)
            )
        self._end("given back")
        return released

    def has_settled(self, order: Any) -> bool:
        """Whether all up to there is read and settled, and nothing that was read is open."""
        return self.delivery_state.lowest_unsettled is None and not self.position.last < order

    async def retire(self) -> bool:
        """Leave the lane for good: all its messages are settled, or elsewhere. False when that is not known."""
        if (
            not self.may_act()
            or self.delivery_state.lowest_unsettled is not None
            or self.lease_term.reserved is not None
        ):
            return False
        if not await self.lane.retire(self.lease_term, last=self.source.stored(self.position.last)):
            return False
        self._end(RETIRED)
        return True

    @property
    def is_retired(self) -> bool:
        """Whether its lease term ended with the lane left for good."""
        return self.ended == RETIRED

    @property
    def holds_groups(self) -> bool:
        """Whether groups wait for earlier generations, as far as this process knows."""
        return self.delivery_state.groups_held and not self.delivery_state.groups_may_open

    def open_groups(self) -> None:
        """Earlier generations are drained: their remaining messages for this lane are due by now."""
        self.delivery_state.open_groups_at(self.source.order_at(self.host.now_us()))

    def run_engine_work(self, work: Coroutine[Any, Any, None]) -> None:
        """Another loop of this lease term: it ends with the lease term, and its failure ends the lease term."""
        self._run("engine's own work", work)

    def may_mark(self) -> bool:
        """Whether rows ahead may be marked as moved; called with `marking` held."""
        return self.lease_term.reserved is None and not self._draining and self.may_act()

    def abandon(self) -> None:
        """Stop working without giving back: the lease is over, or runs out by itself."""
        self._end("abandoned")

    def _end(self, why: str) -> None:
        if self.ended is None:
            self.ended = why
            self.delivery_state.let_go()
            self._over.set()
            self._notify_change()
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            if task is not asyncio.current_task():
                task.cancel()

    def _run(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        self._tasks.append(start_task(f"{name} of lane {_key_text(self.lane.key)}", self._guard(work)))

    async def _guard(self, work: Coroutine[Any, Any, None]) -> None:
        """A loop that breaks ends the lease term: the lane goes to a process whose loop works."""
        try:
            await work
        except Exception as error:
            self.failure = error
            self._end(f"broken: {type(error).__name__}")

    # ---- handing out and settling

    async def receive(self, limit: int, *, visibility_us: int, wait_us: int = 0) -> list[Delivery]:
        """Up to `limit` messages, waiting at most `wait_us` for the first; crash suspects as for a queue of this lane
        alone."""
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + wait_us / 1_000_000
        while self.may_act() and not self._draining:
            given = take_suspects([self], limit, visibility_us=visibility_us).get(self, [])
            given += self.take(limit - len(given), visibility_us=visibility_us)
            if given:
                deliveries: list[Delivery] = []
                await deliver({self: given}, deliveries)
                return deliveries
            left_s = deadline_s - loop.time()
            if left_s <= 0:
                break
            await self._wait_for_change(left_s)
        return []

    def take(self, limit: int, *, visibility_us: int) -> list[HandOut]:
        """Up to `limit` messages that are no crash suspects, for `deliver`."""
        if self._draining or not self.may_act():
            return []
        return self.delivery_state.hand_out(limit, now_us=self.host.now_us(), visibility_us=visibility_us)

    def take_group(self, group: DeliveredGroup, limit: int, *, visibility_us: int) -> list[HandOut]:
        """Up to `limit` crash suspects of a group, for `deliver`."""
        if self._draining or not self.may_act():
            return []
        now_us = self.host.now_us()
        return self.delivery_state.hand_out_suspects(group, limit, now_us=now_us, visibility_us=visibility_us)

    def confirm(self, given: list[HandOut], *, is_recorded: bool) -> list[Delivery]:
        """The deliveries of messages whose hand-out is durable. Otherwise they are taken back, as if they had not
        been tried."""
        if not is_recorded or not self.may_act():
            self.return_unseen(given)
            return []
        # a purge, or the end of a short visibility, may have ended some of them meanwhile
        given = [each for each in given if self.delivery_state.holds(each.row.key, each.index, each.attempt)]
        return self.source.deliveries(given, self.lease_term.epoch)

    def return_unseen(self, given: Sequence[HandOut]) -> None:
        """These reached nobody: they are ready again, and this attempt does not count."""
        for each in given:
            self._return(each.row.key, each.index, each.attempt)
        self._announce_returned()

    def take_back(self, requests: Sequence[SettleRequest]) -> None:
        """The same for deliveries whose receiver was cancelled before it got them."""
        for each in requests:
            if each.epoch == self.lease_term.epoch:
                self._return(each.key, each.index, each.attempt)
        self._announce_returned()

    def _return(self, key: bytes, index: int, attempt: int) -> None:
        """Ready since ever: that needs no clock, which may be in doubt."""
        self.delivery_state.nack(key, index, attempt, delay_us=0, reason="", now_us=0, charged=False)

    def _announce_returned(self) -> None:
        self.recorder.wake()
        self._notify_change()

    async def settle(self, requests: Sequence[SettleRequest]) -> list[Settled]:
        """Each for itself: stale, or durable when this returns, or not known."""
        if not self.may_act():
            return [Settled.UNKNOWN] * len(requests)
        now_us = self.host.now_us()
        honoured = [each.epoch == self.lease_term.epoch and self._settle_one(each, now_us) for each in requests]
        if not any(honoured):
            return [Settled.STALE] * len(requests)
        self._notify_change()
        durable = await self.recorder.flush() if self.delivery_state.has_pending_facts() else self.may_act()
        yes = Settled.DONE if durable else Settled.UNKNOWN
        self.answered += honoured.count(True)
        return [yes if each else Settled.STALE for each in honoured]

    def _settle_one(self, request: SettleRequest, now_us: int) -> bool:
        settle = request.settle
        delivery = (request.key, request.index, request.attempt)
        if isinstance(settle, Ack):
            return self.delivery_state.ack(*delivery)
        if isinstance(settle, NackDelivery):
            return self.delivery_state.nack(
                *delivery,
                delay_us=settle.delay_us,
                reason=settle.reason,
                now_us=now_us,
                charged=settle.charged,
                killed=settle.killed,
            )
        if isinstance(settle, DeadLetterDelivery):
            return self.delivery_state.reject(
                *delivery, delay_us=settle.delay_us, reason=settle.reason, now_us=now_us
            )
        return self.delivery_state.extend(*delivery, until_us=now_us + settle.visibility_us, now_us=now_us)

    # ---- waiting

    def _notify_change(self) -> None:
        """Something may be handed out now, or not any more."""
        for event in self._changes:
            event.set()

    def wake(self) -> None:
        """A hint that there may be something to read. It ends a pause; nothing relies on it."""
        self._woken.set()

    @property
    def waits_for_hint(self) -> bool:
        """Whether the lane is empty, and read again only after a hint, or after a long pause."""
        return not self._busy.is_set()

    async def _wait_for_change(self, at_most_s: float) -> None:
        """Until something was read, settled or touched, or a visibility ends; the first of these."""
        changed = self._changes[0]
        changed.clear()
        next_us = self.delivery_state.next_timer_us
        if next_us < NEVER_US:
            at_most_s = min(at_most_s, max(next_us - self.host.now_us(), 0) / 1_000_000 + 0.001)
        with suppress(TimeoutError):
            async with asyncio.timeout(at_most_s):
                await changed.wait()

    async def _wait_for_moves(self) -> None:
        """Until a copy is wanted. Visibilities end also without a receive, and may request one."""
        while not self.delivery_state.has_moves():
            try:
                empty = not self.delivery_state.unsettled
                await self._wait_for_change(EMPTY_S if empty else self._beat.until_next_s(self.terms.poll_s_max))
                self.delivery_state.tick(self.host.now_us())
            except Unavailable:
                await asyncio.sleep(self.terms.poll_s_max)

    # ---- reading ahead

    def _learn(self, unread: Facts) -> None:
        """A job that gave its range back has settled messages that are yet to be read."""
        merge_facts(self._known, unread)
        self._notify_change()

    async def _read_ahead(self) -> None:
        after = self.position.last
        poll_s = self.terms.poll_s_min
        pause_s = self.terms.poll_s_max
        while True:
            self.progress += 1
            after = self.delivery_state.horizon or after
            bytes_max = min(self.terms.slice_bytes, self._read_ahead_bytes())
            if bytes_max <= 0:
                self.delivery_state.open_groups_if_allowed()
                await asyncio.sleep(self.terms.poll_s_min)
                continue
            self._woken.clear()  # a hint that comes from now on may be about a row that this read misses
            purged_before_us = self.lease_term.purged_before_us
            expected_bytes = 0 if self.position.at_head else bytes_max
            try:
                merge_facts(self._known, await self.source.recall(after))
                with self.host.read_budget.reserve(expected_bytes):
                    piece = await self.source.read(after, bytes_max=bytes_max)
                now_us = self.host.now_us()
            except STORE_ERRORS as error:
                self.failed_reads += 1
                self._log_refusal("the rows of a lane cannot be read", error)
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, self.terms.pause_s_max)
                continue
            pause_s = self.terms.poll_s_max
            for turn, row in enumerate(piece.rows, 1):
                if turn % ROWS_A_TURN == 0:
                    await asyncio.sleep(0)
                if (
                    self.lease_term.purged_before_us != purged_before_us
                ):  # it may have been inspected before the purge
                    row.settled |= self.source.put_before(row, self.lease_term.purged_before_us)
                self.delivery_state.add(row, self._known.pop(row.key, None), now_us=now_us)
            after = piece.reached
            held = self.delivery_state.groups_held
            self.delivery_state.reached(after)
            self.position.note_head(not piece.more)
            if piece.rows or held != self.delivery_state.groups_held:
                self._notify_change()
                poll_s = self.terms.poll_s_min
            if not piece.more:
                poll_s = await self._pause_reading(poll_s, after)

    async def _pause_reading(self, poll_s: float, after: Any) -> float:
        """Until the next poll, or a hint; the pause after that. An empty lane whose source is quiet waits for the
        hint of its engine, at times of its own: a thousand of them would be one long turn of the event loop."""
        if self.delivery_state.unsettled or self.source.quiet_up_to(after) is None:
            self._busy.set()
            wait_s = self._beat.until_next_s(poll_s)
        else:
            self._busy.clear()
            self._pauses_quietly = True
            wait_s = self._beat.until_own_s(self.terms.quiet_poll_s)
        try:
            async with asyncio.timeout(wait_s):
                await self._woken.wait()
        except TimeoutError:
            return min(poll_s * 2, self.terms.poll_s_max)
        finally:
            self._pauses_quietly = False
        self._busy.set()
        return self.terms.poll_s_min

    def _follow_time(self) -> None:
        """An empty lane is read as far as its source is known to be quiet."""
        if self._pauses_quietly:
            horizon = self.delivery_state.horizon
            quiet = self.source.quiet_up_to(horizon)
            self.delivery_state.reached(horizon if quiet is None else quiet)

    def _read_ahead_bytes(self) -> int:
        """How many bytes more may be read ahead now. A lane in which nothing is left to hand out always reads on, if
        only a row at a time: other lanes cannot keep it waiting."""
        own = self.terms.read_ahead_bytes - self.delivery_state.bytes_held
        bytes_left = min(own, self.host.read_budget.bytes_left)
        return bytes_left if bytes_left > 0 or self.delivery_state.unsettled else 1

    def _log_refusal(self, what: str, error: Exception) -> None:
        """Once per lease term for each kind. A store that does not answer is reported by its own metrics."""
        if isinstance(error, Unavailable) or type(error) in self._logged:
            return
        self._logged.add(type(error))
        log.error(what, extra={"lane": str(self.lane.key), "error": str(error)})

    # ---- the position, and the lease separate from it: a slow store must not cost the lease

    async def _keep_moving(self) -> None:
        while True:
            await self.position.advance()
            await asyncio.sleep(self._beat.until_own_s(self.terms.turn_s))
            if not self.position.wants_to_move:
                await self._busy.wait()

    async def _keep_touching(self) -> None:
        touched_s = asyncio.get_running_loop().time()
        await asyncio.sleep(self.terms.turn_s)
        while self.ended is None:
            now_s = asyncio.get_running_loop().time()
            wait_us = self.terms.turn_s * 1_000_000 if self.position.wants_to_move else self.lane.terms.touch_us
            if (now_s - touched_s) * 1_000_000 >= wait_us * NEARLY:
                touched_s = now_s
                if self.waits_for_hint:
                    self._follow_time()
                    await self.position.advance()
                await self._touch()
            await self._next_touch(is_renewed=self._renewed_s >= now_s)

    async def _next_touch(self, *, is_renewed: bool) -> None:
        """The lane's own next turn. An empty one moves nothing, so it has a turn only when its lease is to be
        renewed, or when it is empty no more; a renewal that fails is tried again at the usual times."""
        if not self.waits_for_hint or self.position.wants_to_move or not is_renewed:
            await asyncio.sleep(self._beat.until_own_s(self.terms.turn_s))
            return
        renew_s = self.lane.terms.quiet_touch_us / 1_000_000
        with suppress(TimeoutError):
            async with asyncio.timeout(self._beat.until_own_s(renew_s)):
                await self._busy.wait()

    async def _touch(self) -> None:
        """Renew, and move the position; ends the lease term when the lane has another owner. If it met only a
        reservation or a purge it is sent again at once: a job that reserves all the time must not cost the lease."""
        try:
            for _ in range(TOUCHES_IN_A_ROW):
                if not await self._touch_once():
                    return
        except STORE_ERRORS as error:
            self._log_refusal("the lease of a lane cannot be renewed", error)

    async def _touch_once(self) -> bool:
        """Whether it was rejected for a change that is obeyed by now."""
        last, read_to = self.position.last, self.position.read_to
        touched, self.lease_term, state = await self.lane.touch(
            self.lease_term,
            last=self.source.stored(last),
            read_to=self.source.stored(read_to),
            progress=self.progress,
        )
        if touched is RenewalResult.RENEWED:
            self._renewed_s = asyncio.get_running_loop().time()
            self.position.stands(last, read_to=read_to)
            self.reservations.watch(self.host.now_us())
        elif touched is RenewalResult.RESERVED and state is not None:
            async with self.marking:
                self.reservations.adopt(state.reserved)
                self.lease_term = replace(self.lease_term, reserved=state.reserved)
            return True
        elif touched is RenewalResult.PURGED and state is not None:
            self._purge(state.purged_before_us)
            return True
        elif ends_lease_term(touched):
            self._end(touched.value)
        return False

    def _purge(self, before_us: int) -> None:
        """Messages put before that time count as settled from now on, including open and unread ones."""
        for row in list(self.delivery_state.rows()):
            self.delivery_state.strike(row, self.source.put_before(row, before_us))
        self.source.purge(before_us)
        self.lease_term = replace(self.lease_term, purged_before_us=before_us)
        self._notify_change()


def take_suspects(lanes: Sequence[Dispatcher], limit: int, *, visibility_us: int) -> dict[Dispatcher, list[HandOut]]:
    """Crash suspects of these lanes, which are all of one process, as many as may be in flight together."""
    states = [each.delivery_state for each in lanes]
    group = decide_group(
        sum((each.suspects_waiting for each in states), start=Counter()),
        sum((each.suspects_in_flight for each in states), start=Counter()),
    )
    taken: dict[Dispatcher, list[HandOut]] = {}
    left = 0 if group is None else min(limit, group.size)
    for dispatcher in lanes:
        if group is not None and left > 0:
            got = dispatcher.take_group(group, left, visibility_us=visibility_us)
            left -= len(got)
            if got:
                taken[dispatcher] = got
    return taken


async def deliver(taken: Mapping[Dispatcher, list[HandOut]], deliveries: list[Delivery]) -> None:
    """Add the deliveries of messages that were taken from lanes, once their hand-outs are durable: if this process
    ends, the next owners know what was in flight. All lanes record at the same time."""
    waiting = deque((dispatcher, given, dispatcher.recorder.request_flush()) for dispatcher, given in taken.items())
    try:
        while waiting:
            dispatcher, given, recorded = waiting[0]
            is_recorded = await recorded
            waiting.popleft()
            deliveries += dispatcher.confirm(given, is_recorded=is_recorded)
    finally:  # the caller was cancelled, and never learns of the others
        for dispatcher, given, _ in waiting:
            dispatcher.return_unseen(given)


def _key_text(key: Mapping[str, object]) -> str:
    return "/".join(map(str, key.values()))
