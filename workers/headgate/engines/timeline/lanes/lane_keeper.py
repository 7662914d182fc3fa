"""Holds lanes of one queue for one process: takes free ones, works them, and releases those it lost.

With a `Sharing` it takes those of its share, and releases those of another member's share
(docs/internals/protocols/balance.md). Without one it takes every lane that it can, up to its maximum. The owner of a
lane of a generation that is no longer written closes it (closing.py), and until all of them are retired the groups of
later generations wait (attack C2): docs/internals/protocols/generations.md.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial

from headgate.engines.context import Host
from headgate.engines.lanes.balance.decide_dual_owners import DualOwnership, LaneClaim, LaneClaims, find_dual_owners
from headgate.engines.lanes.balance.membership import Sharing
from headgate.engines.lanes.decide_lease import RenewalResult
from headgate.engines.lanes.dispatcher import Dispatcher
from headgate.engines.lanes.poll_schedule import Beat
from headgate.engines.summary.decide_figures import LaneStand
from headgate.engines.summary.figures import OwnersFigures
from headgate.engines.timeline.lanes.decide_retire import is_over, lanes_before
from headgate.engines.timeline.lanes.lane_taking import InCommon, LaneName, dispatch_terms, lane_of, take_up
from headgate.engines.timeline.lanes.make_lanes import make_lanes
from headgate.engines.timeline.lanes.next_due import lane_status, next_due_us
from headgate.engines.timeline.lanes.retire_lane import Closing
from headgate.engines.timeline.lanes.watching import Watching
from headgate.engines.timeline.model.settings import GenerationSettings, TimelineSettings
from headgate.engines.timeline.put.row_sender import Sender
from headgate.engines.timeline.read.part_index import PartIndex
from headgate.engines.timeline.read.source import TimelineSource
from headgate.errors import HeadgateError, Unavailable
from headgate.process.supervised_loop import SupervisedLoop
from headgate.store.store import STORE_ERRORS

log = logging.getLogger("headgate.lanes")

CHECK_EVERY_S = 1.0
MARK_WITHIN_S = 3.0
STOPPED_S = 60.0
"""A process that was ordered to stop leaves that lane to the others for this long: its loop may hang again."""
LOGGED_MAX = 1_000
FAILED_S_MIN, FAILED_S_MAX = 1.0, 30.0
"""A lane that cannot be taken is skipped for a pause that doubles, so that it delays no other lane."""


class LaneKeeper:
    """The lanes that this process works."""

    def __init__(
        self,
        host: Host,
        settings: TimelineSettings,
        sender: Sender,
        dead_letters: Sender | None,
        *,
        sharing: Sharing | None = None,
    ) -> None:
        self.host = host
        self.sharing = sharing
        self.settings = settings
        self.held: dict[LaneName, Dispatcher] = {}
        self.retired: set[LaneName] = set()
        """Lanes known to be left for good."""
        self.stops = 0
        """How often an owner in this process had to be stopped: its loop made no turn, or the lane had another
        owner."""
        self.dual_owners: set[DualOwnership] = set()
        """Lanes that had two owners at the same time."""
        self.wanted = 0
        self.on_change: Callable[[], None] | None = None
        self.summary: OwnersFigures | None = None
        """The function that reports figures of this process's lanes."""
        self._sender = sender
        self._dead_letters = dead_letters
        self._loop = SupervisedLoop("lanes", self._keep, log=log, queue=settings.name)
        self._leaving = False
        self._watching = Watching(host, settings)
        self._handing_over: dict[LaneName, asyncio.Task[None]] = {}
        self._logged: set[tuple[str, LaneName | None, str]] = set()
        self._closing: dict[LaneName, Dispatcher] = {}
        self._left_until_s: dict[LaneName, float] = {}
        """Lanes whose owner in this process was stopped by another process."""
        self._failed: dict[LaneName, tuple[float, float]] = {}
        """Lanes that could not be taken: the pause after the last failure, and when it ends."""
        self._beat = Beat(host.rng.random())
        self._indexes: dict[int, PartIndex] = {}
        """One for all lanes of a generation."""

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

    @property
    def loops(self) -> list[SupervisedLoop]:
        """The background loops without which this process works no lane."""
        return [self._loop] if self.sharing is None else [self._loop, self.sharing.loop]

    def settings_changed(self, settings: TimelineSettings, dead_letters: Sender | None) -> None:
        """In force from the next message on, on lanes that are held too; the lease's terms from their next taking."""
        if settings == self.settings and dead_letters is self._dead_letters:
            return
        self.settings = self._watching.settings = settings
        self._dead_letters = dead_letters
        for index in self._indexes.values():
            index.settings_changed(settings)
        for dispatcher in self.held.values():
            dispatcher.delivery_state.terms = dispatch_terms(
                settings, dead_letters=dead_letters is not None
            ).delivery_state
            if isinstance(dispatcher.source, TimelineSource):
                dispatcher.source.settings_changed(settings, dead_letters)

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
            await self._run_step(self._begin_closings)
            await self._run_step(self._give_back)
            await self._run_step(self._stop_dual_owners)
            await self._run_step(self._take_free)
            await self._run_step(self._open_gates)
            await self._run_step(self._watch)
            await asyncio.sleep(CHECK_EVERY_S)

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
        self._closing = {name: each for name, each in self._closing.items() if self.held.get(name) is each}

    def _stopped(self, name: LaneName, why: str) -> None:
        self.stops += 1
        self._left_until_s[name] = asyncio.get_running_loop().time() + STOPPED_S
        fields = {"queue": self.settings.name, "lane": f"{name[0]}/{name[1]}", "why": why}
        log.error("a lane was taken from this process", extra=fields)

    # ---- taking lanes

    async def _take_free(self) -> None:
        for name in self._free_names():
            if len(self.held) >= self.wanted:
                break
            await self._try(name)

    async def _try(self, name: LaneName) -> None:
        """Take a lane if it is free. A lane that cannot be taken, for any reason, does not affect the others."""
        now_s = asyncio.get_running_loop().time()
        pause_s, until_s = self._failed.get(name, (0.0, 0.0))
        if now_s < until_s:
            return
        try:
            await self._take(name)
        except Exception as error:
            pause_s = min(max(2 * pause_s, FAILED_S_MIN), FAILED_S_MAX)
            if isinstance(error, STORE_ERRORS):  # over as soon as the store is well again
                pause_s = FAILED_S_MIN
            self._failed[name] = (pause_s, asyncio.get_running_loop().time() + pause_s)
            if not isinstance(error, Unavailable):
                self._log_once("a lane cannot be acquired", error, lane=name)
        else:
            self._failed.pop(name, None)

    def _all_names(self) -> list[LaneName]:
        """All lanes there are, retired or not."""
        return [
            (generation.number, shard)
            for generation in self.settings.generations
            for shard in range(generation.shards)
        ]

    def _free_names(self) -> list[LaneName]:
        """The lanes to be tried, in an order of this process's own, so that not all try the same one first."""
        names = self._all_names()
        if self.sharing is not None:
            tried = self.sharing.mine(names) | self._watching.unprocessed
            names = [name for name in names if name in tried]
            if len(self.sharing.members) > 1:
                names = self._without_stopped(names)
        free = [name for name in names if name not in self.held and name not in self.retired]
        self.host.rng.shuffle(free)
        return free

    def _without_stopped(self, names: list[LaneName]) -> list[LaneName]:
        now_s = asyncio.get_running_loop().time()
        self._left_until_s = {name: until_s for name, until_s in self._left_until_s.items() if until_s > now_s}
        return [name for name in names if name not in self._left_until_s]

    # ---- their figures in the summary

    def stands(self) -> dict[Dispatcher, LaneStand]:
        """The state of each lane, by its tenure."""
        now_us = self.host.now_us()
        return {each: lane_status(name, each, now_us) for name, each in self.held.items() if not each.is_over()}

    def count_open(self) -> int:
        """How many lanes there are that are not known to be left for good."""
        return len([name for name in self._all_names() if name not in self.retired])

    async def _mark_what_is_next(self) -> None:
        """A leaving owner records when the queue has to be woken; an unavailable store delays nobody."""
        marks = self._sender.marks
        if marks is None or not self.held:
            return
        try:
            async with asyncio.timeout(MARK_WITHIN_S):
                due_us = await next_due_us(self.host, self.settings)
                if due_us is not None:
                    await marks.announce_later(due_us)
        except (HeadgateError, TimeoutError) as error:
            log.warning("delayed message is not marked", extra={"queue": self.settings.name, "error": str(error)})

    # ---- sharing them

    async def _give_back(self) -> None:
        """Hand over lanes of another member's share, each when nothing of it is in flight."""
        if self.sharing is None:
            return
        for name in self.sharing.to_give_back(self.held, self._all_names()):
            self._begin_hand_over(name)

    def _begin_hand_over(self, name: LaneName) -> None:
        if name not in self._handing_over:
            handing = asyncio.get_running_loop().create_task(self._hand_over(name, self.held[name]))
            self._handing_over[name] = handing
            handing.add_done_callback(partial(self._handed_over, name, self.held[name]))

    async def _hand_over(self, name: LaneName, dispatcher: Dispatcher) -> None:
        """Release a lane once nothing of it is in flight; keep it where it is in our share again meanwhile."""
        dispatcher.drain()
        while not dispatcher.is_over():
            if self._is_ours_again(name):
                dispatcher.resume()
                return
            if self._is_idle(dispatcher):
                break
            await asyncio.sleep(CHECK_EVERY_S / 4)
        await dispatcher.give_back()
        if self.held.get(name) is dispatcher:
            del self.held[name]

    def _is_ours_again(self, name: LaneName) -> bool:
        """Whether the distribution has changed back: the member of the lane has left."""
        return not self._leaving and self.sharing is not None and name in self.sharing.mine(self._all_names())

    def _is_idle(self, dispatcher: Dispatcher) -> bool:
        """Whether nothing of it is in flight. While the clock is in doubt this is unknown: visibilities may have
        ended, and a lane that is handed over then is not released."""
        try:
            dispatcher.delivery_state.tick(self.host.now_us())
        except Unavailable:
            return False
        return not dispatcher.delivery_state.in_flight

    def _handed_over(self, name: LaneName, dispatcher: Dispatcher, handing: asyncio.Task[None]) -> None:
        """A hand-over that fails leaves the lane with its owner, which tries again if it is still in another member's
        share."""
        self._handing_over.pop(name, None)
        error = None if handing.cancelled() else handing.exception()
        if error is not None:
            self._log_once("a lane cannot be handed over", error, lane=name)
            dispatcher.resume()

    async def _watch(self) -> None:
        """Inspect other members' lanes, and those without an owner."""
        if self.sharing is None or not self.wanted:
            return
        names = [name for name in self._all_names() if name not in self.held and name not in self.retired]
        await self._watching.check(self.sharing.to_watch(names))
        self.retired |= self._watching.retired

    # ---- two owners of a lane: the net below the lease

    def claims(self, now_us: int) -> list[LaneClaim]:
        """The lanes that this process claims at that time, which has to be now."""
        held = [(name, each) for name, each in self.held.items() if each.owns_at(now_us)]
        return [LaneClaim(name, each.lease_term.epoch, each.lease_term.since_us) for name, each in held]

    async def _stop_dual_owners(self) -> None:
        """If two members have acted on one lane, the one that does not own it by its row stops, and is ordered to."""
        if self.sharing is None:
            return
        now_us = self.host.now_us()
        own = LaneClaims(self.sharing.me, now_us, tuple(self.claims(now_us)))
        for dual in find_dual_owners((own, *self.sharing.other_claims), self.settings.skew_us):
            self.dual_owners.add(dual)
            mine = self.held.get(dual.lane)
            if mine is not None and await mine.has_lost():
                self._stopped(dual.lane, "another process owned the lane")
            if self.sharing.to_watch([dual.lane]):
                await self._watching.stop_earlier(dual)

    async def _take(self, name: LaneName) -> None:
        settings = self.settings
        lane = lane_of(self.host, settings, name)
        state = await lane.read_state()
        generation = self._generation(name[0])
        if state is None and generation is not None and generation.from_us:
            await make_lanes(self.host, settings, generation)
            state = await lane.read_state()
        if state is None:
            return
        if state.is_retired:
            self.retired.add(name)
            return
        taken = await take_up(
            lane,
            state,
            settings,
            name,
            sender=self._sender,
            dead_letters=self._dead_letters,
            groups_held=bool(self._not_retired_before(name[0])),
            common=self._in_common(name[0]),
        )
        if taken is not None:
            self.held[name], _ = taken
            self.held[name].on_change = self.on_change
            if self.sharing is not None:
                self.sharing.took(name, self._all_names())

    def _in_common(self, generation: int) -> InCommon:
        """The shared parts of this generation's lanes in this process."""
        index = self._indexes.get(generation)
        if index is None:
            index = self._indexes[generation] = PartIndex(self.host, self.settings, generation)
        return InCommon(index, self._beat)

    def _generation(self, number: int) -> GenerationSettings | None:
        return next((each for each in self.settings.generations if each.number == number), None)

    # ---- leaving a generation

    async def _begin_closings(self) -> None:
        now_us = self.host.now_us()
        for name, dispatcher in self.held.items():
            generation = self._generation(name[0])
            if generation is None or self._closing.get(name) is dispatcher:
                continue
            if not is_over(generation, now_us=now_us, skew_us=self.settings.skew_us):
                continue
            if isinstance(dispatcher.source, TimelineSource):
                closing = Closing(
                    self.host,
                    self._sender,
                    dispatcher,
                    dispatcher.source,
                    generation=generation,
                    shard=name[1],
                )
                dispatcher.run_in_background(closing.run())
                self._closing[name] = dispatcher

    def _not_retired_before(self, number: int) -> list[LaneName]:
        before = lanes_before(self.settings.generations, number)
        return [name for name in before if name not in self.retired]

    async def _open_gates(self) -> None:
        """Inspect the lanes that hold back groups of this process's lanes, the oldest first, up to one that still
        does."""
        held_back = {name[0] for name, dispatcher in self.held.items() if dispatcher.holds_groups}
        for number in sorted(held_back):
            for name in self._not_retired_before(number):
                state = await lane_of(self.host, self.settings, name).read_state()
                if state is None or not state.is_retired:
                    return
                self.retired.add(name)
            for name, dispatcher in self.held.items():
                if name[0] == number:
                    dispatcher.open_groups()

    def _log_once(self, what: str, error: BaseException, *, lane: LaneName | None = None) -> None:
        """Once for each kind of trouble and each lane; a traceback only for unexpected errors."""
        if (what, lane, repr(error)) in self._logged or len(self._logged) >= LOGGED_MAX:
            return
        self._logged.add((what, lane, repr(error)))
        fields: dict[str, object] = {"queue": self.settings.name, "error": str(error)}
        if lane is not None:
            fields["lane"] = f"{lane[0]}/{lane[1]}"
        log.error(what, extra=fields, exc_info=None if isinstance(error, HeadgateError) else error)
