"""A ring and a counter to do harm to, and short forms of what every scenario of counters needs.

The counter's mutators live a minute and a half here, shards are final a minute after their end, and a token's minute
closes a minute after its own end; the hint window of the ring is shorter than that, as the rule wants it.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any, TypeVar

from headgate.counters.collect.collector import Collector
from headgate.counters.counter import CounterHandle
from headgate.counters.model.decide_life import LifeTerms
from headgate.counters.model.decide_shards import TALLY, bucket_of
from headgate.counters.model.settings import CounterSettings
from headgate.counters.model.tables import dedicated_tables
from headgate.errors import HeadgateError
from headgate.process.live import Live
from headgate.store.store import OutcomeUnknown
from tests.kit.counter_invariants import CounterLedger
from tests.kit.process import simulated_host
from tests.kit.simulated_store import Cluster, Settings, SimulatedStore
from tests.kit.simulated_world import World
from tests.simulation.counters.counter_life import COUNTER, KIND, SECOND, SimulatedHints

T = TypeVar("T")

LIFETIME_S = 90
REFUSE_S = 10
GC_AFTER_S = 60
HINT_WINDOW_S = 30.0
TOKEN_WINDOW_S = 60
UNTIL_FINAL_S = LIFETIME_S + GC_AFTER_S + 1
UNTIL_FOLDED_S = 60 + TOKEN_WINDOW_S + 2
DAY_S = 86_400
GC_GRACE_S = 100
STEPS_MAX = 200

SETTINGS = CounterSettings(
    counter=COUNTER,
    name="shop/views",
    tables=dedicated_tables(COUNTER),
    buckets=1,
    life=LifeTerms(LIFETIME_S * SECOND, REFUSE_S * SECOND),
    gc_after_us=GC_AFTER_S * SECOND,
    token_window_us=TOKEN_WINDOW_S * SECOND,
)


class Actor:
    """One process with the counter."""

    def __init__(self, scene: Scene, name: str) -> None:
        self.scene = scene
        self.process = scene.world.process(name)
        self.store = SimulatedStore(scene.cluster, self.process)
        self.host = simulated_host(self.process, self.store)
        self.counter = CounterHandle(self.host, scene.settings, kind=KIND)
        self.collector = Collector(self.host, Live(scene.settings), KIND, SimulatedHints(scene.cluster))

    def now_us(self) -> int:
        """Its wall clock, right or wrong."""
        return self.process.clock.wall_us()

    async def add(self, number: int = 1, key: str = "home", token: Any = None) -> bool:
        """Count, in the process. Whether it was acknowledged."""
        return await self.process.start(self._add(number, key, token))

    async def _add(self, number: int, key: str, token: Any) -> bool:
        try:
            await self.counter.add(key, number, token)
        except OutcomeUnknown:
            return False
        return True

    async def read(self, key: str = "home") -> int:
        """The value."""
        return int(await self.process.start(self.counter.read(key)))

    async def collect(self, key: str = "home") -> int:
        """Collect one key, as after a read of it."""
        return await self.process.start(self.collector.collect(key))

    async def fold(self, key: str = "home") -> None:
        """Fold the minutes of the key's bucket."""
        bucket = bucket_of(key, self.scene.settings.buckets)
        await self.process.start(self.collector.folder.fold(bucket))


class Scene:
    """A world with a ring, a counter and the named processes."""

    def __init__(self, world: World, cluster: Cluster, settings: CounterSettings) -> None:
        self.world = world
        self.cluster = cluster
        self.settings = settings
        self.ledger = CounterLedger(lambda: round(world.now_s() * SECOND))
        self._actors: dict[str, Actor] = {}

    def actor(self, name: str) -> Actor:
        """The process of that name; a new one if it is dead or was not there."""
        if name not in self._actors:
            self._actors[name] = Actor(self, name)
        return self._actors[name]

    async def value(self, key: str = "home") -> int:
        """The result for a reader that has read nothing before."""
        return await Actor(self, f"reader {len(self.world.processes)}").read(key)

    async def shards(self, *numbers: int, key: str = "home") -> None:
        """One ended mutator each has counted these, at different times; none is final yet."""
        for number in numbers:
            assert await Actor(self, f"mutator {len(self.world.processes)}").add(number, key)
            await self.world.sleep(0.5)

    def rows(self, name: str, key: str = "home") -> list[bytes]:
        """The mutators whose rows of a key a replica holds: no process can know this."""
        held = self.cluster.nodes[name].replica.tables.get(self.settings.tables.shards.name, {})
        now_s = self.cluster.nodes[name].now_s
        rows = [each.partition.rows[at] for each in held.values() for at in each.partition.keys]
        return [row.clustering[1] for row in rows if row.is_live(now_s) and row.clustering[0] == key]  # type: ignore[misc]

    def shards_left(self, key: str = "home") -> int:
        """How many shards there are on all replicas together, the tally left out."""
        return len({each for name in self.cluster.nodes for each in self.rows(name, key)} - {TALLY})

    def forget_tombstones(self) -> None:
        """gc_grace has long passed, and every replica has compacted."""
        for table in (self.settings.tables.shards, self.settings.tables.tokens, self.settings.tables.minutes):
            self.cluster.alter_gc_grace(table, GC_GRACE_S)
        for name in self.cluster.nodes:
            self.cluster.purge(name)


def play(
    scenario: Callable[[Scene], Coroutine[Any, Any, T]],
    *,
    seed: int = 1,
    ring: Settings | None = None,
    **changes: Any,
) -> T:
    """Run a scenario on a fresh ring."""
    with World(seed, shuffled=False) as world:
        cluster = Cluster(world, settings=ring or Settings(max_hint_window_s=HINT_WINDOW_S))
        return world.run(scenario(Scene(world, cluster, replace(SETTINGS, **changes))))


def at_every_step(
    scenario: Callable[[Scene, int], Coroutine[Any, Any, bool]], *, ring: Settings | None = None, **changes: Any
) -> int:
    """Run a scenario once for each step at which it can strike, until it reports that it did not strike any more. How
    often it did."""
    for step in range(1, STEPS_MAX):

        async def one(scene: Scene, step: int = step) -> bool:
            return await scenario(scene, step)

        if not play(one, ring=ring, **changes):
            return step - 1
    raise AssertionError(f"it takes more than {STEPS_MAX} steps")


async def ends_in_error(work: Coroutine[Any, Any, object]) -> HeadgateError | None:
    """The error that it ends in, if it does."""
    try:
        await work
    except HeadgateError as error:
        return error
    return None
