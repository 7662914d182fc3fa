"""The rules between fields refuse what they should, with the words that are promised, and nothing else."""

from __future__ import annotations

import json
from typing import Any

import pytest

from headgate.api.read.parse import check_resource, parse_resource
from headgate.api.read.versions import document_of
from headgate.api.rules.rules import COUNTER_RULES, QUEUE_RULES
from tests.unit.api.api_cases import (
    ACCEPTED,
    CHANGES,
    Refusal,
    ShapeCase,
    document,
    read_refusals,
    shape_cases,
    wrong_texts,
)

REFUSALS = read_refusals()
SHAPES = shape_cases()


def faults_of(after: dict[str, Any], before: dict[str, Any] | None = None) -> list[str]:
    result = check_resource(after, before)
    return [str(fault) for fault in result] if isinstance(result, list) else []


def test_every_rule_has_a_row_that_breaks_it() -> None:
    assert {row.rule for row in REFUSALS} == {rule.name for rule in QUEUE_RULES + COUNTER_RULES}


def test_rules_have_names_of_their_own() -> None:
    names = [rule.name for rule in QUEUE_RULES + COUNTER_RULES]
    assert sorted(set(names)) == sorted(names)


@pytest.mark.parametrize("row", REFUSALS, ids=lambda row: row.rule)
def test_an_object_that_breaks_one_rule_is_reported_that_rule_alone(row: Refusal) -> None:
    result = check_resource(row.after, row.before)
    assert isinstance(result, list)
    assert [fault.rule for fault in result] == [row.rule]
    assert tuple(str(fault) for fault in result) == row.sees


@pytest.mark.parametrize("row", [row for row in REFUSALS if row.old is not None], ids=lambda row: row.rule)
def test_a_rule_on_change_states_nothing_of_what_is_new(row: Refusal) -> None:
    assert faults_of(row.after) == []


@pytest.mark.parametrize(("kind", "spec"), ACCEPTED)
def test_what_lies_on_the_right_side_of_every_edge_is_accepted(kind: str, spec: dict[str, Any]) -> None:
    assert faults_of(document(kind, spec)) == []


@pytest.mark.parametrize(("kind", "before", "after"), CHANGES)
def test_a_change_that_changes_nothing_fixed_is_accepted(
    kind: str, before: dict[str, Any], after: dict[str, Any]
) -> None:
    assert faults_of(document(kind, after), document(kind, before)) == []


@pytest.mark.parametrize("case", SHAPES, ids=lambda case: f"{case.kind}.{case.path}")
def test_every_shape_refuses_what_it_names_as_wrong_with_its_own_words(case: ShapeCase) -> None:
    for wrong in wrong_texts(case.shape):
        assert f"{case.path}: {case.shape.message}" in faults_of(case.with_value(wrong)), wrong


def test_every_field_with_a_shape_is_found() -> None:
    """The walk that feeds the tests above would be empty without anybody noticing."""
    paths = {(case.kind, case.path) for case in SHAPES}
    assert len(paths) == len(SHAPES)
    assert ("Queue", "spec.consumers[0].scaling.lag") in paths
    assert ("Queue", "spec.timeline.lease.ttl") in paths
    assert ("Queue", "spec.bulk[0].schedule") in paths
    assert ("Counter", "spec.windows[0]") in paths
    assert ("Counter", "spec.storage.dataCenter") in paths


@pytest.mark.parametrize(("kind", "spec"), ACCEPTED)
def test_a_resource_survives_being_dumped(kind: str, spec: dict[str, Any]) -> None:
    resource = parse_resource(document(kind, spec))
    assert parse_resource(json.loads(json.dumps(document_of(resource)))) == resource


def test_a_malformed_duration_is_reported_once_and_breaks_no_rule() -> None:
    spec = {"timeline": {"safetyLag": "soon"}}
    assert faults_of(document("Queue", spec)) == [
        "spec.timeline.safetyLag: must be a duration such as 500ms, 90s, 1h30m or 14d, from 10ms to 5m"
    ]
