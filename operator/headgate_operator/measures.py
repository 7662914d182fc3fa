"""What the operator exports at a scrape beside its work queue: backlog and wakefulness of every queue, for HPA and
KEDA, conditions of resources that are not well, for alerts, and how the operator itself stands. Figures and
conditions are told by the leader alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from headgate.expiry import SECOND_US
from headgate.telemetry.clock_metrics import measure_clocks
from headgate.telemetry.metrics import Registry
from headgate_operator.decide_scaling import is_busy, is_soon
from headgate_operator.figures import Followed
from headgate_operator.operating import Operator
from headgate_operator.world import Figures

Read = Callable[[Figures], float | None]
LABELS = ("namespace", "queue")


def measure(registry: Registry, operator: Operator, *, is_leading: Callable[[], bool]) -> None:
    """Have all of it read when somebody asks."""

    def of_queues(name: str, says: str, read: Read) -> None:
        def values() -> Iterator[tuple[tuple[str, ...], float]]:
            for followed in operator.board.all() if is_leading() else ():
                value = None if followed.figures is None else read(followed.figures)
                if value is not None:
                    yield _labels(followed), value

        registry.reading(f"headgate_queue_{name}", says, LABELS, values)

    of_queues("backlog", "Messages that are due and not yet received.", _behind)
    of_queues("awake", "1 while it needs a worker: something is behind, in hand, or was not looked at.", _is_needed)
    of_queues("in_flight", "Messages received and not yet settled.", lambda found: float(found.in_flight))
    of_queues("rate", "Messages settled a second.", lambda found: found.rate)
    of_queues("oldest_seconds", "How long the oldest message has waited that is due and not received.", _oldest_s)
    _measure_resources(registry, operator, is_leading)
    measure_clocks(registry, lambda: [each.ground.clock.figures() for each in operator.sessions.all()])

    def of_operator(name: str, says: str, read: Callable[[], float]) -> None:
        registry.reading(f"headgate_operator_{name}", says, (), lambda: [((), read())])

    of_operator("leading", "1 while this process leads.", lambda: float(is_leading()))
    of_operator("objects", "Objects of the cluster that are known.", lambda: float(len(operator.seen)))
    of_operator("writes", "Changes that were asked of the API server.", lambda: float(operator.performer.writes))
    of_operator("left_behind", "Resources whose data stayed.", lambda: float(operator.reconciler.left_behind))
    of_operator("rounds", "Decisions that were made.", lambda: float(operator.reconciler.rounds))


def _is_needed(figures: Figures) -> float:
    """As mode auto goes by it; who owns lanes and has nothing to do is no reason to stay."""
    is_kept = figures.owners > 0 and is_soon(figures, figures.at_us)
    return float(is_busy(figures) or is_kept)


def _measure_resources(registry: Registry, operator: Operator, is_leading: Callable[[], bool]) -> None:
    told = operator.reconciler.conditions

    def troubles() -> Iterator[tuple[tuple[str, ...], float]]:
        for key, condition, reason in told.troubles() if is_leading() else ():
            yield (key.kind, key.namespace, key.name, condition, reason), 1.0

    def counted() -> Iterator[tuple[tuple[str, ...], float]]:
        for of, number in (told.counted() if is_leading() else {}).items():
            yield of, float(number)

    labels = ("kind", "namespace", "name", "condition", "reason")
    registry.reading(
        "headgate_resource_troubled", "1 for each condition of a resource that is not well.", labels, troubles
    )
    registry.reading(
        "headgate_resources", "Resources, by kind and whether they are Ready.", ("kind", "ready"), counted
    )


def _labels(followed: Followed) -> tuple[str, str]:
    return followed.key.namespace, followed.key.name


def _oldest_s(figures: Figures) -> float | None:
    behind = _behind(figures)
    if behind is None:
        return None
    if figures.oldest_us is None or not behind:
        return 0.0
    return max(0.0, (figures.at_us - figures.oldest_us) / SECOND_US)


def _behind(figures: Figures) -> float | None:
    behind = figures.backlog if figures.backlog is not None else figures.counted
    if behind is None:
        return None if figures.awake else 0.0
    return float(behind)
