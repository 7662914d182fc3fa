"""The operator needs each right that its roles give it, and no other: the API server's own audit of all that the
operators of this session's tests asked, and of a life here that comes by what they do not, against what was granted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest

import headgate
from dev.cluster.fixtures import KubernetesUnderTest
from dev.cluster.golang import sources
from dev.cluster.kubectl import Kubectl, has_condition
from dev.cluster.programs import SPARK_OPERATOR
from dev.servers.cassandra.serving import Serving
from headgate.local.processes import wait_until
from headgate_operator.cluster.api_server import HttpApiClient
from headgate_operator.install.rbac import AT_HOME, CLUSTER_ROLE, EVERYWHERE, Right
from headgate_operator.model.kinds import COUNTER, QUEUE, ROLE_BINDING, SPARK_APPLICATION, ObjectAddress, ResourceKind
from headgate_operator.model.names import consumer_name
from tests.system.operator.operator_process import ACCOUNTS, Asked, Home, asked, home, leading
from tests.system.operator.test_operator import queue

WITHIN_S = 60.0
BULK = {
    "name": "drain",
    "mode": "drain",
    "backlogAbove": 1,
    "handler": "mailer.bulk:send",
    "spark": {"image": "spark:4"},
}
SPARK_CRD = "config/crd/bases/sparkoperator.k8s.io_sparkapplications.yaml"
Log = Callable[[], list[Asked]]


@pytest.fixture(scope="module")
def log(kubernetes: KubernetesUnderTest) -> Log:
    """Requests of the operators of this session so far."""
    cluster = kubernetes.cluster
    if not cluster.audit_log.exists():
        pytest.skip("needs an API server of ours: its audit log lists the requests of each account")
    return lambda: asked(cluster.audit_log, frozenset(ACCOUNTS))


@pytest.fixture(scope="module")
def a_life(
    kubernetes: KubernetesUnderTest, cassandra: Serving, log: Log, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[None]:
    """Of a queue and a counter with everything, from their making to their end."""
    kubectl = kubernetes.kubectl
    kubectl.run("apply", "--server-side", "--force-conflicts", "-f", str(sources(SPARK_OPERATOR) / SPARK_CRD))
    kubectl.wait_for("crd", SPARK_APPLICATION.resource, has_condition("Established"), what="is established")
    environment = cassandra.environment()
    with home(kubernetes, environment, tmp_path_factory.mktemp("rights")) as its_home, leading(its_home):
        namespace = f"life-{its_home.keyspace.replace('_', '-')}"
        kubectl.run("create", "namespace", namespace)
        client = kubectl.in_namespace(namespace)
        _live(client, its_home, {**environment, "KEYSPACE": its_home.keyspace}, log)
        kubectl.delete("namespace", namespace, wait=False)
        yield
    cassandra.cql(f"DROP KEYSPACE IF EXISTS {its_home.keyspace}")


def _live(namespaced: Kubectl, its_home: Home, environment: dict[str, str], log: Log) -> None:
    consumer = {"name": "mailer", "image": "mailer:1", "handler": "mailer:send", "scaling": {"min": 2, "max": 3}}
    namespaced.apply(queue(deletionPolicy="Delete", consumers=[consumer], bulk=[BULK]), counter())
    assert wait_until(
        lambda: namespaced.find("poddisruptionbudget", consumer_name("emails", "mailer")) is not None,
        timeout_s=WITHIN_S,
    )
    with headgate.connect_sync(environment) as connection:
        connection.queue(f"{namespaced.namespace}/emails").put_many(["one", "two", "three"])
    assert wait_until(lambda: len(namespaced.list("sparkapplications")) == 1, timeout_s=WITHIN_S)
    namespaced.run("scale", "queue/emails", "--replicas=3")  # an event reports it
    for kind, name in ((QUEUE, "emails"), (COUNTER, "views")):
        asyncio.run(_crossed(str(its_home.kubectl.kubeconfig), ObjectAddress(kind, namespaced.namespace, name), log))
    namespaced.apply(
        queue(deletionPolicy="Delete", consumers=[{**consumer, "scaling": {"min": 0, "max": 1}}], bulk=[BULK])
    )
    assert wait_until(lambda: namespaced.list("poddisruptionbudget") == [], timeout_s=WITHIN_S)
    namespaced.delete("queue", "emails", wait=False)
    namespaced.delete("counter", "views", wait=False)
    assert wait_until(
        lambda: (
            namespaced.list("queues,counters,sparkapplications,rolebindings", "app.kubernetes.io/managed-by=headgate")
            == []
        ),
        timeout_s=180,
    )
    assert wait_until(lambda: namespaced.list("queues,counters") == [], timeout_s=180)


async def _crossed(kubeconfig: str, at: ObjectAddress, log: Log) -> None:
    """Write to a resource until the operator's write met a version that it had not seen, and it read the resource."""
    person = await HttpApiClient.connect(kubeconfig=kubeconfig)
    try:
        for number in range(3_000):
            change = {
                "metadata": {"annotations": {"example.org/n": str(number)}},
                "spec": {"paused": number % 40 < 20},
            }
            await person.patch(at, change, manager="person")
            if number % 40 == 0 and Right(at.kind, ("get",)) in _used(log()):
                break
        await person.patch(at, {"spec": {"paused": False}}, manager="person")
    finally:
        await person.close()


def counter() -> dict[str, Any]:
    """With tables that go with it."""
    spec = {"type": "sum", "deletionPolicy": "Delete"}
    return {"apiVersion": "headgate.io/v1beta1", "kind": "Counter", "metadata": {"name": "views"}, "spec": spec}


def _used(connection_variables: Iterable[Asked]) -> set[Right]:
    """Each request as the one right that it needed, or the two."""
    by_name = {(kind.group, kind.plural): kind for kind in _kinds()}
    matches = set()
    for each in connection_variables:
        resource, _, subresource = each.resource.partition("/")
        kind = by_name.get((each.group, resource), ResourceKind(each.group, "?", resource, "?"))
        matches |= {Right(kind, (verb,), subresource) for verb in _verbs(each)}
        if kind == ROLE_BINDING and each.code == 201:
            matches.add(Right(CLUSTER_ROLE, ("bind",)))
    return matches


def _verbs(each: Asked) -> tuple[str, ...]:
    return ("patch", "create") if (each.verb, each.code) == ("patch", 201) else (each.verb,)


def _granted() -> set[Right]:
    """One verb each."""
    return {Right(each.kind, (verb,), each.subresource) for each in (*EVERYWHERE, *AT_HOME) for verb in each.verbs}


def _kinds() -> set[ResourceKind]:
    return {each.kind for each in (*EVERYWHERE, *AT_HOME)}


def test_nothing_that_the_operator_asks_is_refused(a_life: None, log: Log) -> None:
    assert [] == [str(each) for each in log() if each.lacks_a_right]


def test_every_right_of_the_operator_is_used(a_life: None, log: Log) -> None:
    assert set() == _granted() - _used(log())


def test_the_operator_asks_for_nothing_that_is_not_in_its_roles(a_life: None, log: Log) -> None:
    assert set() == _used(log()) - _granted()
