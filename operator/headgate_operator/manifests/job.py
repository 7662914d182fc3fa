"""One command of `headgate`, run once as a Job in the queue's namespace, as a plain document: for `kubectl headgate`.

Pure. It carries no label by which the operator would take it for its own. `kubectl headgate` deletes it; if it
cannot, Kubernetes deletes it after a while. It is never retried, since a person waits for the result.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from headgate_operator.manifests.pod import (
    REQUESTS,
    Part,
    connection_env,
    connection_mount,
    connection_volume,
    container_security,
    pod_security,
    temporary_mount,
    temporary_volume,
)
from headgate_operator.model.kinds import JOB
from headgate_operator.model.names import GROUP, WORKER_ACCOUNT

RUN_MAX_S: Final = 3_600
KEPT_S: Final = 300


@dataclass(frozen=True)
class Errand:
    """The command, and the place where it runs."""

    namespace: str
    queue: str
    name: str
    words: Sequence[str]
    image: str
    secret: str


def build_errand_job(errand: Errand) -> Part:
    """The whole document."""
    labels = {"app.kubernetes.io/managed-by": "kubectl-headgate", f"{GROUP}/errand": errand.queue}
    container = {
        "name": "headgate",
        "image": errand.image,
        "command": list(errand.words),
        "env": connection_env(errand.secret),
        "resources": {"requests": dict(REQUESTS)},
        "securityContext": container_security(),
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [connection_mount(), temporary_mount()],
    }
    pod = {
        "restartPolicy": "Never",
        "serviceAccountName": WORKER_ACCOUNT,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": pod_security(),
        "containers": [container],
        "volumes": [connection_volume(errand.secret), temporary_volume()],
    }
    return {
        "apiVersion": JOB.api_version,
        "kind": JOB.kind,
        "metadata": {"name": errand.name, "namespace": errand.namespace, "labels": labels},
        "spec": {
            "activeDeadlineSeconds": RUN_MAX_S,
            "backoffLimit": 0,
            "ttlSecondsAfterFinished": KEPT_S,
            "template": {"metadata": {"labels": labels}, "spec": pod},
        },
    }
