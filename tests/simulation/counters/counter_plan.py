"""The plan of a counter's life, drawn from its seed, as timeline_plan.py draws it for queues. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

FEATURES = {
    "tokens": 0.45,
    "windows": 0.3,
    "culling": 0.4,
    "collectors": 0.8,
    "collecting readers": 0.4,
    "coarse clocks": 0.3,
    "late": 0.25,
    "purges": 0.5,
    "long": 0.3,
    "cached": 0.3,
}
"""The actions of a life. With coarse clocks mutators end, and write, at equal times."""

FAULTS = {
    "stopped replicas": 0.5,
    "killed replicas": 0.4,
    "cut replicas": 0.5,
    "cut processes": 0.35,
    "slow replicas": 0.4,
    "lost messages": 0.5,
    "late messages": 0.5,
    "held hints": 0.4,
    "paused consumers": 0.5,
    "killed consumers": 0.5,
    "paused producers": 0.6,
    "killed producers": 0.5,
    "late writes": 0.8,
}
CALM_LIVES = 0.05


@dataclass(frozen=True)
class Plan:
    """One life."""

    seed: int
    features: frozenset[str]
    faults: frozenset[str]
    storm_s: float
    fault_every_s: float
    writers: int
    readers: int
    collectors: int
    keys: int
    buckets: int
    callers: int
    update_every_s: float
    lifetime_s: int
    refuse_s: int
    hint_window_s: float
    gc_after_s: float
    gc_grace_s: int
    memory_bytes: int
    grains_s: tuple[int, ...]

    def has(self, feature: str) -> bool:
        """Whether this life does that."""
        return feature in self.features

    def describe(self) -> str:
        """One line: what this seed is about."""
        return (
            f"{self.storm_s:.0f} s, {self.writers} writers, {self.readers} readers, {self.collectors} collectors, "
            f"{self.keys} keys in {self.buckets} buckets; {', '.join(sorted(self.features)) or 'plain'}; faults: "
            f"{', '.join(sorted(self.faults)) or 'none'}"
        )


def plan_of(seed: int) -> Plan:
    """The life that a seed stands for."""
    rng = Random(f"{seed} counter plan")
    features = frozenset(name for name, odds in FEATURES.items() if rng.random() < odds)
    faults = frozenset(name for name, odds in FAULTS.items() if rng.random() < odds)
    if "late" not in features:
        faults -= {"late writes"}
    if rng.random() < CALM_LIVES:
        faults = frozenset()
    long = "long" in features or "tokens" in features
    hint_window_s = rng.choice((3.0, 8.0))
    return Plan(
        seed=seed,
        features=features,
        faults=faults,
        storm_s=rng.uniform(60, 200) if long else rng.uniform(10, 45),
        fault_every_s=rng.choice((1.0, 3.0, 6.0)) * (3 if long else 1),
        writers=rng.randint(1, 3),
        readers=rng.randint(1, 2),
        collectors=rng.randint(1, 3) if "collectors" in features else 0,
        keys=rng.choice((1, 3, 8)),
        buckets=rng.choice((1, 1, 2)),
        callers=rng.choice((1, 3)),
        update_every_s=rng.choice((0.3, 1.0, 2.0)) * (3 if long else 1),
        lifetime_s=rng.choice((10, 15, 30)),
        refuse_s=rng.choice((4, 6)),
        hint_window_s=hint_window_s,
        gc_after_s=hint_window_s + 1.0 + rng.choice((0.0, 5.0)),
        gc_grace_s=rng.choice((30, 60, 600)),
        memory_bytes=rng.choice((1, 700, 1200)) if "culling" in features else 1 << 20,
        grains_s=rng.choice(((60,), (10, 60), (7, 60))) if "windows" in features else (),
    )
