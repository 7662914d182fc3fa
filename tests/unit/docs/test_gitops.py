"""The verdict of Argo CD and Flux, by examples/gitops, on every status of the operator's golden files."""

from __future__ import annotations

import copy
import json
from functools import cache
from typing import Any

import pytest
import yaml
from jsonschema import Draft7Validator

from headgate.api.read.parse import check_resource
from headgate.api.resources.reasons import AWAITED, REASONS_OF, STALLING, Reason
from tests.golden.operator.running import CASES, read_case, run
from tests.system.chart.cases import merged
from tests.unit.runtime.health_readers import GITOPS, argo_health, flux_health, kstatus

UNDER_WAY = ("Progressing", "InProgress", "InProgress")
STUCK = ("Degraded", "Failed", "Failed")
AILING = ("Degraded", "InProgress", "InProgress")
"""Whether it becomes Ready by itself is unknown: a pipeline waits until its timeout, a person is shown it at once."""
EXPECTED = {
    "Reconciled": ("Healthy", "Current", "Current"),
    "Paused": ("Suspended", "InProgress", "Current"),
    "Reconciling": UNDER_WAY,
    "Progressing": UNDER_WAY,
    "Deleting": ("Progressing", "Terminating", "InProgress"),
    "TablesMissing": UNDER_WAY,
    "ConsumersStarting": UNDER_WAY,
    "DeadLetterMissing": UNDER_WAY,
    "SpecInvalid": STUCK,
    "EngineUnavailable": STUCK,
    "NameTaken": STUCK,
    "WrongDataCenter": STUCK,
    "TablesDrifted": STUCK,
    "RightsMissing": STUCK,
    "TooManyTables": STUCK,
    "HandlerRefused": STUCK,
    "DeadLetterCycle": STUCK,
    "CassandraUnavailable": AILING,
    "ConnectionMissing": AILING,
    "ClockOutOfBounds": AILING,
    "ConsumersFailing": AILING,
    "ApplyRefused": AILING,
    "LanesUnprocessed": AILING,
    "LaneOwnerStalled": AILING,
    "LaneHeld": AILING,
    "RowsUnreadable": AILING,
}
"""By Ready's reason: Argo CD, kstatus, Flux with our expressions."""


@cache
def documents() -> dict[str, dict[str, Any]]:
    """The resource of each golden file, whole, once nothing is left to do; not those that are gone by then."""
    worlds = {path.stem: run(read_case(path))[0] for path in CASES}
    return {name: world.document for name, world in worlds.items() if world.document and "status" in world.document}


def ready_of(document: dict[str, Any]) -> dict[str, Any]:
    (ready,) = (one for one in document["status"]["conditions"] if one["type"] == "Ready")
    return ready


def verdicts(document: dict[str, Any]) -> tuple[str, str, str]:
    return argo_health(document)[0], kstatus(document), flux_health(document)


def is_of_this_generation(document: dict[str, Any]) -> bool:
    return bool(document["status"]["observedGeneration"] == document["metadata"]["generation"])


def settled() -> dict[str, Any]:
    return copy.deepcopy(documents()["settled_is_left_alone"])


def with_condition(type_: str, status: str, reason: str) -> dict[str, Any]:
    """A resource that is well, but for one condition."""
    document = settled()
    others = [one for one in document["status"]["conditions"] if one["type"] != type_]
    new = {"type": type_, "status": status, "reason": reason, "message": "as declared"}
    document["status"]["conditions"] = [*others, new]
    return document


def test_each_golden_status_is_reported_as_its_reason_is_meant() -> None:
    judged = {name: document for name, document in documents().items() if is_of_this_generation(document)}
    assert len(judged) > 80
    assert {name: EXPECTED[ready_of(one)["reason"]] for name, one in judged.items()} == {
        name: verdicts(one) for name, one in judged.items()
    }


def test_golden_files_have_statuses_of_every_sort() -> None:
    shown = {EXPECTED[ready_of(document)["reason"]] for document in documents().values()}
    assert set(EXPECTED.values()) == shown


def test_every_reason_of_ready_is_expected_somehow_and_as_the_page_of_conditions_sorts_it() -> None:
    assert {reason.value for reason in REASONS_OF["Ready"]} == set(EXPECTED)
    assert {reason.value for reason in STALLING} == {name for name, each in EXPECTED.items() if each == STUCK}
    waiting = {name for name, each in EXPECTED.items() if each[0] == "Progressing"}
    assert {reason.value for reason in AWAITED} == waiting


def test_before_the_first_status_nobody_but_kstatus_alone_takes_it_for_done() -> None:
    document = settled()
    del document["status"]
    assert ("Progressing", "Current", "asked again") == verdicts(document)


def test_a_change_that_the_operator_has_not_seen_is_under_way_whatever_the_status_states() -> None:
    document = settled()
    document["metadata"]["generation"] += 1
    assert UNDER_WAY == verdicts(document)


def test_a_resource_that_is_deleted_while_all_is_well_is_under_way_for_argo_cd() -> None:
    document = settled()
    document["metadata"]["deletionTimestamp"] = "2026-11-18T09:00:00Z"
    assert ("Progressing", "It is being deleted.") == argo_health(document)
    assert "Terminating" == kstatus(document)


def test_ready_that_is_not_known_is_under_way() -> None:
    assert UNDER_WAY == verdicts(with_condition("Ready", "Unknown", "Progressing"))


@pytest.mark.parametrize("type_", ["RepairHealthy", "BulkReady", "CollectionHealthy"])
def test_what_does_not_enter_ready_is_reported_and_stops_no_rollout(type_: str) -> None:
    reason = next(one.value for one in REASONS_OF[type_] if "Failing" in one.value)
    document = with_condition(type_, "False", reason)
    assert EXPECTED["Reconciled"] == verdicts(document)
    assert argo_health(document)[1].endswith(f"{reason}: as declared")


def test_argo_cd_shows_reason_and_message_of_what_is_wrong() -> None:
    document = documents()["dead_letter_missing"]
    ready = ready_of(document)
    assert argo_health(document)[1] == f"{Reason.DEAD_LETTER_MISSING}: {ready['message']}"


def test_a_counter_is_judged_as_a_queue_is() -> None:
    kinds = {document["kind"] for document in documents().values()}
    assert kinds == {"Queue", "Counter"}


def test_the_resources_of_the_base_are_valid_and_a_queue_comes_before_its_dead_letters() -> None:
    files = yaml.safe_load((GITOPS / "base" / "kustomization.yaml").read_text())["resources"]
    resources = [one for file in files for one in yaml.safe_load_all((GITOPS / "base" / file).read_text())]
    assert [] == [result for result in map(check_resource, resources) if isinstance(result, list)]
    names = [one["metadata"]["name"] for one in resources]
    dead_letters = {one["metadata"]["name"]: one["spec"].get("deadLetter") for one in resources}
    assert names.index("emails") < names.index(str(dead_letters["emails"]))


def test_argo_cd_is_reported_the_same_of_both_kinds_by_the_one_file() -> None:
    (generated,) = yaml.safe_load((GITOPS / "argocd" / "kustomization.yaml").read_text())["configMapGenerator"]
    keys = [f"resource.customizations.health.headgate.io_{kind}=health.lua" for kind in ("Queue", "Counter")]
    assert keys == generated["files"]


def test_base_and_overlay_report_kustomize_the_same_of_our_kinds() -> None:
    assert (GITOPS / "base" / "headgate.yaml").read_text() == (GITOPS / "production" / "headgate.yaml").read_text()


@pytest.mark.parametrize(
    ("file", "path"), [("argocd/headgate.yaml", "source helm valuesObject"), ("flux/headgate.yaml", "values")]
)
def test_the_values_of_the_chart_are_those_that_it_takes(file: str, path: str) -> None:
    chart = GITOPS.parents[1] / "charts" / "headgate"
    schema = json.loads((chart / "values.schema.json").read_text())
    usual = yaml.safe_load((chart / "values.yaml").read_text())
    values: Any = yaml.safe_load((GITOPS / file).read_text())["spec"]
    for name in path.split():
        values = values[name]
    assert [] == [fault.message for fault in Draft7Validator(schema).iter_errors(merged(usual, values))]
    wrong = merged(usual, {**values, "conection": {}})
    assert [] != list(Draft7Validator(schema).iter_errors(wrong))
