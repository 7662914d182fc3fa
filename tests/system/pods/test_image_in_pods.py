"""The images in pods of a restricted namespace: what the node runs is what Docker has built."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dev.cluster import image
from dev.cluster.kubectl import Kubectl
from headgate.local.processes import wait_until

ANYBODY = 1234560000
RESTRICTED = {
    "runAsNonRoot": True,
    "runAsUser": ANYBODY,
    "runAsGroup": 0,
    "seccompProfile": {"type": "RuntimeDefault"},
}
CONTAINER = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "readOnlyRootFilesystem": True,
}
TEMPORARY = "/tmp"  # noqa: S108 - of the container
PI_WITHIN_S = 240


@pytest.fixture
def namespaced(k8s_namespace: Kubectl) -> Kubectl:
    """A namespace that refuses whatever asks for more than the least."""
    namespace = str(k8s_namespace.namespace)
    k8s_namespace.run("label", "namespace", namespace, "pod-security.kubernetes.io/enforce=restricted")
    return k8s_namespace


def pod(name: str, tag: str, **container: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {
            "restartPolicy": "Never",
            "securityContext": RESTRICTED,
            "containers": [
                {
                    "name": name,
                    "image": tag,
                    "securityContext": CONTAINER,
                    "volumeMounts": [{"name": "tmp", "mountPath": TEMPORARY}],
                    **container,
                }
            ],
            "volumes": [{"name": "tmp", "emptyDir": {}}],
        },
    }


def test_a_restricted_pod_runs_the_very_image_that_docker_has_built(namespaced: Kubectl, headgate_image: str) -> None:
    namespaced.apply(pod("version", headgate_image, command=["headgate", "--version"]))
    observation = namespaced.wait_for(
        "pod", "version", lambda it: it["status"]["phase"] in ("Succeeded", "Failed"), what="ended"
    )
    assert "Succeeded" == observation["status"]["phase"], namespaced.logs("version")
    built = image.build_image("headgate")
    report = observation["status"]["containerStatuses"][0]["imageID"]
    assert any(name in report for name in (built.id, built.digest)), report


@pytest.mark.slow  # the image has a gigabyte, and two JVMs start
def test_spark_on_kubernetes_starts_driver_and_executor_from_the_image_as_any_user(
    namespaced: Kubectl, spark_image: str
) -> None:
    namespaced.apply(*account(namespaced))
    template = pod("executor", spark_image)
    template["spec"]["containers"][0] = {
        **template["spec"]["containers"][0],
        "name": "spark-kubernetes-executor",
    }
    files = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "executor"},
        "data": {"executor.yaml": json.dumps(template)},
    }
    settings = {
        "spark.kubernetes.namespace": namespaced.namespace,
        "spark.kubernetes.container.image": spark_image,
        "spark.kubernetes.driver.pod.name": "driver",
        "spark.kubernetes.executor.podTemplateFile": "/template/executor.yaml",
        "spark.kubernetes.executor.request.cores": "100m",
        "spark.kubernetes.executor.deleteOnTermination": "false",
        "spark.executor.instances": "1",
        "spark.executor.memory": "512m",
        "spark.driver.host": "$(SPARK_DRIVER_BIND_ADDRESS)",
        # Not spark.local.dir: Spark mounts a volume there, and a pod with two at one path is refused again and again.
    }
    driver = pod(
        "driver",
        spark_image,
        args=[
            *("driver", "--master", "k8s://https://kubernetes.default.svc", "--name", "pi"),
            *(word for name, value in settings.items() for word in ("--conf", f"{name}={value}")),
            *("local:///opt/spark/examples/src/main/python/pi.py", "2"),
        ],
        env=[
            {"name": "SPARK_DRIVER_BIND_ADDRESS", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
        ],
    )
    driver["spec"]["serviceAccountName"] = "driver"
    driver["spec"]["volumes"].append({"name": "template", "configMap": {"name": "executor"}})
    driver["spec"]["containers"][0]["volumeMounts"].append({"name": "template", "mountPath": "/template"})
    namespaced.apply(files, driver)
    ends = wait_until(
        lambda: namespaced.get("pod", "driver")["status"]["phase"] in ("Succeeded", "Failed"), timeout_s=PI_WITHIN_S
    )
    observation, message = namespaced.get("pod", "driver"), namespaced.logs("driver")
    assert ends, message[-3000:]
    assert "Succeeded" == observation["status"]["phase"], message[-3000:]
    assert "Pi is roughly 3.1" in message
    (executor,) = namespaced.list("pods", "spark-role=executor")
    assert spark_image == executor["spec"]["containers"][0]["image"]
    assert "Successfully registered with driver" in namespaced.logs(executor["metadata"]["name"])


def account(namespaced: Kubectl) -> list[dict[str, Any]]:
    """The rights of a driver: its executors."""
    rules = [
        {
            "apiGroups": [""],
            "resources": ["pods", "services", "configmaps", "persistentvolumeclaims"],
            "verbs": ["get", "list", "watch", "create", "patch", "update", "delete", "deletecollection"],
        }
    ]
    subject = {"kind": "ServiceAccount", "name": "driver", "namespace": namespaced.namespace}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "driver"}
    api = "rbac.authorization.k8s.io/v1"
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "driver"}},
        {"apiVersion": api, "kind": "Role", "metadata": {"name": "driver"}, "rules": rules},
        {
            "apiVersion": api,
            "kind": "RoleBinding",
            "metadata": {"name": "driver"},
            "subjects": [subject],
            "roleRef": role,
        },
    ]
