"""The work of bench-workers: the queues, and the request to a client process.

Every window has a queue of its own, and a worker of its own, so that no window meets messages of another. All queues
are created at the start, by one `headgate apply`. It knows neither the SDK nor the worker.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from enum import StrEnum

from bench.contender import Job

NAMESPACE = "bench"
HANDLERS = "bench.workers_handlers"


class Handling(StrEnum):
    """The handler's work, by its name in `bench.workers_handlers`."""

    NOTHING = "nothing"
    AT_ONCE = "at_once"
    """Notes which lane a message came from."""
    SLOWLY = "slowly"
    """The same, and takes ten milliseconds."""


@dataclass(frozen=True)
class QueueSpec:
    """A queue to be made."""

    name: str
    lanes: int

    @property
    def full_name(self) -> str:
        """In the form of a process's options."""
        return f"{NAMESPACE}/{self.name}"

    def document(self) -> str:
        """For `headgate apply`: all else by default."""
        return f"""---
apiVersion: headgate.io/v1beta1
kind: Queue
metadata: {{name: {self.name}, namespace: {NAMESPACE}}}
spec: {{shards: {self.lanes}, storage: {{tables: shared}}}}
"""


def documents(queues: Iterable[QueueSpec]) -> str:
    """One file for all."""
    return "".join(queue.document() for queue in queues)


@dataclass(frozen=True)
class Work:
    """One run of a client process: of the producer or of the worker."""

    queue: str
    seconds: float
    messages: int
    lanes: int
    callers: int = 1_000
    handling: Handling = Handling.NOTHING

    def job(self) -> Job:
        """In the form of a client process's request."""
        return asdict(self)


def work_of(job: Job) -> Work:
    """The request to a client process."""
    return Work(**{**job, "handling": Handling(job["handling"])})
