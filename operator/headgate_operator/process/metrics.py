"""Metrics of the operator, in addition to those of its work queue: figures of every queue for HPA and KEDA,
conditions of resources for alerts, and the operator's own state. Only the leader exports figures and conditions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from headgate.expiry import SECOND_US
from headgate.store.clock.clock import measure_clocks
from headgate.telemetry.metrics import Registry
from headgate_operator.decide.scaling import is_busy, is_soon
from headgate_operator.model.world import QueueLoad
from headgate_operator.observe.queue_stats import FollowedQueue
from headgate_operator.process.wiring import Operator
from headgate_operator.reconcile.decision_log import BAD_WHEN_TRUE

Read = Callable[[QueueLoad], float | None]
LABELS = ("namespace", "queue")


def measure(registry: Registry, operator: Operator, *, is_leading: Callable[[], bool]) -> None:
    def of_queues(name: str, help_text: str, read: Read) -> None:
        def values() -> Iterator[tuple[tuple[str, ...], float]]:
            for followed in operator.board.all() if is_leading() else ():
                value = None if followed.figures is None else read(followed.figures)
                if value is not None:
                    yield _labels(followed), value

        registry.reading(f"headgate_queue_{name}", help_text, LABELS, values)

    of_queues("backlog", "Messages that are due and not yet received.", _behind)
    of_queues("needs_workers", "1 while messages wait, are in flight, or have not been counted yet.", _is_needed)
    of_queues("in_flight", "Messages received and not yet settled.", lambda load: float(load.in_flight))
    of_queues("rate", "Messages settled per second, over the last seconds.", lambda load: load.rate)
    of_queues("oldest_seconds", "Age of the oldest message that is due and not yet received.", _oldest_s)
    of_queues("unreadable_rows", "Rows set aside, since their stored bytes cannot be read.", _unreadable_rows)
    _measure_resources(registry, operator, is_leading)
    measure_clocks(registry, lambda: [each.process_context.clock.figures() for each in operator.sessions.all()])

    def of_operator(name: str, help_text: str, read: Callable[[], float], *, kind: str = "gauge") -> None:
        registry.reading(f"headgate_operator_{name}", help_text, (), lambda: [((), read())], kind=kind)

    of_operator("leading", "1 while this process leads.", lambda: float(is_leading()))
    of_operator("objects", "Objects of the cluster that the operator watches.", lambda: float(len(operator.cache)))
    for name, message, read_count in (
        ("api_writes", "Writes sent to the API server.", lambda: operator.performer.writes),
        ("decisions", "Decisions made about resources.", lambda: operator.reconciler.rounds),
        (
            "orphaned_resources",
            "Resources whose data stayed in Cassandra when their namespace was deleted.",
            lambda: operator.reconciler.left_behind,
        ),
    ):
        of_operator(name, message, read_count, kind="counter")


def _unreadable_rows(load: QueueLoad) -> float:
    return float(load.unreadable)


def _is_needed(figures: QueueLoad) -> float:
    """The rule of mode auto; workers that own lanes and are idle are no reason to keep them."""
    is_kept = figures.owners > 0 and is_soon(figures, figures.at_us)
    return float(is_busy(figures) or is_kept)


def _measure_resources(registry: Registry, operator: Operator, is_leading: Callable[[], bool]) -> None:
    conditions = operator.reconciler.conditions

    def problems() -> Iterator[tuple[tuple[str, ...], float]]:
        for key, condition, reason in conditions.problems() if is_leading() else ():
            status = "True" if condition in BAD_WHEN_TRUE else "False"
            yield (key.kind, key.namespace, key.name, condition, status, reason), 1.0

    def counted() -> Iterator[tuple[tuple[str, ...], float]]:
        for of, number in (conditions.counted() if is_leading() else {}).items():
            yield of, float(number)

    labels = ("kind", "namespace", "name", "condition", "status", "reason")
    registry.reading(
        "headgate_resource_condition",
        "1 for each condition that is not as it should be, by status and reason.",
        labels,
        problems,
    )
    registry.reading(
        "headgate_resources", "Resources by kind and by the status of Ready.", ("kind", "ready"), counted
    )


def _labels(followed: FollowedQueue) -> tuple[str, str]:
    return followed.key.namespace, followed.key.name


def _oldest_s(figures: QueueLoad) -> float | None:
    behind = _behind(figures)
    if behind is None:
        return None
    if figures.oldest_us is None or not behind:
        return 0.0
    return max(0.0, (figures.at_us - figures.oldest_us) / SECOND_US)


def _behind(figures: QueueLoad) -> float | None:
    if figures.behind is None:
        return None if figures.awake else 0.0
    return float(figures.behind)
