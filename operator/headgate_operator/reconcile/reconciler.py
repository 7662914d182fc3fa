"""The loop: observe, decide, perform, until the plan is settled. It knows neither decisions nor effects in detail.

One key takes at most `ROUNDS_MAX` rounds at once. A plan whose effects were performed is decided again at once, since
it ends where an answer is needed; one that only reports ends the rounds. If an effect fails, the world is observed
and decided once more, so that the status can report it, and the key is retried later. A bug in one key's decision, or
in the handling of its failure, harms no other key: no reconciler ends by it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from headgate.errors import HeadgateError
from headgate.process.background_tasks import is_being_cancelled, run_together
from headgate.store.catalogue.entry import EntryState
from headgate_operator.decide.namespace import decide_namespace
from headgate_operator.decide.resource import decide
from headgate_operator.informers.event_ingest import EventIngest
from headgate_operator.informers.work_queue import Class, WorkQueue
from headgate_operator.model.kinds import Document
from headgate_operator.model.names import Key, namespace_key
from headgate_operator.model.plan import Emit, PatchStatus, ReconcilePlan
from headgate_operator.model.world import (
    UNKNOWN,
    ChildName,
    DecisionMemory,
    NamespaceWorld,
    ResourceFailure,
    ResourceWorld,
    StoreConnection,
    StoreView,
)
from headgate_operator.observe.queue_stats import FigureBoard
from headgate_operator.observe.world_builder import Observer, ReconcileScratch, followed_entry
from headgate_operator.reconcile.apply_plan import EffectFailure, NotLeading, PlanApplier, ReconcileState
from headgate_operator.reconcile.decision_log import ConditionMetrics, DecisionLog
from headgate_operator.store.catalogue import StoreSide
from headgate_operator.store.connections import Connections

log = logging.getLogger("headgate.operator")

ROUNDS_MAX: Final = 8
CONFLICTS_MAX: Final = 2
RECONCILERS: Final = 12
"""With those that are reserved. More of them wait longer for a core and for servers, and so does a fresh change: with
thirty-two a thousand new queues took 56 s and changes among them 388 ms p99; with twelve 70 s and 169 ms."""
RESERVED: Final = 4
WITHIN_S: Final = 240.0
PLACE_AGAIN_S: Final = 1.0
"""A child's name that is not free yet is checked again after this."""
NOT_LEADING_AGAIN_S: Final = 1.0
PROBE_EVERY_S: Final = 3.0
PROBED_AT_ONCE: Final = 4
BUG_PAUSE_S: Final = 5.0
"""How long a reconciler holds a key whose retry could not even be noted."""

World = ResourceWorld | NamespaceWorld
Decide = Callable[[World, DecisionMemory, int], ReconcilePlan]


def decide_key(world: World, memory: DecisionMemory, now_us: int) -> ReconcilePlan:
    if isinstance(world, NamespaceWorld):
        return decide_namespace(world, now_us, memory)
    return decide(world, memory, now_us)


class ObservationRecorder:
    """Passes the reads of a reconcile on to the rest of the operator: the connection that a resource uses, the queue
    whose figures are read from now on, an object that was found in the place of a child.

    Reading has no side effects (observe/world_builder.py), so a plan of a document that nobody has applied leaves no
    trace. All that follows from reading is here, and only the reconcile calls it."""

    def __init__(
        self,
        connections: Connections,
        store: StoreSide,
        board: FigureBoard,
        intake: EventIngest,
        *,
        now_us: Callable[[], int],
    ) -> None:
        self._connections = connections
        self._store = store
        self._board = board
        self._intake = intake
        self._now_us = now_us

    async def record(self, key: Key, world: ResourceWorld) -> ResourceWorld:
        """The world of a living resource, with the figures that are known once it is followed."""
        if not isinstance(world.connection, StoreConnection):
            self._board.forget(key)
            return world
        self._connections.note(key, world.connection)
        if not isinstance(world.store, StoreView):
            return world
        entry = followed_entry(world.resource, world.store, self._store)
        reached = self._store.reached(world.connection)
        if entry is None or reached is None:
            self._board.forget(key)
            return replace(world, figures=UNKNOWN)
        await self._board.follow(key, reached, entry)
        return replace(world, figures=self._board.of(key, self._now_us()))

    def record_children(self, documents: Iterable[Document]) -> None:
        for document in documents:
            self._intake.wrote(document)


@dataclass
class _Round:
    scratch: ReconcileScratch
    plan: ReconcilePlan = field(default_factory=ReconcilePlan)
    failed: EffectFailure | None = None
    waits_for_place: bool = False
    """Earlier questions are asked again, since there is no answer now."""
    asked: frozenset[ChildName] = frozenset()


class Reconciler:
    def __init__(
        self,
        queue: WorkQueue,
        observer: Observer,
        recorder: ObservationRecorder,
        performer: PlanApplier,
        ring: DecisionLog,
        *,
        now_us: Callable[[], int],
        forget: Callable[[Key], None],
        decide: Decide = decide_key,
    ) -> None:
        self._queue = queue
        self._observer = observer
        self._recorder = recorder
        self._performer = performer
        self._ring = ring
        self._now_us = now_us
        self._forget_elsewhere = forget
        self._decider = decide
        self._memories: dict[Key, DecisionMemory] = {}
        self._kept: dict[Key, ReconcileState] = {}
        self._active: dict[Key, bool] = {}
        self._blind: dict[Key, None] = {}
        self.conditions = ConditionMetrics()
        self._turns = asyncio.Lock()
        self.rounds = 0
        self.left_behind = 0

    async def run(self, *, reconcilers: int = RECONCILERS, reserved: int = RESERVED) -> None:
        numbers = range(reconcilers)
        await run_together({f"reconciler {each}": self._work(reserved=each < reserved) for each in numbers})

    async def _work(self, *, reserved: bool) -> None:
        while True:
            key = await self._queue.get(reserved=reserved)
            try:
                await self._one(key)
            except Exception:  # nothing that is wrong with one key may end the process for all of them
                log.exception("bug after a reconcile, please report it", extra={"key": key.path})
                await asyncio.sleep(BUG_PAUSE_S)
                self._queue.add(key, Class.FAILED)
            finally:
                self._queue.done(key)

    async def _one(self, key: Key) -> None:
        try:
            async with asyncio.timeout(WITHIN_S):
                await self.reconcile(key)
        except asyncio.CancelledError:
            if is_being_cancelled():
                raise
            self._queue.retry(key)  # something that it waited for was cancelled, and not this reconciler
            log.warning("reconcile cancelled, retrying", extra={"key": key.path})
        except NotLeading:
            self._queue.add_in(key, NOT_LEADING_AGAIN_S)
        except HeadgateError as error:
            pause_s = self._queue.retry(key)
            fields = {"key": key.path, "error": str(error), "in_s": round(pause_s, 1)}
            log.warning("reconcile failed, retrying", extra=fields)
        except TimeoutError:
            self._queue.retry(key)
            log.warning("reconcile timed out", extra={"key": key.path, "within_s": WITHIN_S})
        except Exception:
            self._queue.retry(key)
            log.exception("bug in a reconcile, please report it", extra={"key": key.path})

    async def reconcile(self, key: Key) -> ReconcilePlan:
        kept = self._kept.setdefault(key, ReconcileState())
        at = _Round(ReconcileScratch())
        conflicts = 0
        for _ in range(ROUNDS_MAX):
            await self._take_round(key, at, kept)
            if at.failed is not None and at.failed.is_conflict and conflicts < CONFLICTS_MAX:
                conflicts += 1
                continue
            if at.failed is not None or at.waits_for_place or at.plan.settles:
                break
        if at.failed is not None:
            await self._report_failure(key, at, kept)
        self._after(key, at)
        return at.plan

    async def plan(
        self, key: Key, document: Mapping[str, Any] | None = None, observer: Observer | None = None
    ) -> tuple[World, ReconcilePlan]:
        """The plan of now, or for this document. Nothing is changed, and nothing is remembered except by
        the observer that is given, which is a fork of the reconcile's."""
        observer = observer or self._observer.fork()
        scratch, kept = ReconcileScratch(), self._kept.get(key, ReconcileState())
        world = await _read_world(observer, key, scratch, kept, document)
        plan = await self._decide(key, world)
        if plan.ask:
            await observer.ask(key, plan.ask, scratch)
            world = await _read_world(observer, key, scratch, kept, document)
            plan = await self._decide(key, world)
        return world, plan

    def memory_of(self, key: Key) -> DecisionMemory:
        return self._memories.get(key, DecisionMemory())

    # ---- rounds

    async def _take_round(self, key: Key, at: _Round, kept: ReconcileState) -> None:
        world = await self._read(key, at.scratch, kept)
        plan = await self._decide(key, world)
        decided_us = self._now_us()
        self.rounds += 1
        self._memories[key] = plan.memory
        self._take_notes(key, world, plan)
        at.plan, at.failed, at.waits_for_place = plan, None, False
        at.failed = await self._performer.perform(key, plan.effects, kept)
        self._ring.add(key, decided_us, world, plan, outcome="" if at.failed is None else at.failed.message)
        if at.failed is None:
            self._note_left_behind(key, plan)
        if at.failed is None and plan.ask:
            at.waits_for_place = not plan.effects and plan.ask <= at.asked
            at.asked |= plan.ask
            await self._observer.ask(key, plan.ask, at.scratch)
            self._recorder.record_children(at.scratch.children)
            at.scratch.children.clear()

    async def _read(self, key: Key, scratch: ReconcileScratch, kept: ReconcileState) -> World:
        """The world of a key, and what follows from it for others."""
        world = await _read_world(self._observer, key, scratch, kept)
        return await self._recorder.record(key, world) if isinstance(world, ResourceWorld) else world

    async def _decide(self, key: Key, world: World) -> ReconcilePlan:
        memory = self._memories.get(key, DecisionMemory())
        await self._give_way(key)
        return self._decider(world, memory, self._now_us())

    async def _give_way(self, key: Key) -> None:
        """Of what nobody waits for, one thing is decided in a turn of the loop: a fresh change passes in between."""
        if not self._queue.is_urgent(key):
            async with self._turns:
                await asyncio.sleep(0)

    async def _report_failure(self, key: Key, at: _Round, kept: ReconcileState) -> None:
        """The next decision knows the failure: only its reports are performed now."""
        assert at.failed is not None  # noqa: S101 - called for nothing else
        world = await self._read(key, at.scratch, kept)
        plan = await self._decide(key, world)
        self._memories[key] = plan.memory
        self._take_notes(key, world, plan)
        reports = [effect for effect in plan.effects if isinstance(effect, PatchStatus | Emit)]
        await self._performer.perform(key, reports, kept)

    # ---- what follows

    def _take_notes(self, key: Key, world: World, plan: ReconcilePlan) -> None:
        """Resources of a namespace wait until its own key has found it ready."""
        if plan.namespace is not None:
            before = self._observer.stands.get(key.namespace)
            self._observer.stands[key.namespace] = plan.namespace
            if before != plan.namespace:
                for each in self._observer.keys_in(key.namespace):
                    self._queue.add(each, Class.NEW)
        elif isinstance(world, ResourceWorld):
            is_active = isinstance(world.store, StoreView) and _is_active(world.store)
            if key.namespace not in self._observer.stands:
                self._queue.add(namespace_key(key.namespace), Class.CHANGED)
            elif self._active.get(key, False) != is_active and not isinstance(world.store, ResourceFailure):
                self._queue.add(namespace_key(key.namespace), Class.NEW)  # its CronJobs are for what is active
            self._active[key] = is_active
            self._note_blindness(key, world)
            self.conditions.note(key, world, plan)

    def _note_left_behind(self, key: Key, plan: ReconcilePlan) -> None:
        """Resources that went with their namespace before their data could be dropped, logged for people."""
        if plan.left_behind:
            self.left_behind += 1
            log.warning("resource released with its namespace, its data stay in Cassandra", extra={"key": key.path})

    def _note_blindness(self, key: Key, world: ResourceWorld) -> None:
        """Queue all keys that waited for Cassandra once any key reaches it."""
        if not isinstance(world.connection, StoreConnection) or not isinstance(world.store, StoreView):
            self._blind[key] = None
        elif key in self._blind:
            others, self._blind = [each for each in self._blind if each != key], {}
            for each in others:
                self._queue.add(each, Class.FAILED)

    async def probe(self) -> None:
        """A few of those that are blind try again and again, in turn; for ever."""
        while True:
            await asyncio.sleep(PROBE_EVERY_S)
            for key in list(self._blind)[:PROBED_AT_ONCE]:
                del self._blind[key]
                self._blind[key] = None
                self._queue.add(key, Class.FAILED)

    def _after(self, key: Key, at: _Round) -> None:
        if at.failed is not None:
            pause_s = self._queue.retry(key)
            fields = {"key": key.path, "error": at.failed.message, "in_s": round(pause_s, 1)}
            log.info("effect failed, retrying", extra=fields)
            return
        self._queue.forget(key)
        if not at.plan.settles:
            self._queue.add_in(key, PLACE_AGAIN_S)
        elif at.plan.again_at_us is not None:
            self._queue.add_in(key, (at.plan.again_at_us - self._now_us()) / 1_000_000)
        if at.plan.settles and key not in self._blind and self._is_gone(key):
            self._memories.pop(key, None)
            self._kept.pop(key, None)
            self._active.pop(key, None)
            self._blind.pop(key, None)
            self.conditions.forget(key)
            self._forget_elsewhere(key)

    def _is_gone(self, key: Key) -> bool:
        if key.kind == "Namespace":
            return not self._observer.keys_in(key.namespace)
        return self._observer.present(key) is None


async def _read_world(
    observer: Observer,
    key: Key,
    scratch: ReconcileScratch,
    kept: ReconcileState,
    document: Mapping[str, Any] | None = None,
) -> World:
    if key.kind == "Namespace":
        return await observer.namespace(key, scratch, kept.answers)
    world = await observer.resource(key, scratch, kept.answers, document)
    return replace(world, step_failure=kept.step_failure)


def _is_active(store: StoreView) -> bool:
    return store.entry is not None and store.entry.state is EntryState.ACTIVE
