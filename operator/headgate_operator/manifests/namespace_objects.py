"""The objects of a namespace that belong to no resource, as plain documents: accounts, the copy of the chart's
connection Secret, and the CronJobs of repair and of the collector.

- Workers, repair and gc ask nothing of the API server, so no token is mounted for their account. A driver's account
  has the rights of the chart's ClusterRole of its name. Secrets by which images are pulled are named on both
  accounts, so that every pod of ours has them; they are the user's to make.
- Only the keys of a connection are copied; other keys of the source are not.
- A CronJob serves all resources that share schedule, connection and image, one run at a time. A run that is late by
  a period, or by ten minutes, is left out, since the next one does the same work; so is the retry of a failed one. A
  run that takes an hour is ended, since a pass resumes at its position.

Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from headgate.api.values.cron import shortest_gap_minutes
from headgate_operator.manifests.pod import CONNECTION_FILES, CONNECTION_KEYS, Part, build_head, build_run_pod
from headgate_operator.model.kinds import CRON_JOB, ROLE_BINDING, SECRET, SERVICE_ACCOUNT, ResourceKind
from headgate_operator.model.names import (
    CONNECTION_COPY,
    SPARK_ACCOUNT,
    WORKER_ACCOUNT,
    cronjob_name,
    labels_of,
    namespace_key,
)
from headgate_operator.model.world import JobGroup, OperatorSettings

LATE_MAX_S: Final = 600
RUN_MAX_S: Final = 3_600


def build_worker_account(namespace: str, pull_secrets: Sequence[str] = ()) -> Part:
    """Of workers, repair and gc."""
    return _account(namespace, WORKER_ACCOUNT, pull_secrets, mounts_token=False)


def build_spark_account(namespace: str, pull_secrets: Sequence[str] = ()) -> Part:
    """Of drivers, which make their executors' pods."""
    return _account(namespace, SPARK_ACCOUNT, pull_secrets, mounts_token=True)


def build_spark_binding(namespace: str) -> Part:
    return {
        **_head(ROLE_BINDING, SPARK_ACCOUNT, namespace),
        "roleRef": {"apiGroup": ROLE_BINDING.group, "kind": "ClusterRole", "name": SPARK_ACCOUNT},
        "subjects": [{"kind": SERVICE_ACCOUNT.kind, "name": SPARK_ACCOUNT, "namespace": namespace}],
    }


def build_connection_copy(namespace: str, source: Mapping[str, Any]) -> Part:
    """The copy; `source` is the chart's Secret as the API server gave it."""
    data = source.get("data") or {}
    copied = {name: data[name] for name in (*CONNECTION_KEYS, *CONNECTION_FILES) if name in data}
    return {**_head(SECRET, CONNECTION_COPY, namespace), "type": "Opaque", "data": copied}


def build_cronjob(namespace: str, settings: OperatorSettings, group: JobGroup) -> Part:
    labels = labels_of(namespace_key(namespace), task=group.task)
    command = ["headgate", group.task, "--namespace", namespace, "--schedule", group.schedule]
    env: list[Part] = [
        {"name": "HEADGATE_CONNECTION", "value": group.connection},
        {"name": "HEADGATE_IMAGE", "value": group.image},
        {"name": "HEADGATE_DEFAULT_IMAGE", "value": settings.image},
    ]
    is_charts = group.connection == CONNECTION_COPY
    secret = settings.pods_secret(namespace) if is_charts else group.connection
    pod = build_run_pod(group.task, group.image, command, secret, env)
    job = {
        "activeDeadlineSeconds": RUN_MAX_S,
        "backoffLimit": 0,
        "template": {"metadata": {"labels": labels}, "spec": pod},
    }
    return {
        **build_head(CRON_JOB, name_of(group), namespace, labels),
        "spec": {
            "schedule": group.schedule,
            "timeZone": "Etc/UTC",
            "suspend": False,
            "concurrencyPolicy": "Forbid",
            "startingDeadlineSeconds": min(shortest_gap_minutes(group.schedule) * 60, LATE_MAX_S),
            "successfulJobsHistoryLimit": 1,
            "failedJobsHistoryLimit": 2,
            "jobTemplate": {"metadata": {"labels": labels}, "spec": job},
        },
    }


def name_of(group: JobGroup) -> str:
    return cronjob_name(group.task, group.schedule, group.connection, group.image)


def _account(namespace: str, name: str, pull_secrets: Sequence[str], *, mounts_token: bool) -> Part:
    pulls = {"imagePullSecrets": [{"name": each} for each in pull_secrets]} if pull_secrets else {}
    return {**_head(SERVICE_ACCOUNT, name, namespace), "automountServiceAccountToken": mounts_token, **pulls}


def _head(kind: ResourceKind, name: str, namespace: str) -> Part:
    return build_head(kind, name, namespace, labels_of(namespace_key(namespace)))
