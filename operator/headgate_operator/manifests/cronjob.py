"""The CronJob that runs repair, or the collector, for all resources of a namespace that share schedule, connection
and image, as a plain document.

Pure. One run at a time. A run that is late by a period, or by ten minutes, is left out, since the next one does the
same work. One that takes an hour is ended, since a pass resumes at its position. A failed run is not repeated, since
the next one follows.
"""

from __future__ import annotations

from typing import Final

from headgate.api.values.cron import shortest_gap_minutes
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
from headgate_operator.model.kinds import CRON_JOB
from headgate_operator.model.names import WORKER_ACCOUNT, cronjob_name, labels_of, namespace_key
from headgate_operator.model.world import JobGroup, OperatorSettings

LATE_MAX_S: Final = 600
RUN_MAX_S: Final = 3_600


def build_cronjob(namespace: str, settings: OperatorSettings, group: JobGroup) -> Part:
    """The whole document."""
    labels = labels_of(namespace_key(namespace), task=group.task)
    job = {
        "activeDeadlineSeconds": RUN_MAX_S,
        "backoffLimit": 0,
        "template": {"metadata": {"labels": labels}, "spec": _pod(namespace, settings, group)},
    }
    return {
        "apiVersion": CRON_JOB.api_version,
        "kind": CRON_JOB.kind,
        "metadata": {"name": name_of(group), "namespace": namespace, "labels": labels},
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
    """Of its CronJob."""
    return cronjob_name(group.task, group.schedule, group.connection, group.image)


def _pod(namespace: str, settings: OperatorSettings, group: JobGroup) -> Part:
    container = {
        "name": group.task,
        "image": group.image,
        "command": ["headgate", group.task, "--namespace", namespace, "--schedule", group.schedule],
        "env": [
            {"name": "HEADGATE_CONNECTION", "value": group.connection},
            {"name": "HEADGATE_IMAGE", "value": group.image},
            {"name": "HEADGATE_DEFAULT_IMAGE", "value": settings.image},
            *connection_env(group.connection),
        ],
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
        "volumes": [connection_volume(group.connection), temporary_volume()],
    }
