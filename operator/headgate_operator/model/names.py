"""Names of the operator: keys of the work queue, labels, annotations, children, owners.

Pure, and the only place that builds such a name, so that the code that creates a child and the code that finds it
agree.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Final, Literal

GROUP: Final = "headgate.io"
MANAGER: Final = "headgate"
"""The field manager under which everything is applied."""
MANAGED_BY: Final = "app.kubernetes.io/managed-by"
"""Label: whatever the operator makes has MANAGER here."""
REPLICAS_MANAGER: Final = "headgate-replicas"
"""Holds a Deployment's replicas after the change to `mode: external`, until an autoscaler takes them."""
FINALIZER: Final = f"{GROUP}/store"
ADOPT: Final = f"{GROUP}/adopt"
"""Annotation: the id of the entry to adopt, or `by-name`."""
ADOPT_FROM: Final = f"{GROUP}/adopt-from"
"""Annotation of a Namespace: uids of earlier namespaces of its name, whose data its resources may adopt. A tenant
changes no Namespace, so it is an administrator's word."""
NAMESPACE_UID: Final = "namespaceUid"
"""Field of an entry's document, in its metadata: the namespace that the data belong to."""
APPLIED: Final = f"{GROUP}/applied"
"""Annotation of whatever we apply: the digest of the document, so that it is seen when a field was taken out."""
CONNECTION_DIGEST: Final = f"{GROUP}/connection-digest"
"""Annotation of a pod template: of which Secret it was made, so that a rotation rolls the pods."""

WORKER_ACCOUNT: Final = "headgate-worker"
SPARK_ACCOUNT: Final = "headgate-spark"
CONNECTION_COPY: Final = "headgate-connection"
"""The copy of the chart's Secret in a namespace that has resources."""
INSPECTION_PORT: Final = 9092
"""Where a pod of the operator answers /why and /plan, on its own loopback."""
LEASE_NAME: Final = "headgate-operator"
"""The Lease of leader election, in the operator's own namespace."""

KeyKind = Literal["Queue", "Counter", "Namespace"]
STEM_MAX = 40
RUN_STEM_MAX = 20
MARK_CHARACTERS = 8


@dataclass(frozen=True, order=True)
class Key:
    """A subject of reconciling: a resource, or a namespace. A Namespace's key has its name in both places."""

    kind: KeyKind
    namespace: str
    name: str

    @property
    def path(self) -> str:
        return f"{self.kind.lower()}/{self.namespace}/{self.name}"

    def __str__(self) -> str:
        return self.path


def namespace_key(namespace: str) -> Key:
    return Key("Namespace", namespace, namespace)


def owner_of(cluster: str, uid: str) -> str:
    """The owner of an entry of the catalogue; `cluster` is the uid of namespace kube-system."""
    return f"operator/{cluster}/{uid}"


def owner_parts(owner: str) -> tuple[str, str] | None:
    """Cluster and uid of such an owner; None where somebody else manages the entry."""
    parts = owner.split("/")
    return (parts[1], parts[2]) if len(parts) == 3 and parts[0] == "operator" else None


def consumer_name(queue: str, consumer: str) -> str:
    """The name of a consumer's Deployment. Cut, and made unique by a mark: queue a-b, consumer c is not a, b-c."""
    return f"{_cut(queue, STEM_MAX)}-{_cut(consumer, STEM_MAX)}-{_mark('Queue', queue, consumer)}"


def cronjob_name(task: str, schedule: str, connection: str, image: str) -> str:
    """The name of the CronJob of all resources of a namespace that have these in common. `task`: repair or gc."""
    return f"headgate-{task}-{_mark(schedule, connection, image)}"


def application_name(queue: str, bulk: str, minute: int) -> str:
    """The name of a bulk run: of the minute that called for it, so a crash after its creation makes no second.

    Spark makes labels and a Service of it, so with `-driver` it has at most 63 letters, and no dot. Marked as
    consumers are: two jobs that are due in one minute must not be one.
    """
    stem = f"{_cut(queue, RUN_STEM_MAX)}-{_cut(bulk, RUN_STEM_MAX)}".replace(".", "-")
    return f"{stem}-{_mark('bulk', queue, bulk)}-{base36(minute)}"


def base36(number: int) -> str:
    """A number in few letters that a name may have."""
    digits = ""
    while number:
        number, digit = divmod(number, 36)
        digits = "0123456789abcdefghijklmnopqrstuvwxyz"[digit] + digits
    return digits or "0"


def labels_of(key: Key, **more: str) -> dict[str, str]:
    """The labels of a child: its owner, and its role."""
    labels = {MANAGED_BY: MANAGER}
    if key.kind != "Namespace":
        labels[f"{GROUP}/{key.kind.lower()}"] = key.name
    return labels | {f"{GROUP}/{name}": value for name, value in more.items()}


def _cut(name: str, characters_max: int) -> str:
    """Its first letters, such that something may follow."""
    return name[:characters_max].rstrip("-.")


def _mark(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:MARK_CHARACTERS]
