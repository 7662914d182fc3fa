"""Holds lanes of one queue for one process: takes free ones, works them, and releases those it lost. It knows no
engine.

With a `Sharing` it takes those of its share, and releases those of another member's share
(docs/internals/protocols/balance.md). Without one it takes every lane that it can, up to its maximum. Where an engine
names lanes that have to be retired before another one (attack C2), the groups of the other one wait until they are:
docs/internals/protocols/generations.md.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from headgate.engines.context import Host
from headgate.engines.contract import LaneOwner, Stats
from headgate.engines.crash_suspects import NoPeers
from headgate.engines.lanes.balance.decide_dual_owners import (
    DualOwnership,
    HeldLanes,
    LaneClaim,
    LaneClaims,
    find_dual_owners,
)
from headgate.engines.lanes.balance.membership import Sharing
from headgate.engines.lanes.dispatcher import Dispatcher, SharedByLanes
from headgate.engines.lanes.lane_name import LaneName, format_lane
from headgate.engines.lanes.ownership.decide_lease import LaneState, RenewalResult
from headgate.engines.lanes.ownership.engine_lanes import EngineLanes, Source
from headgate.engines.lanes.ownership.peer_monitor import PeerMonitor
from headgate.engines.lanes.poll_schedule import Beat
from headgate.engines.summary.decide_figures import LaneStand
from headgate.engines.summary.figures import OwnersFigures
from headgate.errors import HeadgateError, Unavailable
from headgate.process.background_tasks import SupervisedLoop, start_task
from headgate.store.store import STORE_ERRORS

log = logging.getLogger("headgate.lanes")

CHECK_EVERY_S = 1.0
TAKEN_AT_ONCE = 32
MARK_WITHIN_S = 3.0
DRAIN_S = 30.0
"""A lane that is handed over delivers nothing for this long at most."""
DRAIN_REST_S_MIN, DRAIN_REST_S_MAX = 60.0, 960.0
"""Between two drains it delivers as before. It is released where nothing of it is in flight by chance."""
STOPPED_S = 60.0
"""A process that was ordered to stop leaves that lane to the others for this long: its loop may hang again."""
LOGGED_MAX = 1_000
FAILED_S_MIN, FAILED_S_MAX = 1.0, 30.0
"""A lane that cannot be taken is skipped for a pause that doubles, so that it delays no other lane."""


class LaneSet:
    """The lanes that this process works."""

    def __init__(
        self,
        host: Host,
        lanes: EngineLanes[Any],
        *,
        changed: asyncio.Event | None = None,
        sharing: Sharing | None = None,
        summary: Host | None = None,
        count: Callable[[], Coroutine[Any, Any, Stats]] | None = None,
    ) -> None:
        """`changed` is set whenever something may be handed out, or not any more. `summary` is this process with the
        store of the catalogue's keyspace, and `count` counts the queue for it; without them nothing is reported."""
        self.host = host
        self.sharing = sharing
        self.held: dict[LaneName, Dispatcher] = {}
        self.retired: set[LaneName] = set()
        """Lanes known to be left for good."""
        self.stops = 0
        """How often an owner in this process had to be stopped: its loop made no turn, or the lane had another
        owner."""
        self.dual_owners: set[DualOwnership] = set()
        """Lanes that had two owners at the same time."""
        self.wanted = 0
        self.summary: OwnersFigures | None = None
        if summary is not None and count is not None:
            self.summary = OwnersFigures(summary, lanes.queue, stands=self.stands, lanes=self.count_open, count=count)
        self._lanes = lanes
        self._changed = changed
        self._loop = SupervisedLoop("lanes", self._keep, log=log, queue=lanes.queue_name)
        self._arrivals = SupervisedLoop(
            "arrivals in empty lanes", self._find_arrivals, log=log, queue=lanes.queue_name
        )
        self._leaving = False
        self._monitor = PeerMonitor(host, lanes)
        self._handing_over: dict[LaneName, asyncio.Task[None]] = {}
        self._stands: dict[Dispatcher, LaneStand] = {}
        self._without_work: dict[LaneName, tuple[Dispatcher, Any]] = {}
        """Dispatchers next to which the engine has nothing of its own yet, with their sources."""
        self._logged: set[tuple[str, LaneName | None, str]] = set()
        self._pauses = _Pauses()
        self._beat = Beat(host.rng.random())

    def want(self, lanes: int) -> None:
        """Hold up to this many from now on."""
        self.wanted = lanes
        self._leaving = self._leaving and not lanes
        if self.sharing is not None and (lanes or self._loop.is_running):
            self.sharing.join(lanes, self.claims)
        if self.summary is not None and lanes:
            self.summary.begin()
        if lanes:
            self._loop.start()
            self._arrivals.start()

    @property
    def loops(self) -> list[SupervisedLoop]:
        """The background loops without which this process works no lane."""
        own = [self._loop, self._arrivals]
        return own if self.sharing is None else [*own, self.sharing.loop]

    async def leave(self) -> None:
        """Take no more lanes, and hand each over as soon as nothing of it is in flight; `close` is the end."""
        self.wanted = 0
        self._leaving = True
        if self.sharing is not None:
            await self.sharing.leave()
        await self._mark_what_is_next()
        for name in list(self.held):
            self._begin_hand_over(name)

    async def close(self) -> None:
        """Give every lane back."""
        self.wanted = 0
        self._loop.cancel()
        self._arrivals.cancel()
        for task in self._handing_over.values():
            task.cancel()
        self._handing_over = {}
        if self.sharing is not None:  # first, so that others know their lanes when these are free
            await self.sharing.leave()
        await self._mark_what_is_next()
        held, self.held = self.held, {}
        await asyncio.gather(*(dispatcher.give_back() for dispatcher in held.values()))
        if self.summary is not None:
            await self.summary.end()

    async def _keep(self) -> None:
        if self.sharing is not None:
            await self.sharing.until_known(CHECK_EVERY_S)
        while True:
            self._drop_ended()
            await self._run_step(self._start_engine_work)
            await self._run_step(self._give_back)
            await self._run_step(self._stop_dual_owners)
            await self._run_step(self._take_free)
            await self._run_step(self._open_gates)
            await self._run_step(self._watch)
            await asyncio.sleep(CHECK_EVERY_S)

    async def _find_arrivals(self) -> None:
        """Wake the empty lanes in which there may be something: they are read seldom by themselves."""
        while True:
            await self._run_step(self._wake_empty)
            await asyncio.sleep(self._beat.until_next_s(self._lanes.arrivals_every_s))

    async def _wake_empty(self) -> None:
        empty = [name for name, each in self.held.items() if not each.delivery_state.unsettled]
        for name in await self._lanes.find_arrivals(empty) if empty else ():
            dispatcher = self.held.get(name)
            if dispatcher is not None and dispatcher.waits_for_hint:
                dispatcher.wake()

    async def _run_step(self, step: Callable[[], Awaitable[None]]) -> None:
        """A step that fails on an unavailable store is repeated in the next turn; the other steps run anyway."""
        try:
            await step()
        except Unavailable:
            return
        except STORE_ERRORS as error:
            self._log_once("lanes cannot be maintained", error)

    def _drop_ended(self) -> None:
        for name, dispatcher in list(self.held.items()):
            if dispatcher.is_over():
                dispatcher.abandon()
                del self.held[name]
                if dispatcher.failure is not None:
                    self._log_once("lane task failed; restarting", dispatcher.failure, lane=name)
                if dispatcher.is_retired:
                    self.retired.add(name)
                elif dispatcher.ended == RenewalResult.STOPPED.value:
                    self._stopped(name, "event loop made no progress for half a minute")
        self._without_work = {
            name: each for name, each in self._without_work.items() if self.held.get(name) is each[0]
        }

    def _stopped(self, name: LaneName, why: str) -> None:
        self.stops += 1
        self._pauses.stopped(name)
        fields = {"queue": self._lanes.queue_name, "lane": format_lane(name), "why": why}
        log.error("a lane was taken from this process", extra=fields)

    # ---- taking lanes

    async def _take_free(self) -> None:
        """Several at a time: a lane takes some round trips, and a process may hold a thousand."""
        free = iter(self._free_names())
        under_way = 0

        async def take() -> None:
            nonlocal under_way
            while len(self.held) + under_way < self.wanted and (name := next(free, None)) is not None:
                under_way += 1
                try:
                    await self._try(name)
                finally:
                    under_way -= 1

        await asyncio.gather(*(take() for _ in range(TAKEN_AT_ONCE)))

    async def _try(self, name: LaneName) -> None:
        """Take a lane if it is free. A lane that cannot be taken, for any reason, does not affect the others."""
        if self._pauses.has_failed(name):
            return
        try:
            await self._take(name)
        except Exception as error:
            self._pauses.failed(name, error)
            if not isinstance(error, Unavailable):
                self._log_once("a lane cannot be acquired", error, lane=name)
        else:
            self._pauses.succeeded(name)

    async def _take(self, name: LaneName) -> None:
        lane = self._lanes.lane(name)
        state = await lane.read_state()
        if state is None and await self._lanes.make(name):
            state = await lane.read_state()
        if state is None:
            return
        if state.is_retired:
            self.retired.add(name)
            return
        taken = await take_lane(
            self._lanes,
            name,
            state,
            groups_held=bool(self._not_retired_before(name)),
            shared=SharedByLanes(self._beat.of_lane(name[-1]), self._changed, self.sharing or NoPeers()),
        )
        if taken is not None:
            self.held[name], _ = self._without_work[name] = taken
            if self.sharing is not None:
                self.sharing.took(name, self._lanes.names())

    def _free_names(self) -> list[LaneName]:
        """The lanes to be tried, in an order of this process's own, so that not all try the same one first."""
        names = self._lanes.names()
        if self.sharing is not None:
            tried = self.sharing.mine(names) | self._monitor.unprocessed
            names = [name for name in names if name in tried]
            if len(self.sharing.members) > 1:
                names = [name for name in names if not self._pauses.was_stopped(name)]
        free = [name for name in names if name not in self.held and name not in self.retired]
        self.host.rng.shuffle(free)
        return free

    # ---- their figures in the summary

    def stands(self) -> dict[Dispatcher, LaneStand]:
        """The state of each lane, by its lease term. That of an empty lane stays as it is, and there may be a
        thousand."""
        now_us = self.host.now_us()
        before = self._stands
        self._stands = {
            each: _still(each, before.get(each)) or self._lanes.stand(name, each, now_us)
            for name, each in self.held.items()
            if not each.is_over()
        }
        return self._stands

    def count_open(self) -> int:
        """How many lanes there are that are not known to be left for good."""
        return len([name for name in self._lanes.names() if name not in self.retired])

    async def _mark_what_is_next(self) -> None:
        """A leaving owner records when the queue has to be woken; an unavailable store delays nobody."""
        if not self.held:
            return
        try:
            async with asyncio.timeout(MARK_WITHIN_S):
                await self._lanes.announce_next_due()
        except (HeadgateError, TimeoutError) as error:
            log.warning("delayed message is not marked", extra={"queue": self._lanes.queue_name, "error": str(error)})

    # ---- sharing them

    async def _give_back(self) -> None:
        """Hand over lanes of another member's share, each when nothing of it is in flight."""
        if self.sharing is None:
            return
        for name in self.sharing.to_give_back(self.held, self._lanes.names()):
            self._begin_hand_over(name)

    def _begin_hand_over(self, name: LaneName) -> None:
        if name not in self._handing_over:
            task = f"hand-over of lane {format_lane(name)} of {self._lanes.queue_name}"
            self._handing_over[name] = start_task(task, self._hand_over(name, self.held[name]))

    async def _hand_over(self, name: LaneName, dispatcher: Dispatcher) -> None:
        """A hand-over that fails leaves the lane with its owner, which tries again if it is still in another member's
        share."""
        try:
            await self._release_when_idle(name, dispatcher)
        except Exception as error:
            self._log_once("a lane cannot be handed over", error, lane=name)
            dispatcher.resume()
        finally:
            self._handing_over.pop(name, None)

    async def _release_when_idle(self, name: LaneName, dispatcher: Dispatcher) -> None:
        """Release a lane once nothing of it is in flight; keep it where it is in our share again meanwhile.

        A lane drains for a limited time, then it delivers again and rests before the next try: it never stands still
        for as long as its longest handler. A process that leaves delivers nothing any more, so it waits.
        """
        drain = _Drain(_now_s())
        while not dispatcher.is_over():
            if self._is_ours_again(name):
                dispatcher.resume()
                return
            if self._is_idle(dispatcher):
                break
            if self._leaving or drain.is_on(_now_s()):
                dispatcher.drain()
            else:
                dispatcher.resume()
            await asyncio.sleep(CHECK_EVERY_S / 4)
        await dispatcher.give_back()
        if self.held.get(name) is dispatcher:
            del self.held[name]

    def _is_ours_again(self, name: LaneName) -> bool:
        """Whether the distribution has changed back: the member of the lane has left."""
        return not self._leaving and self.sharing is not None and name in self.sharing.mine(self._lanes.names())

    def _is_idle(self, dispatcher: Dispatcher) -> bool:
        """Whether nothing of it is in flight. While the clock is in doubt this is unknown: visibilities may have
        ended, and a lane that is handed over then is not released."""
        try:
            dispatcher.delivery_state.tick(self.host.now_us())
        except Unavailable:
            return False
        return not dispatcher.delivery_state.in_flight

    async def _watch(self) -> None:
        """Inspect other members' lanes, and those without an owner."""
        if self.sharing is None or not self.wanted:
            return
        names = [name for name in self._lanes.names() if name not in self.held and name not in self.retired]
        await self._monitor.check(self.sharing.to_watch(names))
        self.retired |= self._monitor.retired

    # ---- two owners of a lane: the net below the lease

    def claims(self, now_us: int) -> HeldLanes:
        """The lanes that this process claims at that time, which has to be now."""
        terms = {name: each.lease_term for name, each in self.held.items() if each.owns_at(now_us)}
        claims = tuple(LaneClaim(name, term.epoch, term.since_us) for name, term in terms.items())
        return HeldLanes(claims, until_us=min((term.promise.end_us for term in terms.values()), default=0))

    async def owner_of(self, name: LaneName) -> LaneOwner | None:
        """The member that owns a lane, as far as this process knows; this one included."""
        if self.sharing is None:
            return None
        held = self.held.get(name)
        if held is not None and held.may_act():
            return LaneOwner(self.sharing.me, self.sharing.address, held.lease_term.promise.end_us)
        return await self.sharing.owner_of(name)

    async def _stop_dual_owners(self) -> None:
        """If two members have acted on one lane, the one that does not own it by its row stops, and is ordered to."""
        if self.sharing is None or not self.sharing.other_claims:
            return
        now_us = self.host.now_us()
        own = LaneClaims(self.sharing.me, now_us, self.claims(now_us).lanes)
        for dual in find_dual_owners((own, *self.sharing.other_claims), self._lanes.lease.skew_us):
            self.dual_owners.add(dual)
            mine = self.held.get(dual.lane)
            if mine is not None and await mine.has_lost():
                self._stopped(dual.lane, "another process owned the lane")
            if self.sharing.to_watch([dual.lane]):
                await self._monitor.stop_earlier(dual)

    # ---- next to the dispatchers

    async def _start_engine_work(self) -> None:
        """The engine's own work, where there is some by now."""
        for name, (dispatcher, source) in list(self._without_work.items()):
            work = self._lanes.engine_work(name, dispatcher, source)
            if work is not None:
                del self._without_work[name]
                dispatcher.run_engine_work(work)

    def _not_retired_before(self, name: LaneName) -> list[LaneName]:
        return [each for each in self._lanes.lanes_before(name) if each not in self.retired]

    async def _open_gates(self) -> None:
        """Inspect the lanes that hold back groups of this process's lanes, the oldest first, up to one that still
        does."""
        held_back = [(name, dispatcher) for name, dispatcher in self.held.items() if dispatcher.holds_groups]
        for name, dispatcher in sorted(held_back, key=lambda each: each[0]):
            for before in self._not_retired_before(name):
                state = await self._lanes.lane(before).read_state()
                if state is None or not state.is_retired:
                    return
                self.retired.add(before)
            dispatcher.open_groups()

    def _log_once(self, what: str, error: BaseException, *, lane: LaneName | None = None) -> None:
        """Once for each kind of trouble and each lane; a traceback only for unexpected errors."""
        if (what, lane, repr(error)) in self._logged or len(self._logged) >= LOGGED_MAX:
            return
        self._logged.add((what, lane, repr(error)))
        fields: dict[str, object] = {"queue": self._lanes.queue_name, "error": str(error)}
        if lane is not None:
            fields["lane"] = format_lane(lane)
        log.error(what, extra=fields, exc_info=None if isinstance(error, HeadgateError) else error)


def _still(dispatcher: Dispatcher, before: LaneStand | None) -> LaneStand | None:
    """The state of a lane that was empty and read up to then, and has been empty since."""
    if before is None or not dispatcher.waits_for_hint or before.answered != dispatcher.answered:
        return None
    return None if before.oldest_us is not None or before.in_flight or before.is_unread else before


class _Drain:
    """When a lane that is handed over delivers nothing: for a limited time, and again after a rest that doubles."""

    def __init__(self, now_s: float) -> None:
        self._until_s = now_s + DRAIN_S
        self._rest_s = DRAIN_REST_S_MIN

    def is_on(self, now_s: float) -> bool:
        """Whether it is time to drain. Asked again and again, with times that grow."""
        if now_s >= self._until_s + self._rest_s:
            self._until_s = now_s + DRAIN_S
            self._rest_s = min(2 * self._rest_s, DRAIN_REST_S_MAX)
        return now_s < self._until_s


class _Pauses:
    """The lanes that are left alone for a while."""

    def __init__(self) -> None:
        self._failed: dict[LaneName, tuple[float, float]] = {}
        """Lanes that could not be taken: the pause after the last failure, and when it ends."""
        self._stopped_until_s: dict[LaneName, float] = {}
        """Lanes whose owner in this process was stopped by another process."""

    def has_failed(self, name: LaneName) -> bool:
        """Whether taking it failed a short time ago."""
        _, until_s = self._failed.get(name, (0.0, 0.0))
        return _now_s() < until_s

    def failed(self, name: LaneName, error: Exception) -> None:
        """It cannot be taken now."""
        pause_s, _ = self._failed.get(name, (0.0, 0.0))
        pause_s = min(max(2 * pause_s, FAILED_S_MIN), FAILED_S_MAX)
        if isinstance(error, STORE_ERRORS):  # over as soon as the store is well again
            pause_s = FAILED_S_MIN
        self._failed[name] = (pause_s, _now_s() + pause_s)

    def succeeded(self, name: LaneName) -> None:
        """It can be taken, or has an owner."""
        self._failed.pop(name, None)

    def stopped(self, name: LaneName) -> None:
        """Its owner in this process was stopped."""
        self._stopped_until_s[name] = _now_s() + STOPPED_S

    def was_stopped(self, name: LaneName) -> bool:
        """Whether that is a short time ago: the lane is left to other members."""
        return _now_s() < self._stopped_until_s.get(name, 0.0)


def _now_s() -> float:
    return asyncio.get_running_loop().time()


async def take_lane(
    lanes: EngineLanes[Source],
    name: LaneName,
    state: LaneState,
    *,
    groups_held: bool = False,
    shared: SharedByLanes | None = None,
) -> tuple[Dispatcher, Source] | None:
    """Take a lane in the state that was read, and start to read it; None where it was not free."""
    lane = lanes.lane(name)
    lease_term = await lane.take(state)
    if lease_term is None:
        return None
    source = lanes.source(name, lease_term)
    try:
        dispatcher = await Dispatcher.start(
            lane, source, lanes.terms, lease_term, state, groups_held=groups_held, shared=shared
        )
    except Exception:  # another process may be able to work it, and need not wait for the lease to expire
        await lane.release(lease_term, last=state.last, read_to=state.read_to)
        raise
    return dispatcher, source
