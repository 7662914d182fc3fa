"""The requests to the planning process of bench-spark: the queue and the kind of plan. Values."""

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
    """The kind of plan."""

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
    """For preparation: this number of parts of history; zero for the backlog."""

    def job(self) -> Job:
        """As JSON carries it."""
        return asdict(self)


def planning_of(job: Job) -> Planning:
    """The way back."""
    return Planning(job["queue"], What(job["what"]), job["seconds"], job["history_parts"])
