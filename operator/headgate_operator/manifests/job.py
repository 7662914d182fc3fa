"""One command of `headgate`, run once as a Job in the queue's namespace, as a plain document: for `kubectl headgate`.

Pure. It carries no label by which the operator would take it for its own. `kubectl headgate` deletes it; if it
cannot, Kubernetes deletes it after a while. It is never retried, since a person waits for the result.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from headgate_operator.manifests.pod import Part, build_head, build_run_pod
from headgate_operator.model.kinds import JOB
from headgate_operator.model.names import GROUP

RUN_MAX_S: Final = 3_600
KEPT_S: Final = 300


@dataclass(frozen=True)
class Errand:
    namespace: str
    queue: str
    name: str
    words: Sequence[str]
    image: str
    secret: str


def build_errand_job(errand: Errand) -> Part:
    labels = {"app.kubernetes.io/managed-by": "kubectl-headgate", f"{GROUP}/errand": errand.queue}
    pod = build_run_pod("headgate", errand.image, errand.words, errand.secret)
    return {
        **build_head(JOB, errand.name, errand.namespace, labels),
        "spec": {
            "activeDeadlineSeconds": RUN_MAX_S,
            "backoffLimit": 0,
            "ttlSecondsAfterFinished": KEPT_S,
            "template": {"metadata": {"labels": labels}, "spec": pod},
        },
    }
