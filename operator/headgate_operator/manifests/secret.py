"""The copy of the chart's connection Secret in a namespace that has resources, as a plain document.

Pure. Only the keys of a connection are copied; other keys of the source are not.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headgate_operator.manifests.pod import CONNECTION_FILES, CONNECTION_KEYS, Part
from headgate_operator.model.kinds import SECRET
from headgate_operator.model.names import CONNECTION_COPY, labels_of, namespace_key


def build_connection_copy(namespace: str, source: Mapping[str, Any]) -> Part:
    """The whole document; `source` is the chart's Secret as the API server gave it."""
    data = source.get("data") or {}
    return {
        "apiVersion": SECRET.api_version,
        "kind": SECRET.kind,
        "metadata": {
            "name": CONNECTION_COPY,
            "namespace": namespace,
            "labels": labels_of(namespace_key(namespace)),
        },
        "type": "Opaque",
        "data": {name: data[name] for name in (*CONNECTION_KEYS, *CONNECTION_FILES) if name in data},
    }
