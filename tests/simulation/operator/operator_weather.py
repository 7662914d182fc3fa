"""One seed, one life of an operator. People apply, change and delete resources while faults strike. After a calm,
everything is as the resources declare, and nothing is written any more.

Everything comes from the seed: the events (operator_plan.py) and their actors (operator_storm.py). In the end
operator_invariants.py judges the cluster, the store and all writes that were asked for. A bug that an operator has
met and outlived is a violation as well: it runs on after one, so nothing else might report it.
"""

from __future__ import annotations

import asyncio
import logging
import traceback
from dataclasses import dataclass

from tests.kit.simulated_world import ProcessState, World
from tests.simulation.operator.operator_invariants import Judge
from tests.simulation.operator.operator_plan import Plan, plan_of
from tests.simulation.operator.operator_scene import Scene, scene_of
from tests.simulation.operator.operator_storm import Storm

NOISE = frozenset({"asks", "hears", "keeps a hint", "applied a hint", "keeps no hint", "drops a hint"})
SETTLE_S = 420.0
"""Longer than a change of shards, or the removal of a queue, takes when nothing disturbs it."""
QUIET_S = 60.0


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


class Bugs(logging.Handler):
    """Log lines of operators about unexpected errors."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.describe: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep it, with where it was met."""
        if record.exc_info is not None and record.exc_info[1] is not None:
            self.describe.append(f"{record.getMessage()}: {''.join(traceback.format_exception(record.exc_info[1]))}")

    def __enter__(self) -> Bugs:
        logging.getLogger("headgate.operator").addHandler(self)
        return self

    def __exit__(self, *_: object) -> None:
        logging.getLogger("headgate.operator").removeHandler(self)


def live(seed: int, *, statements: bool = False) -> Ended:
    """Run one seed."""
    plan = plan_of(seed)
    with World(seed) as world, Bugs() as bugs:
        problem: str | None = None
        try:
            result = world.run(_life(world, plan)) + bugs.describe
            problem = f"{len(result)} violations\n" + "\n".join(result[:10]) if result else None
        except Exception as error:
            problem = f"{type(error).__name__}: {error}"
            if not isinstance(error, AssertionError):
                problem = traceback.format_exc()
        history = "\n".join(world.history.lines(without=() if statements else NOISE))
        return Ended(seed, plan, problem, history, world.now_s())


async def _life(world: World, plan: Plan) -> list[str]:
    scene = scene_of(world)
    judge = Judge(scene, clocks_are_steady=not plan.has("stepped clocks"))
    await judge.plant()
    storm = Storm(scene, plan)
    keeper = asyncio.get_running_loop().create_task(_keep(scene, storm, 2 if plan.has("two operators") else 1))
    try:
        await storm.rage(world.now_s() + plan.storm_s)
        storm.heal()
        world.history.note("world", "it is calm now")
        result = await judge.until_settled(SETTLE_S)
        if result:
            return result
        began_s = world.now_s()
        await asyncio.sleep(QUIET_S)
        result = judge.quiet(began_s)
    finally:
        keeper.cancel()
    result += await judge.violations()
    result += await _judged_by_another(scene, judge)
    return result


async def _keep(scene: Scene, storm: Storm, wanted: int) -> None:
    """As many operators as there should be; one that died is started again after a while, as by a kubelet."""
    elected = wanted > 1
    while True:
        alive = [one for one in scene.operators if one.process.state is not ProcessState.DEAD and not one.has_ended]
        for _ in range(wanted - len(alive)):
            scene.start_operator(elected=elected)
        await asyncio.sleep(storm.restart_after_s())


async def _judged_by_another(scene: Scene, judge: Judge) -> list[str]:
    """An operator that remembers nothing finds nothing to do: what stands there is what follows from the world."""
    for one in scene.operators:
        one.process.kill()
    began_s = scene.world.now_s()
    fresh = scene.start_operator()
    await asyncio.sleep(30)
    matches = [f"a fresh operator writes: {line}" for line in judge.quiet(began_s)]
    if fresh.operator is None or not fresh.operator.listed.is_set():
        matches.append("a fresh operator did not list in 30 s")
    return matches
