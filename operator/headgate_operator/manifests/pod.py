"""Shared parts of all our pods: their owner, their connection to Cassandra, and their restrictions.

Pure. The connection is taken from its Secret key by key, so that nothing else of the Secret enters a pod. Every key
but CONTACT_POINTS may be missing. Its files are mounted at SSL_DIRECTORY, and a process checks which of them exist,
so no document depends on the Secret's content.

Everything fits the restricted Pod Security Standard.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from headgate.api.resources.model import API_VERSION
from headgate_operator.model.kinds import ResourceKind
from headgate_operator.model.names import WORKER_ACCOUNT, Key

CONNECTION_KEYS: Final = (
    "CONTACT_POINTS",
    "DATA_CENTER",
    "USERNAME",
    "PASSWORD",
    "USE_SSL",
    "KEYSPACE",
    "CLUSTER_NAME",
    "METRICS_GRAPHITE",
    "GRAPHITE_PREFIX",
    "GRAPHITE_URL",
)
"""Of the Secret: each is a variable of the same name."""
CONNECTION_FILES: Final = ("ca.crt", "tls.crt", "tls.key")
"""Of the Secret: each is a file in FILES_AT."""
FILES_AT: Final = "/etc/headgate/tls"
TEMPORARY_AT: Final = "/tmp"  # noqa: S108 - of the container, which has it to itself
REQUESTS: Final = {"cpu": "100m", "memory": "128Mi"}
READ_BY_ALL: Final = 0o444

Part = dict[str, Any]


@dataclass(frozen=True)
class ChildOwner:
    """The resource that a child belongs to, and with which it goes."""

    key: Key
    uid: str

    @property
    def reference(self) -> Part:
        """For `metadata.ownerReferences`. It does not block the owner's deletion: that would need one more right."""
        return {
            "apiVersion": API_VERSION,
            "kind": self.key.kind,
            "name": self.key.name,
            "uid": self.uid,
            "controller": True,
        }


def build_head(
    kind: ResourceKind, name: str, namespace: str, labels: Mapping[str, str], owner: ChildOwner | None = None
) -> Part:
    """The head of each document."""
    metadata: Part = {"name": name, "namespace": namespace, "labels": labels}
    if owner is not None:
        metadata["ownerReferences"] = [owner.reference]
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata}


def connection_env(secret: str) -> list[Part]:
    variables = [
        {
            "name": name,
            "valueFrom": {"secretKeyRef": {"name": secret, "key": name, "optional": name != "CONTACT_POINTS"}},
        }
        for name in CONNECTION_KEYS
    ]
    return [*variables, {"name": "SSL_DIRECTORY", "value": FILES_AT}]


def connection_volume(secret: str) -> Part:
    """The files of the connection, as far as the Secret has them."""
    items = [{"key": name, "path": name} for name in CONNECTION_FILES]
    return {
        "name": "connection",
        "secret": {"secretName": secret, "optional": True, "defaultMode": READ_BY_ALL, "items": items},
    }


def connection_mount() -> Part:
    return {"name": "connection", "mountPath": FILES_AT, "readOnly": True}


def temporary_volume() -> Part:
    """The only place where a process may write."""
    return {"name": "tmp", "emptyDir": {}}


def temporary_mount() -> Part:
    return {"name": "tmp", "mountPath": TEMPORARY_AT}


def pod_security() -> Part:
    return {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}


def container_security(*, read_only: bool = True) -> Part:
    root = {"readOnlyRootFilesystem": True} if read_only else {}
    return {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}, **root}


def build_run_pod(name: str, image: str, command: Sequence[str], secret: str, env: Sequence[Part] = ()) -> Part:
    """The spec of a pod that runs one command once, with a connection and no rights."""
    container = {
        "name": name,
        "image": image,
        "command": list(command),
        "env": [*env, *connection_env(secret)],
        "resources": {"requests": dict(REQUESTS)},
        "securityContext": container_security(),
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [connection_mount(), temporary_mount()],
    }
    return {
        "restartPolicy": "Never",
        "serviceAccountName": WORKER_ACCOUNT,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": pod_security(),
        "containers": [container],
        "volumes": [connection_volume(secret), temporary_volume()],
    }
