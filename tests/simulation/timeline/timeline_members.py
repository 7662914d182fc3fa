"""The processes of a life: producers and consumers of one queue, and what each does by the seed.

Their actions and answers are recorded in the ledger (`tests/kit/invariants.py`) and in the history. The action of a
handler on a message follows from the seed, the message and how often it came, and not from its receiver: so a
message that kills its process kills the next one as well.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from random import Random
from typing import TypeVar
from uuid import UUID

from headgate.engines.contract import (
    Ack,
    Cancelled,
    DeadLetterDelivery,
    Delivery,
    ExtendDelivery,
    NackDelivery,
    NewMessage,
    PassEnd,
    Repaired,
    Settle,
    Settled,
)
from headgate.engines.lanes.balance.membership import Sharing
from headgate.engines.lanes.delivery.read_budget import ReadBudget
from headgate.engines.lanes.ownership.decide_lease import LeaseTerm, LeaseTerms
from headgate.engines.lanes.reservation_by_job import RangeReserver, ReservedRange, ReservedRow
from headgate.engines.lanes.source import RangeReservation
from headgate.engines.receipts import read_receipt
from headgate.engines.timeline.engine import TimelineQueue
from headgate.engines.timeline.lanes.timeline_lanes import lane_of
from headgate.engines.timeline.model.layout import MessagePlace, id_text
from headgate.engines.timeline.model.settings import TimelineSettings
from headgate.engines.timeline.put.application_batch import stamp_put
from headgate.engines.timeline.read.reading import RowContent, family_of
from headgate.engines.timeline.read.source import TimelineSource
from headgate.errors import HeadgateError
from headgate.expiry import Promise
from headgate.process.live import Live
from headgate.store.clock.clock import Clock
from headgate.store.model.statements import Batch
from tests.kit.invariants import Ledger
from tests.kit.process import simulated_host
from tests.kit.simulated_store import Cluster, SimulatedStore
from tests.kit.simulated_store.store import SimulatedTime
from tests.kit.simulated_world import Process, ProcessState, World
from tests.simulation.timeline.timeline_bounds import READ_BUDGET, READ_BUDGET_BYTES
from tests.simulation.timeline.timeline_plan import Plan
from tests.simulation.timeline.timeline_puts import SECOND, SETTINGS

T = TypeVar("T")
SKEW_US_MAX = 200_000
"""Of one process against the truth: two of them are within the queue's bound of half a second."""
REFRESH_S = 40.0
READ_S = 3.0
LATE_WRITE_S = 5
FAR_US = 400 * 86_400 * SECOND


def settings_of(plan: Plan) -> TimelineSettings:
    """The queue of a life."""
    return replace(
        SETTINGS,
        generations=(replace(SETTINGS.generations[0], shards=plan.shards),),
        part_us=plan.part_s * SECOND,
        visibility_us=round(plan.visibility_s * SECOND),
        retention_us=plan.retention_s * SECOND,
        lease=LeaseTerms(ttl_s=plan.ttl_s, touch_us=(plan.ttl_s - 2) * SECOND // 3, skew_us=500_000),
        receipt_key=b"secret",
        max_receives=plan.max_receives,
        dead_letter="dead" if plan.has("dead letters") else None,
        late_write_us=LATE_WRITE_S * SECOND,
    )


Grave = tuple[int, int, UUID, int]


@dataclass
class Life:
    """One queue, all processes that work on it, and what is known of it."""

    world: World
    cluster: Cluster
    plan: Plan
    settings: TimelineSettings
    ledger: Ledger
    dead: TimelineSettings | None = None
    calm: bool = False
    over: bool = False
    came: Counter[str] = field(default_factory=Counter)
    """How often each message was handed out."""
    scheduled: list[str] = field(default_factory=list)
    """Ids that a cancel could be tried on."""
    producers: dict[str, Member] = field(default_factory=dict)
    consumers: dict[str, Member] = field(default_factory=dict)
    helpers: dict[str, Member] = field(default_factory=dict)
    left_to_repair: set[str] = field(default_factory=set)
    """Messages that nobody but repair can bring, when all else was drained."""
    last_death_us: int = 0
    """When a receiver ended last."""
    heavy: int = 0
    """How many handlers took very long."""
    disturbed_us: list[tuple[int, int]] = field(default_factory=list)
    """From when to when a fault was under way."""
    broken: list[str] = field(default_factory=list)
    """Loops that ended by an error of their own, and other impossible events."""
    dead_letters: set[Grave] = field(default_factory=set)
    """Where dead letters were found."""
    closed_dead_letters: set[Grave] = field(default_factory=set)
    """Those of which an acknowledgement was answered with done."""

    def rng(self, purpose: str) -> Random:
        """A stream of its own."""
        return self.world.rng(purpose)

    def members(self) -> list[Member]:
        """The processes that were at work last."""
        return [*self.producers.values(), *self.consumers.values(), *self.helpers.values()]

    def poison_of(self, payload: bytes) -> int:
        """How many processes a message kills."""
        rng = Random(f"{self.plan.seed} poison {name_of(payload)}")
        return rng.randint(1, 4) if self.plan.has("deaths") and rng.random() < POISON_ODDS else 0


POISON_ODDS = 0.02


def name_of(payload: bytes) -> str:
    """A payload's first word, which no other has."""
    return payload.split(b" ", 1)[0].decode()


class Member:
    """One life of one process."""

    def __init__(self, life: Life, name: str, *, dead: TimelineSettings | None = None) -> None:
        self.life = life
        self.process: Process = life.world.process(name)
        self.number = life.world._lives[name]
        self.actor = f"{name}/{self.number}"
        self.store = SimulatedStore(life.cluster, self.process)
        self.clock: Clock | None = None
        self.dead = dead
        self.engine: TimelineQueue | None = None
        self.closing = False
        self._slots = asyncio.Semaphore(life.plan.handling_max)
        ahead_us = life.rng(f"clock of {self.actor}").randint(-SKEW_US_MAX, SKEW_US_MAX)
        self.process.clock.step(ahead_us / SECOND)

    def now_us(self) -> int:
        """The clock that this process promises by."""
        return self.process.clock.wall_us() if self.clock is None else self.clock.require()

    async def open(self, settings: TimelineSettings) -> TimelineQueue:
        """The queue as this process has it; to be called in the process."""
        if self.life.plan.has("clocks"):
            self.clock = Clock(self.store, source=SimulatedTime(self.process))
            await self.clock.__aenter__()
            while True:
                try:
                    await self.clock.until_trusted(5.0)
                except HeadgateError:
                    continue
                break
        host = simulated_host(self.process, self.store, name=self.actor, now_us=self.now_us)
        if READ_BUDGET in self.life.plan.bounds:
            host = replace(host, read_budget=ReadBudget(READ_BUDGET_BYTES))
        sharing = Sharing(host, settings.queue) if self.life.plan.has("sharing") else None
        self.engine = TimelineQueue(host, settings, read_us=self.now_us(), dead_letters=self.dead, sharing=sharing)
        self.process.start(self._keep_fresh(self.engine))
        return self.engine

    async def _keep_fresh(self, engine: TimelineQueue) -> None:
        """Read the catalogue now and then: what comes back was true when the read began."""
        own = self.life.rng(f"reads of {self.actor}")
        while True:
            await asyncio.sleep(own.uniform(1, REFRESH_S))
            try:
                read_us = self.now_us()
            except HeadgateError:
                continue
            settings = self.life.settings if engine.settings.queue == self.life.settings.queue else engine.settings
            await asyncio.sleep(own.uniform(0, READ_S) * own.random())
            engine.settings_changed(settings, read_us=read_us, dead_letters=self.dead)

    async def cancelled_at_times(self, call: Awaitable[T], own: Random) -> T:
        """The answer of a call, which is cancelled at some await of its own where the life does that."""
        if not self.life.plan.has("cancelled calls") or own.random() < CALLS_UNCANCELLED:
            return await call
        return await asyncio.wait_for(call, own.expovariate(1 / CANCELLED_AFTER_S))

    @property
    def is_running(self) -> bool:
        """Neither dead nor stopped."""
        return self.process.state is ProcessState.RUNNING

    @property
    def is_alive(self) -> bool:
        """Not dead, though it may be stopped."""
        return self.process.state is not ProcessState.DEAD

    def end(self) -> None:
        """As the operating system ends a process that has returned."""
        self.process.kill()


class Consumer(Member):
    """Receives, handles and settles."""

    def start(self) -> None:
        """Begin."""
        self.process.start(self._run())

    async def _run(self) -> None:
        engine = await self.open(self.life.settings)
        await asyncio.gather(*(self._receive(engine, number) for number in range(self.life.plan.receivers)))

    async def _receive(self, engine: TimelineQueue, number: int) -> None:
        plan = self.life.plan
        own = self.life.rng(f"work of {self.actor}, {number}")
        while not self.closing:
            self._check_for_broken(engine)
            visibility_us = round(plan.visibility_s * own.choice((0.5, 1, 1, 2)) * SECOND)
            try:
                with self.life.ledger.receiving(self.actor, visibility_us=visibility_us):
                    result = await self._ask(engine, own, visibility_us)
                    self._note(result, visibility_us)
            except TimeoutError:
                continue
            except HeadgateError:
                await asyncio.sleep(0.3)
                continue
            if result:
                for each in result:
                    await self._slots.acquire()
                    self.process.start(self._handle(engine, each, own.random()))

    async def _ask(self, engine: TimelineQueue, own: Random, visibility_us: int) -> list[Delivery]:
        limit = own.randint(1, self.life.plan.limit)
        call = engine.receive(limit, visibility_us=visibility_us, wait_us=SECOND)
        return await self.cancelled_at_times(call, own)

    def _note(self, result: Sequence[Delivery], visibility_us: int) -> None:
        self.life.ledger.delivered(self.actor, result, clock_us=self._clock_us(), visibility_us=visibility_us)
        for each in result:
            self.life.came[name_of(each.payload)] += 1
            self.process.note(
                "receives", name_of(each.payload), ("attempt", each.attempt), ("epoch", each.epoch), *_flags(each)
            )

    def _clock_us(self) -> int:
        """The time of the engine's clock, trusted or not."""
        return self.process.clock.wall_us() if self.clock is None else self.clock.now_us()

    def _check_for_broken(self, engine: TimelineQueue) -> None:
        for dispatcher in engine.lanes.held.values():
            if dispatcher.failure is not None:
                self.life.broken.append(f"{self.actor}: {dispatcher.failure!r}")
        if "stepped clocks" not in self.life.plan.faults:
            self.life.broken += [f"{self.actor} has seen two owners: {result}" for result in engine.lanes.dual_owners]

    async def _handle(self, engine: TimelineQueue, given: Delivery, drawn: float) -> None:
        try:
            await self._work(engine, given, drawn)
        finally:
            self._slots.release()

    async def _work(self, engine: TimelineQueue, given: Delivery, drawn: float) -> None:
        life, plan = self.life, self.life.plan
        name = name_of(given.payload)
        times = life.came[name]
        own = Random(f"{plan.seed} {name} {times}")
        await asyncio.sleep(own.expovariate(1 / (plan.work_s if not life.calm else CALM_WORK_S)))
        if times <= life.poison_of(given.payload):
            self.process.note("dies by", name_of(given.payload))
            self.process.kill()
            await asyncio.sleep(1)
        settle: Settle = Ack(given.receipt)
        if not life.calm:
            if plan.has("slow handlers") and own.random() < 0.1:
                await asyncio.sleep(own.uniform(0.5, 2.0) * plan.visibility_s)
            if plan.has("extends") and own.random() < 0.2:
                longer_us = round(own.uniform(0.5, 3) * plan.visibility_s * SECOND)
                await self._settle(engine, given, ExtendDelivery(given.receipt, longer_us), own)
                await asyncio.sleep(longer_us / SECOND * own.uniform(0.1, 1.2))
            if plan.has("nacks") and own.random() < 0.15:
                delay_us = int(own.choice((0, own.uniform(0, 3), own.uniform(8, 16))) * SECOND)
                settle = NackDelivery(
                    given.receipt, delay_us=delay_us, reason="by the seed", charged=own.random() < 0.8
                )
            if plan.has("rejects") and own.random() < 0.08:
                settle = DeadLetterDelivery(given.receipt, reason="by the seed")
        if not life.calm and plan.has("heavy tails") and own.random() < plan.heavy_share:
            await self._take_long(engine, given, own)
        for _ in range(SETTLE_TRIES):
            answer = await self._settle(engine, given, settle, own)
            if answer is not Settled.UNKNOWN or drawn < 0.5:
                return

    async def _take_long(self, engine: TimelineQueue, given: Delivery, own: Random) -> None:
        """A handler that takes very long keeps its message hidden."""
        if self.life.heavy >= self.life.plan.heavy_most:
            return
        self.life.heavy += 1
        hidden_s = self.life.plan.visibility_s
        least_s, most_s = self.life.plan.heavy_s
        until_s = self.life.world.now_s() + least_s * (most_s / least_s) ** own.random()
        while self.life.world.now_s() < until_s:
            extend = ExtendDelivery(given.receipt, round(hidden_s * SECOND))
            if await self._settle(engine, given, extend, own) is Settled.STALE:
                return
            await asyncio.sleep(hidden_s / 2)

    async def _settle(self, engine: TimelineQueue, given: Delivery, settle: Settle, own: Random) -> Settled | None:
        """The answer; None: it failed, or was cancelled before."""
        what = type(settle).__name__.removesuffix("Delivery").lower()
        try:
            call = self.life.ledger.settle(engine.settle, [settle], self.actor)
            (answer,) = await self.cancelled_at_times(call, own)
        except TimeoutError:
            self.process.note(f"cancelled its {what}", name_of(given.payload))
            return Settled.UNKNOWN
        except HeadgateError as error:
            self.process.note(f"cannot {what}", name_of(given.payload), str(error))
            return None
        self.process.note(f"settles: {what}", name_of(given.payload), answer.value)
        return answer

    async def hand_over(self, *, finish: bool) -> None:
        """End in good order: stop receiving, finish what is open if it may, give the lanes back."""
        self.closing = True
        if finish:
            await asyncio.sleep(1.5)
        if self.engine is not None:
            await self.engine.close()
        self.process.note("has handed over")
        self.end()


SETTLE_TRIES = 2
CALLS_UNCANCELLED = 0.8
CANCELLED_AFTER_S = 0.01
"""The mean; the ring answers within some milliseconds."""
CALM_WORK_S = 0.005
"""The pause per message after the storm: the rest is worked off fast, since waiting would show nothing more."""


class Digger(Consumer):
    """Takes what comes into the dead letter queue."""

    def _note(self, result: Sequence[Delivery], visibility_us: int) -> None:
        for each in result:
            self.process.note("finds the dead letter", name_of(each.payload), ("attempt", each.attempt))
            dead_letter = self._grave_of(each)
            if dead_letter not in self.life.dead_letters:  # it may come again, as any message
                self.life.dead_letters.add(dead_letter)
                self.life.ledger.dead([each.message_id])

    def _grave_of(self, pending: Delivery) -> Grave:
        """The place where it lies; that of a restamped row is that of the first of its family."""
        assert self.life.dead is not None
        receipt = read_receipt(pending.receipt, queue=self.life.dead.queue, secret=self.life.dead.receipt_key)
        _, first = family_of(receipt.key)
        generation, shard = receipt.lane
        return generation, shard, first, receipt.index

    async def _run(self) -> None:
        assert self.life.dead is not None
        engine = await self.open(self.life.dead)
        while not self.closing:
            try:
                result = await engine.receive(20, wait_us=SECOND)
                self._note(result, 0)
                dead_letters = [self._grave_of(each) for each in result]
                for each, answer, dead_letter in zip(
                    result, await engine.settle([Ack(each.receipt) for each in result]), dead_letters, strict=True
                ):
                    if answer is Settled.DONE:
                        if dead_letter in self.life.closed_dead_letters:
                            self.life.broken.append(f"a dead letter was done twice: {each.message_id}")
                        self.life.closed_dead_letters.add(dead_letter)
            except HeadgateError:
                await asyncio.sleep(0.3)


class Putter(Member):
    """Puts, cancels, reschedules and purges."""

    def start(self) -> None:
        """Begin."""
        self.process.start(self._run())

    async def _run(self) -> None:
        life, plan = self.life, self.life.plan
        own = life.rng(f"puts of {self.actor}")
        engine = await self.open(life.settings)
        number = 0
        while not life.calm:
            count = own.randint(1, plan.batch_max)
            if plan.has("bursts") and own.random() < 0.03:
                count = 60
            messages = [self._message(f"{self.actor}:{number}.{each}", own) for each in range(count)]
            self.process.start(self._put(engine, messages))
            number += 1
            if plan.has("cancels") and own.random() < 0.3 and life.scheduled:
                self.process.start(self._cancel(engine, self._one_scheduled(own)))
            if plan.has("reschedules") and own.random() < 0.2 and life.scheduled:
                self.process.start(self._reschedule(engine, self._one_scheduled(own), self._later_us(own)))
            if plan.has("batches") and own.random() < 0.3:
                message = self._message(f"{self.actor}:{number}.batch", own)
                self.process.start(self._batch(engine, replace(message, once=None, group=None)))
            if plan.has("purges") and own.random() < 0.02:
                self.process.start(self._purge(engine))
            await asyncio.sleep(own.expovariate(1 / plan.put_every_s))
            if plan.quiet_s[0] <= life.world.now_s() < plan.quiet_s[1]:
                await asyncio.sleep(plan.quiet_s[1] - life.world.now_s())
        await engine.close()
        self.closing = True

    def _one_scheduled(self, own: Random) -> str:
        return self.life.scheduled.pop(own.randrange(len(self.life.scheduled)))

    def _later_us(self, own: Random) -> int:
        return self._wall_us() + int(own.uniform(0, self.life.plan.delay_s) * SECOND)

    def _wall_us(self) -> int:
        return self.process.clock.wall_us() if self.clock is None else self.clock.now_us()

    def _message(self, payload: str, own: Random) -> NewMessage:
        plan = self.life.plan
        due_us = group = once = None
        if plan.has("delays") and own.random() < plan.delayed_share:
            due_us = self._later_us(own)
        if plan.has("far") and own.random() < 0.05:
            due_us = self._wall_us() + FAR_US
        if plan.has("groups") and own.random() < 0.5 and due_us is None:
            group = f"{self.actor} {own.randrange(plan.groups)}"
        if plan.has("once") and own.random() < 0.3:
            once = f"key {own.randrange(ONCE_KEYS)}"
            group = None
        attributes = {"of": payload} if own.random() < 0.1 else {}
        content = payload.encode()
        if plan.has("large payloads") and own.random() < plan.large_share:
            least, most = plan.payload_bytes
            content += b" " + own.randbytes(round(least * (most / least) ** own.random()))
        return NewMessage(content, due_us=due_us, group=group, once=once, attributes=attributes)

    async def _put(self, engine: TimelineQueue, messages: Sequence[NewMessage]) -> None:
        names = name_of(messages[0].payload) + (f" and {len(messages) - 1} more" if len(messages) > 1 else "")
        self.process.note("puts", ", ".join(self._reported(each) for each in messages))
        try:
            own = self.life.rng(f"put of {names}")
            ids = await self.cancelled_at_times(self.life.ledger.put(engine.put, messages, self.actor), own)
        except TimeoutError:
            self.process.note("cancelled its put", names)
            return
        except HeadgateError as error:
            self.process.note("could not put", names, type(error).__name__, error.message)
            return
        self.process.note("has put", names)
        self.life.scheduled += [
            message_id for each, message_id in zip(messages, ids, strict=True) if each.due_us is not None
        ]

    def _reported(self, message: NewMessage) -> str:
        """A message as the history shows it."""
        report = name_of(message.payload)
        if message.due_us is not None:
            report += f" (in {(message.due_us - self._wall_us()) / SECOND:.1f} s)"
        if message.group is not None:
            report += f" (group {message.group})"
        return report if message.once is None else f"{report} (once {message.once})"

    async def _batch(self, engine: TimelineQueue, message: NewMessage) -> None:
        """A message in the application's own logged batch: durable when that is, and late if it is late."""
        try:
            batched = stamp_put(engine.producer, message, within_us=SECOND)
        except HeadgateError as error:
            self.process.note("cannot stamp", error.message)
            return
        self.process.note("puts in a batch", self._reported(message))
        tried = self.life.ledger.trying([message], self.actor)
        try:
            await self.store.attempt(Batch(list(batched.statements), logged=True), 10)
        except HeadgateError as error:
            self.life.ledger.not_acknowledged(tried, error)
            return
        self.process.note("has put in a batch", name_of(message.payload))
        self.life.ledger.acknowledged(tried, [batched.message_id])

    async def _cancel(self, engine: TimelineQueue, message_id: str) -> None:
        self.life.ledger.cancelling(message_id)
        self.process.note("cancels", message_id)
        try:
            answer = await engine.cancel(message_id)
        except HeadgateError as error:
            self.process.note("does not know whether it cancelled", message_id, error.message)
            return
        self.process.note("cancel", message_id, answer.value)
        self.life.ledger.cancel_answered(message_id, answer)

    async def _reschedule(self, engine: TimelineQueue, message_id: str, due_us: int) -> None:
        """A restamped message is a message of its own; of the old one only a promise binds."""
        put = self.life.ledger.tale(message_id).put
        message = self.life.ledger.message(message_id) or NewMessage(b"")
        if message.once is not None:
            return  # a key stands for its first message alone
        payload = message.payload
        self.process.note("reschedules", name_of(payload))
        self.life.ledger.cancelling(message_id)
        try:
            answer, new_id = await engine.reschedule(message_id, due_us)
        except HeadgateError as error:
            self.process.note("does not know whether it rescheduled", name_of(payload), error.message)
            return
        self.process.note("reschedule", name_of(payload), answer.value, ("new", new_id))
        if new_id is not None:
            since_us = None if put is None else put.began_us  # a purge goes by the first
            tried = self.life.ledger.trying([replace(message, due_us=due_us)], self.actor, since_us=since_us)
            self.life.ledger.acknowledged(tried, [new_id])
        if answer is Cancelled.CANCELLED:
            self.life.ledger.cancel_answered(message_id, answer)
        elif new_id is not None:
            self.life.ledger.rescheduled_too_late(message_id, new_id)

    async def _purge(self, engine: TimelineQueue) -> None:
        purge = self.life.ledger.purging()
        self.process.note("purges")
        try:
            before_us = await engine.purge()
        except HeadgateError as error:
            self.process.note("does not know whether it purged", error.message)
            return
        self.process.note("has purged", ("before_us", before_us))
        self.life.ledger.purged(purge, before_us)


class Reserving(Member):
    """A bulk job that borrows a range of a lane, settles some of it, and gives it back or does not."""

    def start(self) -> None:
        """Begin."""
        self.process.start(self._run())

    async def _run(self) -> None:
        own = self.life.rng(f"loans of {self.actor}")
        engine = await self.open(self.life.settings)
        while not self.life.calm:
            await asyncio.sleep(own.uniform(0.5, 6))
            try:
                await self._reserve(engine, own)
            except HeadgateError as error:
                self.process.note("has no loan", error.message)

    async def _reserve(self, engine: TimelineQueue, own: Random) -> None:
        generation = own.choice(engine.settings.generations)
        lane = lane_of(engine.host, engine.settings, (generation.number, own.randrange(generation.shards)))
        source = TimelineSource(
            engine.host,
            engine.producer.sender,
            Live(None),
            generation=generation.number,
            shard=int(str(lane.key["shard"])),
            lease_term=LeaseTerm(engine.host.uuid(), 0, Promise.until(0, sent_us=0), None, 0, 0),
        )
        reserver = RangeReserver(engine.host, lane, source)
        now_us = self.now_us()
        first_us = now_us - own.choice((0, 2, 60)) * SECOND
        last_us = now_us + own.choice((-1, 0, 3)) * SECOND
        ends_us = now_us + round(own.uniform(3, 12) * SECOND)
        reservation = RangeReservation(
            self.process.uuid(), source.order_at(first_us), source.order_at(last_us), ends_us
        )
        reserved = await reserver.reserve(reservation)
        self.process.note("borrows", str(lane.key), ("until_us", ends_us))
        taken = ReservedRange(engine.host, lane, source, reserved)
        rows = [each async for each in taken.rows()]
        for start in range(0, len(rows), 3):
            await asyncio.sleep(own.expovariate(5))
            some = rows[start : start + 3]
            if own.random() < 0.8:
                ids = [message_id for each in some for message_id in _ids_of(each)]
                how = await self.life.ledger.settle_reserved(partial(taken.settle, some), ids, self.actor)
                self.process.note("settles as a job", ("messages", len(ids)), how.value)
        if own.random() < 0.7:
            await reserver.give_back(reserved)
            self.process.note("gives back")


def _ids_of(reserved: ReservedRow) -> list[str]:
    """The ids of the messages of a row that are a job's."""
    content: RowContent = reserved.row.content
    assert content.run is not None
    given = content.run.message_id or [b""] * len(content.run)
    ids = [id_text(each or MessagePlace(content.place, index).to_bytes()) for index, each in enumerate(given)]
    return [message_id for index, message_id in enumerate(ids) if reserved.mine >> index & 1]


class Mender(Member):
    """Repairs, again and again."""

    def start(self) -> None:
        """Begin."""
        self.process.start(self._run())

    async def _run(self) -> None:
        own = self.life.rng(f"passes of {self.actor}")
        engine = await self.open(self.life.settings)
        while True:
            await asyncio.sleep(own.uniform(*self.life.plan.repair_every_s))
            await self.repair(engine)

    async def repair_all(self) -> None:
        """Passes until nothing is owed."""
        engine = await self.open(self.life.settings)
        for _ in range(PASSES_MAX):
            done = await self.repair(engine)
            if done is not None and done.end is PassEnd.DONE and done.oldest_owed_us is None and not done.problems:
                return
            await asyncio.sleep(2)
        raise AssertionError(f"repair does not come to an end: {done}")

    async def repair(self, engine: TimelineQueue) -> Repaired | None:
        """One pass."""
        try:
            done = await engine.repair()
        except HeadgateError as error:
            self.process.note("cannot repair", error.message)
            return None
        self.process.note(
            "has repaired", done.end.value, ("checked", done.checked), ("late", done.late), *done.problems
        )
        return done


PASSES_MAX = 30
ONCE_KEYS = 5


def _flags(given: Delivery) -> tuple[str, ...]:
    return ("suspect",) if given.suspect else ()


def dead_queue(settings: TimelineSettings) -> TimelineSettings:
    """The queue of dead letters."""
    return replace(settings, queue=UUID(int=9), name="dead", dead_letter=None)
