"""Workers as the operator starts them, really run: on a node, restricted, with a Cassandra that checks identities.

The content of the documents is tested elsewhere; this file shows that their pods start, are ready when they work,
drain when they end, and that a handler in any language answers until they have.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import subprocess
import sys
import uuid
from collections.abc import Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import pytest

import headgate
from dev.cluster.kubectl import Kubectl
from dev.servers.cassandra import Cassandra
from headgate.local.processes import wait_until
from headgate_operator.manifests.deployment import build_deployment
from headgate_operator.manifests.namespace_objects import (
    build_connection_copy,
    build_cronjob,
    build_worker_account,
    name_of,
)
from headgate_operator.manifests.pod import CONNECTION_FILES, ChildOwner
from headgate_operator.model.names import Key
from headgate_operator.model.world import JobGroup
from tests.unit.operator.operator_children_cases import CONNECTION, SETTINGS, UID, consumer

Answer = TypeVar("Answer")
GRACE_S = 20
PYTHON_HANDLER = """
import asyncio

async def handle(text: str) -> None:
    print("begun", text, flush=True)
    await asyncio.sleep(2 if text == "slow" else 0)
    print("done", text, flush=True)
"""
HTTP_HANDLER = """
import http.server, signal, sys, time

class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        text = self.rfile.read(int(self.headers["Content-Length"])).decode()
        print("begun", text, flush=True)
        time.sleep(2 if text == "slow" else 0)
        print("done", text, flush=True)
        self.send_response(204)
        self.end_headers()
    def log_message(self, *_):
        pass

def end(*_):
    print("asked to end", flush=True)
    sys.exit(0)

signal.signal(signal.SIGTERM, end)
http.server.ThreadingHTTPServer(("", 8080), Handler).serve_forever()
"""


@pytest.fixture(scope="module")
def connection_variables(near_cassandra: Cassandra, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment of a process outside the cluster; the queues are there."""
    environment = {**near_cassandra.environment(), "KEYSPACE": f"children_{uuid.uuid4().hex[:8]}"}
    spec = "{shards: 2, maxClockSkew: 100ms, timeline: {safetyLag: 200ms}, storage: {tables: shared}}"
    file = tmp_path_factory.mktemp("children") / "queues.yaml"
    file.write_text(
        "".join(
            f"---\napiVersion: headgate.io/v1beta1\nkind: Queue\nmetadata: {{name: {name}, namespace: shop}}\n"
            f"spec: {spec}\n"
            for name in ("python", "http")
        )
    )
    done = subprocess.run(
        [sys.executable, "-m", "headgate.cli.main", "apply", str(file)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert 0 == done.returncode, done.stderr
    return environment


@pytest.fixture
def namespaced(k8s_namespace: Kubectl, connection_variables: dict[str, str]) -> Kubectl:
    """A restricted namespace with the account, the connection and a Python handler."""
    namespace = str(k8s_namespace.namespace)
    k8s_namespace.run("label", "namespace", namespace, "pod-security.kubernetes.io/enforce=restricted")
    files = dict(
        zip(
            CONNECTION_FILES,
            (Path(connection_variables[name]) for name in ("SSL_CA", "SSL_CERT", "SSL_KEY")),
            strict=True,
        )
    )
    data = {name: base64.b64encode(file.read_bytes()).decode() for name, file in files.items()}
    data |= {name: base64.b64encode(value.encode()).decode() for name, value in connection_variables.items()}
    handler = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "handler"},
        "data": {"shop_handler.py": PYTHON_HANDLER},
    }
    k8s_namespace.apply(build_worker_account(namespace), build_connection_copy(namespace, {"data": data}), handler)
    return k8s_namespace


def started(namespaced: Kubectl, ours: str, queue: str, **how: Any) -> str:
    """The pod of a worker that is ready."""
    name = launched(namespaced, ours, queue, **how)
    namespaced.wait_for_pod(name, timeout_s=90)
    return name


def launched(namespaced: Kubectl, ours: str, queue: str, **how: Any) -> str:
    """The pod of a worker."""
    key, settings = Key("Queue", "shop", queue), replace(SETTINGS, image=ours, drain_grace_s=GRACE_S)
    document = build_deployment(ChildOwner(key, UID), settings, CONNECTION, consumer({"name": "mailer", **how}), 1)
    metadata = {name: value for name, value in document["metadata"].items() if name != "ownerReferences"}
    document["metadata"] = {**metadata, "namespace": namespaced.namespace}
    namespaced.apply(document)
    selector = ",".join(f"{name}={value}" for name, value in document["spec"]["selector"]["matchLabels"].items())

    def pods() -> list[dict[str, Any]]:
        return namespaced.list("pods", selector)

    assert wait_until(lambda: bool(pods()), timeout_s=30)
    return str(pods()[0]["metadata"]["name"])


def put(connection_variables: dict[str, str], queue: str, text: str) -> None:
    async def work(connection: headgate.Headgate) -> None:
        await (await connection.queue(f"shop/{queue}")).put(text)

    connected(connection_variables, work)


def owners(connection_variables: dict[str, str], queue: str) -> list[str | None]:
    """The owners of a queue's lanes."""

    async def work(connection: headgate.Headgate) -> list[str | None]:
        return [lane.owner for lane in (await (await connection.queue(f"shop/{queue}")).stats()).lanes]

    return connected(connection_variables, work)


def connected(
    connection_variables: dict[str, str], work: Callable[[headgate.Headgate], Coroutine[Any, Any, Answer]]
) -> Answer:
    async def main() -> Answer:
        async with headgate.connect(connection_variables) as connection:
            return await work(connection)

    return asyncio.run(main())


def ended_while_busy(
    namespaced: Kubectl, connection_variables: dict[str, str], queue: str, pod: str, handler: str
) -> dict[str, str]:
    """Put a slow message, delete the pod's Deployment once it runs; the output of each container until its end."""
    containers = sorted({"worker", handler})
    followed = {
        name: subprocess.Popen(namespaced.command("logs", "-f", pod, "-c", name), stdout=subprocess.PIPE, text=True)
        for name in containers
    }
    put(connection_variables, queue, "slow")
    assert wait_until(lambda: "begun slow" in namespaced.logs(pod, "-c", handler), timeout_s=30)
    namespaced.run("delete", "deployment", "--all", "--wait=false")
    message = {name: process.communicate(timeout=60)[0] for name, process in followed.items()}
    assert wait_until(lambda: not namespaced.list("pods"), timeout_s=30)
    assert "FailedPreStopHook" not in {event["reason"] for event in namespaced.list("events")}
    return message


def test_a_python_handler_runs_in_the_image_with_headgate_and_drains_when_its_pod_is_ended(
    namespaced: Kubectl, headgate_image: str, connection_variables: dict[str, str]
) -> None:
    template = {
        "spec": {
            "containers": [
                {
                    "name": "worker",
                    "env": [{"name": "PYTHONPATH", "value": "/handler"}],
                    "volumeMounts": [{"name": "handler", "mountPath": "/handler"}],
                }
            ],
            "volumes": [{"name": "handler", "configMap": {"name": "handler"}}],
        }
    }
    pod = started(namespaced, headgate_image, "python", handler="shop_handler:handle", template=template)
    put(connection_variables, "python", "first")
    assert wait_until(lambda: "done first" in namespaced.logs(pod), timeout_s=30)
    message = ended_while_busy(namespaced, connection_variables, "python", pod, "worker")["worker"]
    assert "done slow" in message
    assert "worker stopped" in message
    assert [None, None] == owners(connection_variables, "python")


def test_an_http_handler_of_any_image_answers_until_the_worker_beside_it_has_drained(
    namespaced: Kubectl, headgate_image: str, python_image: str, connection_variables: dict[str, str]
) -> None:
    template = {"spec": {"containers": [{"name": "handler", "command": ["python3", "-c", HTTP_HANDLER]}]}}
    pod = started(namespaced, headgate_image, "http", image=python_image, http={"port": 8080}, template=template)
    put(connection_variables, "http", "first")
    assert wait_until(lambda: "done first" in namespaced.logs(pod, "-c", "handler"), timeout_s=30)
    message = ended_while_busy(namespaced, connection_variables, "http", pod, "handler")
    assert "worker stopped" in message["worker"]
    assert message["handler"].splitlines()[-2:] == ["done slow", "asked to end"]
    assert [None, None] == owners(connection_variables, "http")


def test_a_worker_whose_handler_is_not_there_ends_with_code_2_and_its_last_words(
    namespaced: Kubectl, headgate_image: str
) -> None:
    name = launched(namespaced, headgate_image, "python", handler="nowhere:handle")

    def last_end(pod: dict[str, Any]) -> dict[str, Any]:
        statuses: list[dict[str, Any]] = pod["status"].get("containerStatuses") or []
        states = [status[which] for status in statuses for which in ("state", "lastState")]
        return next((state["terminated"] for state in states if "terminated" in state), {})

    pod = namespaced.wait_for("pod", name, lambda observation: bool(last_end(observation)), what="has ended")
    assert 2 == last_end(pod)["exitCode"]
    assert "nowhere" in last_end(pod)["message"]


def test_the_repair_job_makes_a_pass_over_its_namespace(namespaced: Kubectl, headgate_image: str) -> None:
    group = JobGroup("repair", "*/5 * * * *", CONNECTION.secret, headgate_image)
    made = build_cronjob("shop", replace(SETTINGS, image=headgate_image), group)
    made["metadata"]["namespace"] = namespaced.namespace
    namespaced.apply(made)
    namespaced.run("create", "job", "now", f"--from=cronjob/{name_of(group)}")
    namespaced.wait_for("job", "now", lambda job: bool(job["status"].get("succeeded")), what="has succeeded")
    message = namespaced.logs("job/now")
    assert "shop/python: checked" in message, json.dumps(message)
    assert "shop/http: checked" in message, json.dumps(message)
