"""Bulk jobs run when they are due, one at a time, once for each call; and the reports of passes and dead letters."""

from __future__ import annotations

from typing import Any

import pytest

from headgate.expiry import SECOND_US
from headgate_operator.decide.dead_letters import decide_dead_letters
from headgate_operator.decide.maintenance import decide_maintenance
from headgate_operator.model.names import application_name
from headgate_operator.model.plan import ApplyObject, DeleteObject
from headgate_operator.model.world import UNKNOWN, BulkRun, ChildName, DecisionMemory, Passes, QueueLoad, Sibling
from tests.kit.operator_world import NOW_US, SETTINGS, TinyWorld, resource_document

MINUTE_US = 60 * SECOND_US
HOUR_US = 60 * MINUTE_US
BORN = NOW_US // MINUTE_US
JOB = {"name": "nightly", "mode": "drain", "handler": "a.b:c"}


def queue(**job: Any) -> TinyWorld:
    """A queue with one bulk job, made at nine, with nothing else to do."""
    world = TinyWorld(resource_document("Queue", {"storage": {"tables": "shared"}, "bulk": [{**JOB, **job}]}))
    world.settle()
    return world


def started(world: TinyWorld) -> list[str]:
    """The runs that are started now."""
    effects = [effect for plan in world.settle() for effect in plan.effects]
    return [effect.document["metadata"]["name"] for effect in effects if isinstance(effect, ApplyObject)]


def run(state: str, minute: int, ended_us: int | None = None, bulk: str = "nightly") -> BulkRun:
    return BulkRun(bulk, application_name("emails", bulk, minute), f"uid-{minute}", minute, state, NOW_US, ended_us)  # type: ignore[arg-type]


def name(minute: int) -> str:
    return application_name("emails", "nightly", minute)


# ---- by schedule


@pytest.mark.parametrize(
    ("schedule", "after_min", "due_min"),
    [
        ("0 * * * *", 59, None),
        ("0 * * * *", 60, 60),
        ("0 * * * *", 89, 60),
        ("0 * * * *", 90, None),
        ("0 2 * * *", 17 * 60 + 59, 17 * 60),
        ("0 2 * * *", 18 * 60, None),
        ("*/10 * * * *", 14, 10),
        ("*/10 * * * *", 15, None),
    ],
)
def test_a_run_is_due_until_half_a_period_later_and_an_hour_at_most(
    schedule: str, after_min: int, due_min: int | None
) -> None:
    world = queue(schedule=schedule)
    world.now_us = NOW_US + after_min * MINUTE_US
    assert started(world) == ([] if due_min is None else [name(BORN + due_min)])


def test_what_was_due_before_it_was_made_is_not_run() -> None:
    world = TinyWorld(resource_document("Queue", {"bulk": [{**JOB, "schedule": "59 8 * * *"}]}))
    assert [report for report in started(world) if "nightly" in report] == []


def test_a_call_makes_one_run_and_none_again_when_somebody_deletes_it() -> None:
    world = queue(schedule="0 * * * *")
    world.now_us += 61 * MINUTE_US
    assert started(world) == [name(BORN + 60)]
    assert started(world) == []
    world.live.clear()
    world.checked.clear()
    world.now_us += 10 * SECOND_US
    assert started(world) == []


def test_one_at_a_time() -> None:
    world = queue(schedule="0 * * * *")
    world.now_us += 125 * MINUTE_US
    world.runs = (run("Running", BORN + 60),)
    assert started(world) == []
    world.runs = (run("Succeeded", BORN + 60, world.now_us),)
    assert started(world) == [name(BORN + 120)]


def test_it_is_decided_again_at_the_next_time_of_the_schedule() -> None:
    assert queue(schedule="0 * * * *").decide().again_at_us == NOW_US + HOUR_US


# ---- by backlog


def test_a_backlog_above_the_bound_starts_one_and_the_next_ten_minutes_after_its_end() -> None:
    world = queue(backlogAbove=100)
    reports = []
    for behind, ended_min in ((100, None), (101, 9), (101, 11)):
        world.figures = QueueLoad(world.now_us, backlog=behind, owners=1)
        world.runs = () if ended_min is None else (run("Failed", BORN - 60, world.now_us - ended_min * MINUTE_US),)
        reports.append(len(started(world)))
        world.now_us += 6 * SECOND_US
    assert reports == [0, 0, 1]


def test_a_count_counts_where_nobody_is_at_work_and_what_is_not_known_does_not() -> None:
    counted, unknown = queue(backlogAbove=100), queue(backlogAbove=100)
    counted.figures = QueueLoad(NOW_US, counted=101, awake=True)
    unknown.figures = UNKNOWN
    assert (len(started(counted)), started(unknown)) == (1, [])


# ---- afterwards


def test_the_last_of_each_result_is_kept_and_nothing_of_a_job_that_is_no_more() -> None:
    world = queue(schedule="0 2 * * *")
    ended = NOW_US - HOUR_US
    world.runs = (
        *(run(state, minute, ended) for minute, state in enumerate(("Failed", "Succeeded", "Succeeded", "Failed"))),
        run("Running", 9),
        run("Succeeded", 3, ended, bulk="former"),
        run("Running", 4, bulk="former"),
    )
    deleted = [effect.uid for effect in world.decide().effects if isinstance(effect, DeleteObject)]
    assert sorted(deleted) == ["uid-0", "uid-1", "uid-3"]
    names = [effect.name for effect in world.decide().effects if isinstance(effect, DeleteObject)]
    assert application_name("emails", "former", 3) in names


def test_without_an_image_or_with_a_patch_that_is_wrong_nothing_is_started_and_it_is_reported() -> None:
    for settings, spark in (
        ({"spark_image": None}, {}),
        ({}, {"driver": {"template": {"spec": {"containers": "none"}}}}),
    ):
        world = queue(backlogAbove=1, spark=spark)
        world.settings = SETTINGS.__class__(**{**SETTINGS.__dict__, **settings})
        world.figures = QueueLoad(NOW_US, backlog=5, owners=1)
        world.now_us += 6 * SECOND_US
        assert started(world) == []
        assert world.document is not None
        result = next(one for one in world.document["status"]["conditions"] if one["type"] == "BulkReady")
        assert result["status"] == "False"


# ---- passes


@pytest.mark.parametrize(
    ("passes", "reason"),
    [
        (Passes(), "RepairPending"),
        (Passes(ended_us=NOW_US), "RepairCurrent"),
        (Passes(ended_us=NOW_US, owed_us=NOW_US - HOUR_US), "RepairCurrent"),
        (Passes(ended_us=NOW_US, owed_us=NOW_US - HOUR_US - 1), "RepairOverdue"),
        (Passes(ended_us=NOW_US, waits_for_all_us=NOW_US - 24 * HOUR_US), "RepairCurrent"),
        (Passes(ended_us=NOW_US, waits_for_all_us=NOW_US - 24 * HOUR_US - 1), "RepairOverdue"),
        (Passes(ended_us=NOW_US, failed_runs=1), "RepairCurrent"),
        (Passes(ended_us=NOW_US, failed_runs=2), "RepairFailing"),
        (Passes(ended_us=NOW_US - HOUR_US - 5 * MINUTE_US), "RepairCurrent"),
        (Passes(ended_us=NOW_US - HOUR_US - 11 * MINUTE_US), "RepairOverdue"),
    ],
)
def test_repair_is_reported_to_be_late_before_anything_is_lost_by_it(passes: Passes, reason: str) -> None:
    world = TinyWorld(resource_document("Queue", {}))
    world.passes = passes
    (finding,) = decide_maintenance(world.world(), DecisionMemory(), NOW_US).findings
    assert finding.reason.value == reason


def test_a_schedule_that_is_never_due_is_never_late() -> None:
    world = TinyWorld(resource_document("Queue", {"repair": {"schedule": "0 0 31 2 *"}}))
    (finding,) = decide_maintenance(world.world(), DecisionMemory(), NOW_US + 10**6 * HOUR_US).findings
    assert finding.reason.value == "RepairPending"


# ---- dead letters


@pytest.mark.parametrize(
    ("siblings", "reason"),
    [
        ({}, "DeadLetterMissing"),
        ({"dead": []}, "DeadLetterFound"),
        ({"dead": ["emails"]}, "DeadLetterCycle"),
        ({"dead": ["other"], "other": ["dead"]}, "DeadLetterFound"),
        ({"dead": ["a", "b"], "a": [], "b": ["c"], "c": ["emails"]}, "DeadLetterCycle"),
    ],
)
def test_dead_letter_queues_are_followed_over_any_number_of_queues(siblings: dict[str, Any], reason: str) -> None:
    world = TinyWorld(resource_document("Queue", {"deadLetter": "dead"}))
    world.siblings = {each: Sibling(each, tuple(leads_to)) for each, leads_to in siblings.items()}
    (finding,) = decide_dead_letters(world.world(), DecisionMemory()).findings
    assert finding.reason.value == reason


def test_one_that_is_being_deleted_is_missing() -> None:
    world = TinyWorld(resource_document("Queue", {"deadLetter": "dead"}))
    world.siblings = {"dead": Sibling("dead", (), deleting=True)}
    (finding,) = decide_dead_letters(world.world(), DecisionMemory()).findings
    assert finding.reason.value == "DeadLetterMissing"


def test_a_child_that_is_there_is_never_changed_by_another_call() -> None:
    world = queue(schedule="0 * * * *")
    world.now_us += 61 * MINUTE_US
    started(world)
    child = ChildName("SparkApplication", name(BORN + 60))
    world.live[child]["spec"]["image"] = "another"
    assert world.decide().effects == ()
