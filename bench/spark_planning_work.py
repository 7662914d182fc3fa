"""What is asked of the planning process of bench-spark: of which queue what is planned. Values."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import StrEnum

from bench.contender import Job

NAMESPACE, YOUNG, OLD = "bench", "young", "old"
TIMES_OLDER = 10
PART_S = 1
PUT_A_PART = 2_000
WAITING = 2_000
QUEUES = "\n---\n".join(
    f"apiVersion: headgate.io/v1beta1\nkind: Queue\nmetadata: {{name: {name}, namespace: {NAMESPACE}}}\n"
    f"spec: {{shards: 4, timeline: {{part: {PART_S}s}}}}"
    for name in (YOUNG, OLD)
)


class What(StrEnum):
    """What is planned."""

    READ = "live read"
    """Splits of all that waits."""
    BATCH = "batch of a drain"
    """Which lanes there are, and how much of each the first batch takes."""


@dataclass(frozen=True)
class Planning:
    """One turn."""

    queue: str
    """Its name."""
    what: What = What.READ
    seconds: float = 0.0
    history_parts: int = 0
    """When it is prepared: so many parts of history are made; of none, what waits."""

    def job(self) -> Job:
        """As JSON carries it."""
        return asdict(self)


def planning_of(job: Job) -> Planning:
    """The way back."""
    return Planning(job["queue"], What(job["what"]), job["seconds"], job["history_parts"])
