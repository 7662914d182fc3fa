"""One seed, one life of a timeline queue: processes at work while faults strike, then calm until all is drained.

Everything comes from the seed: the use of the queue and its faults (timeline_plan.py), the actors
(timeline_members.py), which fault strikes when (timeline_faults.py). In the end `tests/kit/invariants.py` judges the
ledger, and what is left on the disks has to be what the ledger has left.
"""

from __future__ import annotations

import asyncio
import traceback
from collections import Counter
from collections.abc import Coroutine, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any
from unittest.mock import patch

from headgate.engines.contract import Stats
from headgate.engines.lanes import dispatcher
from headgate.engines.timeline.lanes.make_lanes import make_lanes
from headgate.engines.timeline.model.settings import TimelineSettings
from headgate.engines.timeline.read import reading
from tests.kit.client_history.judge import Asked
from tests.kit.growth import entries_of, grown, most_of
from tests.kit.invariants import Ledger
from tests.kit.simulated_store import Cluster
from tests.kit.simulated_world import EPOCH_S, ProcessState, World
from tests.simulation.store.disks import Disks
from tests.simulation.timeline.timeline_bounds import small_bounds
from tests.simulation.timeline.timeline_checks import never_met, owners_break, unknown_families
from tests.simulation.timeline.timeline_faults import Storm
from tests.simulation.timeline.timeline_members import (
    LATE_WRITE_S,
    SKEW_US_MAX,
    Consumer,
    Digger,
    Life,
    Member,
    Mender,
    Putter,
    Reserving,
    dead_queue,
    settings_of,
)
from tests.simulation.timeline.timeline_plan import Plan, plan_of
from tests.simulation.timeline.timeline_puts import SECOND
from tests.simulation.timeline.timeline_workers import Catalogue

NOISE = frozenset({"asks", "hears", "keeps a hint", "applied a hint", "keeps no hint", "drops a hint"})
"""Notes that the history of a life leaves out, unless every statement is asked for."""


@dataclass(frozen=True)
class Ended:
    """How a life ended: what did not hold, if anything, and its history."""

    seed: int
    plan: Plan
    problem: str | None
    history: str
    lasted_s: float

    def describe(self) -> str:
        """The first lines of a report of a failure."""
        return f"seed {self.seed} ({self.plan.describe()}): {self.problem or 'all held'}"


def live(seed: int, *, statements: bool = False) -> Ended:
    """Run one seed. The history has every statement if that is asked for, else what a reader can follow."""
    return live_by(plan_of(seed), statements=statements)


def live_by(plan: Plan, *, statements: bool = False) -> Ended:
    """Run the life of a plan."""
    seed = plan.seed
    with World(seed, shuffled=False) as world, small_bounds(plan.bounds), ExitStack() as turns:
        for module in (
            dispatcher,
            reading,
        ):  # a life has few rows: others get their turn after any three
            turns.enter_context(patch.object(module, "ROWS_A_TURN", 3))
        problem: str | None = None
        try:
            problem = world.run(_life(world, plan))
        except Exception as error:
            problem = f"{type(error).__name__}: {error}"
            if not isinstance(error, AssertionError):
                problem = traceback.format_exc()
        history = "\n".join(world.history.lines(without=() if statements else NOISE))
        return Ended(seed, plan, problem, history, world.now_s())


async def _life(world: World, plan: Plan) -> str | None:
    cluster = Cluster(world)
    settings = settings_of(plan)
    ledger = Ledger(
        lambda: EPOCH_S * SECOND + round(world.now_s() * SECOND),
        retention_us=settings.retention_us,
        skew_us=SKEW_US_MAX,
        max_receives=settings.max_receives if plan.has("dead letters") else None,
        charges=True,
    )
    dead = dead_queue(settings) if plan.has("dead letters") else None
    life = Life(world, cluster, plan, settings, ledger, dead)
    await _make_lanes(life, settings, "maker")
    if dead is not None:
        await _make_lanes(life, dead, "maker of dead-letter lanes")
    keeping = [asyncio.get_running_loop().create_task(each) for each in _keepers(life)]
    storm = Storm(life)
    try:
        await storm.rage(world.now_s() + plan.storm_s)
        life.calm = True
        storm.heal()
        world.history.note("world", "it is calm now")
        calm_us = ledger.now_us()
        await _until_drained(life)
        drained_us = ledger.now_us()
        if plan.has("resharding"):
            await _late_copies(life)
    finally:
        life.over = True
        for task in keeping:
            task.cancel()
    if plan.has("late"):
        await _aftermath(life)
    result = _judged(life, calm_us, drained_us)
    uncounted = plan.has("deaths") or "parts that a producer knows" in plan.bounds
    if not plan.faults and not uncounted:  # else counts of producers that died lack their last second
        result += [str(each) for each in ledger.check_balance(await _counted(life))]
    return f"{len(result)} violations\n" + "\n".join(result[:10]) if result else None


async def _counted(life: Life) -> Stats:
    """The queue's own report of its content."""
    accountant = Member(life, "accountant")

    async def count() -> Stats:
        engine = await accountant.open(life.settings)
        return await engine.stats()

    return await accountant.process.start(count())


def _keepers(life: Life) -> Iterator[Coroutine[Any, Any, None]]:
    for number in range(life.plan.consumers):
        yield _keep(life, life.consumers, Consumer, f"consumer-{number}")
    for number in range(life.plan.producers):
        yield _keep(life, life.producers, Putter, f"producer-{number}")
    if life.dead is not None:
        yield _keep(life, life.helpers, Digger, "digger")
    if life.plan.has("repair"):
        yield _keep(life, life.helpers, Mender, "mender")
    if life.plan.has("lending"):
        yield _keep(life, life.helpers, Reserving, "job")
    if life.plan.keeps_its_size:
        yield _measure_sizes(life)
    if life.plan.has("resharding"):
        yield _reshard(life)
    else:
        yield _inspect_disks(life)


async def _inspect_disks(life: Life) -> None:
    """What holds of the disks at any time."""
    while not life.broken:
        await asyncio.sleep(DISKS_EVERY_S)
        life.broken += unknown_families(Disks(life.cluster, life.settings), life.ledger)


async def _measure_sizes(life: Life) -> None:
    """After a third of the storm no structure of any engine grows: the last third is compared with the second."""
    thirds: list[list[Counter[str]]] = [[], [], []]
    began_s, third_s = life.world.now_s(), life.plan.storm_s / 3
    while life.world.now_s() < began_s + life.plan.storm_s:
        sizes = Counter[str]()
        for member in life.members():
            if member.engine is not None:
                sizes |= entries_of(member.engine)
        thirds[min(2, int((life.world.now_s() - began_s) / third_s))].append(sizes)
        await asyncio.sleep(third_s / SIZES_IN_A_THIRD)
    for path, (before, after) in grown(most_of(thirds[1]), most_of(thirds[2])).items():
        life.broken.append(f"no structure grows under a steady load: {path} had {before} entries, and {after} later")


async def _reshard(life: Life) -> None:
    """As the operator does: the second of its two writes may come long after the first."""
    rng = life.rng("operator")
    await asyncio.sleep(life.plan.reshards_at_s)
    life.world.history.note("operator", "reshards", ("to", life.plan.shards_then))
    if life.plan.shards_then != life.plan.shards:
        await Catalogue(life).reshard(life.plan.shards_then, sure_after_s=rng.choice((0.1, rng.uniform(0, 20))))


async def _late_copies(life: Life) -> None:
    """A copy whose generation ended before it was written may be left to repair
    (docs/internals/protocols/generations.md, "Nothing is left behind"):
    then all run until repair has checked, when it is due."""
    life.left_to_repair = {each for row in Disks(life.cluster, life.settings).late() for each in row.ids}
    if not life.left_to_repair:
        return
    life.world.history.note("world", "waits for repair")
    await asyncio.sleep(life.plan.part_s + LATE_WRITE_S + 2)
    mender = Mender(life, "last mender")
    done = mender.process.start(mender.repair_all())
    await done
    mender.end()
    await _until_drained(life)


async def _aftermath(life: Life) -> None:
    """Hours and days go by without a worker; then repair checks again, and a consumer receives."""
    for member in life.members():
        member.end()
    for number, wait_s in enumerate(CHECKS_AGAIN_S):
        await asyncio.sleep(wait_s)
        life.world.history.note("world", "checks again", ("after_s", wait_s))
        consumer, mender = Consumer(life, f"late consumer-{number}"), Mender(life, f"late mender-{number}")
        consumer.dead = life.dead
        digger = Digger(life, f"late digger-{number}") if life.dead is not None else None
        at_work = [each for each in (consumer, mender, digger) if each is not None]
        for each in (consumer, digger):
            if each is not None:
                each.start()
        replacing = asyncio.get_running_loop().create_task(_replace_the_dead(life, at_work))
        done = mender.process.start(mender.repair_all())
        await done
        await _until_drained(life)
        replacing.cancel()
        for member in at_work:
            member.closing = True
            if member.engine is not None:
                await member.process.start(member.engine.close())
            member.end()
        life.cluster.release_hints()
        life.cluster.release_batchlog()
        await asyncio.sleep(15)


async def _replace_the_dead(life: Life, at_work: list[Member]) -> None:
    """Some messages kill their worker: another one takes the place."""
    while True:
        await asyncio.sleep(1)
        for place, member in enumerate(at_work):
            if isinstance(member, Consumer) and not member.is_alive:
                at_work[place] = again = type(member)(life, f"{member.process.name} again")
                again.dead = member.dead
                again.start()


DISKS_EVERY_S = 5.0
SIZES_IN_A_THIRD = 15
RECOVERS_S = 10
"""A lease ends, its lane is taken, and what its owner had in flight or took for a suspect is delivered."""
CHECKS_AGAIN_S = (20 * 60, 5 * 3600, 11 * 86_400)


async def _make_lanes(life: Life, settings: TimelineSettings, name: str) -> None:
    maker = Member(life, name)

    async def make() -> None:
        engine = await maker.open(settings)
        await make_lanes(engine.host, settings, settings.generations[0])

    made = maker.process.start(make())
    await made
    maker.end()


async def _keep(
    life: Life, of: dict[str, Member], kind: type[Consumer | Putter | Mender | Reserving], name: str
) -> None:
    """The part of Kubernetes: an ended process is restarted after a while; a hand-over is asked for now and then."""
    rng = life.rng(f"keeper of {name}")
    while not life.over:
        ended = asyncio.Event()
        member = of[name] = kind(life, name, dead=life.dead if kind is not Digger else None)
        member.process.when_state_changes(partial(_note_end, life, member, ended))
        member.start()
        if kind is Consumer and life.plan.has("hand-overs") and not life.calm:
            life.world.outside(rng.uniform(1, 15), partial(_hand_over, life, member, rng.random()))
        await ended.wait()
        if kind in (Putter, Reserving) and life.calm:
            return
        await asyncio.sleep(rng.uniform(0.2, 4))


def _note_end(life: Life, member: Member, ended: asyncio.Event) -> None:
    if member.process.state is ProcessState.DEAD:
        ended.set()
        if isinstance(member, Consumer):
            life.last_death_us = life.ledger.now_us()
            life.disturbed_us.append((life.last_death_us, life.last_death_us))


def _hand_over(life: Life, member: Member, drawn: float) -> None:
    if isinstance(member, Consumer) and member.is_alive and not life.calm:
        member.process.start(member.hand_over(finish=drawn < 0.5))


async def _until_drained(life: Life) -> None:
    """Until every lane has passed all that will ever be due in this life."""
    disks = [Disks(life.cluster, each) for each in (life.settings, life.dead) if each is not None]
    began_s = life.world.now_s()
    within_s = drained_within_s(life)
    while True:
        await asyncio.sleep(1)
        horizon_us = life.ledger.now_us() + 3600 * SECOND
        putting = [each.actor for each in life.producers.values() if not each.closing and each.is_alive]
        left = [] if putting else [row for each in disks for row in each.undrained(horizon_us)]
        if not left and not putting:
            return
        if life.world.now_s() - began_s > within_s:
            assert not putting, f"still putting {within_s:.0f} s after calm: {putting}"
            some = "\n".join(f"  {row.place} {row.ids}" for row in left[:5])
            raise AssertionError(f"not drained {within_s:.0f} s after calm: {len(left)} rows are left\n{some}")


def asked_without_a_pause(life: Life, calm_us: int) -> Iterator[Asked]:
    """The times of the storm in which no fault was under way, nor a lane being taken over from one that had ended."""
    if life.plan.waits_s_max is None:
        return
    recovers_us = (life.plan.ttl_s + RECOVERS_S) * SECOND
    from_us = life.ledger.history.began_us + recovers_us
    for began_us, ended_us in [*sorted(life.disturbed_us), (calm_us, calm_us)]:
        yield Asked(from_us, began_us, round(life.plan.waits_s_max * SECOND))
        from_us = max(from_us, ended_us + recovers_us)


def handling_s_max(plan: Plan) -> float:
    """How long a handler that began in the storm may take, and its message stays hidden."""
    heavy_s = plan.heavy_s[1] if plan.has("heavy tails") else 0
    return heavy_s + plan.visibility_s * (2 + (3 if plan.has("extends") else 0))


def drained_within_s(life: Life) -> float:
    """How long the last of all may take: what is due last, hidden longest, and each death with its takeover."""
    plan = life.plan
    hidden_s = handling_s_max(plan) + 16
    deaths = sum(life.poison_of(each.payload) for each in life.ledger.messages_put.values())
    return plan.delay_s + hidden_s + 60 + deaths * (plan.ttl_s + 10)


def _judged(life: Life, calm_us: int, drained_us: int) -> list[str]:
    """What did not hold. Consumers ask without a pause from the calm, or the last death, on. One that runs a suspect
    asks for nothing else until its handler has ended."""
    there = {message_id for row in Disks(life.cluster, life.settings).undrained(2**62) for message_id in row.ids}
    asked = Asked(max(calm_us, life.last_death_us) + round(handling_s_max(life.plan) * SECOND), drained_us)
    windows = [asked, *asked_without_a_pause(life, calm_us)]
    matches = [*map(str, life.ledger.violations(there=there, asked=windows, late=life.left_to_repair))]
    matches += life.broken
    if "stepped clocks" not in life.plan.faults:  # else the time of a hand-out cannot be known to the second
        matches += owners_break(life.ledger, life.settings)
    if life.plan.has("late"):
        matches += never_met(Disks(life.cluster, life.settings), life.ledger, life.settings)
    return matches
