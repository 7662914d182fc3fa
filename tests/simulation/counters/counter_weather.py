"""One seed, one life of a counter: processes at work while faults strike, then calm, then all is folded and
collected.

Everything comes from the seed (counter_plan.py). Every read is judged as it is made, and in the end every key is read
by a reader without history: through the collections, days later, and with what replicas had missed.
"""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Coroutine, Iterator
from dataclasses import dataclass
from typing import Any, cast

from tests.kit.counter_invariants import CounterLedger
from tests.kit.simulated_store import Cluster, Settings
from tests.kit.simulated_world import EPOCH_S, ProcessState, World
from tests.simulation.counters.counter_life import (
    SECOND,
    CollectorMember,
    Life,
    Member,
    ReaderMember,
    Writer,
    settings_of,
)
from tests.simulation.counters.counter_plan import Plan, plan_of
from tests.simulation.timeline.timeline_faults import Storm
from tests.simulation.timeline.timeline_weather import NOISE

DAY_S = 86_400
PASSES_MAX = 30


@dataclass(frozen=True)
class Ended:
    """How a life ended: what did not hold, if anything, and its history."""

    seed: int
    plan: Plan
    problem: str | None
    history: str
    acknowledged: int
    reads: int

    def describe(self) -> str:
        """The first lines of a report of a failure."""
        return f"seed {self.seed} ({self.plan.describe()}): {self.problem or 'all held'}"


def live(seed: int, *, statements: bool = False) -> Ended:
    """Run one seed."""
    plan = plan_of(seed)
    with World(seed, shuffled=False) as world:
        cluster = Cluster(world, settings=Settings(max_hint_window_s=plan.hint_window_s))
        ledger = CounterLedger(lambda: EPOCH_S * SECOND + round(world.now_s() * SECOND))
        life = Life(world, cluster, plan, settings_of(plan), ledger)
        problem: str | None = None
        try:
            problem = world.run(_life(life))
        except Exception as error:
            problem = f"{type(error).__name__}: {error}"
            if not isinstance(error, AssertionError):
                problem = traceback.format_exc()
        history = "\n".join(world.history.lines(without=() if statements else NOISE))
        return Ended(seed, plan, problem, history, ledger.acknowledged_count, ledger.reads)


async def _life(life: Life) -> str | None:
    world, plan = life.world, life.plan
    for table in (life.settings.tables.shards, life.settings.tables.tokens, life.settings.tables.minutes):
        life.cluster.alter_gc_grace(table, plan.gc_grace_s)
    keeping = [asyncio.get_running_loop().create_task(each) for each in _keepers(life)]
    if plan.has("purges"):
        keeping.append(asyncio.get_running_loop().create_task(_purge_now_and_then(life)))
    storm = Storm(cast(Any, life))  # of a life it needs the plan, the processes and a chance
    await storm.rage(world.now_s() + plan.storm_s)
    life.calm = True
    storm.heal()
    world.history.note("world", "it is calm now")
    await asyncio.sleep(20)
    await _judge(life, "after the storm")
    for wait_s in (plan.lifetime_s + plan.gc_after_s + 10, 1.0, DAY_S + 600.0, 3600.0 + 10):
        await asyncio.sleep(wait_s)
        if plan.collectors or plan.has("collecting readers"):
            await _collect_all(life)
        await _judge(life, f"{wait_s:.0f} s later")
        life.cluster.release_hints()
        if plan.has("purges"):
            for name in life.cluster.nodes:
                life.cluster.purge(name)
        if life.ledger.broken:
            break
    life.over = True
    for task in keeping:
        task.cancel()
    matches = [*life.ledger.broken, *life.broken]
    return f"{len(matches)} violations\n" + "\n".join(matches[:10]) if matches else None


def _keepers(life: Life) -> Iterator[Coroutine[Any, Any, None]]:
    plan = life.plan
    for number in range(plan.writers):
        yield _keep(life, life.producers, Writer, f"writer-{number}")
    for number in range(plan.readers):
        yield _keep(life, life.consumers, ReaderMember, f"reader-{number}")
    for number in range(plan.collectors):
        yield _keep(life, life.consumers, CollectorMember, f"collector-{number}")


async def _keep(life: Life, of: dict[str, Member], kind: type[Member], name: str) -> None:
    """Ended processes are restarted after a while, until it is calm."""
    rng = life.rng(f"keeper of {name}")
    while not life.over:
        ended = asyncio.Event()
        member = of[name] = kind(life, name)
        process = member.process

        def report(process: Any = process, ended: asyncio.Event = ended) -> None:
            if process.state is ProcessState.DEAD:
                ended.set()

        process.when_state_changes(report)
        member.start()
        if life.calm:
            return
        await ended.wait()
        if life.calm:
            return
        await asyncio.sleep(rng.uniform(0.2, 4))


async def _purge_now_and_then(life: Life) -> None:
    rng = life.rng("compactions")
    while not life.over:
        await asyncio.sleep(rng.uniform(5, 40))
        if not life.calm:
            life.cluster.purge(rng.choice(sorted(life.cluster.nodes)))


async def _judge(life: Life, when: str) -> None:
    """Every key, by a reader without history; the windows of all that time as well."""
    judge = ReaderMember(life, "judge")

    async def read_all() -> None:
        handle = judge.handle()
        for key in sorted(life.ledger.tales):
            began_us = life.ledger.now_us()
            life.ledger.check(key, await handle.read(key), began_us=began_us, by=f"the judge, {when}")
            if life.settings.grains_us and life.world.now_s() < DAY_S / 2:
                finest = min(life.settings.grains_us)
                first = (EPOCH_S * SECOND // finest - 1) * finest  # a clock may have been behind
                last = (began_us // finest + 2) * finest
                state = await handle.read_between(key, first, last)
                life.ledger.check(key, state, began_us=began_us, by=f"the judge of windows, {when}")
        began_us = life.ledger.now_us()
        observations = {}
        async for key, state in handle.scan():
            observations[key] = state
            life.ledger.check(key, state, began_us=began_us, by=f"the judge's scan, {when}")
        for key in life.ledger.tales:
            if key not in observations and life.ledger.least(key):
                life.broken.append(f"a scan did not meet {key}, {when}")

    await judge.process.start(read_all())
    judge.process.kill()


async def _collect_all(life: Life) -> None:
    """Passes until one is full; in calm there is nothing that could hold it up."""
    collector = CollectorMember(life, "late collector")

    async def collect() -> None:
        for _ in range(PASSES_MAX):
            if (await collector.collect()).full:
                return
            await asyncio.sleep(5)
        life.broken.append(f"no full pass in {PASSES_MAX} runs after the storm")

    await collector.process.start(collect())
    collector.process.kill()
