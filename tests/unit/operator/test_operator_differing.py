"""Does a live object have all that we apply, whatever the server and others have added to it."""

from __future__ import annotations

import copy
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate_operator.manifests.document_diff import STAMP_PATH, differences, digest_of, quantity, stamp_of, stamped
from headgate_operator.manifests.strategic_merge import merge
from tests.unit.operator.test_operator_merging import few, maps

APPLIED: dict[str, Any] = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {
        "name": "a",
        "labels": {"headgate.io/queue": "emails"},
        "ownerReferences": [{"uid": "u", "name": "q"}],
    },
    "spec": {
        "replicas": 0,
        "paused": False,
        "template": {
            "spec": {
                "containers": [
                    {
                        "name": "worker",
                        "image": "x",
                        "command": ["headgate", "worker"],
                        "env": [{"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
                        "ports": [{"containerPort": 9090}],
                        "resources": {"requests": {"cpu": "0.1", "memory": "1024Mi"}},
                    }
                ],
                "volumes": [{"name": "tmp", "emptyDir": {}}],
                "tolerations": [{"key": "a"}],
            }
        },
    },
}


def live() -> dict[str, Any]:
    """The same as an API server shows it: with its defaults, its own ways to write, and what others added."""
    shown = copy.deepcopy(APPLIED)
    del shown["apiVersion"], shown["kind"], shown["spec"]["paused"]
    shown["metadata"] |= {
        "uid": "1",
        "resourceVersion": "7",
        "annotations": {"deployment.kubernetes.io/revision": "1"},
    }
    pod = shown["spec"]["template"]["spec"]
    pod |= {"dnsPolicy": "ClusterFirst", "restartPolicy": "Always"}
    worker = pod["containers"][0]
    worker |= {"imagePullPolicy": "IfNotPresent", "terminationMessagePath": "/dev/termination-log"}
    worker["env"][0]["valueFrom"]["fieldRef"]["apiVersion"] = "v1"
    worker["env"].insert(0, {"name": "INJECTED", "value": "1"})
    worker["ports"][0]["protocol"] = "TCP"
    worker["resources"]["requests"] = {"cpu": "100m", "memory": "1Gi"}
    pod["containers"].insert(0, {"name": "sidecar", "image": "y"})
    pod["tolerations"][0]["operator"] = "Equal"
    shown["status"] = {"replicas": 0}
    return shown


def test_defaults_quantities_order_and_what_others_added_are_no_difference() -> None:
    assert {} == differences(APPLIED, live())


def changed(path: str, value: Any) -> dict[str, Any]:
    """The live object with one thing changed."""
    shown = live()
    worker = shown["spec"]["template"]["spec"]["containers"][1]
    places: dict[str, tuple[dict[str, Any], str]] = {
        "image": (worker, "image"),
        "command": (worker, "command"),
        "cpu": (worker["resources"]["requests"], "cpu"),
        "env": (worker, "env"),
        "port": (worker["ports"][0], "containerPort"),
        "replicas": (shown["spec"], "replicas"),
        "paused": (shown["spec"], "paused"),
        "label": (shown["metadata"]["labels"], "headgate.io/queue"),
        "owner": (shown["metadata"], "ownerReferences"),
        "tolerations": (shown["spec"]["template"]["spec"], "tolerations"),
        "template": (shown["spec"], "template"),
    }
    where, name = places[path]
    if value is None:
        del where[name]
    else:
        where[name] = value
    return shown


POD = "spec.template.spec"
WORKER = f"{POD}.containers[worker]"


@pytest.mark.parametrize(
    ("path", "value", "result"),
    [
        ("image", "z", {f"{WORKER}.image": "z"}),
        ("image", None, {f"{WORKER}.image": None}),
        ("command", ["headgate"], {f"{WORKER}.command": ["headgate"]}),
        ("command", ["headgate", "dev"], {f"{WORKER}.command[1]": "dev"}),
        ("command", None, {f"{WORKER}.command": None}),
        ("cpu", "200m", {f"{WORKER}.resources.requests[cpu]": "200m"}),
        ("env", [], {f"{WORKER}.env[POD_NAME]": None}),
        ("port", 9091, {f"{WORKER}.ports[9090]": None}),
        ("replicas", 2, {"spec.replicas": 2}),
        ("paused", True, {"spec.paused": True}),
        ("label", "other", {"metadata.labels[headgate.io/queue]": "other"}),
        ("owner", [], {"metadata.ownerReferences[u]": None}),
        ("tolerations", [{"key": "b"}], {f"{POD}.tolerations[0].key": "b"}),
        ("tolerations", None, {f"{POD}.tolerations": None}),
    ],
)
def test_what_was_changed_is_found_with_its_path_and_what_stands_there(
    path: str, value: Any, result: dict[str, Any]
) -> None:
    assert result == differences(APPLIED, changed(path, value))


def test_each_leaf_below_what_is_gone_is_named() -> None:
    result = differences(APPLIED, changed("template", None))
    assert {WORKER, f"{POD}.tolerations", f"{POD}.volumes[tmp]"} == set(result)
    assert {None} == set(result.values())


def test_true_is_not_one_and_a_number_is_not_its_text() -> None:
    assert {"spec.a": 1} == differences({"spec": {"a": True}}, {"spec": {"a": 1}})
    assert {"spec.port": 1} == differences({"spec": {"port": "1"}}, {"spec": {"port": 1}})


@pytest.mark.parametrize(
    ("one", "other"),
    [
        *(("100m", "0.1"), ("1", 1), ("1Gi", "1024Mi"), ("1k", "1000"), ("1e3", "1k"), ("0", 0), ("1.5Gi", "1536Mi")),
        *(("1.", "1"), ("1.Gi", "1Gi"), ("+2.m", "2m"), (".5", "500m"), ("1.e3", "1k"), ("-.5", "-500m")),
    ],
)
def test_quantities_are_compared_by_what_they_mean(one: Any, other: Any) -> None:
    assert {} == differences({"requests": {"cpu": one}}, {"requests": {"cpu": other}})
    assert quantity(one) == quantity(other)


def test_elsewhere_a_text_is_a_text() -> None:
    assert {"spec.memory": "1000m"} == differences({"spec": {"memory": "1"}}, {"spec": {"memory": "1000m"}})


@pytest.mark.parametrize(
    "no_quantity",
    ["", "Mi", "1 Gi", "one", "1KiB", True, None, [], "--1", ".", ".Gi", "1.2.", "1..", "+."],
)
def test_what_is_no_quantity_is_none(no_quantity: Any) -> None:
    assert quantity(no_quantity) is None


def test_a_quantity_is_exact() -> None:
    assert Decimal("0.1") == quantity("100m")


def test_of_items_that_the_server_distinguishes_by_more_the_closest_counts() -> None:
    applied = {"topologySpreadConstraints": [{"topologyKey": "host", "whenUnsatisfiable": "ScheduleAnyway"}]}
    other = {"topologyKey": "host", "whenUnsatisfiable": "DoNotSchedule"}
    shown = {"topologySpreadConstraints": [other, *applied["topologySpreadConstraints"]]}
    assert {} == differences(applied, shown)


def test_a_field_that_is_applied_no_more_is_seen_by_the_stamp() -> None:
    document = {"metadata": {"name": "a"}, "spec": {"nodeSelector": {"disk": "ssd"}, "replicas": 1}}
    shown = stamped(document)
    assert {} == differences(stamped(document), shown)
    fewer = stamped({"metadata": {"name": "a"}, "spec": {"replicas": 1}})
    assert {STAMP_PATH: stamp_of(shown)} == differences(fewer, shown)


def test_a_stamp_leaves_other_annotations_and_the_document_itself_alone() -> None:
    document = {"metadata": {"name": "a", "annotations": {"mine": "1"}}}
    before = copy.deepcopy(document)
    assert {"mine": "1", "headgate.io/applied": digest_of(document)} == stamped(document)["metadata"]["annotations"]
    assert before == document
    assert stamp_of(document) is None


@few
@given(maps(), maps())
def test_after_applying_nothing_differs_whatever_was_there(document: dict[str, Any], there: dict[str, Any]) -> None:
    assert {} == differences(document, document)
    assert {} == differences(document, merge(there, document))


@few
@given(maps(), st.data())
def test_any_leaf_that_is_removed_or_changed_is_found(document: dict[str, Any], data: st.DataObject) -> None:
    ways = list(_leaves(document))
    if not ways:
        return
    way = data.draw(st.sampled_from(ways))
    shown = copy.deepcopy(document)
    _change(shown, way, data.draw(st.sampled_from(["gone", "other"])))
    assert len(differences(document, shown)) == 1


def _leaves(node: Any, way: tuple[Any, ...] = ()) -> Any:
    """The paths to all leaves with a value, but for the keys of list items."""
    if isinstance(node, dict):
        for name, value in node.items():
            yield from _leaves(value, (*way, name))
    elif isinstance(node, list) and node and isinstance(node[0], dict):
        keyed = {"name", "mountPath", "devicePath", "containerPort", "protocol", "ip", "topologyKey", "uid"}
        for index, item in enumerate(node):
            yield from (leaf for leaf in _leaves(item, (*way, index)) if leaf[-1] not in keyed)
    elif node:
        yield way


def _change(node: Any, way: tuple[Any, ...], how: str) -> None:
    for step in way[:-1]:
        node = node[step]
    if how == "gone":
        del node[way[-1]]
    else:
        node[way[-1]] = "something else"
