"""The CRDs on a real API server: every rule refuses what it should, in the words that its author is promised.

Objects are sent as dry runs, so that nothing of them stays; Python's verdict on the same objects must be the same.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kubernetes import client, config

from dev.cluster.fixtures import KubernetesUnderTest
from dev.cluster.kubectl import Kubectl, KubectlRefused, refusal
from headgate.api.generate.schemas import PLURALS
from headgate.api.read.parse import check_resource
from headgate.api.resources.model import GROUP, VERSION
from headgate.api.resources.passed_on import ITEMS_MAX, describe_length_limit
from headgate.api.values.cron import CRON
from tests.unit.api.api_cases import (
    ACCEPTED,
    CHANGES,
    ROOT,
    SUBJECT,
    Refusal,
    ShapeCase,
    document,
    read_refusals,
    shape_cases,
    wrong_texts,
)

_BLAME = re.compile(r'^(Invalid value: "[^"]*": |Invalid value: \S+: |Forbidden: )')


class Server:
    """Queues and Counters of one namespace, asked over one connection: a kubectl for each would take minutes."""

    def __init__(self, kubectl: Kubectl) -> None:
        self.namespace = kubectl.namespace or "default"
        self.connection = config.new_client_from_config(config_file=kubectl.kubeconfig, context=kubectl.context)
        self.objects = client.CustomObjectsApi(self.connection)

    def create(self, made: dict[str, Any], *, dry: bool = False) -> dict[str, Any]:
        how = {"field_validation": "Strict", **({"dry_run": "All"} if dry else {})}
        created: dict[str, Any] = self.objects.create_namespaced_custom_object(
            GROUP, VERSION, self.namespace, PLURALS[made["kind"]], made, **how
        )
        return created

    def create_cron_job(self, schedule: str) -> None:
        pod = {"restartPolicy": "Never", "containers": [{"name": "a", "image": "i"}]}
        job = {"schedule": schedule, "jobTemplate": {"spec": {"template": {"spec": pod}}}}
        made = {"metadata": {"name": SUBJECT}, "spec": job}
        client.BatchV1Api(self.connection).create_namespaced_cron_job(self.namespace, made, dry_run="All")

    def replace(self, made: dict[str, Any], version: str) -> None:
        name = made["metadata"]["name"]
        wanted = {**made, "metadata": {"name": name, "resourceVersion": version}}
        self.objects.replace_namespaced_custom_object(
            GROUP, VERSION, self.namespace, PLURALS[made["kind"]], name, wanted, dry_run="All"
        )

    def delete(self, made: dict[str, Any]) -> None:
        self.objects.delete_namespaced_custom_object(
            GROUP, VERSION, self.namespace, PLURALS[made["kind"]], made["metadata"]["name"]
        )

    def faults_of(self, after: dict[str, Any], before: dict[str, Any] | None = None) -> list[str]:
        """The answer to the author of an object, or of a change."""
        try:
            if before is None:
                self.create(after, dry=True)
                return []
            version = self.create(before)["metadata"]["resourceVersion"]
            try:
                self.replace(after, version)
            finally:
                self.delete(before)
        except client.ApiException as refused:
            answer = json.loads(refused.body)
            return [f"{cause['field']}: {_BLAME.sub('', cause['message'])}" for cause in answer["details"]["causes"]]
        return []


def python_faults_of(after: dict[str, Any], before: dict[str, Any] | None = None) -> list[str]:
    result = check_resource(after, before)
    return [str(fault) for fault in result] if isinstance(result, list) else []


@pytest.fixture(scope="module")
def definitions(kubernetes: KubernetesUnderTest) -> Kubectl:
    """The CRDs as they are generated, established."""
    kubernetes.kubectl.run("apply", "--server-side", "--force-conflicts", "-f", str(ROOT / "crds"))
    kubernetes.kubectl.run("wait", "--for=condition=Established", "--timeout=60s", "-f", str(ROOT / "crds"))
    return kubernetes.kubectl


@pytest.fixture(scope="module")
def server(definitions: Kubectl) -> Iterator[Server]:
    namespace = f"crd-rules-{secrets.token_hex(3)}"
    definitions.run("create", "namespace", namespace)
    try:
        yield Server(definitions.in_namespace(namespace))
    finally:
        definitions.delete("namespace", namespace, wait=False)


@pytest.fixture
def namespaced(definitions: Kubectl, k8s_namespace: Kubectl) -> Kubectl:
    return k8s_namespace


@pytest.mark.parametrize("row", read_refusals(), ids=lambda row: row.rule)
def test_an_object_that_breaks_a_rule_is_refused_in_the_promised_words(server: Server, row: Refusal) -> None:
    assert tuple(server.faults_of(row.after, row.before)) == row.sees


@pytest.mark.parametrize("case", shape_cases(), ids=lambda case: f"{case.kind}.{case.path}")
def test_a_value_that_has_not_the_shape_of_its_field_is_refused(server: Server, case: ShapeCase) -> None:
    for wrong in wrong_texts(case.shape):
        made = case.with_value(wrong)
        observation = server.faults_of(made)
        assert f"{case.path}: {case.shape.message}" in observation, wrong
        assert sorted(observation) == sorted(python_faults_of(made)), wrong


@pytest.mark.parametrize(("kind", "spec"), ACCEPTED)
def test_what_lies_on_the_right_side_of_every_edge_is_accepted(
    server: Server, kind: str, spec: dict[str, Any]
) -> None:
    assert server.faults_of(document(kind, spec)) == []


def test_a_template_is_stored_as_it_was_written_also_where_null_removes_a_list(server: Server) -> None:
    container = {"name": "worker", "env": None, "ports": [{"containerPort": 1, "later": {"field": []}}], "x": None}
    template = {"spec": {"containers": [container], "volumes": None, "tolerations": [], "affinity": None}}
    consumer = {"name": "a", "handler": "a:b", "template": template}
    made = server.create(document("Queue", {"consumers": [consumer]}), dry=True)
    assert template == made["spec"]["consumers"][0]["template"]


@pytest.mark.parametrize("field", ["env", "envFrom", "ports", "volumeMounts"])
@pytest.mark.parametrize("where", ["containers", "initContainers"])
def test_a_list_of_a_template_that_is_too_long_is_refused_in_the_words_of_validate(
    server: Server, where: str, field: str
) -> None:
    template = {"spec": {where: [{"name": "worker", field: [{}] * (ITEMS_MAX + 1)}]}}
    made = document("Queue", {"consumers": [{"name": "a", "handler": "a:b", "template": template}]})
    observation = server.faults_of(made)
    assert observation == python_faults_of(made)
    assert [f"spec.consumers[0].template.spec.{where}[0].{field}: {describe_length_limit(field)}"] == observation


@pytest.mark.parametrize(("kind", "before", "after"), CHANGES)
def test_a_change_that_changes_nothing_fixed_is_accepted(
    server: Server, kind: str, before: dict[str, Any], after: dict[str, Any]
) -> None:
    assert server.faults_of(document(kind, after), document(kind, before)) == []


lengths = st.sampled_from(
    [
        "0s",
        "5ms",
        "100ms",
        "499ms",
        "500ms",
        "1s",
        "1001ms",
        "2s",
        "3s",
        "6s",
        "1m",
        "1h",
        "24h",
        "1d",
        "36h",
        "1d12h",
        "14d",
        "3650d",
        "2w",
    ]
)
numbers = st.integers(1, 20)
flags = st.booleans()


def some(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({}, optional=fields)


consumers = st.lists(
    some(
        handler=st.just("a:b"),
        http=st.just({"port": 80}),
        image=st.just("i"),
        deadLetter=st.sampled_from([SUBJECT, "other"]),
        startFrom=st.sampled_from(["latest", "never"]),
        scaling=some(min=numbers, max=numbers, lag=lengths),
    ),
    max_size=2,
)
bulk = st.lists(
    st.fixed_dictionaries(
        {"mode": st.sampled_from(["drain", "replay", "redrive", "move", "export"])},
        optional={
            "schedule": st.sampled_from(["@daily", "10-30 * * * *", "30-10 * * * *", "0 0 * * fri-mon"]),
            "backlogAbove": numbers,
            "handler": st.just("a:b"),
            "target": st.sampled_from([SUBJECT, "other"]),
            "sink": st.just({"format": "json", "path": "x"}),
        },
    ),
    max_size=2,
)
queues = some(
    engine=st.sampled_from(["timeline", "bucket", "extent"]),
    shards=numbers,
    retention=lengths,
    visibilityTimeout=lengths,
    maxClockSkew=lengths,
    deadLetter=st.sampled_from([SUBJECT, "other"]),
    timeline=some(
        part=lengths,
        safetyLag=lengths,
        shardBy=st.sampled_from(["flush", "second"]),
        lateWriteTimeout=lengths,
        lease=some(ttl=lengths, touch=lengths),
    ),
    bucket=some(size=numbers, order=st.sampled_from(["random", "fifo"]), lateWriteTimeout=lengths),
    extent=some(mode=st.sampled_from(["AP", "CP"]), fifo=flags, maxExtents=numbers, dedup=some(contentBased=flags)),
    consumers=consumers,
    bulk=bulk,
    storage=some(keyspace=st.sampled_from(["a", "b", "C"]), tables=st.sampled_from(["dedicated", "shared"])),
)
counters = some(
    type=st.sampled_from(["sum", "acme/x", "total"]),
    mutator=some(lifetime=lengths, refuseWithin=lengths),
    gc=some(after=lengths),
    buckets=numbers,
    maxClockSkew=lengths,
    windows=st.lists(lengths, max_size=3, unique=True),
    retention=lengths,
    storage=some(replication=st.integers(1, 3)),
)
resources = st.one_of(queues.map(lambda spec: ("Queue", spec)), counters.map(lambda spec: ("Counter", spec)))


def named(kind: str, spec: dict[str, Any]) -> dict[str, Any]:
    """A document whose listed items have names of their own."""
    made = document(kind, spec)
    for field in ("consumers", "bulk"):
        for index, item in enumerate(made["spec"].get(field, ())):
            item["name"] = f"n{index}"
    return made


@settings(
    max_examples=400, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(resources)
def test_python_and_the_api_server_state_the_same_of_any_resource(
    server: Server, resource: tuple[str, dict[str, Any]]
) -> None:
    made = named(*resource)
    assert sorted(server.faults_of(made)) == sorted(python_faults_of(made))


@settings(max_examples=150, deadline=None, derandomize=True)
@given(st.one_of(st.tuples(st.just("Queue"), queues, queues), st.tuples(st.just("Counter"), counters, counters)))
def test_python_and_the_api_server_state_the_same_of_any_change(
    server: Server, change: tuple[str, dict[str, Any], dict[str, Any]]
) -> None:
    kind, before, after = change
    made, became = named(kind, before), named(kind, after)
    if python_faults_of(made):
        assert server.faults_of(made) != []
    else:
        assert sorted(server.faults_of(became, made)) == sorted(python_faults_of(became, made))


def schedule_field(least: int, most: int, names: str = "") -> st.SearchStrategy[str]:
    one = st.one_of(st.integers(least, most).map(str), *([st.sampled_from(names.split())] if names else []))
    span = st.one_of(one, st.just("*"), st.tuples(one, one).map("-".join))
    entry = st.tuples(span, st.one_of(st.just(""), st.integers(0, 20).map("/{}".format))).map("".join)
    return st.lists(entry, min_size=1, max_size=2).map(",".join)


schedules = st.tuples(
    schedule_field(0, 60),
    schedule_field(0, 24),
    schedule_field(0, 32),
    schedule_field(0, 13, "jan JUN dec"),
    schedule_field(0, 7, "sun WED fri"),
).map(" ".join)


@settings(max_examples=300, deadline=None, derandomize=True)
@given(st.one_of(schedules, st.sampled_from(["@hourly", "@DAILY", "@midnight", "@yearly", "@every", "0 0 * *"])))
def test_a_schedule_that_is_accepted_makes_a_cron_job(server: Server, schedule: str) -> None:
    """The CronJobs of repair and gc take a schedule unchanged; one that is refused there is reported too late."""
    made = document("Queue", {"repair": {"schedule": schedule}})
    assert CRON.accepts(schedule) == (server.faults_of(made) == [])
    if CRON.accepts(schedule):
        server.create_cron_job(schedule)


def test_the_examples_are_accepted(namespaced: Kubectl) -> None:
    for path in sorted((ROOT / "examples").glob("*.yaml")):
        for made in yaml.safe_load_all(path.read_text()):
            if made["apiVersion"].startswith(GROUP):
                made["metadata"].pop("namespace", None)
                namespaced.run("apply", "--validate=strict", "-f", "-", stdin=json.dumps(made))
    assert {"emails", "emails-dead", "orders", "tickets"} <= {
        result["metadata"]["name"] for result in namespaced.list("hgq")
    }
    assert [result["metadata"]["name"] for result in namespaced.list("hgc")] == ["page-views"]


def test_an_empty_spec_is_kept_with_its_defaults_and_without_other_engines_blocks(server: Server) -> None:
    assert server.create(document("Queue", {}), dry=True)["spec"] == {
        "engine": "timeline",
        "shards": 4,
        "retention": "14d",
        "visibilityTimeout": "30s",
        "delay": "0s",
        "maxReceives": 5,
        "maxMessageSize": "1Mi",
        "onceWindow": "24h",
        "maxClockSkew": "500ms",
        "repair": {"schedule": "*/5 * * * *"},
        "storage": {"tables": "dedicated"},
        "deletionPolicy": "Retain",
        "paused": False,
    }
    assert server.create(document("Counter", {}), dry=True)["spec"] == {
        "type": "sum",
        "mutator": {"lifetime": "24h", "refuseWithin": "1h"},
        "gc": {"schedule": "0 * * * *", "after": "24h"},
        "buckets": 64,
        "maxClockSkew": "500ms",
        "tokenWindow": "15m",
        "retention": "14d",
        "storage": {"tables": "dedicated"},
        "deletionPolicy": "Retain",
        "paused": False,
    }


@pytest.mark.parametrize(("kind", "spec"), ACCEPTED)
def test_what_the_api_server_keeps_means_to_python_what_was_written(
    server: Server, kind: str, spec: dict[str, Any]
) -> None:
    written = check_resource(document(kind, spec))
    kept = check_resource({**server.create(document(kind, spec), dry=True)})
    assert not isinstance(written, list)
    assert not isinstance(kept, list)
    assert kept.spec == written.spec


def test_an_unknown_field_is_refused_where_kubectl_asks_strictly(namespaced: Kubectl) -> None:
    made = json.dumps(document("Queue", {"timeline": {"safety_lag": "1s"}}))
    with pytest.raises(KubectlRefused) as raised:
        namespaced.run("create", "--validate=strict", "-f", "-", stdin=made)
    assert 'unknown field "spec.timeline.safety_lag"' in refusal(raised.value)


def test_kubectl_explain_reports_what_a_field_is_its_default_and_when_to_change_it(definitions: Kubectl) -> None:
    text = " ".join(definitions.run("explain", "queue.spec.timeline.safetyLag").split())
    assert "How far in the future a message that is due at once is placed" in text
    assert "Lower it" in text
    assert "Raise it" in text
    assert "Default: 1s. From 10ms to 5m." in text


def test_short_names_and_the_category_find_the_resources(namespaced: Kubectl) -> None:
    namespaced.apply(document("Queue", {}, "one"), document("Counter", {}, "two"))
    assert namespaced.run("get", "hgq", "-o", "name").split() == ["queue.headgate.io/one"]
    assert namespaced.run("get", "hgc", "-o", "name").split() == ["counter.headgate.io/two"]
    assert sorted(namespaced.run("get", "headgate", "-o", "name").split()) == [
        "counter.headgate.io/two",
        "queue.headgate.io/one",
    ]


CONDITION = {
    "type": "Ready",
    "status": "True",
    "observedGeneration": 1,
    "lastTransitionTime": "2026-11-18T09:00:00Z",
    "reason": "Reconciled",
    "message": "the resource is as its spec declares",
}


def patch_status(namespaced: Kubectl, resource: str, status: dict[str, Any]) -> None:
    patch = json.dumps({"status": status})
    namespaced.run("patch", resource, "--subresource=status", "--type=merge", "-p", patch)


def test_kubectl_get_shows_engine_shards_backlog_oldest_workers_ready_and_age(namespaced: Kubectl) -> None:
    namespaced.apply(document("Queue", {"shards": 6}), document("Counter", {"type": "topk"}))
    workers = [{"name": "mailer", "replicas": 3, "ready": 2}]
    figures = {"backlog": 12, "oldestAge": "1m30s", "consumers": workers}
    patch_status(namespaced, f"hgq/{SUBJECT}", {**figures, "conditions": [CONDITION]})
    patch_status(namespaced, f"hgc/{SUBJECT}", {"keys": 7, "conditions": [CONDITION]})
    head, row = (line.split() for line in namespaced.run("get", "queues").splitlines())
    assert head == ["NAME", "ENGINE", "SHARDS", "BACKLOG", "OLDEST", "WORKERS", "READY", "AGE"]
    assert row[:-1] == [SUBJECT, "timeline", "6", "12", "1m30s", "2", "True"]
    head, row = (line.split() for line in namespaced.run("get", "counters").splitlines())
    assert head == ["NAME", "TYPE", "KEYS", "READY", "AGE"]
    assert row[:-1] == [SUBJECT, "topk", "7", "True"]


def test_kubectl_scale_sets_the_shards_and_reads_what_is_in_force(namespaced: Kubectl) -> None:
    namespaced.apply(document("Queue", {"shards": 6}))
    patch_status(namespaced, f"hgq/{SUBJECT}", {"replicas": 6, "selector": "headgate.io/queue=subject"})
    namespaced.run("scale", f"queue/{SUBJECT}", "--replicas=12")
    path = f"/apis/{GROUP}/{VERSION}/namespaces/{namespaced.namespace}/queues/{SUBJECT}/scale"
    scale = json.loads(namespaced.run("get", "--raw", path))
    assert (scale["spec"], scale["status"]) == (
        {"replicas": 12},
        {"replicas": 6, "selector": "headgate.io/queue=subject"},
    )
    assert namespaced.get("hgq", SUBJECT)["spec"]["shards"] == 12


def test_scaling_an_extent_queue_past_its_most_extents_is_refused(namespaced: Kubectl) -> None:
    namespaced.apply(document("Queue", {"engine": "extent"}))
    with pytest.raises(KubectlRefused) as raised:
        namespaced.run("scale", f"queue/{SUBJECT}", "--replicas=17")
    assert "shards is the fewest open extents" in refusal(raised.value)


def test_a_status_is_written_apart_from_the_spec_and_keeps_what_the_model_knows(namespaced: Kubectl) -> None:
    namespaced.apply(document("Queue", {}))
    status = {
        "observedGeneration": 1,
        "conditions": [CONDITION],
        "replicas": 4,
        "inFlight": 3,
        "rate": 10,
        "lanes": {"total": 4, "leased": 3, "stalled": 0},
        "extents": {"open": 1, "sealed": 2},
        "consumers": [{"name": "a", "replicas": 2, "ready": 1}],
        "repair": {"lastResult": "Succeeded", "lastRun": "2026-11-18T09:00:00Z"},
        "bulk": {"nightly": {"state": "Succeeded", "done": 5, "failed": 0}},
    }
    patch_status(namespaced, f"hgq/{SUBJECT}", status)
    kept = namespaced.get("hgq", SUBJECT)
    assert kept["status"] == status
    assert kept["metadata"]["generation"] == 1
    assert not isinstance(check_resource(kept), list)


def test_a_pod_template_is_kept_to_the_last_key(namespaced: Kubectl) -> None:
    template = {"spec": {"nodeSelector": {"disk": "ssd"}, "containers": [{"name": "worker", "env": [{"name": "A"}]}]}}
    consumer = {"name": "a", "handler": "a:b", "template": template}
    namespaced.apply(document("Queue", {"consumers": [consumer]}))
    assert namespaced.get("hgq", SUBJECT)["spec"]["consumers"][0]["template"] == template


def test_two_managers_own_a_consumer_each(namespaced: Kubectl) -> None:
    """Lists are maps by name, so that server-side apply merges them and no manager removes what another has set."""
    for name in ("billing", "search"):
        spec = {"engine": "extent", "consumers": [{"name": name, "handler": "a:b"}]}
        made = json.dumps(document("Queue", spec))
        namespaced.run("apply", "--server-side", f"--field-manager={name}", "-f", "-", stdin=made)
    consumers = namespaced.get("hgq", SUBJECT)["spec"]["consumers"]
    assert [consumer["name"] for consumer in consumers] == ["billing", "search"]
