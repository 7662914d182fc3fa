"""A GitOps life: the chart and a team's resources on a real node, from the first apply to the last delete, with an
application that puts and counts all the time. Nothing is lost, nothing is left.

In short first, then all of it: each change by itself, the chart upgraded, the operator rolled, the API server and
Cassandra each silent for a minute. All by `make test-long`.
"""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from dev.cluster.fixtures import KubernetesUnderTest
from dev.cluster.helm import Helm
from dev.cluster.kubectl import Kubectl, KubectlRefused, names_of, refusal
from dev.servers.cassandra import Cassandra
from dev.servers.owned_server import pause_server
from headgate.local.processes import Server, wait_until
from tests.system.chart.chart_release import OPERATOR, RELEASE, Release, release_of
from tests.system.pods.life_changes import BORN, CHANGES, IMMUTABLE
from tests.system.pods.life_record import LifeRecord, counted_in_the_end, open_ledger
from tests.system.sdk.listener import Listener, listening
from tests.unit.runtime.health_readers import argo_health

READY_WITHIN_S, BALANCED_WITHIN_S, GONE_WITHIN_S = 120.0, 180.0, 180.0
SILENT_S = 60.0
KINDS = {"Queue": ("queue", "emails"), "Counter": ("counter", "page-views")}
CHILDREN = ("deployment", "cronjob", "poddisruptionbudget", "serviceaccount", "secret")
Change = dict[str, Any]


@dataclass(frozen=True)
class Life:
    """A release, a team's namespace, and the events in it."""

    kubernetes: KubernetesUnderTest
    release: Release
    namespaced: Kubectl
    cassandra: Cassandra
    ledger: LifeRecord

    # ---- what is seen

    def settled(self, kind: str, name: str, health: str = "Healthy") -> dict[str, Any]:
        """The resource, once Argo CD reports the health of its latest generation."""

        def holds(observation: dict[str, Any]) -> bool:
            return argo_health(observation)[0] == health

        return self.namespaced.wait_for(kind, name, holds, what=f"is {health}", timeout_s=READY_WITHIN_S)

    def all_settled(self) -> None:
        """Every resource."""
        for kind, name in (*KINDS.values(), ("queue", "emails-dead"), ("queue", "letters-dead")):
            self.settled(kind, name)

    def children(self) -> dict[tuple[str, str], str]:
        """The operator's children here, with their uids."""
        entries = {}
        for kind in CHILDREN:
            for one in self.namespaced.list(kind, "app.kubernetes.io/managed-by=headgate"):
                entries[kind, str(one["metadata"]["name"])] = str(one["metadata"]["uid"])
        return entries

    # ---- what is done

    def apply(self) -> None:
        """In an order that is not the one in which they need each other."""
        for name, spec in (
            ("emails", BORN["Queue"]),
            ("letters-dead", {"shards": 1}),
            ("emails-dead", {"shards": 1}),
        ):
            self.namespaced.apply(document("Queue", name, spec))
        self.namespaced.apply(document("Counter", "page-views", BORN["Counter"]))
        self.all_settled()

    def change(self, kind: str, change: Change) -> None:
        """As `kubectl patch` does, or git."""
        resource = "/".join(KINDS[kind])
        self.namespaced.run("patch", resource, "--type=merge", "-p", json.dumps({"spec": change}))
        self.settled(*KINDS[kind], "Suspended" if change.get("paused") else "Healthy")

    def refuse(self) -> None:
        """Nothing immutable changes, and the API server names the field."""
        for kind, changes in IMMUTABLE.items():
            before = self.namespaced.get(*KINDS[kind])["metadata"]["generation"]
            for change in changes:
                with pytest.raises(KubectlRefused) as refused:
                    patch = json.dumps({"spec": change})
                    self.namespaced.run("patch", "/".join(KINDS[kind]), "--type=merge", "-p", patch)
                assert "fixed when" in refusal(refused.value)
            assert before == self.namespaced.get(*KINDS[kind])["metadata"]["generation"]

    def scale(self, shards: int) -> None:
        """`kubectl scale`: another generation, in force."""
        self.namespaced.run("scale", "queue/emails", f"--replicas={shards}")
        self.namespaced.wait_for(
            "queue",
            "emails",
            lambda observation: observation["status"].get("replicas") == shards,
            what=f"has {shards} shards in force",
            timeout_s=READY_WITHIN_S,
        )

    def delete_children(self) -> None:
        """By hand, all of them: they come back as others."""
        before = self.children()
        assert {kind for kind, _ in before} >= {"deployment", "cronjob", "serviceaccount", "secret"}
        for kind, name in before:
            self.namespaced.delete(kind, name, wait=False)

        def are_back() -> bool:
            now = self.children()
            return now.keys() >= before.keys() and all(now[key] != uid for key, uid in before.items())

        assert wait_until(are_back, timeout_s=READY_WITHIN_S, every_s=1.0), (before, self.children())
        self.all_settled()

    def end(self, environment: Mapping[str, str]) -> None:
        """The books close, then the team deletes its resources and the platform its chart."""
        self.ledger.close()
        self.ledger.wait_until_balanced(timeout_s=BALANCED_WITHIN_S)
        assert self.ledger.counted == counted_in_the_end(environment, f"{self.namespaced.namespace}/page-views")
        for kind, name in (*KINDS.values(), ("queue", "emails-dead"), ("queue", "letters-dead")):
            self.namespaced.run("patch", kind, name, "--type=merge", "-p", '{"spec": {"deletionPolicy": "Delete"}}')
            self.settled(kind, name)
        self.namespaced.run(
            "delete", "queues,counters", "--all", "--wait=true", f"--timeout={GONE_WITHIN_S:.0f}s", timeout_s=200
        )
        assert wait_until(lambda: self.children() == {}, timeout_s=GONE_WITHIN_S, every_s=1.0), self.children()
        self.release.uninstall()
        self.nothing_is_left()

    def nothing_is_left(self) -> None:
        """Neither in the cluster nor, for resources with Delete, in Cassandra."""
        assert wait_until(lambda: self.leftovers() == [], timeout_s=GONE_WITHIN_S, every_s=1.0), self.leftovers()
        query = f"SELECT table_name FROM system_schema.tables WHERE keyspace_name = '{self.release.keyspace}'"  # noqa: S608
        tables = {str(row["table_name"]) for row in self.cassandra.cql(query)}
        assert set() == {name for name in tables if name.startswith(("q_", "c_"))}

    def leftovers(self) -> list[str]:
        """Objects that should be gone."""
        ours = "queues,counters,deployments,cronjobs,jobs,poddisruptionbudgets,pods"
        theirs = "deployments,serviceaccounts,roles,rolebindings,leases,jobs"
        everywhere = "clusterroles,clusterrolebindings"
        return [
            *names_of(self.namespaced.list(ours)),
            *names_of(self.release.kubectl.list(theirs, f"app.kubernetes.io/instance={RELEASE}")),
            *names_of(self.release.kubectl.list(everywhere, f"app.kubernetes.io/instance={RELEASE}")),
        ]


def document(kind: str, name: str, spec: Mapping[str, Any]) -> Change:
    """A resource."""
    return {"apiVersion": "headgate.io/v1beta1", "kind": kind, "metadata": {"name": name}, "spec": dict(spec)}


@pytest.fixture
def listener(kubernetes: KubernetesUnderTest) -> Iterator[Listener]:
    """The place where handlers in pods report each message."""
    with listening(str(kubernetes.host_address)) as received:
        yield received


def last_words(release: Release) -> str:
    """The output of the operator and of the chart's Jobs, to explain the failure of a life."""
    reports = [release.logs() if release.is_installed() else "not installed"]
    for job in release.kubectl.list("jobs"):
        name = str(job["metadata"]["name"])
        reports.append(f"--- {name}\n" + release.kubectl.run("logs", f"job/{name}", "--tail=50"))
    return "\n".join(reports)


@contextmanager
def lived(
    kubernetes: KubernetesUnderTest,
    release: Release,
    namespaced: Kubectl,
    cassandra: Cassandra,
    listener: Listener,
    *,
    a_second: float = 5,
) -> Iterator[Life]:
    """The chart is installed, the resources are applied, the applications have begun."""
    release.install()
    module = listener.handler + "\nhandle_too = handle\n"
    metadata = {"name": "handler"}
    namespaced.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"life.py": module}})
    environment = {**cassandra.environment(), "KEYSPACE": release.keyspace}
    life = Life(kubernetes, release, namespaced, cassandra, LifeRecord(listener))
    life.apply()
    own = namespaced.get("secret", "headgate-connection")
    namespaced.apply({**own, "metadata": {"name": "own-connection"}})
    queue, counter = f"{namespaced.namespace}/emails", f"{namespaced.namespace}/page-views"
    try:
        with open_ledger(environment, listener, queue, counter, a_second=a_second) as ledger:
            yield replace(life, ledger=ledger)
    except BaseException:
        sys.stdout.write(last_words(release))
        raise


@pytest.fixture
def release(
    kubernetes: KubernetesUnderTest, near_cassandra: Cassandra, headgate_image: str, helm: Helm
) -> Iterator[Release]:
    """Of this life, with a keyspace of its own."""
    with release_of(kubernetes, helm, headgate_image, near_cassandra.environment()) as made:
        yield made
    near_cassandra.cql(f"DROP KEYSPACE IF EXISTS {made.keyspace}")


def task_environment(life: Life) -> Mapping[str, str]:
    """How a program outside the cluster reaches what is inside."""
    return {**life.cassandra.environment(), "KEYSPACE": life.release.keyspace}


@pytest.mark.slow
def test_a_life_in_short_loses_nothing_and_leaves_nothing(
    kubernetes: KubernetesUnderTest,
    release: Release,
    k8s_namespace: Kubectl,
    near_cassandra: Cassandra,
    listener: Listener,
    measured: Callable[[str], None],
) -> None:
    with lived(kubernetes, release, k8s_namespace, near_cassandra, listener) as life:
        life.change("Queue", together("Queue"))
        life.change("Counter", together("Counter"))
        life.refuse()
        life.scale(4)
        life.delete_children()
        life.end(task_environment(life))
        measured(describe_record(life.ledger))


@pytest.mark.slow
def test_a_whole_life_loses_nothing_and_leaves_nothing(
    kubernetes: KubernetesUnderTest,
    release: Release,
    k8s_namespace: Kubectl,
    near_cassandra: Cassandra,
    listener: Listener,
    measured: Callable[[str], None],
) -> None:
    with lived(kubernetes, release, k8s_namespace, near_cassandra, listener) as life:
        for kind, changes in CHANGES.items():
            for change in changes:
                life.change(kind, change)
        life.refuse()
        life.scale(4)
        upgraded(life)
        rolled(life)
        life.delete_children()
        silent(life, api_server(kubernetes))
        silent(life, near_cassandra.node.server)
        life.end(task_environment(life))
        measured(describe_record(life.ledger))


@pytest.mark.slow
def test_workers_and_operator_are_rolled_under_load_with_balanced_books(
    kubernetes: KubernetesUnderTest,
    release: Release,
    k8s_namespace: Kubectl,
    near_cassandra: Cassandra,
    listener: Listener,
    measured: Callable[[str], None],
) -> None:
    with lived(kubernetes, release, k8s_namespace, near_cassandra, listener, a_second=100) as life:
        for round_ in range(3):
            change = {"template": {"metadata": {"annotations": {"example.org/round": str(round_)}}}}
            consumer = life.namespaced.get("queue", "emails")["spec"]["consumers"][0]
            consumer["template"] = {**consumer["template"], **change["template"]}
            life.change("Queue", {"consumers": [consumer]})
            upgraded(life, level="debug" if round_ % 2 == 0 else "info")
        life.end(task_environment(life))
        measured(describe_record(life.ledger))
        assert len(life.ledger.put) > 500


# ---- steps of a whole life


def together(kind: str) -> Change:
    """Every change at once, but for those that the last ones take back."""
    values: Change = {}
    for change in CHANGES[kind]:
        values |= {name: value for name, value in change.items() if value is not None}
    return {name: value for name, value in values.items() if name != "bulk"}


def upgraded(life: Life, level: str = "debug") -> None:
    """`helm upgrade`, with a value that rolls the operator's pods."""
    life.release.upgrade({"operator": {"logLevel": level}})
    life.release.until_led()
    life.all_settled()


def rolled(life: Life) -> None:
    """`kubectl rollout restart`: all its processes are others."""
    before = set(names_of(life.release.pods()))
    life.release.kubectl.run("rollout", "restart", f"deployment/{OPERATOR}")
    life.release.kubectl.run("rollout", "status", f"deployment/{OPERATOR}", "--timeout=120s", timeout_s=130)
    assert wait_until(lambda: not before & set(names_of(life.release.pods())), timeout_s=60)
    life.release.until_led()
    life.all_settled()


def silent(life: Life, server: Server) -> None:
    """A server neither answers nor refuses for a minute. The operator applies changes made afterwards."""
    acknowledged = len(life.ledger.put)
    pause_server(server)
    try:
        wait_until(lambda: False, timeout_s=SILENT_S)
    finally:
        server.send_signal(signal.SIGCONT)
    life.namespaced.wait_for("queue", "emails", lambda _: True, what="can be read again", timeout_s=READY_WITHIN_S)
    visibility = life.namespaced.get("queue", "emails")["spec"]["visibilityTimeout"]
    life.change("Queue", {"visibilityTimeout": "40s" if visibility != "40s" else "45s"})
    life.release.until_led()
    life.all_settled()
    assert wait_until(lambda: len(life.ledger.put) > acknowledged, timeout_s=READY_WITHIN_S)


def api_server(kubernetes: KubernetesUnderTest) -> Server:
    """That of the tests' cluster."""
    plan = kubernetes.cluster.plan
    name = "kube-apiserver"
    return Server(name, [], log=Path(plan.logs) / f"{name}.log", pid_file=plan.pids / name)


def describe_record(ledger: LifeRecord) -> str:
    """A summary of a life."""
    failures = {name: ledger.failures.count(name) for name in sorted(set(ledger.failures))}
    return (
        f"{len(ledger.put)} messages acknowledged and handled, {ledger.handled_twice()} deliveries twice; "
        f"{ledger.counted} counted; attempts that were repeated: {failures or 'none'}"
    )
