"""CronJobs, accounts, the Secret's copy and bulk runs: the documents that the API server is given."""

from __future__ import annotations

import re
from typing import Any

import pytest

from headgate.api.resources.bulk import Bulk
from headgate.cli.maintenance import collect as gc_command
from headgate.cli.maintenance import repair as repair_command
from headgate.maintenance.pass_groups import PassGroup
from headgate_operator.manifests.namespace_objects import (
    build_connection_copy,
    build_cronjob,
    build_spark_account,
    build_spark_binding,
    build_worker_account,
    name_of,
)
from headgate_operator.manifests.spark_application import build_application, image_of
from headgate_operator.manifests.strategic_merge import PatchInvalid
from headgate_operator.model.names import application_name, base36, consumer_name
from headgate_operator.model.world import JobGroup, OperatorSettings
from tests.unit.operator.operator_children_cases import CONNECTION, GROUPS, OWNER, PYTHON, SETTINGS, queue

MANAGED = {"app.kubernetes.io/managed-by": "headgate"}
MINUTE = 29_000_000


def pod_of(group: JobGroup) -> dict[str, Any]:
    entries: dict[str, Any] = build_cronjob("shop", SETTINGS, group)["spec"]["jobTemplate"]["spec"]["template"][
        "spec"
    ]
    return entries


# ---- CronJobs


def test_runs_do_not_overlap_are_not_repeated_and_end_within_an_hour() -> None:
    spec = build_cronjob("shop", SETTINGS, GROUPS["repair"])["spec"]
    assert ("Forbid", 1, 2, "Etc/UTC", False) == (
        spec["concurrencyPolicy"],
        spec["successfulJobsHistoryLimit"],
        spec["failedJobsHistoryLimit"],
        spec["timeZone"],
        spec["suspend"],
    )
    job = spec["jobTemplate"]["spec"]
    assert (3600, 0, "Never") == (
        job["activeDeadlineSeconds"],
        job["backoffLimit"],
        job["template"]["spec"]["restartPolicy"],
    )


@pytest.mark.parametrize(
    ("schedule", "late_s"), [("*/5 * * * *", 300), ("* * * * *", 60), ("@hourly", 600), ("0 2 * * *", 600)]
)
def test_a_run_may_be_late_by_a_period_but_never_by_more_than_ten_minutes(schedule: str, late_s: int) -> None:
    group = JobGroup("repair", schedule, "s", "i")
    assert late_s == build_cronjob("shop", SETTINGS, group)["spec"]["startingDeadlineSeconds"]


def test_the_command_is_that_of_its_task_for_the_namespace_and_schedule() -> None:
    for task, known in (("repair", repair_command), ("gc", gc_command)):
        command = pod_of(GROUPS[task])["containers"][0]["command"]
        assert ["headgate", task, "--namespace", "shop", "--schedule", GROUPS[task].schedule] == command
        known.make_context(task, command[2:])  # refuses what it does not know


def test_the_run_knows_by_connection_and_image_which_resources_are_its_group() -> None:
    env = {one["name"]: one["value"] for one in pod_of(GROUPS["gc"])["containers"][0]["env"] if "value" in one}
    assert PassGroup("mine", "registry.example/types:3", SETTINGS.image) == PassGroup.of(env)


def test_each_group_has_a_name_and_it_states_nothing_of_a_resource() -> None:
    groups = [
        JobGroup(task, schedule, connection, image)
        for task in ("repair", "gc")
        for schedule in ("@hourly", "@daily")
        for connection in ("a", "b")
        for image in ("i", "j")
    ]
    assert len(groups) == len({name_of(group) for group in groups})
    assert {**MANAGED, "headgate.io/task": "gc"} == build_cronjob("shop", SETTINGS, GROUPS["gc"])["metadata"][
        "labels"
    ]


def test_its_pod_has_no_rights_and_the_group_s_image_and_connection() -> None:
    pod = pod_of(GROUPS["gc"])
    container = pod["containers"][0]
    assert ("headgate-worker", False) == (pod["serviceAccountName"], pod["automountServiceAccountToken"])
    assert ("registry.example/types:3", True) == (
        container["image"],
        container["securityContext"]["readOnlyRootFilesystem"],
    )
    secrets = {one["valueFrom"]["secretKeyRef"]["name"] for one in container["env"] if "valueFrom" in one}
    assert {"mine"} == secrets


# ---- accounts and the Secret's copy


def test_workers_get_no_token_and_drivers_do() -> None:
    assert [("headgate-worker", False), ("headgate-spark", True)] == [
        (account["metadata"]["name"], account["automountServiceAccountToken"])
        for account in (build_worker_account("shop"), build_spark_account("shop"))
    ]


def test_accounts_name_the_secrets_by_which_images_are_pulled_and_none_where_there_are_none() -> None:
    named = [{"name": "one"}, {"name": "two"}]
    assert [named, named] == [
        make("shop", ("one", "two"))["imagePullSecrets"] for make in (build_worker_account, build_spark_account)
    ]
    assert "imagePullSecrets" not in build_worker_account("shop")


def test_a_driver_may_what_the_chart_s_cluster_role_states_in_its_namespace_alone() -> None:
    binding = build_spark_binding("shop")
    assert {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "headgate-spark"} == binding[
        "roleRef"
    ]
    assert [{"kind": "ServiceAccount", "name": "headgate-spark", "namespace": "shop"}] == binding["subjects"]
    assert ("shop", MANAGED) == (binding["metadata"]["namespace"], binding["metadata"]["labels"])


def test_of_the_source_only_what_a_connection_is_given_by_is_copied() -> None:
    source = {"type": "kubernetes.io/tls", "data": {"PASSWORD": "eA==", "ca.crt": "eQ==", "root-password": "eg=="}}
    copied = build_connection_copy("shop", source)
    assert {"PASSWORD": "eA==", "ca.crt": "eQ=="} == copied["data"]
    assert ("headgate-connection", "Opaque", MANAGED) == (
        copied["metadata"]["name"],
        copied["type"],
        copied["metadata"]["labels"],
    )


# ---- bulk runs


def bulk(**spark: Any) -> Bulk:
    values = {"name": "nightly", "mode": "drain", "schedule": "0 2 * * *", "handler": "a:b", "spark": spark}
    jobs = queue(PYTHON, bulk=[values]).spec.bulk
    assert jobs is not None
    return jobs[0]


def run(**spark: Any) -> dict[str, Any]:
    entries: dict[str, Any] = build_application(OWNER, SETTINGS, CONNECTION, bulk(**spark), MINUTE)
    return entries


def test_a_run_is_named_by_its_minute_and_reports_the_program_which_it_is() -> None:
    document = run()
    name = document["metadata"]["name"]
    assert application_name("emails", "nightly", MINUTE) == name
    assert ["run", "shop/emails", "nightly", "--run-name", name] == document["spec"]["arguments"]
    assert ("Never", "cluster", "spark:4") == (
        document["spec"]["restartPolicy"]["type"],
        document["spec"]["mode"],
        document["spec"]["image"],
    )


def test_names_of_children_stay_valid_and_apart_however_long_queue_and_part_are() -> None:
    long = f"{'a' * 19}.{'b' * 19}.{'d' * 23}"
    assert 63 == len(long)
    run_name = application_name(long, "e" * 40, MINUTE)
    assert len(f"{run_name}-driver") <= 63
    assert re.fullmatch("[a-z0-9]([-a-z0-9]*[a-z0-9])?", run_name)
    label = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
    assert re.fullmatch(rf"{label}([.]{label})*", consumer_name(long, "e" * 40))
    assert application_name("a-b", "c", MINUTE) != application_name("a", "b-c", MINUTE)
    assert MINUTE == int(run_name.rpartition("-")[2], 36) == int(base36(MINUTE), 36)


def test_driver_and_executor_are_patched_and_keep_our_labels_and_account() -> None:
    document = run(
        image="mine",
        driver={"cores": 4, "serviceAccount": "mighty", "labels": {"team": "data", "headgate.io/bulk": "x"}},
        executor={"instances": 9, "template": {"spec": {"nodeSelector": {"disk": "ssd"}}}},
        conf={"spark.kubernetes.executor.deleteOnTermination": "false"},
    )["spec"]
    driver, executor = document["driver"], document["executor"]
    assert (4, "headgate-spark", "nightly", "data") == (
        driver["cores"],
        driver["serviceAccount"],
        driver["labels"]["headgate.io/bulk"],
        driver["labels"]["team"],
    )
    assert (9, {"disk": "ssd"}, "mine") == (
        executor["instances"],
        executor["template"]["spec"]["nodeSelector"],
        document["image"],
    )
    assert {"spark.kubernetes.executor.deleteOnTermination": "false"} == document["sparkConf"]


def test_a_hostile_driver_moves_neither_its_account_nor_the_cluster_of_its_executors() -> None:
    hostile = {
        "serviceAccount": "admin",
        "kubernetesMaster": "k8s://evil",
        "template": {"spec": {"serviceAccountName": "admin", "serviceAccount": "admin"}},
    }
    spec = run(driver=hostile, executor=hostile)["spec"]
    for role, account in (("driver", "headgate-spark"), ("executor", "headgate-worker")):
        pod = spec[role]["template"]["spec"]
        assert (account, account) == (spec[role]["serviceAccount"], pod["serviceAccountName"])
        assert (False, False) == ("serviceAccount" in pod, "kubernetesMaster" in spec[role])


def test_both_roles_reach_cassandra_and_are_restricted() -> None:
    for role in ("driver", "executor"):
        pod = run()["spec"][role]["template"]["spec"]
        (container,) = pod["containers"]
        assert f"spark-kubernetes-{role}" == container["name"]
        assert {"name": "SSL_DIRECTORY", "value": "/etc/headgate/tls"} in container["env"]
        assert (True, False) == (
            pod["securityContext"]["runAsNonRoot"],
            container["securityContext"]["allowPrivilegeEscalation"],
        )


def test_a_patch_that_cannot_be_merged_is_refused() -> None:
    with pytest.raises(PatchInvalid, match=r"^template: must be a map$"):
        run(driver={"template": "x"})


def test_without_an_image_there_is_nothing_to_run() -> None:
    settings = OperatorSettings(cluster="c", version="1", image="i")
    assert image_of(settings, bulk()) is None
    assert "mine" == image_of(settings, bulk(image="mine"))
