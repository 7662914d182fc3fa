"""The programs that a set of resources needs on one machine. Pure.

A consumer with a Python handler is one worker process; one with an HTTP handler is a worker that posts to the port on
this machine, where the user runs the handler. Repair of queues and gc of counters run once for each schedule of a
namespace, as the CronJobs do.

Of a consumer's pod template, the environment of its worker applies without Kubernetes, and of that only literal
values: a value from a Secret, or one that refers to another, is known to Kubernetes alone. Everything left out is
reported.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from headgate.api.read.parse import Resource
from headgate.api.resources.consumer import PodTemplate
from headgate.api.resources.counters import CounterResource
from headgate.api.resources.queues import QueueResource
from headgate.api.values.cron import is_due

WORKER = "worker"
REFERENCE = "$("
TYPES_OF_NUMBERS = frozenset({"sum", "product", "minmax", "moments", "quantiles"})
"""Of counters: their updates are numbers; for the others they are strings."""


@dataclass(frozen=True)
class Job:
    """The CronJob of a namespace and a schedule: repair of queues, or gc of counters."""

    namespace: str
    schedule: str
    command: str = "repair"

    @property
    def arguments(self) -> tuple[str, ...]:
        """As the command takes them."""
        return self.command, "--namespace", self.namespace, "--schedule", self.schedule


@dataclass(frozen=True)
class OfTemplate:
    """The used part of a pod template, and the names of the rest."""

    environment: tuple[tuple[str, str], ...] = ()
    left_out: tuple[str, ...] = ()


@dataclass(frozen=True)
class WorkerOf:
    """A consumer of a queue."""

    name: str
    arguments: tuple[str, ...]
    module: str | None = None
    """Where its handler is, if that is Python."""
    of_template: OfTemplate = OfTemplate()


def workers_of(resources: Sequence[Resource]) -> list[WorkerOf]:
    return [
        WorkerOf(
            f"{resource.metadata.name}/{consumer.name}",
            _arguments(resource, number),
            None if consumer.handler is None else str(consumer.handler).partition(":")[0],
            of_template(consumer.template),
        )
        for resource in resources
        if isinstance(resource, QueueResource)
        for number, consumer in enumerate(resource.spec.consumers or ())
    ]


def of_template(template: PodTemplate | None) -> OfTemplate:
    """For the worker on this machine."""
    if template is None:
        return OfTemplate()
    environment: list[tuple[str, str]] = []
    left_out = [] if template.metadata is None else ["metadata"]
    for key, value in (template.spec or {}).items():
        if key != "containers" or not isinstance(value, list):
            left_out.append(key)
            continue
        for container in value:
            if not isinstance(container, Mapping) or container.get("name") != WORKER:
                left_out.append(f"container {container.get('name') if isinstance(container, Mapping) else None}")
                continue
            left_out += [f"{WORKER}.{name}" for name in container if name not in ("name", "env")]
            entries = container.get("env")
            for entry in entries if isinstance(entries, list) else ():
                if _is_literal(entry):
                    environment.append((str(entry.get("name")), entry.get("value", "")))
                elif isinstance(entry, Mapping):
                    left_out.append(f"{WORKER}.env.{entry.get('name')}")
    return OfTemplate(tuple(environment), tuple(left_out))


def _is_literal(entry: Any) -> bool:
    if not isinstance(entry, Mapping) or "valueFrom" in entry:
        return False
    value = entry.get("value", "")
    return isinstance(value, str) and REFERENCE not in value


def _arguments(queue: QueueResource, number: int) -> tuple[str, ...]:
    consumer = (queue.spec.consumers or ())[number]
    name = f"{queue.metadata.namespace}/{queue.metadata.name}"
    arguments = ["worker", name, "--concurrency", str(consumer.concurrency), "--health", "off", "--log", "text"]
    if consumer.http is not None:
        arguments += ["--http", f"http://127.0.0.1:{consumer.http.port}{consumer.http.path}"]
    else:
        arguments += ["--handler", str(consumer.handler)]
    if consumer.rate is not None:
        arguments += ["--rate", str(consumer.rate)]
    if consumer.visibility_timeout is not None:
        arguments += ["--visibility", str(consumer.visibility_timeout)]
    return tuple(arguments)


def jobs_of(resources: Sequence[Resource]) -> list[Job]:
    jobs = {
        Job(resource.metadata.namespace, resource.spec.repair.schedule)
        if isinstance(resource, QueueResource)
        else Job(resource.metadata.namespace, resource.spec.gc.schedule, "gc")
        for resource in resources
    }
    return sorted(jobs, key=lambda job: (job.namespace, job.schedule, job.command))


def jobs_due(jobs: Sequence[Job], minute: datetime) -> list[Job]:
    return [job for job in jobs if is_due(job.schedule, minute)]


def counted(resources: Sequence[Resource]) -> str:
    """The number of each kind. A kind without resources is left out, unless there are no resources at all."""
    queues = sum(isinstance(each, QueueResource) for each in resources)
    counters = len(resources) - queues
    counts = (
        [_counted(queues, "queue"), _counted(len(workers_of(resources)), "worker")] if queues or not counters else []
    )
    return ", ".join([*counts, _counted(counters, "counter")] if counters else counts)


def _counted(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def suggestions_of(resources: Sequence[Resource]) -> list[str]:
    """Commands to try: on a queue, one that is worked where there is one, and on a counter."""
    queues = [resource for resource in resources if isinstance(resource, QueueResource)]
    counters = [each for each in resources if isinstance(each, CounterResource) and "/" not in each.spec.type]
    lines = _on_queue(next((each for each in queues if each.spec.consumers), queues[0])) if queues else []
    return lines + (_on_counter(counters[0]) if counters else [])


def _on_queue(queue: QueueResource) -> list[str]:
    name = f"{queue.metadata.namespace}/{queue.metadata.name}"
    lines = [
        f"""headgate put {name} '{{"to": "you-{{n}}"}}' --count 10""",
        f"headgate stats {name}",
        "headgate top --snapshot",
    ]
    if not queue.spec.consumers:
        lines.append(f"headgate receive {name} --ack")
    if queue.spec.dead_letter is not None:
        dead = f"{queue.metadata.namespace}/{queue.spec.dead_letter}"
        lines += [
            f"""headgate put {name} '{{"no": "address"}}'""",
            f"headgate peek {dead}",
            f"headgate redrive {dead}",
        ]
    return lines


def _on_counter(counter: CounterResource) -> list[str]:
    name = f"{counter.metadata.namespace}/{counter.metadata.name}"
    number = counter.spec.type in TYPES_OF_NUMBERS
    return [f"headgate counter add {name} home {'3' if number else 'tea'}", f"headgate counter get {name} home"]
