"""The chart over minutes: a password changed while messages flow, and a Cassandra of its own for trying out."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

import headgate
from dev.cluster import lifecycle
from dev.cluster.fixtures import KubernetesUnderTest
from dev.cluster.helm import Helm
from dev.cluster.kubectl import Kubectl, has_condition
from dev.cluster.oci import Run, assemble, read_layer
from dev.servers.cassandra import Cassandra
from dev.servers.cassandra.image import image_archive
from headgate.cli.check import CheckMessage
from headgate.local.processes import wait_until
from headgate_operator.model.names import CONNECTION_DIGEST, consumer_name
from tests.system.chart.chart_release import Release, image_values, release_of
from tests.system.chart.test_chart import queue

pytestmark = pytest.mark.slow

COUNTING = {"name": "counting", "handler": "headgate.cli.check:count", "scaling": {"min": 2, "max": 2}}
CASSANDRA = "headgate.local/cassandra:5.0"
SHARDS = 2


@pytest.fixture
def release(
    kubernetes: KubernetesUnderTest, near_cassandra: Cassandra, headgate_image: str, helm: Helm
) -> Iterator[Release]:
    with release_of(kubernetes, helm, headgate_image, near_cassandra.environment()) as made:
        yield made


@contextmanager
def putting(environment: dict[str, str], namespace: str, key: str) -> Iterator[list[int]]:
    """A program that puts ten messages per second, each to be counted once. Yields the number of puts so far."""
    put, over = [0], threading.Event()

    def work() -> None:
        with headgate.connect_sync(environment) as connection:
            counter, emails = connection.counter(f"{namespace}/views"), connection.queue(f"{namespace}/emails")
            while not over.wait(0.1):
                record = CheckMessage(counter=f"{namespace}/views", key=key, token=counter.token())
                emails.put(record.model_dump())
                put[0] += 1

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield put
    finally:
        over.set()
        thread.join()


def digests(namespaced: Kubectl) -> set[str]:
    """Of which Secret the pods that are ready were made."""
    pods = [pod for pod in namespaced.list("pods", "headgate.io/consumer=counting") if has_condition("Ready")(pod)]
    return {pod["metadata"]["annotations"][CONNECTION_DIGEST] for pod in pods}


def test_a_password_that_is_changed_reaches_the_workers_and_nothing_is_lost(
    release: Release, near_cassandra: Cassandra, k8s_namespace: Kubectl
) -> None:
    release.install()
    client, environment = k8s_namespace, {**near_cassandra.environment(), "KEYSPACE": release.keyspace}
    counter = {"type": "sum", "storage": {"tables": "shared"}}
    client.apply(
        queue("emails", shards=SHARDS, consumers=[COUNTING]),
        {"apiVersion": "headgate.io/v1beta1", "kind": "Counter", "metadata": {"name": "views"}, "spec": counter},
    )
    for kind, name in (("queue", "emails"), ("counter", "views")):
        client.wait_for(kind, name, has_condition("Ready"), what="is Ready", timeout_s=120)
    before, key, second = digests(client), uuid.uuid4().hex, f"second_{uuid.uuid4().hex[:6]}"
    near_cassandra.cql(f"CREATE ROLE {second} WITH PASSWORD = 'another' AND LOGIN = true AND SUPERUSER = true")
    with putting(environment, str(client.namespace), key) as put:
        assert wait_until(lambda: put[0] > 20, timeout_s=60)
        release.upgrade({"connection": {"username": second, "password": "another"}})
        assert wait_until(lambda: len(digests(client)) == 1 and digests(client) != before, timeout_s=180)
        deployment = client.get("deployment", consumer_name("emails", "counting"))
        assert deployment["status"]["updatedReplicas"] == deployment["status"]["readyReplicas"]
        since = put[0]
        assert wait_until(lambda: put[0] > since + 20, timeout_s=60)
    with headgate.connect_sync(environment) as connection:
        views = connection.counter(f"{client.namespace}/views")
        assert wait_until(lambda: views.value(key) == put[0], timeout_s=90), (views.value(key), put)
        assert put[0] == views.value(key)


def test_with_a_cassandra_of_its_own_messages_come_through(
    kubernetes: KubernetesUnderTest, headgate_image: str, helm: Helm
) -> None:
    run = Run(
        entrypoint=("docker-entrypoint.sh",),
        command=("cassandra", "-f"),
        environment={"PATH": "/usr/local/bin:/usr/bin:/bin"},
    )
    lifecycle.load(kubernetes.cluster, assemble(CASSANDRA, (read_layer(image_archive()),), run))
    with release_of(kubernetes, helm, headgate_image, {"CONTACT_POINTS": "-"}) as made:
        values = {
            **image_values(headgate_image),
            "cassandra": {"enabled": True, "image": {"registry": "headgate.local", "pullPolicy": "Never"}},
        }
        made.values.clear()
        made.values.update(values)
        made.install()
        assert "10 messages passed through" in made.test()
        made.uninstall()
