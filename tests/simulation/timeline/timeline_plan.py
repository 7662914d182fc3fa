"""The plan of a timeline queue's life, drawn from its seed: its features, its faults, sizes and durations.

Swarm testing: a life in which everything happens finds less than many lives that each leave most of it out, since
what is rare alone is crowded out by what is common. So each feature and each fault is in or out by the seed, sizes
are drawn as well, and most lives are short. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from tests.simulation.timeline.timeline_bounds import BOUNDS

FEATURES = {
    "groups": 0.5,
    "once": 0.35,
    "delays": 0.6,
    "cancels": 0.4,
    "reschedules": 0.3,
    "purges": 0.25,
    "dead letters": 0.5,
    "nacks": 0.6,
    "slow handlers": 0.4,
    "extends": 0.3,
    "deaths": 0.35,
    "hand-overs": 0.4,
    "far": 0.2,
    "bursts": 0.3,
    "clocks": 0.3,
    "repair": 0.4,
    "late": 0.15,
    "resharding": 0.06,
    "lending": 0.15,
    "batches": 0.06,
    "rejects": 0.25,
    "sharing": 0.2,
    "large payloads": 0.12,
    "heavy tails": 0.02,
    "cancelled calls": 0.25,
    "small bounds": 0.25,
}
"""The features of a life, and how often each occurs."""

NEEDS = {"late": ("repair",), "batches": ("late", "repair"), "resharding": ("repair",)}
"""Features that need others: only repair finds a row that lands after hours, or a copy whose generation ended before
it was written."""

FAULTS = {
    "stopped replicas": 0.5,
    "killed replicas": 0.35,
    "cut replicas": 0.5,
    "cut processes": 0.35,
    "slow replicas": 0.5,
    "lost messages": 0.5,
    "late messages": 0.5,
    "held hints": 0.25,
    "held batches": 0.8,
    "paused consumers": 0.5,
    "killed consumers": 0.5,
    "paused producers": 0.4,
    "killed producers": 0.3,
    "stepped clocks": 0.5,
    "late writes": 0.8,
    "refused tables": 0.25,
    "revoked rights": 0.2,
}
"""The faults of a life. Clocks are stepped only where processes compare theirs, since nobody would notice elsewhere.
Writes land after hours only in lives that check again after hours."""


@dataclass(frozen=True)
class Plan:
    """One life."""

    seed: int
    features: frozenset[str]
    faults: frozenset[str]
    storm_s: float
    fault_every_s: float
    shards: int
    reshards_at_s: float
    shards_then: int
    part_s: int
    ttl_s: int
    visibility_s: float
    max_receives: int
    retention_s: int
    producers: int
    put_every_s: float
    batch_max: int
    groups: int
    consumers: int
    receivers: int
    limit: int
    work_s: float
    bounds: frozenset[str]
    """Those that are small in this life."""
    payload_bytes: tuple[int, int] = (10_000, 1_000_000)
    """Of large payloads; as many of each size."""
    large_share: float = 0.1
    heavy_share: float = 0.03
    """The share of handlers that take very long, where there are such."""
    heavy_most: int = 3
    heavy_s: tuple[float, float] = (60.0, 1800.0)
    delayed_share: float = 0.25
    delay_s: float = 12.0
    """The longest delay of a message."""
    handling_max: int = 30
    """How many messages a consumer handles at a time."""
    repair_every_s: tuple[float, float] = (1.0, 10.0)
    quiet_s: tuple[float, float] = (0.0, 0.0)
    """From when to when nothing is put."""
    waits_s_max: float | None = None
    """Consumers ask without a pause: what can be handed out waits for at most this long unless a fault is under way
    or its lane was being taken over just now. None: nobody asks so in this life."""
    keeps_its_size: bool = False
    """The load is so even that after a while no structure of the engine grows."""

    def has(self, feature: str) -> bool:
        """Whether this life does that."""
        return feature in self.features

    def describe(self) -> str:
        """One line: what this seed is about."""
        works = ", ".join(sorted(self.features)) or "plain puts"
        faults = ", ".join(sorted(self.faults)) or "none"
        return (
            f"{self.storm_s:.0f} s, {self.shards} lanes, {self.producers} producers, {self.consumers} consumers; "
            f"{works}; faults: {faults}"
        )


def plan_of(seed: int) -> Plan:
    """The life that a seed stands for."""
    rng = Random(f"{seed} plan")
    features = frozenset(name for name, odds in FEATURES.items() if rng.random() < odds)
    features |= {other for name in features for other in NEEDS.get(name, ())}
    faults = frozenset(name for name, odds in FAULTS.items() if rng.random() < odds)
    if "clocks" not in features:
        faults -= {"stepped clocks"}
    if "late" not in features:
        faults -= {"late writes"}
    if "batches" not in features:
        faults -= {"held batches"}
    if rng.random() < CALM_LIVES:
        faults = frozenset()
    storm_s = rng.choices((rng.uniform(2, 8), rng.uniform(8, 20), rng.uniform(20, 50)), (5, 4, 1))[0]
    if "resharding" in features:
        storm_s = rng.uniform(60, 90)
    return Plan(
        seed=seed,
        features=features,
        faults=faults,
        storm_s=storm_s,
        reshards_at_s=rng.uniform(0, 15),
        shards_then=rng.choice((1, 2, 3, 5)),
        fault_every_s=rng.choice((0.7, 2.0, 5.0)),
        shards=rng.choice((1, 2, 2, 3, 4)),
        part_s=rng.choice((2, 5, 10)),
        ttl_s=rng.choice((5, 8, 10)),
        visibility_s=rng.choice((2.0, 5.0, 15.0)),
        max_receives=rng.choice((1, 2, 3, 5)),
        retention_s=30 * 86_400 if "late" in features else rng.choice((60, 3600, 3600)),
        producers=rng.randint(1, 3),
        put_every_s=rng.choice((0.2, 0.5, 1.0)),
        batch_max=rng.choice((1, 4, 10)),
        groups=rng.choice((1, 2, 5)),
        consumers=rng.choice((1, 1, 2, 3)),
        receivers=rng.choice((1, 1, 2)),
        limit=rng.choice((1, 5, 20)),
        work_s=rng.choice((0.01, 0.05, 0.3)),
        bounds=frozenset(each for each in BOUNDS if "small bounds" in features and rng.random() < 0.5),
    )


CALM_LIVES = 0.05
"""Some lives have no fault at all: then nothing may be doubled, and what is charged is charged by itself."""
