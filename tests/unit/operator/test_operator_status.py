"""The content of the status, when it is written, and which events go with it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from headgate.api.resources.reasons import STALLING, Reason
from headgate.expiry import SECOND_US
from headgate_operator.decide.stats import rounded, rounded_age_s
from headgate_operator.model.plan import ApplyObject, Emit, PatchStatus, ReconcilePlan, StoreStep
from headgate_operator.model.world import (
    UNKNOWN,
    ChildName,
    DecisionMemory,
    LaneHealth,
    LaneProblem,
    NamespaceState,
    Passes,
    PodStatus,
    QueueLoad,
    ResourceFailure,
    Sibling,
)
from tests.kit.operator_world import NOW_US, TinyWorld, resource_document

CONSUMER = {"name": "mailer", "image": "m:1", "handler": "a:b", "scaling": {"min": 1, "max": 4}}


def queue(**spec: Any) -> TinyWorld:
    return TinyWorld(resource_document("Queue", {"consumers": [CONSUMER], "storage": {"tables": "shared"}, **spec}))


def settled(**spec: Any) -> TinyWorld:
    """A queue that was made a minute ago, and is Ready."""
    world = queue(**spec)
    world.settle()
    world.now_us += 60 * SECOND_US
    assert ready(world) == ("True", "Reconciled")
    return world


def condition(world: TinyWorld, type_: str) -> dict[str, Any] | None:
    assert world.document is not None
    return next((one for one in world.document["status"]["conditions"] if one["type"] == type_), None)


def ready(world: TinyWorld) -> tuple[str, str]:
    result = condition(world, "Ready")
    assert result is not None
    return result["status"], result["reason"]


def writes(plans: list[ReconcilePlan]) -> int:
    return sum(isinstance(effect, PatchStatus) for plan in plans for effect in plan.effects)


def events(plans: list[ReconcilePlan]) -> list[str]:
    return [effect.reason for plan in plans for effect in plan.effects if isinstance(effect, Emit)]


# ---- when


def test_a_fresh_queue_is_written_once_and_reports_no_event() -> None:
    plans = queue().settle()
    assert (writes(plans), events(plans)) == (1, [])


def test_one_that_takes_longer_is_reported_after_two_seconds_and_again_when_it_is_ready() -> None:
    world = queue()
    world.ready_max = 0
    assert writes(world.settle()) == 1
    assert (ready(world), world.now_us - NOW_US) == (("False", "ConsumersStarting"), 2 * SECOND_US)
    live = world.live[ChildName("Deployment", "emails-mailer-f6240f9c")]
    live["status"]["readyReplicas"] = 1
    plan = world.decide()
    assert (plan.effects, plan.again_at_us) == ((), NOW_US + 7 * SECOND_US)
    world.now_us += 5 * SECOND_US
    plans = world.settle()
    assert (ready(world), writes(plans), events(plans)) == (("True", "Reconciled"), 1, [])


def test_what_is_refused_is_reported_at_once() -> None:
    world = queue()
    world.step_failure = ResourceFailure(Reason.RIGHTS_MISSING, "no right to create", NOW_US)
    plan = world.decide()
    assert [type(effect) for effect in plan.effects] == [PatchStatus, StoreStep]
    world.perform(plan)
    assert ready(world) == ("False", "RightsMissing")


def test_a_child_that_is_fixed_at_once_is_not_reported() -> None:
    world = settled()
    world.live.clear()
    world.checked.clear()
    plans = world.settle()
    assert (writes(plans), ready(world)) == (0, ("True", "Reconciled"))


def test_scaling_up_does_not_remove_ready() -> None:
    world = settled()
    world.ready_max = 1
    world.figures = QueueLoad(world.now_us, backlog=3500, owners=1, awake=True)
    world.settle()
    live = world.live[ChildName("Deployment", "emails-mailer-f6240f9c")]
    live["status"]["observedGeneration"] = 1
    world.now_us += 6 * SECOND_US
    world.settle()
    assert (live["spec"]["replicas"], ready(world)) == (4, ("True", "Reconciled"))


def test_what_travels_with_other_changes_causes_no_write() -> None:
    world = settled()
    world.passes = Passes(ended_us=world.now_us)
    assert writes(world.settle()) == 1
    for _ in range(3):
        world.now_us += 300 * SECOND_US
        world.passes = Passes(ended_us=world.now_us)
        assert writes(world.settle()) == 0
    world.figures = QueueLoad(world.now_us, backlog=9, owners=1)
    world.settle()
    assert world.document is not None
    assert world.document["status"]["repair"]["lastRun"] == "2026-11-18T09:16:00Z"


def test_a_first_check_that_finds_all_well_waits_ten_minutes_for_a_change_to_travel_with() -> None:
    world = settled()
    reports = []
    for _ in range(2):
        world.lanes = LaneHealth(world.now_us, 4, 4)
        reports.append(writes(world.settle()))
        world.now_us += 600 * SECOND_US
    assert reports == [0, 1]


def test_that_nothing_is_behind_causes_no_write_and_that_nothing_is_left_does() -> None:
    world = settled()
    reports = []
    for backlog in (0, 7, 0):
        world.now_us += 6 * SECOND_US
        world.figures = QueueLoad(world.now_us, backlog=backlog, owners=1)
        reports.append(writes(world.settle()))
    assert reports == [0, 1, 1]


def test_a_worker_of_a_former_consumer_that_is_not_seen_is_asked_for_once() -> None:
    world = settled()
    child = ChildName("Deployment", "emails-mailer-f6240f9c")
    del world.live[child]  # it lost our label
    world.checked.clear()
    world.edit({"storage": {"tables": "shared"}})
    plans = world.settle()
    assert [plan.ask for plan in plans if plan.ask] == [frozenset({child})]
    world.checked.clear()
    assert world.decide().is_settled


def test_somebody_elses_hand_in_the_status_is_set_right() -> None:
    world = settled()
    assert world.document is not None
    world.document["status"]["conditions"] = []
    world.settle()
    assert ready(world) == ("True", "Reconciled")


def test_what_a_later_release_or_a_hand_has_written_is_no_hindrance() -> None:
    world = settled()
    assert world.document is not None
    for one in world.document["status"]["conditions"]:
        one |= {"reason": "OfALaterRelease", "lastTransitionTime": "yesterday", "status": "False"}
    world.now_us += 60 * SECOND_US
    world.unread_store = UNKNOWN
    assert world.decide().trail != ()
    world.unread_store = None
    world.lanes = LaneHealth(world.now_us, 4, 4)
    world.settle()
    assert ready(world) == ("True", "Reconciled")


# ---- what


def test_a_change_is_ready_only_once_it_is_executed() -> None:
    world = settled()
    world.edit({"consumers": [{**CONSUMER, "image": "m:2"}], "storage": {"tables": "shared"}})
    world.now_us += 3 * SECOND_US
    plan = world.decide()
    assert any(isinstance(effect, ApplyObject) for effect in plan.effects)
    world.perform(plan)
    result = condition(world, "Ready")
    assert result is not None
    assert result["observedGeneration"] == 1
    world.settle()
    result = condition(world, "Ready")
    assert result is not None
    assert (result["observedGeneration"], result["status"]) == (2, "True")


def test_since_when_it_is_so_moves_with_the_status_alone() -> None:
    world = settled()
    began = condition(world, "TablesReady")
    world.unread_store = ResourceFailure(Reason.CASSANDRA_UNAVAILABLE, "unavailable", world.now_us - 16 * SECOND_US)
    world.settle()
    gone = condition(world, "TablesReady")
    world.now_us += 60 * SECOND_US
    world.unread_store = ResourceFailure(Reason.CASSANDRA_UNAVAILABLE, "still silent", world.now_us - 76 * SECOND_US)
    world.settle()
    still = condition(world, "TablesReady")
    assert began is not None
    assert gone is not None
    assert still is not None
    assert began["lastTransitionTime"] != gone["lastTransitionTime"] == still["lastTransitionTime"]
    assert (gone["message"], still["message"]) == ("unavailable", "still silent")


def test_a_minute_without_cassandra_is_two_writes_and_the_status_of_before() -> None:
    world = settled()
    assert world.document is not None
    before = {one["type"]: (one["status"], one["reason"]) for one in world.document["status"]["conditions"]}
    began_us, plans = world.now_us, []
    for second in range(60):
        world.now_us = began_us + second * SECOND_US
        world.unread_store = ResourceFailure(Reason.CASSANDRA_UNAVAILABLE, "unavailable", began_us)
        plans += world.settle()
    world.unread_store = None
    plans += world.settle()
    after = {one["type"]: (one["status"], one["reason"]) for one in world.document["status"]["conditions"]}
    assert (writes(plans), after) == (2, before)
    assert events(plans) == ["CassandraUnavailable", "CassandraUnavailable", "Reconciled", "TablesPresent"]


def test_lanes_that_are_bad_removes_ready_after_a_minute() -> None:
    world = settled()
    bad_since_us = world.now_us
    for after_s, status in ((0, "True"), (59, "True"), (61, "False")):
        world.now_us = bad_since_us + after_s * SECOND_US
        world.lanes = LaneHealth(world.now_us, 4, 3, unprocessed=(LaneProblem("1/0", 1, "due"),))
        world.settle()
        assert ready(world)[0] == status
    assert ready(world) == ("False", "LanesUnprocessed")


def test_rows_set_aside_stay_in_the_condition_until_an_owner_reports_none() -> None:
    world = settled()
    for owners, unreadable, reason in ((1, 2, "RowsUnreadable"), (0, 0, "RowsUnreadable"), (1, 0, "LanesServed")):
        for lanes in (UNKNOWN, LaneHealth(world.now_us, 4, 4)):
            world.now_us += 10 * SECOND_US
            world.figures = QueueLoad(world.now_us, owners=owners, unreadable=unreadable, awake=True)
            world.lanes = replace(lanes, at_us=world.now_us) if isinstance(lanes, LaneHealth) else lanes
            world.settle()
            result = condition(world, "LanesHealthy")
            assert result is not None
            assert reason == result["reason"]


@pytest.mark.parametrize(("mode", "status"), [("drain", "True"), ("export", "False")])
def test_lanes_of_a_queue_that_a_bulk_job_drains_wait_for_it_and_are_well(mode: str, status: str) -> None:
    sink = {"format": "parquet", "path": "/data/emails"}
    job = {"name": "nightly", "mode": mode, "schedule": "0 2 * * *", "sink": sink}
    world = settled(consumers=None, bulk=[job])
    world.lanes = LaneHealth(world.now_us, 4, 0, unprocessed=(LaneProblem("1/0", 1, "due"),))
    world.settle()
    result = condition(world, "LanesHealthy")
    assert result is not None
    assert status == result["status"]


@pytest.mark.parametrize(("dead_letters", "status"), [(("emails",), "True"), (("others",), "False")])
def test_dead_letters_wait_for_a_person_and_their_queue_is_well(dead_letters: tuple[str, ...], status: str) -> None:
    world = settled(consumers=None)
    world.siblings = {"orders": Sibling("orders", dead_letters)}
    world.lanes = LaneHealth(world.now_us, 4, 0, unprocessed=(LaneProblem("1/0", 1, "due"),))
    world.settle()
    result = condition(world, "LanesHealthy")
    assert result is not None
    assert status == result["status"]


def test_what_was_found_bad_stays_so_until_a_check_finds_it_well() -> None:
    world = settled()
    world.lanes = LaneHealth(world.now_us, 4, 3, suspicious=(LaneProblem("1/0", 1, "stands"),))
    world.settle()
    world.now_us += 90 * SECOND_US
    world.figures = QueueLoad(world.now_us, backlog=5, owners=1)
    world.settle()
    still = condition(world, "LanesHealthy")
    world.lanes = LaneHealth(world.now_us, 4, 4)
    world.now_us += 6 * SECOND_US
    world.settle()
    well = condition(world, "LanesHealthy")
    assert still is not None
    assert well is not None
    assert (still["reason"], well["reason"]) == ("LaneOwnerStalled", "LanesServed")


def test_a_lane_is_asked_to_stop_once_and_again_only_if_it_still_stands_a_minute_later() -> None:
    world = settled()
    for after_s, stops in ((0, 1), (5, 1), (30, 1), (61, 2)):
        world.now_us = NOW_US + (100 + after_s) * SECOND_US
        world.lanes = LaneHealth(world.now_us, 4, 4, suspicious=(LaneProblem("1/0", 7, "stands"),))
        world.settle()
        assert len(world.stops) == stops
    assert {(stop.lane, stop.epoch) for stop in world.stops} == {("1/0", 7)}


def test_a_worker_that_is_not_ready_for_two_minutes_fails() -> None:
    world = settled()
    live = world.live[ChildName("Deployment", "emails-mailer-f6240f9c")]
    live["status"]["readyReplicas"] = 0
    reports = []
    for _ in range(3):
        world.settle()
        reports.append(ready(world)[1])
        world.now_us += 61 * SECOND_US
    assert reports == ["ConsumersStarting", "ConsumersStarting", "ConsumersFailing"]


@pytest.mark.parametrize(
    ("code", "reason"), [(2, "HandlerRefused"), (1, "ConsumersFailing"), (137, "ConsumersFailing")]
)
def test_exit_code_two_is_a_handler_that_was_refused(code: int, reason: str) -> None:
    world = settled()
    world.live[ChildName("Deployment", "emails-mailer-f6240f9c")]["status"]["readyReplicas"] = 0
    world.pods = (PodStatus("mailer", "emails-mailer-1", False, 1, code, "no module named mailer"),)
    world.settle()
    result = condition(world, "Ready")
    assert result is not None
    assert (result["reason"], "no module named mailer" in result["message"]) == (reason, True)
    assert (condition(world, "Stalled") is not None) == (Reason(reason) in STALLING)


def test_a_dead_letter_queue_that_comes_makes_it_ready() -> None:
    world = queue(deadLetter="dead")
    world.settle()
    assert ready(world) == ("False", "DeadLetterMissing")
    world.siblings = {"dead": Sibling("dead", ())}
    world.now_us += 6 * SECOND_US
    world.settle()
    assert ready(world) == ("True", "Reconciled")


def test_a_namespace_that_is_not_ready_is_waited_for_and_a_queue_without_workers_does_not_wait() -> None:
    world, other = queue(), queue(consumers=[])
    world.namespace = other.namespace = NamespaceState(ready=False)
    world.settle()
    other.settle()
    assert (ready(world), ready(other)) == (("False", "Progressing"), ("True", "Reconciled"))
    world.namespace = NamespaceState(ready=True)
    world.now_us += 6 * SECOND_US
    world.settle()
    assert ready(world) == ("True", "Reconciled")


def test_another_creation_of_the_name_is_remembered_nothing() -> None:
    world = settled()
    assert world.document is not None
    assert world.memory.uid == "u1"
    world.document["metadata"]["uid"] = "u2"
    plan = world.decide()
    assert (plan.memory.uid, plan.memory.generation) == ("u2", 1)
    assert plan.memory.wanted == DecisionMemory().wanted


# ---- figures


@pytest.mark.parametrize(
    ("number", "shown"), [(0, 0), (999, 999), (1000, 1000), (1004, 1000), (1006, 1010), (123_456, 123_000), (0.4, 0)]
)
def test_above_a_thousand_three_digits_are_shown(number: float, shown: int) -> None:
    assert rounded(number) == shown


def test_ages_are_shown_in_seconds_then_in_steps_of_five_percent() -> None:
    assert [rounded_age_s(age_s) for age_s in (0, 1, 59, 60, 61, 62, 3600)] == [0, 1, 59, 60, 60, 63, 3615]
    shown = {rounded_age_s(age_s) for age_s in range(60, 3600)}
    assert len(shown) < 90
