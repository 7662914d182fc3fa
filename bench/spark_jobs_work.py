"""The work of the jobs of bench-spark: the messages to drain or redrive, and the contenders. Values, and the puts."""

from __future__ import annotations

import itertools
from dataclasses import asdict, dataclass
from enum import StrEnum

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

import headgate
from bench.contender import Job
from bench.timeline_work import PAYLOADS
from headgate import Put

MESSAGES = 300_000
NAMESPACE, DRAINED, DEAD_LETTERS = "bench", "drained", "dead-letters"
PUT_AT_ONCE = 20_000
QUEUES = "\n---\n".join(
    f"apiVersion: headgate.io/v1beta1\nkind: Queue\nmetadata: {{name: {name}, namespace: {NAMESPACE}}}\n"
    "spec: {shards: 4}"
    for name in (DRAINED, DEAD_LETTERS)
)


class By(StrEnum):
    """The contender of a window."""

    DRAIN = "drain"
    """The job, through a handler that calls everything done."""
    REDRIVE = "redrive"
    """The job that puts dead letters back into their source queue."""
    CONSUMER = "consumer"
    """One process of the SDK: receive a thousand, settle them."""
    PLAIN_REDRIVE = "headgate redrive"
    """The command of one process."""


@dataclass(frozen=True)
class JobWork:
    """The request to the working process."""

    by: By
    messages: int
    seconds: float
    rate: float | None = None
    """Maximum rate of a job, in messages per second."""
    cores: int = 2
    """Of a job: one is a core of its own, which driver, JVM and tasks share."""
    executors: int = 0
    """Processes of their own, each with a core and 1 GB; none: tasks run in the driver's JVM."""

    @property
    def master(self) -> str:
        """Spark's name for it."""
        return f"local-cluster[{self.executors},1,1024]" if self.executors else f"local[{self.cores}]"

    def job(self) -> Job:
        """As JSON carries it."""
        return asdict(self)

    @property
    def queue(self) -> str:
        """The queue that it empties."""
        return f"{NAMESPACE}/{DEAD_LETTERS if self.by in (By.REDRIVE, By.PLAIN_REDRIVE) else DRAINED}"


def work_of(job: Job) -> JobWork:
    """The way back."""
    return JobWork(By(job["by"]), job["messages"], job["seconds"], job["rate"], job["cores"], job["executors"])


def everything_is_done(messages: DataFrame) -> DataFrame:
    """The handler: it reads every payload."""
    return messages.select("id", f.when(f.length("payload") >= 0, "done").alias("outcome"))


async def fill(environment: dict[str, str], work: JobWork) -> None:
    """Put the messages that a window empties: dead letters name their source queue."""
    payloads = itertools.cycle(PAYLOADS)
    died_in = {"headgate.dead.queue": f"{NAMESPACE}/{DRAINED}", "headgate.dead.reason": "invalid address"}
    async with headgate.connect(environment) as opened:
        queue = await opened.queue(work.queue)
        for first in range(0, work.messages, PUT_AT_ONCE):
            some = itertools.islice(payloads, min(PUT_AT_ONCE, work.messages - first))
            if work.queue.endswith(DEAD_LETTERS):
                await queue.put_many([Put(payload, attributes=died_in) for payload in some])
            else:
                await queue.put_many(some)
