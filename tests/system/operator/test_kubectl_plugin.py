"""`kubectl headgate` and `headgate plan --context` against a real API server, by people with the rights that
docs/start-on-call.md names, and no others; and with the real operator, which runs outside of the cluster.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from dev.cluster.fixtures import KubernetesUnderTest
from dev.cluster.kubectl import Kubectl
from headgate.local.processes import wait_until
from tests.system.operator.operator_process import OperatorProcess
from tests.system.operator.people import Calling, person
from tests.system.operator.test_operator import becomes, operator, queue

__all__ = ["operator"]

ROOT = Path(__file__).resolve().parents[3]
QUEUES = ("headgate.io", "queues")
LEADER = """
import http.server, json

class Leader(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.reply({"leader": "stub", "decisions": [{"at_us": 1, "trail": ["asked for " + self.path]}]})
    def do_POST(self):
        document = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        name = document["kind"] + " " + document["metadata"]["name"]
        end = {"of": name, "ready": True, "message": "Ready", "stalled": False, "open": []}
        self.reply({"effects": [{"of": name, "message": self.path}], "ends": [end], "unknown": []})
    def reply(self, answer):
        body = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

http.server.ThreadingHTTPServer(("127.0.0.1", 9092), Leader).serve_forever()
"""


@pytest.fixture(scope="module")
def definitions(kubernetes: KubernetesUnderTest) -> Kubectl:
    """The CRDs, established."""
    kubernetes.kubectl.run("apply", "--server-side", "--force-conflicts", "-f", str(ROOT / "crds"))
    kubernetes.kubectl.run("wait", "--for=condition=Established", "--timeout=60s", "-f", str(ROOT / "crds"))
    return kubernetes.kubectl


@pytest.fixture
def namespaced(definitions: Kubectl, k8s_namespace: Kubectl) -> Kubectl:
    """A namespace with a queue."""
    k8s_namespace.apply(queue())
    return k8s_namespace


@pytest.fixture
def calling(definitions: Kubectl, tmp_path: Path) -> Calling:
    return Calling(definitions, tmp_path)


@pytest.fixture(scope="module")
def leading(kubernetes: KubernetesUnderTest, python_image: str) -> Iterator[str]:
    """A namespace in which a pod leads that reports the requests it got."""
    name = f"leading-{secrets.token_hex(3)}"
    kubernetes.kubectl.run("create", "namespace", name)
    there = kubernetes.kubectl.in_namespace(name)
    there.wait_for("serviceaccount", "default", lambda _: True, what="is there")
    container = {"name": "operator", "image": python_image, "command": ["python3", "-c", LEADER]}
    answers = ["python3", "-c", "import urllib.request as r; r.urlopen('http://127.0.0.1:9092/', timeout=5)"]
    container["readinessProbe"] = {"exec": {"command": answers}, "periodSeconds": 1, "timeoutSeconds": 10}  # type: ignore[assignment]
    lease = {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": "headgate-operator"},
        "spec": {
            "holderIdentity": "leader_1",
            "leaseDurationSeconds": 3600,
            "renewTime": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        },
    }
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "leader"}, "spec": {"containers": [container]}}
    there.apply(pod, lease)
    try:
        there.wait_for_pod("leader", timeout_s=90)
        yield name
    finally:
        kubernetes.kubectl.delete("namespace", name, wait=False)


def namespace_of(kubectl: Kubectl) -> str:
    assert kubectl.namespace is not None
    return kubectl.namespace


def test_a_process_that_may_patch_queues_pauses_and_resumes(
    namespaced: Kubectl, calling: Calling, tmp_path: Path
) -> None:
    namespace = namespace_of(namespaced)
    user = person(namespaced, tmp_path, {namespace: [(*QUEUES, "get,patch")]})
    code, out, err = calling.plugin(user, "pause", "queue/emails")
    assert (0, "") == (code, err)
    assert out.startswith(f"queue {namespace}/emails is paused\nnote: ")
    assert namespaced.get("queue", "emails")["spec"]["paused"] is True
    assert (0, f"queue {namespace}/emails is paused already\n", "") == calling.plugin(user, "pause", "queue/emails")
    assert 0 == calling.plugin(user, "resume", "hgq/emails", "-n", namespace)[0]
    assert namespaced.get("queue", "emails")["spec"]["paused"] is False


def test_a_process_that_applies_the_spec_is_named_2(namespaced: Kubectl, calling: Calling, tmp_path: Path) -> None:
    namespaced.run(
        "apply", "--server-side", "--force-conflicts", "--field-manager=argocd-controller", "-f", "-",
        stdin=json.dumps(queue()),
    )  # fmt: skip
    user = person(namespaced, tmp_path, {namespace_of(namespaced): [(*QUEUES, "get,patch")]})
    assert "note: argocd-controller applies its spec" in calling.plugin(user, "pause", "queue/emails")[1]


def test_the_right_that_is_missing_is_named_as_the_server_reports_it(
    namespaced: Kubectl, calling: Calling, tmp_path: Path
) -> None:
    namespace = namespace_of(namespaced)
    message = (
        "Your account lacks a right in this cluster; ask for the right to {} queues.headgate.io in namespace {}\n"
    )
    nobody = person(namespaced, tmp_path, {namespace: []})
    assert (1, "", message.format("get", namespace)) == calling.plugin(nobody, "why", "queue/emails")
    reader = person(namespaced, tmp_path, {namespace: [(*QUEUES, "get")]})
    assert (1, "", message.format("patch", namespace)) == calling.plugin(reader, "pause", "queue/emails")
    code, _, err = calling.plugin(reader, "why", "queue/other")
    assert (3, "There is no queue other in the namespace of your context; see `kubectl get queues -A`\n") == (
        code,
        err,
    )
    code, _, err = calling.plugin(reader, "lanes", "queue/emails", "--image", "headgate:1")
    missing = f"ask for the right to create jobs.batch in namespace {namespace}"
    assert (1, f"Your account lacks a right in this cluster; {missing}\n") == (code, err)


def test_the_leader_is_asked_through_its_pod_with_no_more_rights_than_the_page_names(
    namespaced: Kubectl, calling: Calling, leading: str, tmp_path: Path
) -> None:
    namespace = namespace_of(namespaced)
    there = [("coordination.k8s.io", "leases", "get"), ("", "pods", "get"), ("", "pods/portforward", "create")]
    user = person(namespaced, tmp_path, {namespace: [(*QUEUES, "get")], leading: there})
    code, out, err = calling.plugin(user, "why", "queue/emails", "--operator-namespace", leading)
    assert (0, "") == (code, err)
    assert f"asked for /why/queue/{namespace}/emails" in out
    for rights, lacks in ((there[:1], "get pods"), (there[:2], "create pods/portforward")):
        stranger = person(namespaced, tmp_path, {namespace: [], leading: rights})
        code, _, err = calling.plan(stranger, str(ROOT / "examples/shop.yaml"), "--operator-namespace", leading)
        message = f"ask for the right to {lacks} in namespace {leading}\n"
        assert (1, [True]) == (code, [err.endswith(message)]), err
    planner = person(namespaced, tmp_path, {namespace: [], leading: there})
    code, out, err = calling.plan(planner, str(ROOT / "examples/shop.yaml"), "--operator-namespace", leading)
    assert 0 == code, err
    assert "Queue emails\n   1. /plan\n" in out


def test_a_leader_whose_pod_is_gone_is_one_line(
    namespaced: Kubectl, calling: Calling, leading: str, tmp_path: Path, definitions: Kubectl
) -> None:
    there = [("coordination.k8s.io", "leases", "get"), ("", "pods", "get"), ("", "pods/portforward", "create")]
    user = person(namespaced, tmp_path, {namespace_of(namespaced): [(*QUEUES, "get")], leading: there})
    lease = definitions.in_namespace(leading)
    lease.run("patch", "lease", "headgate-operator", "--type=merge", "-p", '{"spec": {"holderIdentity": "gone_1"}}')
    try:
        code, _, err = calling.plugin(user, "why", "queue/emails", "--operator-namespace", leading)
    finally:
        back = '{"spec": {"holderIdentity": "leader_1"}}'
        lease.run("patch", "lease", "headgate-operator", "--type=merge", "-p", back)
    assert (1, 1) == (code, err.count("\n"))
    assert err.startswith("The leading operator cannot be reached (pod=gone, ")


def test_a_job_that_no_account_lets_start_is_reported_in_the_servers_words(
    namespaced: Kubectl, calling: Calling, tmp_path: Path
) -> None:
    rights = [
        (*QUEUES, "get"), ("batch", "jobs", "create,delete,get"), ("batch", "cronjobs", "list"),
        ("", "pods,events", "list"), ("", "pods,pods/log", "get"),
    ]  # fmt: skip
    user = person(namespaced, tmp_path, {namespace_of(namespaced): rights})
    code, out, err = calling.plugin(user, "lanes", "queue/emails", "--image", "headgate:1")
    assert (1, "", 1) == (code, out, err.count("\n"))
    assert err.startswith("The Job could not start (why=")
    assert "headgate-worker" in err
    assert wait_until(lambda: namespaced.list("jobs") == [], timeout_s=30)


def test_the_operator_reports_why_and_what_it_would_do(
    operator: OperatorProcess, namespaced: Kubectl, calling: Calling, tmp_path: Path
) -> None:
    becomes(namespaced, "emails", "Reconciled")
    user = person(namespaced, tmp_path, {namespace_of(namespaced): [(*QUEUES, "get")]})
    address = ("--operator-address", f"http://127.0.0.1:{operator.inspection_port}")
    code, out, err = calling.plugin(user, "why", "queue/emails", *address, "--last", "20")
    assert (0, "") == (code, err)
    assert "Ready is True, Reconciled" in out
    assert "effect: StoreStep" in out or "Activate" in out
    path = tmp_path / "emails.yaml"
    changed = queue(shards=3)
    changed["metadata"]["namespace"] = namespace_of(namespaced)
    path.write_text(json.dumps(changed))
    before = namespaced.get("queue", "emails")["metadata"]["resourceVersion"]
    code, out, err = calling.plan(user, str(path), *address)
    assert (0, "") == (code, err)
    assert "announce generation 2: 3 shards instead of 2" in out
    assert before == namespaced.get("queue", "emails")["metadata"]["resourceVersion"]
