"""The plan of a steady life, drawn from its seed: minutes of an even load, consumers that always ask, few faults.

Lives of the weather (timeline_plan.py) are short and stormy: they show that nothing is lost or doubled. These show
that a queue keeps working: what can be handed out does not wait, and nothing grows. A life with very long handlers
lets rows pile up behind them by design, so it is judged by what waits; one without is judged by sizes too. Pure.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random

from tests.simulation.timeline.timeline_bounds import CONSTANTS
from tests.simulation.timeline.timeline_plan import Plan, plan_of

WAITS_S_MAX = 5.0
"""A poll takes 0.4 s, and a put is due after its safety lag."""
BYTES_A_SECOND = 400_000
PAYLOADS = ((15_000, 30_000), (50_000, 200_000), (500_000, 1_000_000))
PUTS_A_SECOND_MAX = 20.0


def steady_plan_of(seed: int) -> Plan:
    """The steady life that a seed stands for."""
    rng = Random(f"{seed} steady plan")
    features = {name for name in ("cancelled calls", "clocks", "nacks", "groups", "sharing") if rng.random() < 0.3}
    faults = {name for name in ("refused tables", "revoked rights") if rng.random() < 0.25}
    shape = rng.choice(
        ("heavy tails", "heavy tails and large payloads", "sizes", "large payloads", "sizes and delays")
    )
    features |= {name for name in ("heavy tails", "large payloads") if name in shape}
    if "delays" in shape:
        features.add("delays")
    keeps_its_size = "sizes" in shape
    payload_bytes = rng.choice(PAYLOADS)
    puts_a_second = rng.choice((3.0, 8.0))
    if "large payloads" in features:
        puts_a_second = min(PUTS_A_SECOND_MAX, BYTES_A_SECOND / payload_bytes[1])
    if keeps_its_size:
        faults.clear()
    if "delays" in features:
        puts_a_second = 8.0
    return replace(
        plan_of(seed),
        features=frozenset(features),
        faults=frozenset(faults),
        storm_s=rng.uniform(130, 170) if keeps_its_size else rng.uniform(90, 150),
        fault_every_s=50.0,
        shards=rng.choice((1, 1, 2)),
        part_s=rng.choice((2, 10, 60)) if not keeps_its_size else 2,
        ttl_s=10,
        visibility_s=15.0,
        max_receives=100,
        retention_s=3600,
        producers=1,
        batch_max=1,
        put_every_s=1 / puts_a_second,
        consumers=rng.choice((1, 2)),
        receivers=rng.choice((1, 2)),
        limit=20,
        work_s=0.05,
        groups=5,
        bounds=frozenset(CONSTANTS) if keeps_its_size else frozenset(),
        payload_bytes=payload_bytes,
        large_share=1.0,
        heavy_share=0.02,
        heavy_most=5,
        heavy_s=(60.0, 300.0),
        delayed_share=0.9,
        delay_s=40.0 if "delays" in features else 12.0,
        handling_max=100_000,
        waits_s_max=WAITS_S_MAX,
        keeps_its_size=keeps_its_size,
    )
