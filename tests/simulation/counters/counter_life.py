"""The processes of a counter's life: writers, readers and collectors, and what each does by the seed. Whatever they
do and are answered is recorded in the ledger (`tests/kit/counter_invariants.py`)."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random
from uuid import UUID

from headgate.counters.collect.collector import Collector, PassReport
from headgate.counters.counter import CounterHandle
from headgate.counters.model.decide_life import LifeTerms
from headgate.counters.model.settings import CounterSettings
from headgate.counters.model.tables import dedicated_tables
from headgate.counters.types.sum import Sum
from headgate.errors import HeadgateError, Unavailable
from headgate.process.live import Live
from tests.kit.counter_invariants import CounterLedger, UpdateTale
from tests.kit.process import simulated_host
from tests.kit.simulated_store import Cluster, SimulatedStore
from tests.kit.simulated_world import Process, ProcessState, World
from tests.simulation.counters.counter_plan import Plan

SECOND = 1_000_000
COUNTER = UUID(int=7)
SKEW_US = 500_000
CLOCK_OFF_US_MAX = SKEW_US // 2
"""Two of them then differ by as much as they may."""
TOKEN_WINDOW_US = 60 * SECOND
KIND = Sum()
REPEATS_MAX = 6


def settings_of(plan: Plan) -> CounterSettings:
    """The counter of a life."""
    return CounterSettings(
        counter=COUNTER,
        name="shop/views",
        tables=dedicated_tables(COUNTER),
        buckets=plan.buckets,
        life=LifeTerms(plan.lifetime_s * SECOND, plan.refuse_s * SECOND),
        gc_after_us=round(plan.gc_after_s * SECOND),
        skew_us=SKEW_US,
        token_window_us=TOKEN_WINDOW_US,
        grains_us=tuple(grain * SECOND for grain in plan.grains_s),
        retention_us=86_400 * SECOND,
        memory_bytes_max=plan.memory_bytes,
    )


class SimulatedHints:
    """The hint windows of a simulated ring, as its nodes are set; a node that does not run gives no answer."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    async def read(self) -> Mapping[str, int]:
        """By node."""
        for name, node in self._cluster.nodes.items():
            if node.process.state is not ProcessState.RUNNING:
                raise Unavailable("a node does not report its hint window", node=name)
        window_us = round(self._cluster.settings.max_hint_window_s * SECOND)
        return dict.fromkeys(self._cluster.nodes, window_us)


@dataclass
class Life:
    """One counter, all processes that work on it, and what is known of it."""

    world: World
    cluster: Cluster
    plan: Plan
    settings: CounterSettings
    ledger: CounterLedger
    calm: bool = False
    over: bool = False
    producers: dict[str, Member] = field(default_factory=dict)
    """Writers; named as the storm names them."""
    consumers: dict[str, Member] = field(default_factory=dict)
    """Readers and collectors."""
    helpers: dict[str, Member] = field(default_factory=dict)
    to_repeat: list[UpdateTale] = field(default_factory=list)
    """Updates with tokens that somebody may send again."""
    broken: list[str] = field(default_factory=list)

    def rng(self, purpose: str) -> Random:
        """A stream of its own."""
        return self.world.rng(purpose)

    def members(self) -> list[Member]:
        """The processes that were at work last."""
        return [*self.producers.values(), *self.consumers.values(), *self.helpers.values()]


class Member:
    """One life of one process."""

    def __init__(self, life: Life, name: str) -> None:
        self.life = life
        self.process: Process = life.world.process(name)
        self.actor = f"{name}/{life.world._lives[name]}"
        self.store = SimulatedStore(life.cluster, self.process)
        self.own = life.rng(f"work of {self.actor}")
        self.process.clock.step(self.own.randint(-CLOCK_OFF_US_MAX, CLOCK_OFF_US_MAX) / SECOND)
        self.host = simulated_host(self.process, self.store, name=self.actor, now_us=self.now_us)
        self._given_us = 0

    def now_us(self) -> int:
        """The clock that this process promises by: never backwards."""
        now_us = self.process.clock.wall_us()
        if self.life.plan.has("coarse clocks"):
            now_us -= now_us % SECOND
        self._given_us = max(self._given_us, now_us)
        return self._given_us

    def handle(self) -> CounterHandle:
        """The counter, as this process has it; to be called in the process."""
        hints = SimulatedHints(self.life.cluster) if self.life.plan.has("collecting readers") else None
        return CounterHandle(self.host, self.life.settings, hints=hints, kind=KIND)

    @property
    def is_running(self) -> bool:
        """Neither dead nor stopped."""
        return self.process.state is ProcessState.RUNNING

    def start(self) -> None:
        """Begin."""
        self.process.start(self._run())

    async def _run(self) -> None:
        raise NotImplementedError


class Writer(Member):
    """Counts, by several callers at once."""

    async def _run(self) -> None:
        handle = self.handle()
        await asyncio.gather(*(self._count(handle) for _ in range(self.life.plan.callers)))
        await handle.close()
        self.process.kill()

    async def _count(self, handle: CounterHandle) -> None:
        plan, own = self.life.plan, self.own
        while not self.life.calm:
            await asyncio.sleep(own.expovariate(1 / plan.update_every_s))
            if plan.has("tokens") and self.life.to_repeat and own.random() < 0.4:
                await self._send_again(handle, own.choice(self.life.to_repeat))
            elif plan.has("tokens") and own.random() < 0.6:
                await self._send_with_token(handle)
            else:
                tale = self.life.ledger.begin(f"k{own.randrange(plan.keys)}")
                await self._send(handle, tale)

    async def _send_with_token(self, handle: CounterHandle) -> None:
        token = str(handle.new_token())
        tale = self.life.ledger.begin(f"k{self.own.randrange(self.life.plan.keys)}", token)
        await self._send(handle, tale)
        if tale.attempts < REPEATS_MAX and self.own.random() < 0.7:
            self.life.to_repeat.append(tale)

    async def _send_again(self, handle: CounterHandle, tale: UpdateTale) -> None:
        """The first request that another process may have sent, whatever its answer."""
        if tale.attempts >= REPEATS_MAX and tale in self.life.to_repeat:
            self.life.to_repeat.remove(tale)
        await self._send(handle, tale)

    async def _send(self, handle: CounterHandle, tale: UpdateTale) -> None:
        ledger = self.life.ledger
        ledger.attempt(tale)
        try:
            await handle.add(tale.key, tale.amount, tale.token)
        except HeadgateError as error:
            ledger.failed(tale, error, self.actor)
        else:
            ledger.acknowledged(tale, self.actor)


class ReaderMember(Member):
    """Reads, and judges what it reads."""

    async def _run(self) -> None:
        handle = self.handle()
        while not self.life.calm:
            await asyncio.sleep(self.own.expovariate(1 / self.life.plan.update_every_s))
            try:
                await self._read(handle)
            except HeadgateError:
                continue

    async def _read(self, handle: CounterHandle) -> None:
        ledger, own = self.life.ledger, self.own
        key = f"k{own.randrange(self.life.plan.keys)}"
        began_us = ledger.now_us()
        if own.random() < 0.15:
            async for each, state in handle.scan():
                ledger.check(each, state, began_us=began_us, by=f"{self.actor}, a scan")
        elif self.life.plan.has("cached") and own.random() < 0.5:
            cached = await handle.read_cached(key)
            coarse_us = SECOND if self.life.plan.has("coarse clocks") else 1  # beyond a clock's knowledge
            since_us = ledger.now_us() - round(cached.age_s * SECOND) - coarse_us
            ledger.check(key, cached.state, began_us=min(since_us, ledger.now_us()), by=f"{self.actor}, cached")
        else:
            ledger.check(key, await handle.read(key), began_us=began_us, by=self.actor)


class CollectorMember(Member):
    """Runs passes, one after the other."""

    async def _run(self) -> None:
        while not self.life.calm:
            await asyncio.sleep(self.own.uniform(0.5, 8))
            try:
                await self.collect()
            except HeadgateError:
                continue

    async def collect(self) -> PassReport:
        """One run."""
        collector = Collector(self.host, Live(self.life.settings), KIND, SimulatedHints(self.life.cluster))
        report = await collector.run()
        self.process.note("collected", ("shards", report.collected), ("skipped", report.skipped))
        return report
