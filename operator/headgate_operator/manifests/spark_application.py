"""One run of a bulk job as a SparkApplication (sparkoperator.k8s.io/v1beta2), as a plain document.

The arguments of the program name the queue, the job and the run; it reads the rest in the catalogue, as every process
of ours. The Spark operator retries nothing: a failed run is reported, and the next one resumes at its position.

The needs of a pod are in pod templates, which spark-submit itself reads, so that it does not depend on the Spark
operator's webhook. The user's `driver` and `executor` are patches of those of the application; `conf` overrides ours.

Pure. The user's part changes neither our labels, nor the account, nor the cluster in which a job runs: the Spark
operator submits with rights of its own, which are not the user's to direct.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from headgate.api.resources.bulk import Bulk
from headgate_operator.manifests.pod import (
    ChildOwner,
    Part,
    build_head,
    connection_env,
    connection_mount,
    connection_volume,
    container_security,
    pod_security,
)
from headgate_operator.manifests.strategic_merge import merge
from headgate_operator.model.kinds import SPARK_APPLICATION
from headgate_operator.model.names import (
    CONNECTION_DIGEST,
    SPARK_ACCOUNT,
    WORKER_ACCOUNT,
    application_name,
    labels_of,
)
from headgate_operator.model.world import OperatorSettings, StoreConnection

SPARK_VERSION: Final = "4.1.4"
PROGRAM: Final = "local:///opt/headgate/bulk.py"
"""Where images that carry our jobs have their main file."""
CONTAINERS: Final = {"driver": "spark-kubernetes-driver", "executor": "spark-kubernetes-executor"}
"""How Spark names the containers of its pods: in a template, these are patched."""


def build_application(
    owner: ChildOwner, settings: OperatorSettings, connection: StoreConnection, bulk: Bulk, minute: int
) -> Part:
    """The whole document of the run that this minute called for. PatchInvalid where `driver` or `executor` is wrong.

    Without an image, of the job or of the chart, there is nothing to run: the caller has checked that.
    """
    name = application_name(owner.key.name, bulk.name, minute)
    labels = labels_of(owner.key, bulk=bulk.name)
    driver = _role(connection, labels, "driver", SPARK_ACCOUNT)
    executor = {"instances": 2, **_role(connection, labels, "executor", WORKER_ACCOUNT)}
    return {
        **build_head(SPARK_APPLICATION, name, owner.key.namespace, labels, owner),
        "spec": {
            "type": "Python",
            "pythonVersion": "3",
            "mode": "cluster",
            "sparkVersion": SPARK_VERSION,
            "image": bulk.spark.image or settings.spark_image,
            "mainApplicationFile": PROGRAM,
            "arguments": arguments(owner, bulk, name),
            "restartPolicy": {"type": "Never"},
            "sparkConf": {"spark.kubernetes.executor.deleteOnTermination": "true", **(bulk.spark.conf or {})},
            "driver": _patched(driver, bulk.spark.driver, labels, SPARK_ACCOUNT),
            "executor": _patched(executor, bulk.spark.executor, labels, WORKER_ACCOUNT),
        },
    }


def arguments(owner: ChildOwner, bulk: Bulk, run: str) -> list[str]:
    return ["run", f"{owner.key.namespace}/{owner.key.name}", bulk.name, "--run-name", run]


def image_of(settings: OperatorSettings, bulk: Bulk) -> str | None:
    """The image of a run; None if neither the job nor the chart names one."""
    return bulk.spark.image or settings.spark_image


def _role(connection: StoreConnection, labels: Mapping[str, str], role: str, account: str) -> Part:
    pod: Part = {
        "metadata": {
            "labels": dict(labels),
            "annotations": {CONNECTION_DIGEST: connection.pods_digest or connection.digest},
        },
        "spec": {
            "securityContext": pod_security(),
            "containers": [
                {
                    "name": CONTAINERS[role],
                    "env": connection_env(connection.secret),
                    "securityContext": container_security(read_only=False),
                    "volumeMounts": [connection_mount()],
                }
            ],
            "volumes": [connection_volume(connection.secret)],
        },
    }
    return {
        "cores": 1,
        "memory": "1g",
        "serviceAccount": account,
        "labels": dict(labels),
        "template": pod,
    }


def _patched(role: Part, patch: Mapping[str, Any] | None, labels: Mapping[str, str], account: str) -> Part:
    merged = merge(role, patch or {})
    merged["labels"] = {**(merged.get("labels") or {}), **labels}
    merged["serviceAccount"] = account
    merged.pop("kubernetesMaster", None)
    template = merged.get("template")
    pod = template.get("spec") if isinstance(template, dict) else None
    if isinstance(pod, dict):
        pod.pop("serviceAccount", None)
        pod["serviceAccountName"] = account
    return merged
