"""The plan of an operator's life, drawn from its seed: its resources, the actions of people, and the faults. Pure.

As timeline_plan.py: each feature and each fault is in or out by the seed.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

FEATURES = {
    "shared": 0.5,
    "counters": 0.4,
    "dead letters": 0.4,
    "edits": 0.6,
    "reshards": 0.4,
    "pauses": 0.3,
    "deletes": 0.7,
    "recreations": 0.5,
    "policies": 0.4,
    "scaling": 0.6,
    "external": 0.3,
    "strangers": 0.4,
    "namespace ends": 0.15,
    "wrong specs": 0.25,
    "load": 0.5,
}
"""The actions of people, and how often each is in a life. Strangers edit and delete children."""

FAULTS = {
    "killed operators": 0.7,
    "paused operators": 0.35,
    "two operators": 0.5,
    "lost answers": 0.5,
    "conflicts": 0.5,
    "throttling": 0.4,
    "broken server": 0.4,
    "compacted watches": 0.4,
    "late events": 0.4,
    "cut from the API": 0.4,
    "cut from Cassandra": 0.5,
    "killed replicas": 0.3,
    "lost messages": 0.4,
    "stepped clocks": 0.25,
}


@dataclass(frozen=True)
class Plan:
    """One life."""

    seed: int
    features: frozenset[str]
    faults: frozenset[str]
    queues: int
    storm_s: float
    acts_every_s: float

    def has(self, what: str) -> bool:
        """Whether it is in."""
        return what in self.features or what in self.faults

    def describe(self) -> str:
        """In a line."""
        faults = ", ".join(sorted(self.faults)) or "no faults"
        return f"{self.queues} queues, {self.storm_s:.0f} s: {', '.join(sorted(self.features)) or 'plain'}; {faults}"


def plan_of(seed: int) -> Plan:
    """The life of a seed."""
    rng = Random(f"operator {seed}")
    calm = rng.random() < 0.1
    return Plan(
        seed=seed,
        features=frozenset(name for name, odds in FEATURES.items() if rng.random() < odds),
        faults=frozenset(name for name, odds in FAULTS.items() if not calm and rng.random() < odds),
        queues=rng.choice((1, 1, 2, 2, 3)),
        storm_s=rng.choice((15, 30, 60, 90)),
        acts_every_s=rng.choice((1.0, 3.0, 8.0)),
    )
