"""The baseline of bench-operator: a typical first operator with kopf. It creates one Deployment for each Queue,
changes nothing afterwards, and writes no status. `python -m bench.operator_minimal NAMESPACE FILE`; into the file it
writes a line for each change that it handles: name, generation, and time.
"""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path
from typing import Any

import kopf
import kubernetes


def main(namespace: str, file: str) -> None:
    """Run until a shutdown request."""
    kubernetes.config.load_kube_config()  # type: ignore[no-untyped-call]
    apps = kubernetes.client.AppsV1Api()
    output = Path(file).open("a", buffering=1, encoding="utf-8")  # noqa: SIM115 - open as long as the process lives

    @kopf.on.create("headgate.io", "v1beta1", "queues")
    def made(*, name: str, body: kopf.Body, **_: Any) -> None:
        labels = {"queue": name}
        container = {"name": "worker", "image": "headgate.local/nothing:1"}
        document: Any = {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": name},
            "spec": {
                "replicas": 0,
                "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
            },
        }
        kopf.adopt(document, owner=body)
        apps.create_namespaced_deployment(namespace, document)

    @kopf.on.update("headgate.io", "v1beta1", "queues", field="spec")
    def changed(*, name: str, meta: kopf.Meta, **_: Any) -> None:
        output.write(f"{name} {meta['generation']} {time.time():.6f}\n")

    asyncio.run(kopf.operator(standalone=True, namespaces=[namespace]))


if __name__ == "__main__":
    main(*sys.argv[1:])
