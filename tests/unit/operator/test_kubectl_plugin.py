"""`kubectl headgate`, beside a program `kubectl` that answers as a cluster would: each command, each way to fail."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from headgate.cli.main import main as headgate
from headgate_operator.cli.kubectl_plugin import main
from headgate_operator.cli.run_in_cluster import job_pod_state
from headgate_operator.dry_run.offline import settings_of
from headgate_operator.manifests.job import Errand, build_errand_job
from headgate_operator.manifests.namespace_objects import build_cronjob
from headgate_operator.model.world import JobGroup
from tests.kit.fake_kubectl import FakeKubectl, kubectl
from tests.unit.api.api_cases import ROOT

__all__ = ["kubectl"]

IMAGE = "registry.example/headgate:0.1.0"
LEADER = "headgate-operator-7c9d-x2x"
FORWARD = ("port-forward", f"pod/{LEADER}", ":9092", "--address=127.0.0.1")
WHY = {
    "key": "queue/shop/emails",
    "leader": f"{LEADER}_1",
    "decisions": [
        {
            "at_us": 1_800_000_000_000_000,
            "effects": ["ApplyObject Deployment emails-mailer-f6240f9c"],
            "asks": [],
            "trail": ["mailer: 3, for 2800 that wait", "change Deployment emails-mailer-f6240f9c"],
            "again_at_us": 1_800_000_030_000_000,
            "outcome": "",
            "rested_on": {"figures": {"backlog": 2800}},
        },
        {
            "at_us": 1_800_000_060_000_000,
            "effects": [],
            "asks": [],
            "trail": [],
            "again_at_us": None,
            "outcome": "refused",
        },
    ],
}


def run(*arguments: str, typed: str = "") -> tuple[int, str, str]:
    result = CliRunner().invoke(main, arguments, input=typed, catch_exceptions=False)
    return result.exit_code, result.stdout, result.stderr


def queue(spec: Mapping[str, Any] | None = None, **metadata: Any) -> dict[str, Any]:
    conditions = [
        {"type": "Ready", "status": "False", "reason": "Paused", "message": "`spec.paused` is true"},
        {"type": "TablesReady", "status": "True", "reason": "TablesPresent", "message": "well"},
        {"type": "ConsumersReady", "status": "False", "reason": "HandlerRefused", "message": "no module shop"},
    ]
    for condition in conditions:
        condition["lastTransitionTime"] = "2026-11-18T09:00:00Z"
    return {
        "apiVersion": "headgate.io/v1beta1",
        "kind": "Queue",
        "metadata": {"name": "emails", "namespace": "shop", "generation": 3, **metadata},
        "spec": dict(spec or {}),
        "status": {"observedGeneration": 3, "conditions": conditions},
    }


def lease(*, holder: str = f"{LEADER}_1", ago_s: float = 2.0) -> dict[str, Any]:
    renewed = (datetime.now(UTC) - timedelta(seconds=ago_s)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    return {"spec": {"holderIdentity": holder, "leaseDurationSeconds": 15, "renewTime": renewed}}


def pod(state: Mapping[str, Any] | None = None, **status: Any) -> dict[str, Any]:
    values = {"phase": "Pending", **status}
    if state is not None:
        values["containerStatuses"] = [{"name": "headgate", "state": dict(state)}]
    return {"items": [{"metadata": {"name": "headgate-lanes-1-abc"}, "status": values}]}


def forbidden(verb: str, resource: str, group: str, namespace: str) -> str:
    return (
        f'Error from server (Forbidden): {resource} is forbidden: User "jane" cannot {verb} resource "{resource}" '
        f'in API group "{group}" in the namespace "{namespace}"\n'
    )


def with_queue(kubectl: FakeKubectl, spec: Mapping[str, Any] | None = None, **metadata: Any) -> None:
    kubectl.answers("get", "queues.headgate.io", "emails", out=queue(spec, **metadata))


def with_job(kubectl: FakeKubectl, *, code: int = 0, log: str = "lane  standing\n") -> None:
    """A queue beside which a Job runs to its end."""
    group = JobGroup("repair", "*/5 * * * *", "headgate-connection", IMAGE)
    kubectl.answers("get", "cronjobs", out={"items": [build_cronjob("shop", settings_of("0.1.0"), group)]})
    kubectl.answers("create", "-f", "-", out="job.batch/made\n")
    kubectl.answers("get", "pods", out={"items": []}, times=1)
    kubectl.answers("get", "events", out={"items": []})
    kubectl.answers("get", "pods", out=pod({"running": {}}), times=1)
    kubectl.answers("logs", "--follow", "headgate-lanes-1-abc", out=log)
    kubectl.answers("get", "pods", out=pod({"terminated": {"exitCode": code}}))
    kubectl.answers("delete", "job", out="deleted\n")


class Operator(HTTPServer):
    """The leader's port: what it answers, and which documents it was sent."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Operator)
        self.whys: dict[str, Any] = {"/why/queue/shop/emails": WHY}
        self.plans: list[dict[str, Any]] = []
        self.posted: list[dict[str, Any]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def leads(self, kubectl: FakeKubectl) -> None:
        """It is the leader of the cluster, and `kubectl port-forward` leads to it."""
        kubectl.answers("--namespace=headgate-system", "get", "lease", "headgate-operator", out=lease())
        kubectl.answers(*FORWARD, out=f"Forwarding from 127.0.0.1:{self.server_port} -> 9092\n", holds=True)

    def plan_of(self, document: dict[str, Any]) -> dict[str, Any]:
        """The next plan, while there are some; the last of them from then on."""
        if self.plans:
            return self.plans.pop(0) if len(self.plans) > 1 else self.plans[0]
        end = {"of": "queue shop/emails", "ready": True, "message": "Ready", "stalled": False, "open": []}
        effect = {"of": "queue shop/emails", "message": f"check {document['kind']}"}
        return {"effects": [effect], "ends": [end], "unknown": []}


class _Operator(BaseHTTPRequestHandler):
    server: Operator

    def do_GET(self) -> None:
        known = self.server.whys.get(self.path)
        self._answer(200 if known is not None else 404, known or {"error": "nobody knows that"})

    def do_POST(self) -> None:
        document = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.posted.append(document)
        self._answer(200, self.server.plan_of(document))

    def _answer(self, status: int, report: Any) -> None:
        body = json.dumps(report).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  as it is called there
        """There is nothing to report."""


@pytest.fixture
def operator() -> Iterator[Operator]:
    """An operator's port on this machine."""
    server = Operator()
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def leader(kubectl: FakeKubectl, operator: Operator) -> Iterator[Operator]:
    """The same, as the leader of the cluster; no forwarding outlives its command."""
    operator.leads(kubectl)
    yield operator
    assert kubectl.called("port-forward")
    assert kubectl.still_held() == []


# ---- why


def test_why_names_the_fault_what_to_do_and_what_was_decided(kubectl: FakeKubectl, leader: Operator) -> None:
    with_queue(kubectl)
    code, out, err = run("why", "queue/emails")
    assert (0, "") == (code, err)
    assert out == (
        "queue shop/emails\n"
        "Ready is False, Paused, since 2026-11-18T09:00:00Z\n"
        "  `spec.paused` is true\n"
        "  remedy: Set `spec.paused: false` (`kubectl headgate resume`).\n"
        "ConsumersReady is False, HandlerRefused, since 2026-11-18T09:00:00Z\n"
        "  no module shop\n"
        "  remedy: Fix the image or the handler. The message has the worker's error.\n"
        "\n"
        f"2 decisions recorded by {LEADER}_1\n"
        "\n"
        "2027-01-15T08:00:00.000Z\n"
        "  mailer: 3, for 2800 that wait\n"
        "  change Deployment emails-mailer-f6240f9c\n"
        "  effect: ApplyObject Deployment emails-mailer-f6240f9c\n"
        "  decides again at 2027-01-15T08:00:30.000Z\n"
        "\n"
        "2027-01-15T08:01:00.000Z\n"
        "  no change needed\n"
        "  error: refused\n"
    )


def test_why_can_report_less_more_and_all_of_it(kubectl: FakeKubectl, leader: Operator) -> None:
    with_queue(kubectl)
    assert "mailer: 3" not in run("why", "emails", "--last", "1")[1]
    assert "    figures:\n      backlog: 2800\n" in run("why", "emails", "--inputs")[1]
    assert WHY == json.loads(run("why", "emails", "-o", "json")[1])


def test_why_reports_that_a_change_was_not_decided_about(kubectl: FakeKubectl, leader: Operator) -> None:
    with_queue(kubectl, generation=4)
    leader.whys["/why/queue/shop/emails"] = {"decisions": []}
    out = run("why", "queue/emails")[1]
    assert "the spec was changed (generation 4)" in out
    assert out.endswith("no decision recorded by the leader\n")


def test_where_kubectl_checks_is_passed_on(kubectl: FakeKubectl, leader: Operator) -> None:
    with_queue(kubectl)
    given = ("-n", "shop", "--context", "prod", "--kubeconfig", "k.yaml")
    assert 0 == run("why", "queue/emails", *given, "--operator-namespace", "headgate-system")[0]
    ways = [call.words[:3] for call in kubectl.calls]
    assert ["--kubeconfig=k.yaml", "--context=prod", "--namespace=shop"] == ways[0]
    assert [["--kubeconfig=k.yaml", "--context=prod", "--namespace=headgate-system"]] * 2 == ways[1:]


@pytest.mark.parametrize(
    ("asked", "plural"),
    [("counter/views", "counters"), ("hgc/views", "counters"), ("queues.headgate.io/views", "queues")],
)
def test_a_resource_is_named_as_kubectl_names_it(
    kubectl: FakeKubectl, leader: Operator, asked: str, plural: str
) -> None:
    kubectl.answers("get", f"{plural}.headgate.io", "views", out=queue())
    leader.whys[f"/why/{plural.removesuffix('s')}/shop/emails"] = WHY
    assert 0 == run("why", asked)[0]


def test_an_operator_outside_of_the_cluster_is_asked_where_it_is(kubectl: FakeKubectl, operator: Operator) -> None:
    with_queue(kubectl)
    assert "2 decisions" in run("why", "queue/emails", "--operator-address", operator.url)[1]
    assert [] == kubectl.called("lease")


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("http://127.0.0.1:1", "The leading operator cannot be reached (address=http://127.0.0.1:1, answer="),
        ("127.0.0.1:9092", "--operator-address is a URL such as http://127.0.0.1:9092 (given=127.0.0.1:9092)"),
    ],
)
def test_an_address_at_which_no_operator_is_takes_one_line(kubectl: FakeKubectl, address: str, message: str) -> None:
    with_queue(kubectl)
    code, _, err = run("why", "queue/emails", "--operator-address", address)
    assert code in (1, 2)
    assert (1, True) == (err.count("\n"), err.startswith(message))


# ---- obstacles


FAULTS = {
    "there is no such queue": (
        'Error from server (NotFound): queues.headgate.io "emails" not found\n',
        3,
        "There is no queue emails in the namespace of your context; see `kubectl get queues -A`\n",
    ),
    "a right is missing": (
        forbidden("get", "queues", "headgate.io", "shop"),
        1,
        "Your account lacks a right in this cluster; ask for the right to get queues.headgate.io in namespace shop\n",
    ),
    "Headgate is not installed": (
        'error: the server doesn\'t have a resource type "queues"\n',
        1,
        "The CRDs of Headgate are not installed in this cluster; install the chart, or pass another --context\n",
    ),
    "the server is down": (
        "The connection to the server 10.0.0.1:6443 was refused - did you specify the right host or port?\n",
        1,
        "The API server does not answer (answer=The connection to the server 10.0.0.1:6443 was refused - did you "
        "specify the right host or port?); see `kubectl cluster-info`\n",
    ),
    "there is no such context": (
        'error: context "prod" does not exist\n',
        1,
        'The program kubectl failed (answer=context "prod" does not exist)\n',
    ),
    "a login has expired": (
        "E1118 noise\nerror: You must be logged in to the server (Unauthorized)\n",
        1,
        "The program kubectl failed (answer=You must be logged in to the server (Unauthorized))\n",
    ),
}


COMMANDS = ("lanes", "redrive", "purge", "pause", "resume")


@pytest.mark.parametrize(
    ("command", "fault"),
    [*(("why", fault) for fault in FAULTS), *((each, "a right is missing") for each in COMMANDS)],
)
def test_whatever_kubectl_refuses_is_one_line_in_each_command(kubectl: FakeKubectl, command: str, fault: str) -> None:
    message, code, words = FAULTS[fault]
    kubectl.refuses("get", message=message)
    assert (code, "", words) == run(command, "queue/emails")


def test_without_kubectl_it_names_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    message = "The program kubectl is not on PATH; install it, or put its folder on PATH\n"
    assert (1, "", message) == run("why", "queue/emails")


def test_what_is_not_named_like_a_resource_is_refused_before_anything_is_asked(kubectl: FakeKubectl) -> None:
    message = "The name of a resource is like queue/emails or counter/views (given=pod/emails)\n"
    assert (2, "", message) == run("why", "pod/emails")
    code, _, err = run("lanes", "counter/views")
    assert (2, "This command takes a queue, not a counter (given=counter/views)\n") == (code, err)
    assert [] == kubectl.calls


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (lease(holder=""), "No operator leads (namespace=headgate-system); see"),
        (lease(ago_s=3600), f"No operator leads any more (last={LEADER}_1, silent_since="),
        ({"spec": {"holderIdentity": "x_1"}}, "No operator leads any more (last=x_1, silent_since=ever)"),
    ],
)
def test_without_a_leader_it_states_where_to_check(
    kubectl: FakeKubectl, answer: dict[str, Any], message: str
) -> None:
    with_queue(kubectl)
    kubectl.answers("get", "lease", out=answer)
    code, _, err = run("why", "queue/emails")
    assert (1, 1, True) == (code, err.count("\n"), err.startswith(message))
    assert "kubectl get pods -n headgate-system" in err


def test_where_there_is_no_lease_nobody_leads(kubectl: FakeKubectl) -> None:
    with_queue(kubectl)
    kubectl.refuses("get", "lease", message='Error from server (NotFound): leases "headgate-operator" not found\n')
    code, _, err = run("why", "queue/emails")
    assert 1 == code
    assert err.startswith("No operator leads (namespace=headgate-system); see `kubectl get pods -n headgate-system`")


@pytest.mark.parametrize(
    ("message", "words"),
    [
        (
            forbidden("get", "pods", "", "headgate-system"),
            "Your account lacks a right in this cluster; ask for the right to get pods in namespace "
            "headgate-system\n",
        ),
        (
            f'error: error upgrading connection: pods "{LEADER}" is forbidden: User "jane" cannot create resource '
            '"pods/portforward" in API group "" in the namespace "headgate-system"\n',
            "Your account lacks a right in this cluster; ask for the right to create pods/portforward in namespace "
            "headgate-system\n",
        ),
        (
            f'Error from server (NotFound): pods "{LEADER}" not found\n',
            f'The leading operator cannot be reached (pod={LEADER}, answer=pods "{LEADER}" not found); pass '
            "--operator-address if it runs outside of the cluster\n",
        ),
        (
            "Error from server (ServiceUnavailable): dial tcp 10.1.0.7:10250: connect: connection refused\n",
            f"The leading operator cannot be reached (pod={LEADER}, answer=dial tcp 10.1.0.7:10250: connect: "
            "connection refused); pass --operator-address if it runs outside of the cluster\n",
        ),
    ],
)
def test_a_leader_that_cannot_be_asked_is_one_line(kubectl: FakeKubectl, message: str, words: str) -> None:
    with_queue(kubectl)
    kubectl.answers("get", "lease", out=lease())
    kubectl.refuses("port-forward", message=message)
    code, _, err = run("why", "queue/emails")
    assert (1, words) == (code, err)


def test_a_pod_that_listens_at_no_such_port_is_one_line(kubectl: FakeKubectl) -> None:
    with_queue(kubectl)
    kubectl.answers("get", "lease", out=lease())
    kubectl.answers(*FORWARD, out="Forwarding from 127.0.0.1:1 -> 9092\n", holds=True)
    code, _, err = run("why", "queue/emails")
    assert (1, 1) == (code, err.count("\n"))
    assert err.startswith(f"The leading operator cannot be reached (pod={LEADER}, answer=")
    assert kubectl.still_held() == []


# ---- jobs


def test_lanes_runs_stats_beside_the_queue_and_leaves_nothing(
    kubectl: FakeKubectl, capfd: pytest.CaptureFixture[str]
) -> None:
    with_queue(kubectl)
    with_job(kubectl)
    assert 0 == run("lanes", "queue/emails")[0]
    assert "lane  standing\n" == capfd.readouterr().out
    made = kubectl.called("create")[0].document
    container = made["spec"]["template"]["spec"]["containers"][0]
    assert ["headgate", "stats", "shop/emails", "--lanes"] == container["command"]
    assert ("shop", IMAGE) == (made["metadata"]["namespace"], container["image"])
    assert "headgate-worker" == made["spec"]["template"]["spec"]["serviceAccountName"]
    name = made["metadata"]["name"]
    assert [f"job-name={name}"] * 3 == [call.words[-3] for call in kubectl.called("get", "pods")]
    assert [name] == [call.words[3] for call in kubectl.called("delete", "job")]
    assert {"--namespace=shop"} == {call.words[0] for call in kubectl.calls[1:]}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("lanes", "emails", "-o", "json"), ["stats", "shop/emails", "--lanes", "--output", "json"]),
        (("redrive", "emails"), ["redrive", "shop/emails"]),
        (
            ("redrive", "emails", "--to", "shop/other", "--limit", "7"),
            ["redrive", "shop/emails", "--to", "shop/other", "--limit", "7"],
        ),
        (("purge", "emails", "--yes"), ["purge", "shop/emails", "--yes"]),
        (
            ("purge", "emails", "--yes", "--until", "2026-11-18T09:00:00+00:00"),
            ["purge", "shop/emails", "--yes", "--until", "2026-11-18T09:00:00+00:00"],
        ),
    ],
)
def test_the_job_runs_the_command_of_that_name_which_takes_these_options(
    kubectl: FakeKubectl, arguments: tuple[str, ...], words: list[str]
) -> None:
    with_queue(kubectl)
    with_job(kubectl)
    assert 0 == run(*arguments)[0]
    command = kubectl.called("create")[0].document["spec"]["template"]["spec"]["containers"][0]["command"]
    assert ["headgate", *words] == command
    context = headgate.make_context("headgate", command[1:2])
    result = headgate.get_command(context, command[1])
    assert result is not None
    result.make_context(command[1], command[2:], parent=context)


def test_the_job_may_what_workers_may_and_the_operator_does_not_take_it_for_its_own() -> None:
    made = build_errand_job(Errand("shop", "emails", "j", ["headgate", "purge"], IMAGE, "mine"))
    like = build_cronjob("shop", settings_of("0.1.0"), JobGroup("repair", "*/5 * * * *", "mine", IMAGE))["spec"][
        "jobTemplate"
    ]["spec"]
    for part in ("securityContext", "serviceAccountName", "automountServiceAccountToken", "volumes"):
        assert like["template"]["spec"][part] == made["spec"]["template"]["spec"][part]
    assert "headgate" != made["metadata"]["labels"]["app.kubernetes.io/managed-by"]
    assert made["spec"]["ttlSecondsAfterFinished"] > 0


def test_a_queue_with_a_connection_of_its_own_is_reached_by_that(kubectl: FakeKubectl) -> None:
    with_queue(kubectl, {"storage": {"connectionSecret": "mine"}})
    with_job(kubectl)
    assert 0 == run("lanes", "emails")[0]
    made = yaml.safe_dump(kubectl.called("create")[0].document)
    assert ("name: mine" in made, "headgate-connection" in made) == (True, False)


def test_the_commands_exit_code_is_ours(kubectl: FakeKubectl) -> None:
    with_queue(kubectl)
    with_job(kubectl, code=2)
    assert 2 == run("redrive", "emails")[0]
    assert 1 == len(kubectl.called("delete", "job"))


def test_a_purge_asks_first(kubectl: FakeKubectl) -> None:
    with_queue(kubectl)
    code, _, err = run("purge", "queue/emails", typed="n\n")
    assert (1, [True]) == (code, [err.startswith("Delete all messages in queue shop/emails? [y/N]")])
    assert [] == kubectl.called("create")
    with_job(kubectl)
    assert 0 == run("purge", "queue/emails", typed="y\n")[0]


def test_without_repair_in_the_namespace_the_image_has_to_be_reported(kubectl: FakeKubectl) -> None:
    with_queue(kubectl)
    kubectl.answers("get", "cronjobs", out={"items": []}, times=1)
    code, _, err = run("lanes", "emails")
    assert (1, [True]) == (code, [err.startswith("The operator's image is unknown (namespace=shop, ")])
    assert err.endswith("wait until queue shop/emails is Ready, or pass --image\n")
    with_job(kubectl)
    assert 0 == run("lanes", "emails", "--image", "mine:1")[0]
    made = kubectl.called("create")[0].document
    assert "mine:1" == made["spec"]["template"]["spec"]["containers"][0]["image"]


NEVER = {
    "the image cannot be pulled": pod({"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}),
    "the Secret is missing": pod({"waiting": {"reason": "CreateContainerConfigError", "message": 'secret "x"'}}),
    "it was evicted": pod(phase="Failed", reason="Evicted", message="no room"),
}


@pytest.mark.parametrize("why", NEVER)
def test_a_job_that_cannot_start_is_one_line_and_is_deleted(kubectl: FakeKubectl, why: str) -> None:
    with_queue(kubectl)
    kubectl.answers("get", "pods", out=NEVER[why])
    with_job(kubectl)
    code, out, err = run("lanes", "emails")
    assert (1, "", 1) == (code, out, err.count("\n"))
    assert err.startswith("The Job could not start (why=")
    assert 1 == len(kubectl.called("delete", "job"))


def test_a_quota_that_lets_no_pod_be_made_is_reported_in_its_words(kubectl: FakeKubectl) -> None:
    with_queue(kubectl)
    kubectl.answers("get", "pods", out={"items": []})
    kubectl.answers("get", "events", out={"items": [{"message": "exceeded quota: pods"}]})
    with_job(kubectl)
    assert (1, "", "The Job could not start (why=exceeded quota: pods)\n") == run("lanes", "emails")


def test_a_pod_that_no_node_takes_is_waited_for_that_long_and_no_longer(kubectl: FakeKubectl) -> None:
    with_queue(kubectl)
    unmet = {"type": "PodScheduled", "status": "False", "message": "0/3 nodes are available"}
    kubectl.answers("get", "pods", out=pod(conditions=[unmet]))
    with_job(kubectl)
    code, _, err = run("lanes", "emails", "--start-timeout", "100ms")
    message = (
        "The Job could not start (within_s=0.1, why=0/3 nodes are available); wait longer with --start-timeout\n"
    )
    assert (1, message) == (code, err)
    assert 1 == len(kubectl.called("delete", "job"))


@pytest.mark.parametrize(
    ("verb", "resource", "group"),
    [("create", "jobs", "batch"), ("list", "cronjobs", "batch"), ("list", "pods", ""), ("get", "pods/log", "")],
)
def test_each_right_that_is_missing_is_named(kubectl: FakeKubectl, verb: str, resource: str, group: str) -> None:
    with_queue(kubectl)
    words = {"jobs": ["create", "-f"], "cronjobs": ["get", "cronjobs"], "pods": ["get", "pods"]}
    kubectl.refuses(*words.get(resource, ["logs"]), message=forbidden(verb, resource, group, "shop"))
    with_job(kubectl)
    code, _, err = run("lanes", "emails")
    named = f"{resource}.{group}" if group else resource
    assert (1, [True]) == (code, [err.endswith(f"ask for the right to {verb} {named} in namespace shop\n")])
    assert len(kubectl.called("create")) - (resource == "jobs") == len(kubectl.called("delete", "job"))


def test_a_job_that_cannot_be_deleted_is_named(kubectl: FakeKubectl) -> None:
    with_queue(kubectl)
    kubectl.refuses("delete", "job", message=forbidden("delete", "jobs", "batch", "shop"))
    with_job(kubectl)
    code, _, err = run("lanes", "emails")
    name = kubectl.called("create")[0].document["metadata"]["name"]
    assert (0, [True]) == (code, [err.startswith(f"the Job {name} could not be deleted: Your account lacks a right")])


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_process_that_ends_it_leaves_no_job(kubectl: FakeKubectl, number: signal.Signals) -> None:
    with_queue(kubectl)
    kubectl.answers("logs", "--follow", out="", waits_s=30)
    with_job(kubectl)
    with kubectl.expecting_a_wait() as until_it_waits:
        running = subprocess.Popen([sys.executable, "-m", "headgate_operator.cli.kubectl_plugin", "lanes", "emails"])
        until_it_waits()
        running.send_signal(number)
    assert 0 != running.wait(20)
    assert 1 == len(kubectl.called("delete", "job"))


def test_a_pod_that_waits_for_something_that_may_come_is_waited_for() -> None:
    assert not job_pod_state(pod({"waiting": {"reason": "ErrImagePull"}})["items"]).hopeless
    assert not job_pod_state(pod({"waiting": {"reason": "ContainerCreating"}})["items"]).hopeless
    assert not job_pod_state([]).hopeless


# ---- pausing


@pytest.mark.parametrize(("command", "paused"), [("pause", True), ("resume", False)])
def test_pause_and_resume_change_one_field_and_state_which_process_may_set_it_back(
    kubectl: FakeKubectl, command: str, paused: bool
) -> None:
    with_queue(kubectl, {"paused": not paused})
    kubectl.answers("patch", "queues.headgate.io", "emails", "--type=merge", out="patched\n")
    code, out, err = run(command, "queue/emails")
    word = "paused" if paused else "not paused"
    assert (0, "") == (code, err)
    assert out == (
        f"queue shop/emails is {word}\n"
        "note: a spec from git (Argo CD, Flux) will revert this, so change spec.paused at its source too\n"
    )
    assert [{"spec": {"paused": paused}}] == [json.loads(call.words[-1]) for call in kubectl.called("patch")]


def test_a_process_that_applies_the_spec_is_named(kubectl: FakeKubectl) -> None:
    fields = [
        {"manager": "argocd-controller", "operation": "Apply", "fieldsV1": {"f:spec": {}}},
        {"manager": "kubectl-client-side-apply", "operation": "Update", "fieldsV1": {"f:spec": {}}},
        {"manager": "headgate", "operation": "Apply", "fieldsV1": {"f:status": {}}, "subresource": "status"},
    ]
    with_queue(kubectl, managedFields=fields)
    kubectl.answers("patch", out="patched\n")
    note = "note: argocd-controller applies its spec and will revert this, so change spec.paused at its source too\n"
    assert run("pause", "queue/emails")[1].endswith(note)


def test_what_is_so_already_is_left_alone(kubectl: FakeKubectl) -> None:
    with_queue(kubectl, {"paused": True})
    assert (0, "queue shop/emails is paused already\n", "") == run("pause", "queue/emails")
    assert [] == kubectl.called("patch")


def test_a_user_without_the_right_to_patch_is_answered_so(kubectl: FakeKubectl) -> None:
    with_queue(kubectl)
    kubectl.refuses("patch", message=forbidden("patch", "queues", "headgate.io", "shop"))
    message = (
        "Your account lacks a right in this cluster; ask for the right to patch queues.headgate.io in namespace shop"
    )
    assert (1, "", f"{message}\n") == run("pause", "queue/emails")


# ---- headgate plan against a cluster


def test_a_plan_against_a_cluster_is_the_leaders(kubectl: FakeKubectl, leader: Operator) -> None:
    end = {"of": "queue shop/emails", "ready": False, "message": "no", "stalled": True, "open": []}
    values = {"effects": [{"of": "queue shop/emails", "message": "create it"}], "ends": [end], "unknown": []}
    leader.plans = [values]
    arguments = ["plan", "-f", str(ROOT / "examples/shop.yaml"), "--context", "prod"]
    result = CliRunner().invoke(headgate, arguments)
    assert 2 == result.exit_code
    assert 1 == result.stdout.count("create it")
    assert ["emails", "emails-dead", "page-views"] == [each["metadata"]["name"] for each in leader.posted]
    assert {"--context=prod"} == {call.words[0] for call in kubectl.calls}


def test_a_dead_letter_queue_that_is_in_the_files_is_not_missed(leader: Operator) -> None:
    end = {"of": "queue shop/emails", "ready": False, "stalled": False, "open": []}
    values = {
        "effects": [],
        "ends": [end | {"message": "not Ready, DeadLetterMissing: there is no queue emails-dead"}],
    }
    leader.plans = [values, {"effects": [], "ends": []}]
    result = CliRunner().invoke(headgate, ["plan", "-f", str(ROOT / "examples/shop.yaml"), "--context", "prod"])
    assert "queue shop/emails: Ready, once the dead-letter queue of these files exists\n" in result.stdout


def test_a_plan_may_be_asked_of_an_operator_outside_of_the_cluster(operator: Operator) -> None:
    arguments = ["plan", "-f", str(ROOT / "examples/shop.yaml"), "--operator-address", operator.url]
    result = CliRunner().invoke(headgate, arguments)
    assert 0 == result.exit_code
    assert "check Queue" in result.stdout


def test_a_plan_that_nobody_can_make_is_one_line(kubectl: FakeKubectl) -> None:
    kubectl.answers("get", "lease", out=lease(holder=""))
    result = CliRunner().invoke(headgate, ["plan", "-f", str(ROOT / "examples/shop.yaml"), "--context", "prod"])
    assert (1, "") == (result.exit_code, result.stdout)
    assert result.stderr.startswith("headgate: No operator leads (namespace=headgate-system)")
