"""The metrics that an autoscaler reads, and that docs/scaling.md names existing ones."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import yaml

from headgate.engines.summary.decide_marks import LaterMark
from headgate.expiry import SECOND_US
from headgate.store.clock.clock import ClockFigures
from headgate.telemetry.metrics import Registry, Sample
from headgate_operator.model.names import Key, consumer_name
from headgate_operator.model.plan import PatchStatus, ReconcilePlan
from headgate_operator.model.world import QueueLoad, ResourceWorld
from headgate_operator.process.metrics import measure
from headgate_operator.process.wiring import Operator
from headgate_operator.reconcile.decision_log import ConditionMetrics, conditions_in

NOW_US = 1_700_000_000 * SECOND_US
PAGE = (Path(__file__).parents[3] / "docs" / "scaling.md").read_text(encoding="utf-8")
ASLEEP: dict[str, Any] = {"backlog": None, "awake": False}


def samples(
    figures: QueueLoad | None, *, is_leading: bool = True, conditions: ConditionMetrics | None = None
) -> list[Sample]:
    """All that is exported, with one queue."""
    clock = ClockFigures(True, {"10.0.0.1": -2_000}, {"10.0.0.1": 500}, (), 250_000, 0, 0)
    reached = SimpleNamespace(process_context=SimpleNamespace(clock=SimpleNamespace(figures=lambda: clock)))
    followed = SimpleNamespace(key=Key("Queue", "shop", "emails"), figures=figures)
    operator = SimpleNamespace(
        board=SimpleNamespace(all=lambda: [followed]),
        cache=(),
        sessions=SimpleNamespace(all=lambda: [reached]),
        performer=SimpleNamespace(writes=0),
        reconciler=SimpleNamespace(left_behind=0, rounds=0, conditions=conditions or ConditionMetrics()),
    )
    registry = Registry()
    measure(registry, cast(Operator, operator), is_leading=lambda: is_leading)
    return list(registry.samples())


def metrics_of(figures: QueueLoad | None, *, is_leading: bool = True) -> dict[str, float]:
    """The exported figures of shop/emails."""
    labels = (("namespace", "shop"), ("queue", "emails"))
    return {each.name: each.value for each in samples(figures, is_leading=is_leading) if each.labels == labels}


def is_needed(**figures: Any) -> float:
    """The exported `headgate_queue_needs_workers`."""
    return metrics_of(QueueLoad(at_us=NOW_US, **figures))["headgate_queue_needs_workers"]


def test_a_queue_that_was_woken_needs_a_worker_before_anything_is_counted() -> None:
    woken = metrics_of(QueueLoad(at_us=NOW_US, awake=True))
    assert (1.0, False) == (woken["headgate_queue_needs_workers"], "headgate_queue_backlog" in woken)


@pytest.mark.parametrize("figures", [{"backlog": 1}, {"backlog": 0, "in_flight": 1}, {"backlog": 0, "held": 1}])
def test_whatever_is_behind_in_flight_or_held_needs_one(figures: dict[str, Any]) -> None:
    assert 1.0 == is_needed(awake=True, owners=2, **figures)


def test_workers_that_own_lanes_and_have_nothing_to_do_are_not_kept() -> None:
    assert 0.0 == is_needed(awake=True, owners=2, backlog=0)


def test_what_falls_due_within_thirty_seconds_keeps_a_worker_and_starts_none() -> None:
    soon = (LaterMark(NOW_US + 20 * SECOND_US, NOW_US + 60 * SECOND_US),)
    later = (LaterMark(NOW_US + 40 * SECOND_US, NOW_US + 60 * SECOND_US),)
    assert (1.0, 0.0) == (
        is_needed(awake=True, owners=1, backlog=0, later=soon),
        is_needed(awake=True, owners=1, backlog=0, later=later),
    )
    assert 0.0 == is_needed(later=soon)


def test_a_queue_that_sleeps_has_nothing_behind() -> None:
    asleep = metrics_of(QueueLoad(at_us=NOW_US))
    assert (0.0, 0.0) == (asleep["headgate_queue_backlog"], asleep["headgate_queue_needs_workers"])


def test_what_was_counted_is_reported_until_owners_report() -> None:
    counted = metrics_of(QueueLoad(at_us=NOW_US, awake=True, counted=40))
    assert 40.0 == counted["headgate_queue_backlog"]


@pytest.mark.parametrize(("figures", "is_leading"), [(None, True), (QueueLoad(at_us=NOW_US), False)])
def test_what_is_not_known_and_which_process_does_not_lead_report_nothing(
    figures: QueueLoad | None, is_leading: bool
) -> None:
    assert {} == metrics_of(figures, is_leading=is_leading)


def test_the_oldest_that_waits_is_given_by_its_age_when_it_was_read_and_is_none_where_nothing_is_behind() -> None:
    since_us = NOW_US - 90 * SECOND_US
    waiting = metrics_of(QueueLoad(at_us=NOW_US, backlog=3, oldest_us=since_us, awake=True))
    drained = metrics_of(QueueLoad(at_us=NOW_US, backlog=0, oldest_us=since_us, awake=True))
    assert (90.0, 0.0) == (waiting["headgate_queue_oldest_seconds"], drained["headgate_queue_oldest_seconds"])


# ---- conditions

WELL = [{"type": "Ready", "status": "True", "reason": "Reconciled"}]
UNWELL = [
    {"type": "Ready", "status": "False", "reason": "HandlerRefused"},
    {"type": "Stalled", "status": "True", "reason": "HandlerRefused"},
    {"type": "ConsumersReady", "status": "False", "reason": "HandlerRefused"},
    {"type": "RepairHealthy", "status": "Unknown", "reason": "RepairPending"},
    {"type": "TablesReady", "status": "True", "reason": "TablesPresent"},
]


def world(status: dict[str, Any] | None) -> ResourceWorld:
    """One with nothing but a status; None: the resource is gone."""
    resource = None if status is None else SimpleNamespace(document={"status": status})
    return cast(ResourceWorld, SimpleNamespace(resource=resource))


def resources(conditions: ConditionMetrics, *, is_leading: bool = True) -> list[tuple[str, ...]]:
    """The exported metrics of resources."""
    result = samples(None, is_leading=is_leading, conditions=conditions)
    return sorted(
        tuple(value for _, value in each.labels) for each in result if each.name.startswith("headgate_resource")
    )


def test_what_is_false_is_not_well_and_so_is_a_stall_that_is_true() -> None:
    assert ("False", ("Ready", "Stalled", "ConsumersReady")) == (
        conditions_in({"conditions": UNWELL}).ready,
        tuple(condition for condition, _ in conditions_in({"conditions": UNWELL}).problems),
    )


def test_each_condition_that_is_not_well_is_reported_with_its_reason_and_resources_are_counted() -> None:
    conditions = ConditionMetrics()
    conditions.note(Key("Queue", "shop", "emails"), world({"conditions": UNWELL[:1]}), ReconcilePlan())
    conditions.note(Key("Counter", "shop", "views"), world({"conditions": WELL}), ReconcilePlan())
    assert [
        ("Counter", "True"),
        ("Queue", "False"),
        ("Queue", "shop", "emails", "Ready", "False", "HandlerRefused"),
    ] == resources(conditions)
    assert [] == resources(conditions, is_leading=False)


def test_a_status_that_is_about_to_be_written_counts_and_what_is_gone_does_not() -> None:
    conditions, key = ConditionMetrics(), Key("Queue", "shop", "emails")
    patch = PatchStatus(key, "uid", {"conditions": WELL})
    conditions.note(key, world({"conditions": UNWELL}), ReconcilePlan((patch,)))
    assert [("Queue", "True")] == resources(conditions)
    conditions.note(key, world(None), ReconcilePlan())
    assert [] == resources(conditions)


# ---- the page

CHART_PAGE = (Path(__file__).parents[3] / "docs" / "chart.md").read_text(encoding="utf-8")


def test_the_charts_page_names_each_metric_of_the_operator_and_no_other() -> None:
    conditions = ConditionMetrics()
    conditions.note(Key("Queue", "shop", "emails"), world({"conditions": UNWELL}), ReconcilePlan())
    exported = {
        each.name + ("_total" if each.kind == "counter" else "")
        for each in samples(QueueLoad(at_us=NOW_US, backlog=0, rate=0), conditions=conditions)
    }
    assert exported == set(re.findall(r"^\| `(headgate_\w+)` \|", CHART_PAGE, re.MULTILINE))


def documents() -> list[dict[str, Any]]:
    """Every YAML on the page."""
    return [yaml.safe_load(block) for block in re.findall(r"^```yaml\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)]


def of_kind(kind: str) -> dict[str, Any]:
    return next(each for each in documents() if isinstance(each, dict) and each.get("kind") == kind)


def test_the_page_names_each_metric_of_a_queue_and_no_other() -> None:
    assert set(metrics_of(QueueLoad(at_us=NOW_US, backlog=0, rate=0))) == set(re.findall(r"headgate_queue_\w+", PAGE))


def test_its_queries_ask_by_the_labels_that_there_are() -> None:
    queries = [each["metadata"]["query"] for each in of_kind("ScaledObject")["spec"]["triggers"]]
    asked = [
        re.fullmatch(r"max\((\w+)\{namespace=\"shop\",queue=\"emails\"\}\) or vector\(0\)", each) for each in queries
    ]
    assert ["headgate_queue_backlog", "headgate_queue_needs_workers"] == [each and each[1] for each in asked]


@pytest.mark.parametrize("kind", ["ScaledObject", "HorizontalPodAutoscaler"])
def test_they_scale_the_deployment_of_the_consumer(kind: str) -> None:
    assert consumer_name("emails", "mailer") == of_kind(kind)["spec"]["scaleTargetRef"]["name"]
