"""The kinds that the operator watches, each with the selector by which the server leaves out the other objects."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from headgate_operator.model.kinds import (
    COUNTER,
    CRD,
    CRON_JOB,
    DEPLOYMENT,
    JOB,
    NAMESPACE,
    POD_DISRUPTION_BUDGET,
    QUEUE,
    ROLE_BINDING,
    SERVICE_ACCOUNT,
    SPARK_APPLICATION,
    ResourceKind,
)

OURS: Final = "app.kubernetes.io/managed-by=headgate"
SPARK_CRD: Final = f"{SPARK_APPLICATION.plural}.{SPARK_APPLICATION.group}"


@dataclass(frozen=True)
class WatchedKind:
    kind: ResourceKind
    labels: str = ""
    """A selector; empty: all objects."""
    name: str = ""
    """The object of this name alone. All definitions of a cluster may be a hundred megabytes."""

    @property
    def fields(self) -> str:
        return f"metadata.name={self.name}" if self.name else ""


CHILDREN: Final = (DEPLOYMENT, POD_DISRUPTION_BUDGET, CRON_JOB, JOB, SERVICE_ACCOUNT, ROLE_BINDING, SPARK_APPLICATION)
WATCHED: Final = (
    WatchedKind(QUEUE),
    WatchedKind(COUNTER),
    WatchedKind(NAMESPACE),
    WatchedKind(CRD, name=SPARK_CRD),
    *(WatchedKind(kind, labels=OURS) for kind in CHILDREN),
)
