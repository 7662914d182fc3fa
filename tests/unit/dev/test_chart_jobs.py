"""Decisions of the chart's Jobs: about CustomResourceDefinitions at an upgrade, and about resources at the end."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest

from headgate_operator.cluster.api_server import bare_token
from headgate_operator.install.decide_crds import VERSION, decide_crd, definitions
from headgate_operator.install.decide_uninstall import (
    OF_A_TEST,
    decide_leaving,
    format_few,
    format_leftover,
    without_finalizer,
)
from headgate_operator.model.names import FINALIZER

QUEUES = definitions("0.2.0")[0]


def live(version: str | None = "0.2.0", **changes: Any) -> dict[str, Any]:
    """The definition as a server has it."""
    document = deepcopy(dict(QUEUES))
    document["metadata"] |= {"uid": "u", "resourceVersion": "7", "annotations": {"example.org/kept": "yes"}}
    if version is not None:
        document["metadata"]["annotations"][VERSION] = version
    document["spec"]["conversion"] = {"strategy": "None"}
    document["status"] = {"storedVersions": ["v1beta1"]}
    return document | changes


def without_shards(report: dict[str, Any]) -> dict[str, Any]:
    """As it was before queues had shards."""
    schema = report["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    del schema["properties"]["spec"]["properties"]["shards"]
    return report


def test_a_definition_that_is_not_there_is_made() -> None:
    step = decide_crd(None, QUEUES)
    assert ("make", QUEUES) == (step.do, step.document)


def test_one_that_is_as_wanted_is_left() -> None:
    step = decide_crd(live(), QUEUES)
    assert ("leave", "is up to date with version 0.2.0") == (step.do, step.message)


@pytest.mark.parametrize("version", ["0.1.0", "0.1.99", None])
def test_an_older_one_or_one_of_no_version_is_replaced_as_a_whole_where_it_was_seen(version: str | None) -> None:
    step = decide_crd(live(version), QUEUES)
    assert step.do == "replace"
    assert step.document is not None
    assert QUEUES["spec"] == step.document["spec"]
    assert ("u", "7") == (step.document["metadata"]["uid"], step.document["metadata"]["resourceVersion"])


def test_what_others_noted_on_it_stays() -> None:
    step = decide_crd(live("0.1.0"), QUEUES)
    assert step.document is not None
    assert {"example.org/kept": "yes", VERSION: "0.2.0"} == step.document["metadata"]["annotations"]


def test_one_of_this_version_that_a_hand_has_cut_is_fixed() -> None:
    assert decide_crd(without_shards(live()), QUEUES).do == "replace"


@pytest.mark.parametrize("version", ["0.2.1", "0.10.0", "1.0.0"])
def test_a_newer_one_is_left_and_it_is_reported(version: str) -> None:
    step = decide_crd(without_shards(live(version)), QUEUES)
    assert (step.do, step.document) == ("leave", None)
    assert f"version {version}, newer than this version (0.2.0)" in step.message


def test_one_whose_objects_are_stored_in_a_version_that_is_gone_is_refused() -> None:
    step = decide_crd(live("0.1.0", status={"storedVersions": ["v1alpha1", "v1beta1"]}), QUEUES)
    assert ("refuse", "has objects stored as v1alpha1, which version 0.2.0 cannot read") == (step.do, step.message)


def test_one_that_is_being_deleted_is_refused() -> None:
    report = live("0.1.0")
    report["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert decide_crd(report, QUEUES).do == "refuse"


# ---- at the end


def resource(name: str, policy: str | None = None, **metadata: Any) -> dict[str, Any]:
    """A queue."""
    values = {"name": name, "namespace": "shop", "uid": name, "resourceVersion": "1", **metadata}
    return {"kind": "Queue", "metadata": values, "spec": {"deletionPolicy": policy} if policy else {}}


HELD = {"finalizers": ["example.org/other", FINALIZER]}
GOING = {"deletionTimestamp": "2026-01-01T00:00:00Z"}


def test_a_resource_whose_data_are_to_go_with_it_is_in_the_way() -> None:
    result = decide_leaving([resource("b", "Delete"), resource("a", "Delete", **HELD), resource("c")], remove=True)
    assert ("queue shop/a", "queue shop/b") == result.refused


def test_under_retain_nothing_is_in_the_way_and_nothing_is_removed() -> None:
    result = decide_leaving([resource("a"), resource("b", "Retain")], remove=False)
    assert ((), (), (), ()) == (result.refused, result.ending, result.release, result.remove)


def test_a_finalizer_that_is_left_over_under_retain_is_taken_off_and_no_other() -> None:
    held = resource("a", "Retain", **HELD)
    assert (held,) == decide_leaving([held, resource("b")], remove=False).release
    assert ["example.org/other"] == without_finalizer(held)["metadata"]["finalizers"]
    assert "1" == without_finalizer(held)["metadata"]["resourceVersion"]


def test_what_is_being_deleted_with_its_data_is_waited_for_and_without_them_released() -> None:
    dropping, keeping = resource("a", "Delete", **HELD, **GOING), resource("b", "Retain", **HELD, **GOING)
    result = decide_leaving([dropping, keeping, resource("c", "Delete", **GOING)], remove=False)
    assert (("queue shop/a",), (keeping,), ()) == (result.ending, result.release, result.refused)


def test_what_helm_test_made_goes_whatever_it_states() -> None:
    made = resource("a", "Delete", labels={OF_A_TEST: "headgate"})
    result = decide_leaving([made], remove=False)
    assert ((), (made,)) == (result.refused, result.remove)


def test_with_remove_all_that_stays_in_cassandra_goes() -> None:
    both = [resource("a"), resource("b", "Retain", **HELD)]
    assert tuple(both) == decide_leaving(both, remove=True).remove


def test_many_are_given_by_the_first_and_how_many_more() -> None:
    assert "a, b, c, d, e and 2 more" == format_few("abcdefg")
    assert "a, b" == format_few("ab")


def test_what_is_left_is_reported_with_what_holds_it() -> None:
    held = resource("a", **GOING, finalizers=["example.org/other"])
    assert "queue shop/a (held by example.org/other)" == format_leftover(held)
    deployment = {"kind": "Deployment", "metadata": {"name": "a-mailer", "namespace": "shop"}}
    assert "deployment shop/a-mailer" == format_leftover(deployment)


# ---- in a pod


@pytest.mark.parametrize("output", ["bearer a.b.c", "Bearer a.b.c", "a.b.c", "bearer a.b.c\n"])
def test_a_token_is_passed_on_without_the_scheme_however_that_is_written(output: str) -> None:
    assert "a.b.c" == bare_token(output)


def test_no_token_is_none() -> None:
    assert None is bare_token("")
