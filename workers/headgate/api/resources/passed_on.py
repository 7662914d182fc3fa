"""Pieces of somebody else's resource inside of ours: a pod template, the driver and the executor of a Spark job.

They are passed on unchanged, and only their size is bounded (bounds.py). This module has the part of that bound that
a CRD can express: it declares the lists of a pod whose place is known, since a rule cannot read fields without a
schema.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pydantic.config import JsonDict

ITEMS_MAX: Final = 200
"""Items of a list inside of such a piece."""
PASSED_ON: Final = frozenset({"template", "driver", "executor"})
"""Fields that hold such a piece."""

_REMEDIES: Final[Mapping[str, str]] = {
    "env": "keep the others in a ConfigMap and name it in envFrom",
    "envFrom": "merge some of these ConfigMaps and Secrets",
    "volumes": "use one volume with several subPaths, or a projected volume",
    "volumeMounts": "mount a whole volume instead of single files",
}


def describe_length_limit(field: str) -> str:
    """The fault of a list of this name, and the remedy."""
    remedy = _REMEDIES.get(field)
    return f"must have at most {ITEMS_MAX} items" + (f"; {remedy}" if remedy else "")


def _lists(*names: str) -> JsonDict:
    return {name: _list({"x-kubernetes-validations": [_bound(name)]}) for name in names}


def _list(bound: JsonDict, **items: JsonDict) -> JsonDict:
    inner: JsonDict = {"type": "object", "x-kubernetes-preserve-unknown-fields": True, **items}
    return {"type": "array", "nullable": True, "items": inner, **bound}


def _bound(name: str) -> JsonDict:
    return {"rule": f"self.size() <= {ITEMS_MAX}", "message": describe_length_limit(name)}


_CONTAINERS: Final = _list({"maxItems": ITEMS_MAX}, properties=_lists("env", "envFrom", "ports", "volumeMounts"))
"""A rule is paid for by how often it may run, so these are bounded for the API server's estimate too."""
POD_SPEC: Final[JsonDict] = {
    "x-kubernetes-preserve-unknown-fields": True,
    "properties": {
        "containers": _CONTAINERS,
        "initContainers": _CONTAINERS,
        **_lists("volumes", "tolerations", "imagePullSecrets", "hostAliases", "topologySpreadConstraints"),
    },
}
"""A patch of a pod's spec: anything, and of these lists not too much."""
SPARK_POD: Final[JsonDict] = {
    "x-kubernetes-preserve-unknown-fields": True,
    "properties": {
        **_lists("env", "volumeMounts"),
        "template": {
            "type": "object",
            "nullable": True,
            "x-kubernetes-preserve-unknown-fields": True,
            "properties": {"spec": {"type": "object", "nullable": True, **POD_SPEC}},
        },
    },
}
"""The same of a driver or an executor of Spark."""
