"""The cluster that tests run on is a real one: what pods do in it, they do."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from dev.cluster.fixtures import KubernetesUnderTest
from dev.cluster.kubectl import Kubectl, KubectlRefused, condition_of, has_condition, refusal

SERVER = """
import http.server, os
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = os.environ["VERSION"].encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
http.server.ThreadingHTTPServer(("", 8080), Handler).serve_forever()
"""
ASK = "import sys, urllib.request; print(urllib.request.urlopen(sys.argv[1], timeout=5).read().decode())"
ASK_FIRST = """
import sys, time, urllib.error, urllib.request
until = time.monotonic() + 30
while True:
    try:
        urllib.request.urlopen(sys.argv[1], timeout=5).read()
        break
    except urllib.error.URLError:
        if time.monotonic() > until:
            raise
        time.sleep(0.1)
"""
"""A node routes to a service some time after its pods are ready: until then there is no route to it."""
ASK_UNTIL = """
import sys, time, urllib.request
seen, until = [], time.monotonic() + 40
while time.monotonic() < until:
    answer = urllib.request.urlopen(sys.argv[1], timeout=5).read().decode()
    seen.append(answer)
    if seen[-20:] == [sys.argv[2]] * 20:
        break
print(",".join(sorted(set(seen))))
"""
CONNECT = """
import errno, socket
try:
    socket.create_connection(("198.51.100.1", 80), timeout=5)
except OSError as error:
    print(errno.errorcode.get(error.errno, "timeout"))
"""


def pod(name: str, image: str, *command: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {
            "terminationGracePeriodSeconds": 0,
            "containers": [
                {"name": "it", "image": image, "imagePullPolicy": "IfNotPresent", "command": ["python3", *command]}
            ],
        },
    }


def waiting_pod(name: str, image: str) -> dict[str, Any]:
    return pod(name, image, "-c", "import signal; signal.pause()")


def web(image: str, version: str) -> list[dict[str, Any]]:
    container = {
        "name": "web",
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["python3", "-c", SERVER],
        "env": [{"name": "VERSION", "value": version}],
        "ports": [{"containerPort": 8080}],
        "readinessProbe": {"httpGet": {"path": "/", "port": 8080}, "periodSeconds": 1},
        # Its name leaves the Service before it ends, so that nobody is refused.
        "lifecycle": {"preStop": {"sleep": {"seconds": 2}}},
    }
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web"},
        "spec": {
            "replicas": 2,
            "selector": {"matchLabels": {"app": "web"}},
            "strategy": {"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
            "template": {
                "metadata": {"labels": {"app": "web"}},
                "spec": {"terminationGracePeriodSeconds": 3, "containers": [container]},
            },
        },
    }
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "web"},
        "spec": {"selector": {"app": "web"}, "ports": [{"port": 80, "targetPort": 8080}]},
    }
    return [deployment, service]


@contextmanager
def listening(address: str) -> Iterator[int]:
    """A server on this machine, at an address of its own."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"this machine")

        def log_message(self, *_: object) -> None:
            """Log nothing."""

    server = http.server.HTTPServer((address, 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server.server_port
    server.shutdown()
    server.server_close()


def test_every_node_is_ready(kubernetes: KubernetesUnderTest) -> None:
    nodes = kubernetes.kubectl.list("nodes")
    assert [condition_of(node, "Ready") for node in nodes] == ["True"] * max(1, len(nodes))


def test_a_pod_runs_a_container_and_its_words_can_be_read(k8s_namespace: Kubectl, python_image: str) -> None:
    once = pod("once", python_image, "-c", "print(6 * 7)")
    once["spec"]["restartPolicy"] = "Never"
    k8s_namespace.apply(once)
    k8s_namespace.wait_for(
        "pod", "once", lambda observation: observation["status"]["phase"] == "Succeeded", what="has succeeded"
    )
    assert k8s_namespace.logs("once") == "42\n"


def test_a_service_is_found_by_name_and_answers_throughout_a_rolling_update(
    k8s_namespace: Kubectl, python_image: str
) -> None:
    k8s_namespace.apply(*web(python_image, "1"), waiting_pod("client", python_image))
    k8s_namespace.wait_for("deployment", "web", has_condition("Available"), what="is available")
    k8s_namespace.run("rollout", "status", "deployment/web", "--timeout=60s")
    k8s_namespace.wait_for_pod("client")
    url = f"http://web.{k8s_namespace.namespace}.svc.cluster.local/"
    k8s_namespace.exec("client", "python3", "-c", ASK_FIRST, url)
    assert k8s_namespace.exec("client", "python3", "-c", ASK_UNTIL, url, "1").strip() == "1"

    k8s_namespace.apply(*web(python_image, "2"))
    assert k8s_namespace.exec("client", "python3", "-c", ASK_UNTIL, url, "2").strip() in ("1,2", "2")
    k8s_namespace.run("rollout", "status", "deployment/web", "--timeout=60s")
    assert k8s_namespace.exec("client", "python3", "-c", ASK, "http://web/").strip() == "2"


def test_a_pod_reaches_this_machine_at_the_address_the_machine_uses_itself(
    kubernetes: KubernetesUnderTest, k8s_namespace: Kubectl, python_image: str
) -> None:
    assert kubernetes.host_address is not None
    k8s_namespace.apply(waiting_pod("client", python_image))
    k8s_namespace.wait_for_pod("client")
    with listening(kubernetes.host_address) as port:
        url = f"http://{kubernetes.host_address}:{port}/"
        assert k8s_namespace.exec("client", "python3", "-c", ASK, url).strip() == "this machine"


def test_a_pod_cannot_leave_this_machine_and_is_reported_at_once(
    kubernetes: KubernetesUnderTest, k8s_namespace: Kubectl, python_image: str
) -> None:
    if kubernetes.cluster.mode != "node":
        return  # only of the node made here is this promised
    k8s_namespace.apply(waiting_pod("client", python_image))
    k8s_namespace.wait_for_pod("client")
    assert k8s_namespace.exec("client", "python3", "-c", CONNECT).strip() in ("ENETUNREACH", "EHOSTUNREACH")


def test_two_tests_do_not_share_a_namespace(kubernetes: KubernetesUnderTest, k8s_namespace: Kubectl) -> None:
    assert k8s_namespace.namespace is not None
    assert k8s_namespace.namespace.startswith("test-two-tests-do-not-share-a-namespace")
    assert k8s_namespace.namespace not in ("default", kubernetes.kubectl.namespace)
    assert k8s_namespace.list("pods") == []


def test_a_refusal_carries_the_words_of_the_api_server(k8s_namespace: Kubectl) -> None:
    with pytest.raises(KubectlRefused) as refused:
        k8s_namespace.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "Not A Name"}})
    assert "Invalid value" in refusal(refused.value)
