"""Strategic merge patches: what a user's template makes of a pod of ours."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate_operator.manifests.document_diff import differences
from headgate_operator.manifests.strategic_merge import KEYS, PatchInvalid, key_of, merge

POD: dict[str, Any] = {
    "metadata": {"labels": {"a": "1"}},
    "spec": {
        "containers": [
            {
                "name": "worker",
                "image": "ours",
                "command": ["headgate", "worker"],
                "env": [
                    {"name": "USERNAME", "valueFrom": {"secretKeyRef": {"name": "s", "key": "USERNAME"}}},
                    {"name": "POD_NAME", "value": "x"},
                ],
                "ports": [{"name": "health", "containerPort": 9090, "protocol": "TCP"}],
                "readinessProbe": {"httpGet": {"path": "/readyz", "port": 9090}, "periodSeconds": 2},
                "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}},
                "volumeMounts": [{"name": "tmp", "mountPath": "/scratch"}],
            }
        ],
        "volumes": [{"name": "tmp", "emptyDir": {}}],
        "tolerations": [{"key": "a", "operator": "Exists"}],
        "topologySpreadConstraints": [{"topologyKey": "host", "maxSkew": 1, "whenUnsatisfiable": "ScheduleAnyway"}],
    },
}


def worker_after(**patch: Any) -> dict[str, Any]:
    """The container `worker`, with these fields set."""
    merged = merge(POD, {"spec": {"containers": [{"name": "worker", **patch}]}})
    entries: dict[str, Any] = merged["spec"]["containers"][0]
    return entries


def spec_after(**patch: Any) -> dict[str, Any]:
    entries: dict[str, Any] = merge(POD, {"spec": patch})["spec"]
    return entries


def test_containers_merge_by_name_and_a_new_one_is_added() -> None:
    merged = spec_after(containers=[{"name": "worker", "image": "mine"}, {"name": "proxy", "image": "envoy"}])
    assert ["worker", "proxy"] == [container["name"] for container in merged["containers"]]
    assert ("mine", ["headgate", "worker"]) == (merged["containers"][0]["image"], merged["containers"][0]["command"])


def test_maps_merge_field_by_field_and_null_removes_a_field() -> None:
    assert {"requests": {"cpu": "1", "memory": "128Mi"}, "limits": {"memory": "1Gi"}} == worker_after(
        resources={"requests": {"cpu": "1"}, "limits": {"memory": "1Gi"}}
    )["resources"]
    assert "resources" not in worker_after(resources=None)


def test_variables_merge_by_name_mounts_by_path_and_ports_by_number() -> None:
    patched = worker_after(
        env=[{"name": "POD_NAME", "value": "y"}, {"name": "MINE", "value": "1"}],
        volumeMounts=[{"mountPath": "/scratch", "name": "other"}, {"mountPath": "/data", "name": "data"}],
        ports=[{"containerPort": 9090, "name": "probes"}, {"containerPort": 9090, "protocol": "UDP", "name": "u"}],
    )
    assert [("USERNAME", None), ("POD_NAME", "y"), ("MINE", "1")] == [
        (one["name"], one.get("value")) for one in patched["env"]
    ]
    assert [("/scratch", "other"), ("/data", "data")] == [
        (one["mountPath"], one["name"]) for one in patched["volumeMounts"]
    ]
    assert [("probes", "TCP"), ("u", "UDP")] == [(one["name"], one["protocol"]) for one in patched["ports"]]


def test_lists_without_a_key_are_taken_as_a_whole() -> None:
    assert ["sleep"] == worker_after(command=["sleep"])["command"]
    assert [{"key": "b"}] == spec_after(tolerations=[{"key": "b"}])["tolerations"]


def test_spread_merges_by_the_key_of_the_topology() -> None:
    values = {"topologyKey": "host", "whenUnsatisfiable": "DoNotSchedule"}
    assert [{**values, "maxSkew": 1}] == spec_after(topologySpreadConstraints=[values])["topologySpreadConstraints"]


def test_patch_delete_removes_an_item_a_map_and_nothing_that_is_not_there() -> None:
    deletions = [{"name": name, "$patch": "delete"} for name in ("POD_NAME", "UNKNOWN")]
    assert ["USERNAME"] == [one["name"] for one in worker_after(env=deletions)["env"]]
    assert "readinessProbe" not in worker_after(readinessProbe={"$patch": "delete"})
    assert [] == spec_after(volumes=[{"name": "tmp", "$patch": "delete"}])["volumes"]


def test_patch_replace_takes_the_patch_instead_of_a_map_an_item_or_a_whole_list() -> None:
    limits = {"limits": {"cpu": "1"}}
    assert limits == worker_after(resources={"$patch": "replace", **limits})["resources"]
    assert {"name": "worker", "image": "mine"} == worker_after(**{"$patch": "replace", "image": "mine"})
    assert [{"name": "A", "value": "1"}] == worker_after(env=[{"$patch": "replace"}, {"name": "A", "value": "1"}])[
        "env"
    ]


def test_retain_keys_keeps_those_fields_alone() -> None:
    assert {"memory": "1Gi"} == worker_after(resources={"requests": {"$retainKeys": ["memory"], "memory": "1Gi"}})[
        "resources"
    ]["requests"]


def test_of_fields_of_which_there_may_be_one_the_patch_s_choice_removes_ours() -> None:
    assert {"name": "USERNAME", "value": "me"} in worker_after(env=[{"name": "USERNAME", "value": "me"}])["env"]
    assert {"exec": {"command": ["true"]}, "periodSeconds": 2} == worker_after(
        readinessProbe={"exec": {"command": ["true"]}}
    )["readinessProbe"]
    claim = {"name": "tmp", "persistentVolumeClaim": {"claimName": "mine"}}
    assert [claim] == spec_after(volumes=[claim])["volumes"]
    assert [{"name": "tmp", "emptyDir": {"medium": "Memory"}}] == spec_after(
        volumes=[{"name": "tmp", "emptyDir": {"medium": "Memory"}}]
    )["volumes"]


@pytest.mark.parametrize(
    ("patch", "message"),
    [
        ({"spec": {"containers": [{"image": "x"}]}}, "spec.containers[0]: needs name"),
        ({"spec": {"containers": {"name": "x"}}}, "spec.containers: holds no fields of its own"),
        ({"spec": {"containers": "x"}}, "spec.containers: must be a list"),
        ({"spec": "x"}, "spec: must be a map"),
        ({"spec": [{"a": 1}]}, "spec: is not a list"),
        ({"spec": {"$patch": "remove"}}, "spec: $patch must be replace, delete or merge"),
        ({"$setElementOrder/containers": []}, "the patch: $setElementOrder/containers is not supported"),
        ({"spec": {"$retainKeys": "a"}}, "spec: $retainKeys must be a list"),
        ({"spec": {"containers": [{"name": "worker", "env": [{"value": "1"}]}]}}, "spec.containers[worker].env[0]: "),
    ],
)
def test_what_cannot_be_merged_is_reported_with_the_way_to_it(patch: dict[str, Any], message: str) -> None:
    with pytest.raises(PatchInvalid) as caught:
        merge(POD, patch)
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


def test_lists_of_texts_that_are_named_as_lists_of_a_pod_are_taken_as_a_whole() -> None:
    merged = merge({"imagePullSecrets": ["a"]}, {"imagePullSecrets": ["b"]})
    assert {"imagePullSecrets": ["b"]} == merged


# ---- laws, of any document and any patch

texts = st.text("abxy", min_size=1, max_size=2)
leaves = st.one_of(st.booleans(), st.integers(-3, 3), texts)
plain_fields = st.sampled_from(["image", "command", "labels", "spec", "limits", "nodeSelector"])
list_fields = st.sampled_from(sorted(KEYS))


@st.composite
def items_of(draw: st.DrawFn, field: str, inner: st.SearchStrategy[Any]) -> list[dict[str, Any]]:
    """A list whose items have keys, each once."""
    keys = draw(st.lists(st.tuples(*(texts for _ in KEYS[field])), max_size=3, unique=True))
    return [{**draw(inner), **dict(zip(KEYS[field], key, strict=True))} for key in keys]


@st.composite
def maps(draw: st.DrawFn, depth: int = 2) -> dict[str, Any]:
    made: dict[str, Any] = {}
    inner = maps(depth - 1) if depth else st.just({})
    for field in draw(st.lists(plain_fields, max_size=3, unique=True)):
        kind = {"image": leaves, "command": st.lists(texts, max_size=2)}
        made[field] = draw(kind.get(field, inner))
    if depth:
        for field in draw(st.lists(list_fields, max_size=2, unique=True)):
            made[field] = draw(items_of(field, inner))
    return made


@st.composite
def patches(draw: st.DrawFn) -> dict[str, Any]:
    """A document with deletions in it."""
    return _with_deletions(draw, draw(maps()))


def _with_deletions(draw: st.DrawFn, node: dict[str, Any]) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for field, value in node.items():
        fate = draw(st.sampled_from(["keep", "keep", "keep", "null", "delete", "replace"]))
        if isinstance(value, dict):
            inner = _with_deletions(draw, value)
            made[field] = None if fate == "null" else inner if fate == "keep" else {**inner, "$patch": fate}
        elif field in KEYS:
            made[field] = [_with_item_fate(draw, field, item) for item in value]
        else:
            made[field] = None if fate == "null" else value
    return made


def _with_item_fate(draw: st.DrawFn, field: str, item: dict[str, Any]) -> dict[str, Any]:
    fate = draw(st.sampled_from(["keep", "keep", "delete", "replace"]))
    rest = {name: value for name, value in item.items() if name not in KEYS[field]}
    keys = {name: value for name, value in item.items() if name in KEYS[field]}
    return {**_with_deletions(draw, rest), **keys, **({} if fate == "keep" else {"$patch": fate})}


few = settings(max_examples=30, deadline=None)
"""Each example is a whole pod and a patch of it: many would cost more than they find."""


@few
@given(maps(), patches())
def test_a_patch_merged_twice_is_merged_once_and_changes_neither_argument(
    base: dict[str, Any], patch: dict[str, Any]
) -> None:
    before = copy.deepcopy((base, patch))
    once = merge(base, patch)
    assert before == (base, patch)
    assert once == merge(once, patch)
    assert base == merge(base, {})


@few
@given(maps(), maps(), maps())
def test_what_a_patch_states_is_in_the_result_and_patches_can_be_merged_first(
    base: dict[str, Any], first: dict[str, Any], second: dict[str, Any]
) -> None:
    merged = merge(merge(base, first), second)
    assert {} == differences(second, merged)
    assert merged == merge(base, merge(first, second))


@few
@given(maps(), patches())
def test_the_result_has_no_directive_no_null_and_no_item_twice_and_keeps_what_was_not_named(
    base: dict[str, Any], patch: dict[str, Any]
) -> None:
    merged = merge(base, patch)
    fields = list(_walk(merged))
    assert [] == [name for name, value in fields if name.startswith("$") or value is None]
    keys = [[key_of(name, item) for item in value] for name, value in fields if name in KEYS]
    assert [] == [each for each in keys if len(each) != len(set(each))]
    unnamed = base.keys() - patch.keys()
    assert {name: base[name] for name in unnamed} == {name: merged[name] for name in unnamed}


def _walk(node: Any) -> Any:
    if isinstance(node, dict):
        for name, value in node.items():
            yield name, value
            yield from _walk(value)
    elif isinstance(node, list):
        for item in node:
            yield from _walk(item)
