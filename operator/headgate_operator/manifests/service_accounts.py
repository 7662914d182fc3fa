"""The accounts of a namespace, as plain documents: `headgate-worker`, which may nothing, and `headgate-spark`, which
may what the chart's ClusterRole of that name allows a driver.

Pure. Workers, repair and gc ask nothing of the API server, so no token is mounted for them. Secrets by which
images are pulled are named on the accounts, so that every pod of ours has them; they are the user's to make.
"""

from __future__ import annotations

from collections.abc import Sequence

from headgate_operator.manifests.pod import Part
from headgate_operator.model.kinds import ROLE_BINDING, SERVICE_ACCOUNT
from headgate_operator.model.names import SPARK_ACCOUNT, WORKER_ACCOUNT, labels_of, namespace_key


def build_worker_account(namespace: str, pull_secrets: Sequence[str] = ()) -> Part:
    """Of workers, repair and gc."""
    return _account(namespace, WORKER_ACCOUNT, pull_secrets, mounts_token=False)


def build_spark_account(namespace: str, pull_secrets: Sequence[str] = ()) -> Part:
    """Of drivers, which make their executors' pods."""
    return _account(namespace, SPARK_ACCOUNT, pull_secrets, mounts_token=True)


def build_spark_binding(namespace: str) -> Part:
    """The rights of a driver, in this namespace alone."""
    return {
        "apiVersion": ROLE_BINDING.api_version,
        "kind": ROLE_BINDING.kind,
        "metadata": {
            "name": SPARK_ACCOUNT,
            "namespace": namespace,
            "labels": labels_of(namespace_key(namespace)),
        },
        "roleRef": {"apiGroup": ROLE_BINDING.group, "kind": "ClusterRole", "name": SPARK_ACCOUNT},
        "subjects": [{"kind": SERVICE_ACCOUNT.kind, "name": SPARK_ACCOUNT, "namespace": namespace}],
    }


def _account(namespace: str, name: str, pull_secrets: Sequence[str], *, mounts_token: bool) -> Part:
    pulls = {"imagePullSecrets": [{"name": each} for each in pull_secrets]} if pull_secrets else {}
    return {
        "apiVersion": SERVICE_ACCOUNT.api_version,
        "kind": SERVICE_ACCOUNT.kind,
        "metadata": {"name": name, "namespace": namespace, "labels": labels_of(namespace_key(namespace))},
        "automountServiceAccountToken": mounts_token,
        **pulls,
    }
