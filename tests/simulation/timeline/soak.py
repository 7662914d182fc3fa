"""One seed, one day of a timeline queue at low load: hours of quiet, clock steps, restarts, another number of shards.

The retention ends several times in it, so records, index rows and messages expire under the processes. No structure
of theirs is larger in the last eight hours than in the eight before.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random

from tests.simulation.timeline.timeline_bounds import CONSTANTS, SLOW_POLLS
from tests.simulation.timeline.timeline_plan import Plan, plan_of
from tests.simulation.timeline.timeline_weather import Ended, live_by

HOUR_S = 3600.0
DAY_S = 24 * HOUR_S


def soak_plan_of(seed: int) -> Plan:
    """The day that a seed stands for."""
    rng = Random(f"{seed} soak plan")
    quiet_from_s = rng.uniform(5, 14) * HOUR_S
    return replace(
        plan_of(seed),
        features=frozenset({"clocks", "delays", "groups", "nacks", "hand-overs", "repair", "resharding"}),
        faults=frozenset(
            {"killed consumers", "paused consumers", "killed replicas", "stepped clocks", "revoked rights"}
        ),
        storm_s=DAY_S,
        fault_every_s=2 * HOUR_S,
        quiet_s=(quiet_from_s, quiet_from_s + rng.uniform(2, 5) * HOUR_S),
        shards=rng.choice((1, 2)),
        reshards_at_s=rng.uniform(2, 20) * HOUR_S,
        shards_then=rng.choice((1, 2)),
        part_s=60,
        ttl_s=30,
        visibility_s=30.0,
        max_receives=5,
        retention_s=round(rng.uniform(1, 3) * HOUR_S),
        producers=1,
        put_every_s=45.0,
        batch_max=2,
        groups=3,
        consumers=1,
        receivers=1,
        limit=5,
        work_s=0.3,
        delay_s=1800.0,
        repair_every_s=(600.0, 1200.0),
        bounds=frozenset({*CONSTANTS, SLOW_POLLS}),
        keeps_its_size=True,
    )


def live(seed: int, *, statements: bool = False) -> Ended:
    """Run one seed."""
    return live_by(soak_plan_of(seed), statements=statements)
