"""The golden files of the operator's decisions: fresh, at their fixed point, and together they show every reason."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest

from headgate.api.resources.reasons import COUNTER_CONDITIONS, QUEUE_CONDITIONS, REASONS_OF, Reason
from headgate.api.resources.status import CounterStatus, QueueStatus
from headgate_operator.model.plan import PatchStatus, ReconcilePlan
from tests.golden.operator.running import CASES, described_by, read_case, run
from tests.kit.operator_world import TinyWorld

CASES_MIN = 40


FILES = {path.stem: read_case(path) for path in CASES}


@cache
def ran(name: str) -> tuple[TinyWorld, list[ReconcilePlan], int]:
    """A case, run once for all tests; none of them changes the world any more."""
    return run(FILES[name])


@pytest.mark.parametrize("name", FILES)
def test_a_golden_file_is_as_it_would_be_written(name: str) -> None:
    result = described_by(FILES[name], *ran(name))
    assert FILES[name]["then"] == result, "run `python -m tests.golden.operator --write`; read the diff"


@pytest.mark.parametrize("name", FILES)
def test_after_its_plans_a_case_has_nothing_left_to_do(name: str) -> None:
    world, _, _ = ran(name)
    plan = world.decide()
    if world.step_failure is None:
        assert plan.is_settled
    else:
        assert not any(isinstance(effect, PatchStatus) for effect in plan.effects)


def statuses() -> Iterator[tuple[str, str, dict[str, Any]]]:
    for name, case in FILES.items():
        if "status" in case["then"]:
            yield name, case.get("kind", "Queue"), case["then"]["status"]


STATUSES = list(statuses())


@pytest.mark.parametrize(("name", "kind", "status"), STATUSES, ids=[name for name, _, _ in STATUSES])
def test_a_status_is_one_that_the_crd_takes(name: str, kind: str, status: dict[str, Any]) -> None:
    result = (QueueStatus if kind == "Queue" else CounterStatus).model_validate(status, by_alias=True, by_name=False)
    types = [condition.type for condition in result.conditions or ()]
    known = QUEUE_CONDITIONS if kind == "Queue" else COUNTER_CONDITIONS
    assert sorted(types, key=known.index) == types
    assert set(known) - set(types) <= {"Reconciling", "Stalled"}


@pytest.mark.parametrize(("name", "kind", "status"), STATUSES, ids=[name for name, _, _ in STATUSES])
def test_conditions_are_as_kstatus_reads_them(name: str, kind: str, status: dict[str, Any]) -> None:
    conditions = {one["type"]: one for one in status["conditions"]}
    ready = conditions["Ready"]
    around = [conditions[type_] for type_ in ("Reconciling", "Stalled") if type_ in conditions]
    assert {one["status"] for one in around} <= {"True"}
    assert len(around) <= 1
    assert not around or ready["status"] == "False"
    assert [(one["reason"], one["message"]) for one in around] in ([], [(ready["reason"], ready["message"])])


def shown() -> Iterator[tuple[str, str]]:
    """Each reason that some status of some case has, with its condition."""
    for case in FILES.values():
        then = case["then"]
        for one in then.get("status", {}).get("conditions", ()):
            yield one["type"], one["reason"]
        for decision in then["decisions"]:
            for effect in decision.get("effects", ()):
                if isinstance(effect, dict) and isinstance(effect.get("status"), dict):
                    yield from ((type_, message.split()[1]) for type_, message in effect["status"].items())


def test_golden_files_show_every_reason() -> None:
    assert {reason.value for reason in Reason} - {reason for _, reason in shown()} == set()


def test_a_condition_has_the_reasons_that_its_page_lists() -> None:
    listed = {(type_, reason.value) for type_, reasons in REASONS_OF.items() for reason in reasons}
    assert set(shown()) - listed == set()


def test_there_are_enough_of_them_and_each_names_what_it_is_about() -> None:
    assert len(CASES) >= CASES_MIN
    assert [name for name, case in FILES.items() if not str(case.get("about", "")).endswith(".")] == []
