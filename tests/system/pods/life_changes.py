"""The changes in a resource's life: every mutable field once, and every immutable one, which is refused.

Values alone. `tests/unit/testing/test_life_changes.py` holds them to the CRDs: a field that is new in a CRD is
changed here, or named with the reason why not.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from typing import Any

Spec = dict[str, Any]
WORKER = {"name": "worker", "workingDir": "/handler", "volumeMounts": [{"name": "handler", "mountPath": "/handler"}]}
TEMPLATE: Spec = {
    "spec": {"containers": [WORKER], "volumes": [{"name": "handler", "configMap": {"name": "handler"}}]}
}
CONSUMER: Spec = {"name": "mailer", "handler": "life:handle", "scaling": {"min": 1, "max": 2}, "template": TEMPLATE}
BORN: Mapping[str, Spec] = {
    "Queue": {
        "shards": 2,
        "maxClockSkew": "100ms",
        "deadLetter": "emails-dead",
        "timeline": {"safetyLag": "200ms"},
        "consumers": [CONSUMER],
    },
    "Counter": {"type": "sum", "windows": ["1m", "1h"]},
}


def with_consumer(**fields: Any) -> Spec:
    """The one consumer, with some fields otherwise."""
    return {"consumers": [{**copy.deepcopy(CONSUMER), **fields}]}


LOADED: Spec = {"metadata": {"annotations": {"example.org/changed": "yes"}}, **copy.deepcopy(TEMPLATE)}
LOADED["spec"]["priorityClassName"] = ""
BULK: Spec = {
    "name": "yearly",
    "mode": "drain",
    "schedule": "0 0 1 1 *",
    "backlogAbove": 9_000_000,
    "handler": "life:bulk",
    "from": "24h",
    "to": "1h",
    "where": "true",
    "rate": "100/s",
    "spark": {"image": "spark:1", "driver": {"cores": 1}, "executor": {"cores": 1}, "conf": {"spark.a": "b"}},
}
SINK: Spec = {
    "name": "archive",
    "mode": "export",
    "schedule": "0 0 1 1 *",
    "sink": {"format": "parquet", "path": "s3a://a/b", "options": {"compression": "zstd"}},
}
TARGET: Spec = {"name": "over", "mode": "move", "schedule": "0 0 1 1 *", "target": "emails-dead"}
CHANGES: Mapping[str, tuple[Spec, ...]] = {
    "Queue": (
        {"shards": 3},
        {"retention": "10d"},
        {"visibilityTimeout": "20s"},
        {"delay": "100ms"},
        {"maxReceives": 4},
        {"maxMessageSize": "512Ki"},
        {"onceWindow": "12h"},
        {"maxClockSkew": "90ms"},
        {"deadLetter": "letters-dead"},
        {"timeline": {"safetyLag": "300ms", "lateWriteTimeout": "2m", "lease": {"ttl": "8s", "touch": "1s"}}},
        with_consumer(concurrency=8, rate="1000/s"),
        with_consumer(scaling={"mode": "auto", "min": 1, "max": 3, "backlogPerWorker": 500, "lag": "20s"}),
        with_consumer(handler="life:handle_too"),
        with_consumer(visibilityTimeout="25s", maxReceives=3, deadLetter="emails-dead"),
        with_consumer(template=LOADED),
        with_consumer(name="sender"),
        {"repair": {"schedule": "*/7 * * * *"}},
        {"bulk": [BULK, SINK, TARGET]},
        {"bulk": None},
        {"storage": {"connectionSecret": "own-connection"}},
        {"deletionPolicy": "Delete"},
        {"paused": True},
        {"paused": False},
    ),
    "Counter": (
        {"mutator": {"lifetime": "12h", "refuseWithin": "30m"}},
        {"gc": {"schedule": "*/20 * * * *", "after": "36h"}},
        {"maxClockSkew": "400ms"},
        {"retention": "30d"},
        {"storage": {"connectionSecret": "own-connection"}},
        {"deletionPolicy": "Delete"},
        {"paused": True},
        {"paused": False},
    ),
}
IMMUTABLE: Mapping[str, tuple[Spec, ...]] = {
    "Queue": (
        {"engine": "extent", "timeline": None, "consumers": None},
        {"storage": {"keyspace": "other"}},
        {"storage": {"dataCenter": "dc9"}},
        {"storage": {"replication": 9}},
        {"storage": {"tables": "shared"}},
        {"timeline": {"part": "2m"}},
        {"timeline": {"shardBy": "second"}},
        {"engine": "bucket", "timeline": None, "bucket": {"size": 7}},
    ),
    "Counter": (
        {"type": "minmax"},
        {"buckets": 65},
        {"tokenWindow": "16m"},
        {"windows": ["1m"]},
        {"storage": {"keyspace": "other"}},
        {"storage": {"dataCenter": "dc9"}},
        {"storage": {"replication": 9}},
        {"storage": {"tables": "shared"}},
    ),
}
NOT_CHANGED: Mapping[str, str] = {
    "bucket.order": "of an engine that this life is not of",
    "bucket.lateWriteTimeout": "of an engine that this life is not of",
    "bucket.keepFinalized": "of an engine that this life is not of",
    **{
        f"extent.{field}": "of an engine that this life is not of"
        for field in (
            *("mode", "fifo", "writesPerExtent", "maxExtents", "rotate.size", "rotate.age", "retain.consumed"),
            *("retain.unconsumed", "dedup.window", "dedup.contentBased"),
        )
    },
    "consumers[].http.port": "another way to handle; tests/system/pods/test_children_run.py has it",
    "consumers[].http.path": "another way to handle; tests/system/pods/test_children_run.py has it",
    "consumers[].image": "there is one image on the tests' node; changed by the upgrade of the chart",
    "consumers[].startFrom": "of consumer groups, which engine extent has",
    "gc.image": "there is one image on the tests' node",
}


def leaves(value: Any, path: str = "") -> Iterator[str]:
    """The fields that a spec sets, as paths."""
    if isinstance(value, list) and value and isinstance(value[0], dict):
        for one in value:
            yield from leaves(one, f"{path}[]")
    elif isinstance(value, dict) and path not in WHOLE:
        for name, child in value.items():
            yield from leaves(child, f"{path}.{name}" if path else name)
    elif value is not None:  # a null removes a field
        yield path


WHOLE = frozenset(
    {
        *("consumers[].template.metadata", "consumers[].template.spec", "bulk[].sink.options"),
        *("bulk[].spark.driver", "bulk[].spark.executor", "bulk[].spark.conf"),
    }
)
"""Fields whose inside is somebody else's."""
