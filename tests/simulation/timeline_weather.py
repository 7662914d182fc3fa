"""One seed, one life of a timeline queue: processes at work while faults strike, then calm until all is drained.

Everything comes from the seed: what the queue is used for and what befalls it (timeline_plan.py), who does what
(timeline_members.py), which fault strikes when (timeline_faults.py). In the end `tests/invariants.py` judges the
ledger, and what is left on the disks has to be what the ledger says is left.
"""

from __future__ import annotations

import asyncio
import traceback
from dataclasses import dataclass
from functools import partial

from penstock.engines.timeline.lane_rows import make_lanes
from penstock.engines.timeline.settings import TimelineSettings
from penstock.store.simulated import Cluster
from penstock.testing.world import EPOCH_S, State, World
from tests.invariants import Ledger
from tests.simulation.disks import Disks
from tests.simulation.timeline_faults import Storm
from tests.simulation.timeline_members import (
    DELAY_S,
    SKEW_US_MAX,
    Consumer,
    Digger,
    Life,
    Member,
    Putter,
    dead_queue,
    settings_of,
)
from tests.simulation.timeline_plan import Plan, plan_of
from tests.simulation.timeline_puts import SECOND

NOISE = frozenset({"asks", "hears", "keeps a hint", "applied a hint", "keeps no hint", "drops a hint"})
"""What the history of a life leaves out, unless every statement is asked for."""


@dataclass(frozen=True)
class Ended:
    """How a life ended: what did not hold, if anything, and its history."""

    seed: int
    plan: Plan
    problem: str | None
    history: str
    lasted_s: float


def live(seed: int, *, statements: bool = False) -> Ended:
    """Run one seed. The history has every statement if that is asked for, else what a reader can follow."""
    plan = plan_of(seed)
    with World(seed, shuffled=False) as world:
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
    )
    dead = dead_queue(settings) if plan.has("dead letters") else None
    life = Life(world, cluster, plan, settings, ledger, dead)
    await _make_lanes(life, settings, "maker")
    if dead is not None:
        await _make_lanes(life, dead, "maker of graves")
    storm = Storm(life)
    keepers = [
        *(_keep(life, life.consumers, Consumer, f"consumer-{number}") for number in range(plan.consumers)),
        *(_keep(life, life.producers, Putter, f"producer-{number}") for number in range(plan.producers)),
    ]
    if dead is not None:
        keepers.append(_keep(life, {}, Digger, "digger"))
    keeping = [asyncio.get_running_loop().create_task(each) for each in keepers]
    await storm.rage(world.now_s() + plan.storm_s)
    life.calm = True
    storm.mend()
    world.history.note("world", "it is calm now")
    calm_us = ledger.now_us()
    try:
        await _until_drained(life)
    finally:
        life.over = True
        for task in keeping:
            task.cancel()
    return _judged(life, calm_us)


async def _make_lanes(life: Life, settings: TimelineSettings, name: str) -> None:
    maker = Member(life, name)

    async def make() -> None:
        engine = await maker.open(settings)
        await make_lanes(engine.host, settings, settings.generations[0])

    made = maker.process.start(make())
    await made
    maker.end()


async def _keep(life: Life, of: dict[str, Member], kind: type[Consumer] | type[Putter], name: str) -> None:
    """What Kubernetes does: whoever has ended is begun again after a while; a hand-over is asked for now and then."""
    chance = life.chance(f"keeper of {name}")
    while not life.over:
        ended = asyncio.Event()
        member = of[name] = kind(life, name, dead=life.dead if kind is not Digger else None)
        member.process.when_state_changes(partial(_tell_end, member, ended))
        member.start()
        if kind is Consumer and life.plan.has("hand-overs") and not life.calm:
            life.world.outside(chance.uniform(1, 15), partial(_hand_over, life, member, chance.random()))
        await ended.wait()
        if kind is Putter and life.calm:
            return
        await asyncio.sleep(chance.uniform(0.2, 4))


def _tell_end(member: Member, ended: asyncio.Event) -> None:
    if member.process.state is State.DEAD:
        ended.set()


def _hand_over(life: Life, member: Member, drawn: float) -> None:
    if isinstance(member, Consumer) and member.process.state is not State.DEAD and not life.calm:
        member.process.start(member.hand_over(finish=drawn < 0.5))


async def _until_drained(life: Life) -> None:
    """Until every lane has passed all that will ever be due in this life."""
    disks = [Disks(life.cluster, each) for each in (life.settings, life.dead) if each is not None]
    began_s = life.world.now_s()
    within_s = drained_within_s(life)
    while True:
        await asyncio.sleep(0.5)
        horizon_us = life.ledger.now_us() + 3600 * SECOND
        quiet = all(each.closing or each.process.state is State.DEAD for each in life.producers.values())
        left = [row for each in disks for row in each.undrained(horizon_us)]
        if quiet and not left:
            return
        if life.world.now_s() - began_s > within_s:
            some = "\n".join(f"  {row.place} {row.ids}" for row in left[:5])
            raise AssertionError(f"not drained {within_s:.0f} s after calm: {len(left)} rows are left\n{some}")


def drained_within_s(life: Life) -> float:
    """How long the last of all may take: what is due last, hidden longest, and each death with its takeover."""
    plan = life.plan
    hidden_s = 2 * plan.visibility_s + (3 * plan.visibility_s if plan.has("extends") else 0) + 16
    deaths = sum(life.poison_of(each.message.payload) for each in life.ledger.puts)
    return DELAY_S + hidden_s + 60 + deaths * (plan.ttl_s + 10)


def _judged(life: Life, calm_us: int) -> str | None:
    there = {message_id for row in Disks(life.cluster, life.settings).undrained(2**62) for message_id in row.ids}
    found = [*map(str, life.ledger.violations(there=there)), *life.broken]
    return f"{len(found)} violations\n" + "\n".join(found[:10]) if found else None
