"""The load of bench-operator on a cluster: Queues by the thousand, changes to some of them, and the results.

It calls the API server through the operator's own port, from the benchmark's process, and knows neither contender.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from headgate.errors import Bug, Unavailable
from headgate_operator.cluster.api_server import HttpApiClient
from headgate_operator.cluster.port import ApiObject, Deleted, ListPage
from headgate_operator.model.kinds import NAMESPACE, QUEUE, ObjectAddress, ResourceKind

MANAGER = "bench"
AT_ONCE = 32
CHECK_EVERY_S = 2.0
"""A check reads all of them, on the cores that the operator works on: more often would be a load of its own."""
WRITES = frozenset({"create", "update", "patch", "delete", "deletecollection"})


def queue_document(namespace: str, name: str, *, max_receives: int = 5) -> dict[str, Any]:
    """A Queue of the specification: shared tables, one consumer at min 0, default schedules."""
    consumer = {"name": "c", "handler": "headgate.runtime:ack", "scaling": {"min": 0, "max": 4}}
    spec = {"storage": {"tables": "shared"}, "maxReceives": max_receives, "consumers": [consumer]}
    metadata = {"name": name, "namespace": namespace}
    return {"apiVersion": QUEUE.api_version, "kind": "Queue", "metadata": metadata, "spec": spec}


class Load:
    """The benchmark's own connection to the cluster."""

    def __init__(self, cluster: HttpApiClient) -> None:
        self._cluster = cluster
        self._slots = asyncio.Semaphore(AT_ONCE)

    async def make_namespaces(self, names: Sequence[str]) -> None:
        """The missing ones."""
        for name in names:
            await self._apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})

    async def apply_all(self, documents: Sequence[dict[str, Any]]) -> None:
        """All at once, as far as connections go."""
        await asyncio.gather(*(self._apply(document) for document in documents))

    async def change(self, document: dict[str, Any]) -> tuple[int, float]:
        """Apply one; returns its generation, and the time of the answer."""
        applied = await self._apply(document)
        return int(applied.document["metadata"]["generation"]), time.time()

    async def until(
        self, kind: ResourceKind, namespaces: Sequence[str], count: int, holds: Callable[[Any], bool], within_s: float
    ) -> float:
        """Wait until this many objects of these namespaces meet the condition; returns the time at which they did."""
        deadline_s = time.monotonic() + within_s
        result = 0
        while time.monotonic() < deadline_s:
            result = 0
            for namespace in namespaces:
                page = await self._cluster.list(kind, namespace)
                result += sum(map(holds, page.items)) if isinstance(page, ListPage) else 0
            if result >= count:
                return time.monotonic()
            await asyncio.sleep(CHECK_EVERY_S)
        raise Unavailable(
            "not all changes were done in time", kind=kind.kind, done=result, of=count, seconds=within_s
        )

    async def delete_namespaces(self, names: Sequence[str], within_s: float) -> None:
        """With all that is in them."""
        for name in names:
            answer = await self._cluster.delete(ObjectAddress(NAMESPACE, None, name))
            if not isinstance(answer, Deleted):
                raise Bug("a namespace cannot be deleted", cause=str(answer))
        deadline_s = time.monotonic() + within_s
        while time.monotonic() < deadline_s:
            left = [name for name in names if isinstance(await self._get_namespace(name), ApiObject)]
            if not left:
                return
            await asyncio.sleep(CHECK_EVERY_S)
        raise Unavailable("namespaces were not deleted in time", seconds=within_s)

    async def _get_namespace(self, name: str) -> object:
        return await self._cluster.get(ObjectAddress(NAMESPACE, None, name), metadata_only=True)

    async def _apply(self, document: dict[str, Any]) -> ApiObject:
        async with self._slots:
            answer = await self._cluster.apply(document, manager=MANAGER, force=True)
        if not isinstance(answer, ApiObject):
            raise Bug("the API server rejected the benchmark's objects", cause=str(answer))
        return answer


def is_ready(queue: Any) -> bool:
    """Whether the operator has reported it, for the current generation."""
    status = queue.get("status") or {}
    return any(
        one["type"] == "Ready"
        and one["status"] == "True"
        and one.get("observedGeneration") == queue["metadata"]["generation"]
        for one in status.get("conditions") or ()
    )


def writes_since(audit_log: Path, offset: int) -> tuple[int, int, list[str]]:
    """The write requests to the API server since then, from all clients that are no part of Kubernetes: their total,
    including the Lease's renewals, and the other writes."""
    everything, of_leases, others = 0, 0, []
    with audit_log.open("rb") as log:
        log.seek(offset)
        for line in log:
            output = json.loads(line)
            if output["verb"] not in WRITES:
                continue
            everything += 1
            resource = (output.get("objectRef") or {}).get("resource", "")
            of_leases += resource == "leases"
            if resource != "leases":
                others.append(f"{output['verb']} {resource}")
    return everything, of_leases, others
