"""Which programs a set of resources asks for on one machine. Pure.

A consumer with a Python handler is one worker process; one with an HTTP handler is a worker that posts to the port on
this machine, where the user runs the handler. Repair runs once for each schedule of a namespace, as the CronJob does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from penstock.api.cron_times import is_due
from penstock.api.parse import Resource
from penstock.api.queues import Queue


@dataclass(frozen=True)
class Job:
    """A repair job: the CronJob of a namespace and a schedule."""

    namespace: str
    schedule: str

    @property
    def arguments(self) -> tuple[str, ...]:
        """As the command takes them."""
        return "repair", "--namespace", self.namespace, "--schedule", self.schedule


@dataclass(frozen=True)
class WorkerOf:
    """A consumer of a queue."""

    name: str
    arguments: tuple[str, ...]
    module: str | None = None
    """Where its handler is, if that is Python."""


def workers_of(resources: Sequence[Resource]) -> list[WorkerOf]:
    """One worker for each consumer."""
    return [
        WorkerOf(
            f"{resource.metadata.name}/{consumer.name}",
            _arguments(resource, number),
            None if consumer.handler is None else str(consumer.handler).partition(":")[0],
        )
        for resource in resources
        if isinstance(resource, Queue)
        for number, consumer in enumerate(resource.spec.consumers or ())
    ]


def _arguments(queue: Queue, number: int) -> tuple[str, ...]:
    consumer = (queue.spec.consumers or ())[number]
    name = f"{queue.metadata.namespace}/{queue.metadata.name}"
    told = ["worker", "--queue", name, "--concurrency", str(consumer.concurrency), "--health", "off", "--log", "text"]
    if consumer.http is not None:
        told += ["--http", f"http://127.0.0.1:{consumer.http.port}{consumer.http.path}"]
    else:
        told += ["--handler", str(consumer.handler)]
    if consumer.rate is not None:
        told += ["--rate", str(consumer.rate)]
    if consumer.visibility_timeout is not None:
        told += ["--visibility", str(consumer.visibility_timeout)]
    return tuple(told)


def jobs_of(resources: Sequence[Resource]) -> list[Job]:
    """The repair jobs, each once."""
    queues = [resource for resource in resources if isinstance(resource, Queue)]
    return sorted(
        {Job(queue.metadata.namespace, queue.spec.repair.schedule) for queue in queues},
        key=lambda job: (job.namespace, job.schedule),
    )


def jobs_due(jobs: Sequence[Job], minute: datetime) -> list[Job]:
    """Those that are due in this minute."""
    return [job for job in jobs if is_due(job.schedule, minute)]


def suggestions_of(resources: Sequence[Resource]) -> list[str]:
    """Commands to try on a queue of these: one that is worked, where there is one."""
    queues = [resource for resource in resources if isinstance(resource, Queue)]
    if not queues:
        return []
    queue = next((each for each in queues if each.spec.consumers), queues[0])
    name = f"{queue.metadata.namespace}/{queue.metadata.name}"
    lines = [
        f"""penstock send --queue {name} '{{"to": "you-{{n}}"}}' --count 10""",
        f"penstock stats --queue {name}",
        "penstock top --once",
    ]
    if not queue.spec.consumers:
        lines.append(f"penstock receive --queue {name} --ack")
    if queue.spec.dead_letter is not None:
        dead = f"{queue.metadata.namespace}/{queue.spec.dead_letter}"
        lines += [
            f"""penstock send --queue {name} '{{"no": "address"}}'""",
            f"penstock peek --queue {dead}",
            f"penstock redrive --queue {dead}",
        ]
    return lines
