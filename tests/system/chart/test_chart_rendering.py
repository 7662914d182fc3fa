"""The documents that an install applies are secure, spread, found by their labels, and follow the chart's options."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
import yaml

from dev.cluster.helm import CHART, Helm
from headgate.api.read.parse import check_resource
from headgate_operator.install.rbac import AT_HOME, DRIVING, EVERYWHERE, REVIEWING, rules
from headgate_operator.manifests.pod import CONNECTION_FILES, CONNECTION_KEYS
from headgate_operator.model.label_selector import parse_selector
from headgate_operator.model.names import CONNECTION_COPY, SPARK_ACCOUNT
from headgate_operator.process.serving_certificate import FOLDER
from tests.system.chart.cases import CASES, rendered

Document = Mapping[str, Any]
POLICIES = {"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"}
CLUSTER_WIDE = {"ClusterRole", "ClusterRoleBinding", *POLICIES}


def of_kind(documents: list[dict[str, Any]], kind: str, part: str = "") -> list[dict[str, Any]]:
    """Those of a kind whose name has this part."""
    return [each for each in documents if each["kind"] == kind and part in each["metadata"]["name"]]


def the(documents: list[dict[str, Any]], kind: str, part: str = "") -> dict[str, Any]:
    """The only one."""
    (result,) = of_kind(documents, kind, part)
    return result


def pods(documents: list[dict[str, Any]]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every pod, by what makes it."""
    for each in documents:
        if each["kind"] in ("Deployment", "StatefulSet", "Job"):
            yield f"{each['kind']} {each['metadata']['name']}", each["spec"]["template"]["spec"]
        elif each["kind"] == "Pod":
            yield f"Pod {each['metadata']['name']}", each["spec"]


def containers(documents: list[dict[str, Any]]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every container of every pod."""
    for name, pod in pods(documents):
        for each in (*pod.get("initContainers", ()), *pod["containers"]):
            yield f"{name}: {each['name']}", each


def operator_of(documents: list[dict[str, Any]]) -> dict[str, Any]:
    container: dict[str, Any] = the(documents, "Deployment")["spec"]["template"]["spec"]["containers"][0]
    return container


def environment_of(container: Mapping[str, Any]) -> dict[str, Any]:
    """Its variables."""
    return {each["name"]: each.get("value", each.get("valueFrom")) for each in container["env"]}


def decoded(secret: Document) -> dict[str, str]:
    return {name: base64.b64decode(value).decode() for name, value in secret["data"].items()}


# ---- every case


@pytest.mark.parametrize("name", CASES)
def test_no_container_may_become_root_or_write_its_image(helm: Helm, name: str) -> None:
    documents = rendered(helm, CASES[name])
    for where, pod in pods(documents):
        assert {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}.items() <= pod[
            "securityContext"
        ].items(), where
    secure = {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert {} == {where: each for where, each in containers(documents) if each["securityContext"] != secure}


@pytest.mark.parametrize("name", CASES)
def test_every_object_reports_that_it_is_helms_and_of_which_release(helm: Helm, name: str) -> None:
    for each in rendered(helm, CASES[name]):
        labels = each["metadata"]["labels"]
        assert ("Helm", "headgate") == (
            labels["app.kubernetes.io/managed-by"],
            labels["app.kubernetes.io/instance"],
        ), each
        assert each["kind"] in CLUSTER_WIDE or "namespace" in each["metadata"], each


@pytest.mark.parametrize("name", CASES)
def test_no_two_objects_have_one_name(helm: Helm, name: str) -> None:
    named = [
        (each["kind"], each["metadata"].get("namespace"), each["metadata"]["name"])
        for each in rendered(helm, CASES[name])
    ]
    assert len(named) == len(set(named))


@pytest.mark.parametrize("name", CASES)
def test_every_account_that_a_pod_names_is_made_and_bound_to_roles_that_are(helm: Helm, name: str) -> None:
    documents = rendered(helm, CASES[name])
    accounts = {each["metadata"]["name"] for each in of_kind(documents, "ServiceAccount")}
    assert {pod["serviceAccountName"] for _, pod in pods(documents) if "serviceAccountName" in pod} == accounts
    roles = {(each["kind"], each["metadata"]["name"]) for each in documents if each["kind"].endswith("Role")}
    bindings = [each for each in documents if each["kind"].endswith("RoleBinding")]
    assert {(each["roleRef"]["kind"], each["roleRef"]["name"]) for each in bindings} <= roles
    assert {subject["name"] for each in bindings for subject in each["subjects"]} == accounts


# ---- what the operator needs


def test_the_operator_may_what_its_code_states(helm: Helm) -> None:
    documents = rendered(helm, {})
    assert rules(EVERYWHERE) == the(documents, "ClusterRole", "headgate-operator")["rules"]
    assert rules(AT_HOME) == the(documents, "Role", "headgate-operator")["rules"]
    assert list(DRIVING) == the(documents, "ClusterRole", SPARK_ACCOUNT)["rules"]


def test_the_operator_reviews_tokens_only_where_tenants_may_ask_it(helm: Helm) -> None:
    documents = rendered(helm, CASES["explanations for tenants"])
    assert rules((*EVERYWHERE, *REVIEWING)) == the(documents, "ClusterRole", "headgate-operator")["rules"]
    environment, closed = (environment_of(operator_of(each)) for each in (documents, rendered(helm, {})))
    assert ("0.0.0.0:9093", None) == tuple(each.get("HEADGATE_INSPECTION_LOGIN") for each in (environment, closed))
    assert {"127.0.0.1:9092"} == {each["HEADGATE_INSPECTION"] for each in (environment, closed)}
    (folder,) = (each for each in operator_of(documents)["volumeMounts"] if each["name"] == "inspection")
    assert FOLDER == folder["mountPath"]


def test_authors_are_asked_about_unless_that_is_switched_off(helm: Helm) -> None:
    def policies(case: str) -> set[str]:
        return POLICIES & {each["kind"] for each in rendered(helm, CASES[case])}

    assert (POLICIES, set()) == (policies("the least"), policies("authors without a question"))


def test_two_processes_of_the_operator_stand_apart_and_are_not_drained_together(helm: Helm) -> None:
    documents = rendered(helm, {})
    deployment, budget = the(documents, "Deployment"), the(documents, "PodDisruptionBudget")
    pod = deployment["spec"]["template"]
    labels = pod["metadata"]["labels"]
    assert (2, 1) == (deployment["spec"]["replicas"], budget["spec"]["maxUnavailable"])
    for selector in (
        deployment["spec"]["selector"],
        budget["spec"]["selector"],
        *(each["labelSelector"] for each in pod["spec"]["topologySpreadConstraints"]),
    ):
        assert selector["matchLabels"].items() <= labels.items()
        assert "operator" == selector["matchLabels"]["app.kubernetes.io/component"]


def test_one_process_has_no_budget_that_would_hold_up_a_drain(helm: Helm) -> None:
    assert [] == of_kind(rendered(helm, CASES["one process"]), "PodDisruptionBudget")


def test_the_operator_is_reported_its_image_so_that_workers_have_the_same(helm: Helm) -> None:
    container = operator_of(rendered(helm, CASES["a registry of one's own"]))
    image = "registry.internal:5000/mirror/team/headgate:9.9.9"
    assert (image, image) == (container["image"], environment_of(container)["HEADGATE_IMAGE"])


def test_probes_ask_the_port_that_the_operator_opens(helm: Helm) -> None:
    container = operator_of(rendered(helm, {}))
    assert f":{container['ports'][0]['containerPort']}" in environment_of(container)["HEADGATE_HEALTH"]
    assert {"/livez", "/readyz"} == {
        container[probe]["httpGet"]["path"] for probe in ("startupProbe", "livenessProbe", "readinessProbe")
    }


def test_every_image_comes_from_the_registry_that_is_named(helm: Helm) -> None:
    values = {**CASES["a registry of one's own"], "connection": {"contactPoints": []}}
    values["cassandra"] = {**values["cassandra"], "enabled": True}
    images = {each["image"] for _, each in containers(rendered(helm, values))}
    assert [] == [image for image in images if not image.startswith("registry.internal:5000/mirror/team/")]


def test_a_digest_wins_over_the_tag(helm: Helm) -> None:
    assert (
        f"registry.internal/headgate@sha256:{'0' * 64}"
        == operator_of(rendered(helm, CASES["images by digest"]))["image"]
    )


def test_pull_secrets_reach_every_pod_of_the_chart(helm: Helm) -> None:
    documents = rendered(helm, CASES["a registry of one's own"])
    assert [] == [name for name, pod in pods(documents) if pod.get("imagePullSecrets") != [{"name": "pull"}]]


def test_the_operator_is_given_by_which_secrets_workers_pull(helm: Helm) -> None:
    args = operator_of(rendered(helm, CASES["a registry of one's own"]))["args"]
    bounds = ["--qps=100", "--tables-max=300", "--namespace-tables-max=150"]
    assert [*bounds, "--pull-secret=pull-one", "--pull-secret=pull-two"] == args


def test_the_operator_is_given_the_bounds_on_tables(helm: Helm) -> None:
    args = operator_of(rendered(helm, CASES["room for many tables"]))["args"]
    assert ["--qps=100", "--tables-max=900", "--namespace-tables-max=90"] == args


# ---- the connection


def test_the_secret_has_every_key_that_a_connection_is_given_by(helm: Helm) -> None:
    secret = the(rendered(helm, CASES["a connection with everything"]), "Secret")
    assert {*CONNECTION_KEYS, *CONNECTION_FILES} == set(secret["data"])
    values = decoded(secret)
    assert "10.0.0.1,node-2.db:9142,[fd00::1]:9042" == values["CONTACT_POINTS"]
    assert "a b'c\"{{d}}" == values["PASSWORD"]
    assert CONNECTION_COPY == secret["metadata"]["name"]


def test_what_is_not_reported_is_not_in_the_secret(helm: Helm) -> None:
    assert {"CONTACT_POINTS": "cassandra.db.svc"} == decoded(the(rendered(helm, {}), "Secret"))


def test_a_secret_that_is_there_is_named_and_none_is_made(helm: Helm) -> None:
    documents = rendered(helm, CASES["a Secret that is there"])
    assert [] == of_kind(documents, "Secret")
    assert "our-cassandra" == environment_of(operator_of(documents))["HEADGATE_CONNECTION_SECRET"]


def test_workers_get_a_secret_that_differs_from_the_operator_s_in_its_credentials_alone(helm: Helm) -> None:
    documents = rendered(helm, CASES["workers with a role of their own"])
    operator = decoded(the(documents, "Secret", CONNECTION_COPY))
    workers = decoded(the(documents, "Secret", "headgate-workers"))
    assert ("worker", "may-not") == (workers["USERNAME"], workers["PASSWORD"])
    assert workers == {**operator, "USERNAME": "worker", "PASSWORD": "may-not"}
    environment = environment_of(operator_of(documents))
    assert "headgate-workers" == environment["HEADGATE_WORKERS_SECRET"]
    selector = parse_selector(environment["HEADGATE_CONNECTION_NAMESPACES"])
    labels = {"team": "shop", "stage": "live"}
    assert (True, False) == (selector.matches(labels), selector.matches({**labels, "stage": "idle"}))


def test_the_pod_of_helm_test_has_the_credentials_of_workers(helm: Helm) -> None:
    documents = rendered(helm, CASES["workers with a Secret of their own"])
    text = yaml.safe_dump(the(documents, "Pod", "test"))
    assert (True, False) == ("our-cassandra-workers" in text, "our-cassandra\n" in text)
    assert "our-cassandra-workers" == environment_of(operator_of(documents))["HEADGATE_WORKERS_SECRET"]


def test_no_password_stands_anywhere_but_in_the_secret(helm: Helm) -> None:
    documents = rendered(helm, CASES["a connection with everything"])
    without = [each for each in documents if each["kind"] != "Secret"]
    assert "a b'c" not in yaml.safe_dump(without)


def test_a_cassandra_for_trying_out_is_what_the_secret_leads_to(helm: Helm) -> None:
    documents = rendered(helm, CASES["a Cassandra for trying out"])
    service, stateful = the(documents, "Service", "cassandra"), the(documents, "StatefulSet")
    address = f"{service['metadata']['name']}.headgate-system.svc"
    assert {"CONTACT_POINTS": address, "DATA_CENTER": "dc1"} == decoded(the(documents, "Secret"))
    labels = stateful["spec"]["template"]["metadata"]["labels"]
    assert service["spec"]["selector"].items() <= labels.items()
    assert service["metadata"]["name"] == stateful["spec"]["serviceName"]


def test_without_a_volume_its_data_go_with_the_pod_and_with_one_they_stay(helm: Helm) -> None:
    def data(case: str) -> list[str]:
        stateful = the(rendered(helm, CASES[case]), "StatefulSet")["spec"]
        claims = [each["metadata"]["name"] for each in stateful.get("volumeClaimTemplates", ())]
        return [*claims, *(f"empty {each['name']}" for each in stateful["template"]["spec"]["volumes"])]

    assert ("empty data" in data("a Cassandra for trying out"), "data" in data("a Cassandra with a volume")) == (
        True,
        True,
    )


# ---- hooks


def test_definitions_are_brought_before_anything_else_at_install_and_upgrade(helm: Helm) -> None:
    job = the(rendered(helm, {}), "Job", "crds")
    assert "pre-install,pre-upgrade" == job["metadata"]["annotations"]["helm.sh/hook"]
    assert ["python3", "-m", "headgate_operator.install.crds"] == command(job)


def test_the_end_is_guarded_and_reported_whether_all_goes(helm: Helm) -> None:
    kept, gone = (the(rendered(helm, values), "Job", "uninstall") for values in ({}, {"crds": {"keep": False}}))
    assert "pre-delete" == kept["metadata"]["annotations"]["helm.sh/hook"]
    assert ("--keep", "--remove") == (command(kept)[-1], command(gone)[-1])


def test_the_guard_may_scale_the_very_deployment_that_it_is_reported(helm: Helm) -> None:
    documents = rendered(helm, CASES["names"])
    deployment = the(documents, "Deployment")["metadata"]["name"]
    (rule,) = [each for each in the(documents, "Role", "uninstall")["rules"] if "deployments" in each["resources"]]
    assert ([deployment], True) == (rule["resourceNames"], deployment in command(the(documents, "Job", "uninstall")))


def test_what_is_switched_off_is_not_there(helm: Helm) -> None:
    assert [] == of_kind(rendered(helm, CASES["definitions of one's own"]), "Job", "crds")
    assert [] == of_kind(rendered(helm, CASES["no guard"]), "Job", "uninstall")
    assert [] == of_kind(rendered(helm, CASES["a registry of one's own"]), "ClusterRole", SPARK_ACCOUNT)


def test_the_resources_of_helm_test_are_valid(helm: Helm) -> None:
    documents = rendered(helm, {})
    made = [each for each in documents if each["apiVersion"].startswith("headgate.io/")]
    assert {"Queue", "Counter"} == {each["kind"] for each in made}
    assert [] == [fault for each in made if isinstance(fault := check_resource(each), list)]


def command(job: Document) -> list[str]:
    words: list[str] = job["spec"]["template"]["spec"]["containers"][0]["command"]
    return words


def test_nothing_of_the_chart_is_left_out_of_the_package(helm: Helm, tmp_path: Any) -> None:
    helm.run("package", str(CHART), "--destination", str(tmp_path))
    (archive,) = tmp_path.glob("headgate-*.tgz")
    assert "appVersion" in helm.run("show", "chart", str(archive))
