"""The Spark operator in a pod of a local node: the program that was built, on the layers of our image with Spark,
since it runs spark-submit. Its definitions come from its own sources.

It runs without its webhook: our operator's requirements are in pod templates. Knows nothing of our jobs.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from dev.cluster.image import REGISTRY
from dev.cluster.kubectl import Kubectl, has_condition
from dev.cluster.oci import Image, Layer, Source, read_layer, write_layer
from dev.cluster.programs import SPARK_OPERATOR, require_built
from headgate.local.cache import cached

NAMESPACE = NAME = "spark-operator"
CRDS = tuple(
    f"{kind}.sparkoperator.k8s.io" for kind in ("sparkapplications", "scheduledsparkapplications", "sparkconnects")
)
TAG = f"{REGISTRY}/{NAME}:{SPARK_OPERATOR.version}"
PROGRAM = "/usr/bin/spark-operator"
OPTIONS = ('--namespaces=""', "--enable-ui-service=false", "--zap-encoder=console")
READY_WITHIN_S = 120.0
_READ = ["get", "list", "watch"]
_WRITE = [*_READ, "create", "update", "patch", "delete"]
RULES: tuple[dict[str, Any], ...] = (
    {"apiGroups": [""], "resources": ["pods", "configmaps", "services", "persistentvolumeclaims"], "verbs": _WRITE},
    {"apiGroups": [""], "resources": ["nodes"], "verbs": ["get"]},
    {"apiGroups": ["", "events.k8s.io"], "resources": ["events"], "verbs": ["create", "update", "patch"]},
    {"apiGroups": ["networking.k8s.io", "extensions"], "resources": ["ingresses"], "verbs": _WRITE},
    {"apiGroups": ["policy"], "resources": ["poddisruptionbudgets"], "verbs": _WRITE},
    {"apiGroups": ["apiextensions.k8s.io"], "resources": ["customresourcedefinitions"], "verbs": _READ},
    {"apiGroups": ["sparkoperator.k8s.io"], "resources": ["*"], "verbs": _WRITE},
)
"""Its permissions in a cluster where it serves all namespaces."""


def is_there(kubectl: Kubectl) -> bool:
    """Whether the cluster knows SparkApplications, of any origin."""
    return bool(kubectl.run("get", "crd", "-o", "name", "--ignore-not-found", CRDS[0]).strip())


def spark_operator_image(spark: Image) -> Image:
    """The program as one more layer on an image with Spark."""
    return with_layer(spark, TAG, _layer())


def with_layer(image: Image, tag: str, layer: Layer) -> Image:
    """The same image with one layer more, under another tag."""
    config = json.loads(image.config)
    config["rootfs"]["diff_ids"] = [*config["rootfs"]["diff_ids"], layer.digest]
    # It reports a step for each layer, and nothing of the last one.
    config.pop("history", None)
    return replace(image, tag=tag, layers=(*image.layers, layer), config=json.dumps(config, sort_keys=True).encode())


def install(kubectl: Kubectl) -> None:
    """Definitions, account and pod, until it answers. Its image has to be on the node."""
    definitions = _program().parent / "source" / "config" / "crd" / "bases"
    kubectl.run("apply", "--server-side", "--force-conflicts", "-f", str(definitions))
    for name in CRDS:
        kubectl.wait_for("crd", name, has_condition("Established"), what="is established")
    kubectl.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
    connection = kubectl.in_namespace(NAMESPACE)
    connection.apply(*build_account(), build_deployment())
    connection.wait_for(
        "deployment", NAME, has_condition("Available"), what="runs the Spark operator", timeout_s=READY_WITHIN_S
    )


def build_account() -> tuple[dict[str, Any], ...]:
    """Its identity, and its permissions."""
    api = "rbac.authorization.k8s.io"
    metadata = {"name": NAME}
    return (
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata},
        {"apiVersion": f"{api}/v1", "kind": "ClusterRole", "metadata": metadata, "rules": list(RULES)},
        {
            "apiVersion": f"{api}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": metadata,
            "roleRef": {"apiGroup": api, "kind": "ClusterRole", "name": NAME},
            "subjects": [{"kind": "ServiceAccount", "name": NAME, "namespace": NAMESPACE}],
        },
    )


def build_deployment() -> dict[str, Any]:
    """One process. The image's entrypoint runs it, which gives the user a name: the JVM of spark-submit
    needs it."""
    labels = {"app.kubernetes.io/name": NAME}
    container = {
        "name": NAME,
        "image": TAG,
        "imagePullPolicy": "Never",
        "args": [PROGRAM, "controller", "start", *OPTIONS],
        "readinessProbe": {"httpGet": {"path": "/readyz", "port": 8081}, "periodSeconds": 1},
        "resources": {"requests": {"cpu": "50m", "memory": "128Mi"}},
        "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}],  # noqa: S108 - of the container
    }
    pod = {"serviceAccountName": NAME, "containers": [container], "volumes": [{"name": "tmp", "emptyDir": {}}]}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": NAME, "labels": labels},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": pod},
        },
    }


def _program() -> Path:
    return require_built([SPARK_OPERATOR])[SPARK_OPERATOR.name] / SPARK_OPERATOR.name


def _layer() -> Layer:
    program = _program()

    def make(directory: Path) -> None:
        write_layer(directory / "layer.tar", [Source(program, PROGRAM)])

    return read_layer(cached(f"{NAME}-layer", program.parent.name, make, needs_mb=200) / "layer.tar")
