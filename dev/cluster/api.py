"""A small client of an API server whose certificates are files of ours: the requests for starting a cluster, no more.

kubectl takes a third of a second to begin, this a few milliseconds. Tests use kubectl (`kubectl.py`), which works
with any cluster.
"""

from __future__ import annotations

import http.client
import json
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from headgate.errors import EnvironmentProblem, Unavailable

APPLY = "application/apply-patch+yaml"
_PLURALS = {"Service": "services", "EndpointSlice": "endpointslices", "Node": "nodes", "Namespace": "namespaces"}


class Api:
    """An API server on this machine's loopback, called as `admin`."""

    def __init__(self, port: int, certificates: Path) -> None:
        self.port = port
        self._context = ssl.create_default_context(cafile=str(certificates / "ca.crt"))
        self._context.load_cert_chain(certificates / "admin.crt", certificates / "admin.key")

    def ready(self, path: str = "/readyz") -> bool:
        """Whether it serves."""
        try:
            return self._ask("GET", path)[0] == 200
        except Unavailable:
            return False

    def get(self, path: str) -> dict[str, Any] | None:
        """An object, if it exists."""
        status, body = self._ask("GET", path)
        if status == 404:
            return None
        return self._object(status, body, path)

    def apply(self, wanted: Mapping[str, Any]) -> dict[str, Any]:
        """Apply it; a second call changes nothing."""
        path = f"{path_of(wanted)}?fieldManager=headgate-dev&force=true"
        status, body = self._ask("PATCH", path, json.dumps(wanted), APPLY)
        return self._object(status, body, path)

    def patch_status(self, path: str, status_change: Mapping[str, Any]) -> dict[str, Any]:
        """Change an object's status."""
        body = json.dumps({"status": status_change})
        status, answer = self._ask("PATCH", f"{path}/status", body, "application/merge-patch+json")
        return self._object(status, answer, path)

    def _object(self, status: int, body: bytes, path: str) -> dict[str, Any]:
        fields: dict[str, Any] = json.loads(body)
        if status >= 400:
            raise EnvironmentProblem(
                "the API server rejected a request",
                remedy="check its answer",
                path=path,
                answer=fields.get("message"),
            )
        return fields

    def _ask(
        self, method: str, path: str, body: str | None = None, content_type: str = "application/json"
    ) -> tuple[int, bytes]:
        connection = http.client.HTTPSConnection("127.0.0.1", self.port, timeout=10, context=self._context)
        try:
            connection.request(method, path, body, {"Content-Type": content_type} if body else {})
            answer = connection.getresponse()
            return answer.status, answer.read()
        except (OSError, http.client.HTTPException) as error:
            raise Unavailable("the API server does not answer", port=self.port, answer=str(error)) from None
        finally:
            connection.close()


def path_of(wanted: Mapping[str, Any]) -> str:
    """Where an object is."""
    version, kind, metadata = wanted["apiVersion"], wanted["kind"], wanted["metadata"]
    group = f"/apis/{version}" if "/" in version else f"/api/{version}"
    place = f"/namespaces/{metadata['namespace']}" if "namespace" in metadata else ""
    return f"{group}{place}/{_PLURALS[kind]}/{metadata['name']}"
