"""Alerts of the chart whose faults take minutes: an unavailable Cassandra, messages that kill, a busy operator,
workers that do not start, jobs that fail. The others are in test_chart_alerts.py.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from dev.cluster.fixtures import KubernetesUnderTest
from dev.cluster.golang import sources
from dev.cluster.helm import Helm
from dev.cluster.kubectl import has_condition, names_of
from dev.cluster.programs import SPARK_OPERATOR
from dev.servers.cassandra import Cassandra
from dev.servers.cassandra.serving import Serving
from headgate.local.processes import wait_until
from headgate_operator.model.kinds import SPARK_APPLICATION
from tests.system.chart.alert_scene import Scene, fires, queue, scene_of
from tests.system.operator.test_operator_rights import SPARK_CRD

pytestmark = pytest.mark.slow

MANY = 400
SLOW_QPS = "4"
FAILURE = {"state": "FAILED", "errorMessage": "the driver has no memory left"}
FAILED = {"status": {"applicationState": FAILURE, "driverInfo": {}}}
HOURS_MS = 3 * 3_600_000
TRIED_AGAIN = 8
"""Queues whose children may not be made: each is tried again four times in the first fifteen seconds."""


@pytest.fixture(scope="module")
def scene(
    kubernetes: KubernetesUnderTest,
    cassandra: Serving,
    helm: Helm,
    headgate_image: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Scene]:
    folder = tmp_path_factory.mktemp("alerts-long")
    with scene_of(kubernetes, cassandra, helm, folder, "--image", headgate_image) as made:
        yield made


@fires("HeadgatePoisonMessages")
def test_a_message_that_kills_what_handles_it(scene: Scene) -> None:
    client = scene.namespace()
    client.apply(queue("deadly", maxReceives=3, deadLetter="dead"), queue("dead"))
    for name in ("deadly", "dead"):
        client.wait_for("queue", name, has_condition("Ready"), what="is Ready")
    name = f"{client.namespace}/deadly"
    first = scene.worker(name, "kills")
    scene.put(name, b"kill")
    assert -signal.SIGKILL == first.wait(timeout=60)
    scene.worker(name, "kills")
    scene.until_fires("HeadgatePoisonMessages", queue=name, timeout_s=120)


@fires("HeadgateConsumersFailing")
def test_workers_whose_handler_is_not_there(scene: Scene) -> None:
    client = scene.namespace()
    consumer = {"name": "mailer", "handler": "nowhere.to.be:found", "scaling": {"min": 1, "max": 1}}
    client.apply(queue("refused", consumers=[consumer]))
    scene.until_fires("HeadgateConsumersFailing", name="refused", timeout_s=240)


@fires("HeadgateBulkFailing")
def test_a_bulk_job_that_failed(scene: Scene) -> None:
    kubectl = scene.home.kubectl
    kubectl.run("apply", "--server-side", "--force-conflicts", "-f", str(sources(SPARK_OPERATOR) / SPARK_CRD))
    kubectl.wait_for("crd", SPARK_APPLICATION.resource, has_condition("Established"), what="is established")
    client = scene.namespace()
    bulk = {"name": "drain", "mode": "drain", "backlogAbove": 1, "handler": "m:f", "spark": {"image": "spark:4"}}
    client.apply(queue("heavy", bulk=[bulk]))
    client.wait_for("queue", "heavy", has_condition("TablesReady"), what="has tables")
    scene.put(f"{client.namespace}/heavy", b"1", b"2", b"3")
    assert wait_until(lambda: client.list("sparkapplications") != [], timeout_s=90)
    (name,) = names_of(client.list("sparkapplications"))
    client.run("patch", "sparkapplication", name, "--subresource=status", "--type=merge", "-p", json.dumps(FAILED))
    scene.until_fires("HeadgateBulkFailing", name="heavy", reason="BulkFailing", timeout_s=120)


@contextmanager
def hints_kept_for_hours(server: Serving) -> Iterator[None]:
    """As a Cassandra keeps them that nobody has set otherwise; that of the tests keeps them for a second."""
    if not isinstance(server, Cassandra):
        yield
        return
    server.node.nodetool("setmaxhintwindow", str(HOURS_MS))
    try:
        yield
    finally:
        server.node.nodetool("setmaxhintwindow", "1000")


@fires("HeadgateCollectionUnhealthy")
def test_a_collector_that_is_asked_to_collect_too_soon(scene: Scene, cassandra: Serving) -> None:
    client = scene.namespace()
    spec = {"type": "sum", "gc": {"after": "2m"}, "storage": {"tables": "shared"}}
    client.apply({"apiVersion": "headgate.io/v1beta1", "kind": "Counter", "metadata": {"name": "soon"}, "spec": spec})
    client.wait_for("counter", "soon", has_condition("Ready"), what="is Ready")
    with hints_kept_for_hours(cassandra):
        done = subprocess.run(
            [sys.executable, "-m", "headgate.cli.main", "gc", f"{client.namespace}/soon"],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **scene.environment},
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
    assert 1 == done.returncode, done.stderr
    scene.until_fires("HeadgateCollectionUnhealthy", name="soon", reason="GcAfterTooShort", timeout_s=180)


@fires("HeadgateRepairUnhealthy")
def test_jobs_of_repair_that_fail(scene: Scene, python_image: str) -> None:
    client = scene.namespace()
    client.apply(queue("tended"))
    client.wait_for("queue", "tended", has_condition("Ready"), what="is Ready")
    labels = {"app.kubernetes.io/managed-by": "headgate", "headgate.io/task": "repair"}
    container = {"name": "repair", "image": python_image, "imagePullPolicy": "IfNotPresent", "command": ["false"]}
    pod = {"restartPolicy": "Never", "containers": [container]}
    for number in (1, 2):
        spec = {"backoffLimit": 0, "template": {"metadata": {"labels": labels}, "spec": pod}}
        metadata = {"name": f"repair-{number}", "labels": labels}
        client.apply({"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec})
    for number in (1, 2):
        client.wait_for("job", f"repair-{number}", has_condition("Failed"), what="has failed")
    client.run("annotate", "queue", "tended", "checked=now")  # by itself each is checked again within ten minutes
    scene.until_fires("HeadgateRepairUnhealthy", name="tended", reason="RepairFailing")


@fires("HeadgateReconcilesFail")
def test_queues_whose_children_may_not_be_made(scene: Scene) -> None:
    client = scene.namespace()
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "none"}}
    client.apply({**quota, "spec": {"hard": {"count/deployments.apps": "0"}}})
    client.wait_for(
        "resourcequota", "none", lambda observation: "hard" in observation.get("status", {}), what="is in force"
    )
    consumer = {"name": "mailer", "handler": "mailer.tasks:send", "scaling": {"min": 1, "max": 1}}
    client.apply(*(queue(f"q{number:02}", consumers=[consumer]) for number in range(TRIED_AGAIN)))
    scene.until_fires("HeadgateReconcilesFail", timeout_s=180)
    client.delete("resourcequota", "none")


@fires(
    "HeadgateCassandraUnavailable",
    "HeadgateReceivesFail",
    "HeadgateLeaseRenewalLate",
    "HeadgateSettlesFail",
    "HeadgateDataLeftBehind",
)
def test_cassandra_that_is_unavailable_for_minutes(scene: Scene) -> None:
    client, doomed = scene.namespace(), scene.namespace()
    client.apply(*(queue(f"q{number:02}") for number in range(20)))
    doomed.apply(queue("precious", deletionPolicy="Delete"))
    doomed.wait_for("queue", "precious", has_condition("Ready"), what="is Ready", timeout_s=90)
    name = f"{client.namespace}/q00"
    client.wait_for("queue", "q00", has_condition("Ready"), what="is Ready", timeout_s=90)
    scene.worker(name, "takes_a_while", "--concurrency", "4")
    scene.put(name, *(b"%d" % number for number in range(200)))
    assert wait_until(lambda: (scene.value(f'headgate_worker_acked_total{{queue="{name}"}}') or 0) > 4, timeout_s=60)
    scene.store.cut()
    try:
        scene.until_fires("HeadgateLeaseRenewalLate", queue=name, timeout_s=60)
        scene.until_fires("HeadgateCassandraUnavailable", timeout_s=120)
        doomed.run("delete", "namespace", str(doomed.namespace), "--wait=false")
        scene.until_fires("HeadgateReceivesFail", queue=name, timeout_s=240)
        scene.until_fires("HeadgateSettlesFail", queue=name, timeout_s=60)
        scene.until_fires("HeadgateDataLeftBehind", timeout_s=180)
    finally:
        scene.store.heal()
    assert wait_until(lambda: "HeadgateCassandraUnavailable" not in scene.prometheus.firing(), timeout_s=120), (
        scene.prometheus.alerts()
    )


@fires("HeadgateReconcileLatencyHigh")
def test_an_operator_that_is_held_back(
    kubernetes: KubernetesUnderTest, cassandra: Serving, helm: Helm, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("alerts-held-back")
    with scene_of(kubernetes, cassandra, helm, folder, "--qps", SLOW_QPS) as scene:
        client = scene.namespace()
        client.apply(*(queue(f"q{number:03}") for number in range(MANY)))
        scene.until_fires("HeadgateReconcileLatencyHigh", timeout_s=240)
