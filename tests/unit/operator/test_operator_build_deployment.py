"""The Deployment of a consumer, and its budget: the documents that the API server is given."""

from __future__ import annotations

from typing import Any

import pytest
from click.testing import CliRunner

from headgate.cli.worker import worker as worker_command
from headgate.store.connection_variables import VARIABLES
from headgate_operator.manifests.deployment import HANDLER, REST_S, WORKER, build_disruption_budget, minor_of
from headgate_operator.manifests.pod import CONNECTION_KEYS
from headgate_operator.model.names import consumer_name
from tests.unit.operator.operator_children_cases import CONSUMERS, KEY, OWNER, PYTHON, SETTINGS, UID, consumer, made

WORDS = ["headgate", "worker", "shop/emails"]
OWNED = {"apiVersion": "headgate.io/v1beta1", "kind": "Queue", "name": "emails", "uid": UID, "controller": True}


def pod_of(case: str) -> dict[str, Any]:
    entries: dict[str, Any] = made(case)["spec"]["template"]["spec"]
    return entries


def container_of(case: str, name: str = WORKER) -> dict[str, Any]:
    pod = pod_of(case)
    every = [*pod["containers"], *pod.get("initContainers", ())]
    return next(container for container in every if container["name"] == name)


def test_it_is_named_for_queue_and_consumer_and_belongs_to_the_queue() -> None:
    metadata = made("python")["metadata"]
    assert (consumer_name("emails", "mailer"), "shop") == (metadata["name"], metadata["namespace"])
    assert [OWNED] == metadata["ownerReferences"]
    assert {
        "app.kubernetes.io/managed-by": "headgate",
        "headgate.io/queue": "emails",
        "headgate.io/consumer": "mailer",
    } == metadata["labels"]


def test_a_rollout_starts_a_new_worker_before_it_ends_an_old_one() -> None:
    spec = made("python")["spec"]
    assert {"maxSurge": "25%", "maxUnavailable": 0} == spec["strategy"]["rollingUpdate"]
    assert (2, 120, 0, False) == (
        spec["revisionHistoryLimit"],
        spec["progressDeadlineSeconds"],
        spec["minReadySeconds"],
        spec["paused"],
    )


def test_replicas_are_reported_or_left_to_somebody_else() -> None:
    assert 2 == made("python")["spec"]["replicas"]
    assert 0 == made("python", replicas=0)["spec"]["replicas"]
    assert "replicas" not in made("external", replicas=None)["spec"]


@pytest.mark.parametrize(
    ("case", "words"),
    [
        ("python", ["--handler", "mailer.tasks:send", "--concurrency", "16", "--grace", "50s"]),
        (
            "all",
            [
                *("--handler", "mailer.tasks:send", "--concurrency", "4", "--grace", "50s"),
                *("--rate", "50/s", "--visibility", "1m"),
            ],
        ),
        ("http", ["--http", "http://127.0.0.1:8080/work", "--concurrency", "16", "--grace", "50s"]),
        ("template", ["--handler", "mailer.tasks:send", "--concurrency", "16", "--grace", "290s"]),
    ],
)
def test_the_worker_is_started_word_by_word_with_what_the_consumer_states(case: str, words: list[str]) -> None:
    assert [*WORDS, *words] == container_of(case)["command"]


@pytest.mark.parametrize("case", sorted(CONSUMERS))
def test_the_worker_takes_every_option_that_it_is_started_with(case: str) -> None:
    _, name, *options = container_of(case)["command"]
    assert worker_command.name == name
    worker_command.make_context(name, list(options))  # refuses what it does not know


def test_a_patch_of_the_operator_s_version_starts_no_worker_again() -> None:
    env = {one["name"]: one for one in container_of("python")["env"]}
    assert "0.1" == env["HEADGATE_OPERATOR_VERSION"]["value"] == minor_of("0.1.7") == minor_of("0.1")


def test_the_consumer_s_image_runs_a_python_handler_and_ours_beside_an_http_handler() -> None:
    assert PYTHON["image"] == container_of("python")["image"]
    assert SETTINGS.image == container_of("ours")["image"] == container_of("http")["image"]
    assert "registry.example/web:2" == container_of("http", HANDLER)["image"]


def test_an_http_handler_is_a_sidecar_that_is_up_before_the_worker_and_ends_after_it() -> None:
    handler = container_of("http", HANDLER)
    assert [HANDLER] == [container["name"] for container in pod_of("http")["initContainers"]]
    assert ("Always", {"port": 8080}) == (handler["restartPolicy"], handler["startupProbe"]["tcpSocket"])
    assert "command" not in handler
    assert "readOnlyRootFilesystem" not in handler["securityContext"]
    assert "initContainers" not in pod_of("python")


def test_probes_ask_the_worker_at_the_port_that_it_is_reported() -> None:
    worker = container_of("python")
    env = {one["name"]: one.get("value") for one in worker["env"]}
    assert "0.0.0.0:9090" == env["HEADGATE_HEALTH"]
    assert [("/livez", 9090, 1, 60), ("/readyz", 9090, 2, None), ("/livez", 9090, 10, 3)] == [
        (
            worker[probe]["httpGet"]["path"],
            worker[probe]["httpGet"]["port"],
            worker[probe]["periodSeconds"],
            worker[probe].get("failureThreshold"),
        )
        for probe in ("startupProbe", "readinessProbe", "livenessProbe")
    ]


def test_a_handler_on_our_own_port_moves_the_worker_s_health_to_another() -> None:
    worker = container_of("http-on-our-port")
    assert {9091} == {
        worker["ports"][0]["containerPort"],
        *(worker[probe]["httpGet"]["port"] for probe in ("startupProbe", "readinessProbe", "livenessProbe")),
    }
    assert {"name": "HEADGATE_HEALTH", "value": "0.0.0.0:9091"} in worker["env"]


@pytest.mark.parametrize("case", sorted(CONSUMERS))
def test_the_pod_has_ten_seconds_more_than_the_worker_s_drain(case: str) -> None:
    words = container_of(case)["command"]
    grace_s = int(words[words.index("--grace") + 1].removesuffix("s"))
    assert REST_S == pod_of(case)["terminationGracePeriodSeconds"] - grace_s
    hook = container_of(case)["lifecycle"]["preStop"]["exec"]["command"]
    assert ["python3", "-m", "headgate.runtime.drain"] == hook


def test_the_connection_is_reported_key_by_key_and_only_contact_points_must_be_there() -> None:
    refs = {
        one["name"]: one["valueFrom"]["secretKeyRef"]
        for one in container_of("python")["env"]
        if "secretKeyRef" in one.get("valueFrom", {})
    }
    assert list(CONNECTION_KEYS) == list(refs) == [ref["key"] for ref in refs.values()]
    assert {"headgate-connection"} == {ref["name"] for ref in refs.values()}
    assert ["CONTACT_POINTS"] == [name for name, ref in refs.items() if not ref["optional"]]


def test_all_that_a_connection_is_given_by_reaches_the_pod() -> None:
    files = {"SSL_CA", "SSL_CERT", "SSL_KEY"}  # by SSL_DIRECTORY
    values = {one["name"] for one in container_of("python")["env"]}
    assert set(VARIABLES) - files <= values


def test_the_connection_s_files_are_mounted_where_the_variable_states_and_may_be_missing() -> None:
    pod, worker = pod_of("python"), container_of("python")
    assert {"name": "SSL_DIRECTORY", "value": "/etc/headgate/tls"} in worker["env"]
    secret = next(volume["secret"] for volume in pod["volumes"] if "secret" in volume)
    assert (True, ["ca.crt", "tls.crt", "tls.key"]) == (secret["optional"], [item["key"] for item in secret["items"]])
    assert {"name": "connection", "mountPath": "/etc/headgate/tls", "readOnly": True} in worker["volumeMounts"]


def test_a_rotated_connection_changes_the_template_so_that_pods_roll() -> None:
    assert "d1" == made("python")["spec"]["template"]["metadata"]["annotations"]["headgate.io/connection-digest"]


@pytest.mark.parametrize("case", sorted(CONSUMERS))
def test_no_container_may_more_than_the_restricted_standard_allows(case: str) -> None:
    pod = pod_of(case)
    assert {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}} == pod["securityContext"]
    for container in (*pod["containers"], *pod.get("initContainers", ())):
        security = container["securityContext"]
        assert (False, ["ALL"]) == (security["allowPrivilegeEscalation"], security["capabilities"]["drop"])
    assert container_of(case)["securityContext"]["readOnlyRootFilesystem"]


def test_workers_are_spread_over_nodes_and_zones_as_far_as_that_goes() -> None:
    assert [("kubernetes.io/hostname", 1), ("topology.kubernetes.io/zone", 1)] == [
        (one["topologyKey"], one["maxSkew"]) for one in pod_of("python")["topologySpreadConstraints"]
    ]
    assert {"ScheduleAnyway"} == {one["whenUnsatisfiable"] for one in pod_of("python")["topologySpreadConstraints"]}


def test_the_template_wins_over_what_it_may_change() -> None:
    pod, worker = pod_of("template"), container_of("template")
    assert {"requests": {"cpu": "0.5", "memory": "128Mi"}, "limits": {"memory": "1Gi"}} == worker["resources"]
    assert {"name": "KEYSPACE", "value": "mine"} in worker["env"]
    assert {"name": "MODE", "value": "fast"} in worker["env"]
    assert "livenessProbe" not in worker
    assert ["worker", "proxy"] == [container["name"] for container in pod["containers"]]
    assert ["connection", "tmp", "cache"] == [volume["name"] for volume in pod["volumes"]]
    assert {"disk": "ssd"} == pod["nodeSelector"]
    annotations = made("template")["spec"]["template"]["metadata"]["annotations"]
    assert {"example.org/a": "b", "headgate.io/connection-digest": "d1"} == annotations


def test_the_template_changes_neither_our_labels_nor_the_account() -> None:
    document = made("template")
    labels = document["spec"]["template"]["metadata"]["labels"]
    assert ("post", "emails") == (labels["team"], labels["headgate.io/queue"])
    assert document["spec"]["selector"]["matchLabels"].items() <= labels.items()
    pod = document["spec"]["template"]["spec"]
    assert ("headgate-worker", False) == (pod["serviceAccountName"], pod["automountServiceAccountToken"])


def test_what_a_template_states_of_the_handler_is_reported_of_the_sidecar() -> None:
    pod = pod_of("http-template")
    assert [WORKER] == [container["name"] for container in pod["containers"]]
    assert [HANDLER, "migrate"] == [container["name"] for container in pod["initContainers"]]
    assert [{"name": "A", "value": "1"}] == container_of("http-template", HANDLER)["env"]


def test_the_worker_s_own_command_names_what_it_takes() -> None:
    text = CliRunner().invoke(worker_command, ["--help"]).output
    assert "--rate RATE" in text


def test_the_budget_lets_one_worker_go_at_a_time_and_protects_none_that_is_not_ready() -> None:
    budget = build_disruption_budget(OWNER, consumer(PYTHON))
    assert {
        "maxUnavailable": 1,
        "selector": made("python")["spec"]["selector"],
        "unhealthyPodEvictionPolicy": "AlwaysAllow",
    } == budget["spec"]
    assert ([OWNED], consumer_name(KEY.name, "mailer")) == (
        budget["metadata"]["ownerReferences"],
        budget["metadata"]["name"],
    )
