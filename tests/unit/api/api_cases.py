"""Objects that the resource models must refuse or accept, for the unit tests and for the real API server alike."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args

import yaml
from pydantic import BaseModel

from headgate.api.resources.counters import CounterSpec
from headgate.api.resources.model import API_VERSION, model_of
from headgate.api.resources.passed_on import ITEMS_MAX
from headgate.api.resources.queues import QueueSpec
from headgate.api.values import names
from headgate.api.values.cron import CRON
from headgate.api.values.shapes import Range, ValueShape
from headgate.api.values.units import Duration, format_duration_ms

ROOT = Path(__file__).parents[3]
SUBJECT = "subject"


def document(kind: str, spec: Mapping[str, Any], name: str = SUBJECT) -> dict[str, Any]:
    return {"apiVersion": API_VERSION, "kind": kind, "metadata": {"name": name}, "spec": copy.deepcopy(dict(spec))}


@dataclass(frozen=True)
class Refusal:
    """A row of tests/golden/refusals.yaml."""

    rule: str
    kind: str
    spec: dict[str, Any]
    sees: tuple[str, ...]
    old: dict[str, Any] | None = None
    name: str = SUBJECT

    @property
    def after(self) -> dict[str, Any]:
        return document(self.kind, self.spec, self.name)

    @property
    def before(self) -> dict[str, Any] | None:
        return None if self.old is None else document(self.kind, self.old, self.name)


def read_refusals() -> list[Refusal]:
    rows = yaml.safe_load((ROOT / "tests/golden/refusals.yaml").read_text())
    return [Refusal(**{**row, "sees": tuple(row["sees"])}) for row in rows]


WRONG: dict[ValueShape, tuple[str, ...]] = {
    names.QueueName.__metadata__[0]: ("Emails", "emails_dead", "-emails", "shop/emails"),
    names.ResourceName.__metadata__[0]: ("Emails", "emails_dead", "-emails"),
    names.NamespaceName.__metadata__[0]: ("Shop", "shop.mail", "a/../../b?x=", "-shop"),
    names.PartName.__metadata__[0]: ("Mailer", "mail.er", "mailer-"),
    names.SecretName.__metadata__[0]: ("My_Secret", "/secret"),
    names.Keyspace.__metadata__[0]: ("Shop", "1shop", "shop-queues", 'a"b'),
    names.DataCenter.__metadata__[0]: ("data center", "-dc1", "dc'1"),
    names.Image.__metadata__[0]: ("my image", "-image"),
    names.EntryPoint.__metadata__[0]: ("mailer.tasks.send", "mailer/tasks.py:send", "mailer.tasks:", ":send"),
    names.Rate.__metadata__[0]: ("50", "0/s", "5/day", "1.5/s"),
    names.StartFrom.__metadata__[0]: ("beginning", "2026-11-18", "2026-13-18T09:00:00Z"),
    names.Timestamp.__metadata__[0]: ("yesterday", "2026-11-18", "-24h"),
    names.CounterType.__metadata__[0]: ("total", "Acme/median", "acme/", "acme/a/b"),
    names.UrlPath.__metadata__[0]: ("work", "/a b"),
    CRON: (
        "every day",
        "60 * * * *",
        "* * *",
        "30-10 * * * *",
        "0 0 * * fri-mon",
        "0 0 * * 1-fri",
        "*/0 * * * *",
    ),
}
"""Texts that a shape refuses and its neighbours accept."""


def wrong_texts(shape: ValueShape) -> tuple[str, ...]:
    """Texts that a shape refuses; of a range also the values just outside of it."""
    match shape:
        case Range(least=Duration() as least, most=Duration() as most):
            below = (f"{least.ms - 1}ms",) if least.ms else ()
            return ("2 weeks", "1.5h", "s1", "10", "1m1d", *below, format_duration_ms(most.ms + 1))
        case Range(least=least, most=most):
            return ("1 MiB", "1MB", str(least.number - 1), str(most.number + 1))
    return WRONG[shape]


@dataclass(frozen=True)
class ShapeCase:
    """A field with a shape, and objects that differ only in it."""

    kind: str
    path: str
    shape: ValueShape
    base: dict[str, Any] = field(compare=False)

    def with_value(self, value: str) -> dict[str, Any]:
        made = document(self.kind, self.base)
        node: Any = made["spec"]
        steps = self.path.removeprefix("spec.").replace("[0]", ".0").split(".")
        for step in steps[:-1]:
            node = node[int(step)] if step.isdigit() else node.setdefault(step, {})
        if steps[-1].isdigit():
            node[int(steps[-1])] = value
        else:
            node[steps[-1]] = value
        return made


_CONSUMER = {"name": "a", "image": "i", "http": {"port": 80}}
_BULK = {"name": "a", "mode": "export", "schedule": "@daily", "sink": {"format": "parquet", "path": "s3a://b/p"}}
_BASES: dict[str, dict[str, Any]] = {
    "bucket": {"engine": "bucket"},
    "extent": {"engine": "extent"},
    "consumers": {"engine": "extent", "consumers": [_CONSUMER]},
    "bulk": {"bulk": [_BULK]},
    "windows": {"windows": ["1m"]},
}


def shape_cases() -> list[ShapeCase]:
    """Every field with a shape, of both kinds."""
    specs: tuple[tuple[str, type[BaseModel]], ...] = (("Queue", QueueSpec), ("Counter", CounterSpec))
    return [
        ShapeCase(kind, f"spec.{path}", shape, _BASES.get(path.replace("[", ".").split(".")[0], {}))
        for kind, model in specs
        for path, shape in _shapes(model)
    ]


def _shapes(model: type[BaseModel]) -> Iterator[tuple[str, ValueShape]]:
    for name, info in model.model_fields.items():
        written = info.alias or name
        inner = model_of(info.annotation)
        listed = "tuple" in str(info.annotation)
        mark = "[0]" if listed else ""
        yield from ((written + mark, shape) for shape in _own_shapes(info.annotation, info.metadata))
        if inner is not None:
            yield from ((f"{written}{mark}.{path}", shape) for path, shape in _shapes(inner))


def _own_shapes(annotation: Any, metadata: list[Any]) -> Iterator[ValueShape]:
    yield from (result for result in metadata if isinstance(result, ValueShape))
    for argument in get_args(annotation):
        if hasattr(argument, "__metadata__"):
            yield from (result for result in argument.__metadata__ if isinstance(result, ValueShape))
        elif get_args(argument) and model_of(argument) is None:
            yield from _own_shapes(argument, [])


_PATCH: dict[str, Any] = {
    "containers": [
        {"$patch": "replace"},
        {
            "name": "worker",
            "env": [{"name": f"V{number}", "value": ""} for number in range(ITEMS_MAX)],
            "ports": None,
            "volumeMounts": [],
            "resources": {"limits": {"memory": "1Gi"}},
        },
    ],
    "initContainers": None,
    "volumes": None,
    "tolerations": [{"operator": "Exists"}] * ITEMS_MAX,
    "topologySpreadConstraints": [{"$patch": "replace"}],
    "hostAliases": [{"ip": "10.0.0.1", "hostnames": ["a"]}],
    "nodeSelector": {"a": "b"},
}
"""A patch of a pod with every sort of list, as long as allowed, and null, which removes a list of ours."""

ACCEPTED: tuple[tuple[str, dict[str, Any]], ...] = (
    ("Queue", {}),
    ("Queue", {"consumers": [{**_CONSUMER, "template": {"spec": _PATCH}}]}),
    ("Queue", {"bulk": [{**_BULK, "spark": {"driver": {"env": None, "template": {"spec": _PATCH}}}}]}),
    ("Queue", {"bulk": [{**_BULK, "spark": {"conf": {"spark.sql.shuffle.partitions": "8", "spark.hadoop.a": "b"}}}]}),
    ("Queue", {"bulk": [{**_BULK, "mode": "drain", "sink": {"format": "headgate", "path": "other"}}]}),
    ("Queue", {"bulk": [{**_BULK, "spark": {"executor": {"template": None, "cores": 2, "memory": "2g"}}}]}),
    ("Queue", {"shards": 1024, "retention": "3650d", "delay": "3650d", "maxReceives": 1000, "maxMessageSize": "8Mi"}),
    ("Queue", {"retention": "1d", "visibilityTimeout": "24h"}),
    ("Queue", {"retention": "1d12h", "visibilityTimeout": "36h"}),
    ("Queue", {"timeline": {"safetyLag": "1000ms"}}),
    ("Queue", {"maxClockSkew": "50ms", "timeline": {"safetyLag": "100ms", "lease": {"ttl": "2s", "touch": "450ms"}}}),
    ("Queue", {"timeline": {"lease": {"ttl": "6s"}}}),
    ("Queue", {"engine": "bucket", "shards": 1, "bucket": {"order": "fifo", "lateWriteTimeout": "2s"}}),
    ("Queue", {"engine": "bucket", "maxClockSkew": "29500ms"}),
    ("Queue", {"engine": "extent", "shards": 16}),
    ("Queue", {"engine": "extent", "extent": {"mode": "CP", "fifo": True, "dedup": {"contentBased": True}}}),
    ("Queue", {"deadLetter": "subject-dead", "repair": {"schedule": "0,30 1-5/2 1 jan-mar MON-fri"}}),
    (
        "Queue",
        {
            "engine": "extent",
            "consumers": [
                {"name": "a", "handler": "a.b:C.d", "startFrom": "2026-11-18T09:00:00.5+01:00", "rate": "600/m"},
                {"name": "b", "image": "r.example/b@sha256:0a", "http": {"port": 80}, "deadLetter": "other"},
                {"name": "c", "handler": "a:b", "scaling": {"mode": "external", "min": 3, "max": 3}},
            ],
        },
    ),
    (
        "Queue",
        {
            "consumers": [
                {
                    "name": "a",
                    "handler": "a:b",
                    "template": {"metadata": {"labels": {"x": "y"}}, "spec": {"containers": [{"name": "worker"}]}},
                }
            ]
        },
    ),
    (
        "Queue",
        {
            "bulk": [
                {"name": "drain", "mode": "drain", "backlogAbove": 1, "handler": "a:b", "from": "24h", "to": "1h"},
                {"name": "replay", "mode": "replay", "schedule": "@hourly", "target": SUBJECT, "handler": "a:b"},
                {
                    "name": "redrive",
                    "mode": "redrive",
                    "schedule": "@daily",
                    "rate": "500/s",
                    "where": "attempts > 3",
                },
                {"name": "move", "mode": "move", "schedule": "*/5 * * * *", "target": "other"},
                {
                    "name": "export",
                    "mode": "export",
                    "schedule": "0 2 * * *",
                    "sink": {"format": "jdbc", "path": "jdbc:x", "options": {"dbtable": "t"}},
                    "spark": {
                        "image": "i",
                        "driver": {"cores": 1},
                        "executor": {"cores": 2},
                        "conf": {"spark.a": "b"},
                    },
                },
            ]
        },
    ),
    ("Queue", {"storage": {"keyspace": "shop", "dataCenter": "dc1", "replication": 3, "connectionSecret": "s.x"}}),
    ("Counter", {}),
    ("Counter", {"type": "acme/median", "gc": {"image": "acme/gc:1", "after": "3h"}, "buckets": 4096}),
    ("Counter", {"windows": ["1m", "1h", "1d"], "retention": "24h"}),
    ("Counter", {"mutator": {"lifetime": "1d", "refuseWithin": "23h59m59s999ms"}}),
    ("Counter", {"mutator": {"lifetime": "10s", "refuseWithin": "2s"}}),
)
"""At the edge of every rule, on its right side."""

CHANGES: tuple[tuple[str, dict[str, Any], dict[str, Any]], ...] = (
    ("Queue", {"timeline": {"part": "1m"}}, {"timeline": {"part": "60s"}}),
    ("Queue", {}, {"timeline": {"part": "1m", "shardBy": "flush", "safetyLag": "2s"}}),
    ("Queue", {"engine": "bucket"}, {"engine": "bucket", "bucket": {"size": 1000, "keepFinalized": "2h"}}),
    ("Queue", {"storage": {"keyspace": "k"}}, {"storage": {"keyspace": "k", "connectionSecret": "other"}}),
    ("Queue", {"storage": {"connectionSecret": "one"}}, {}),
    ("Queue", {}, {"storage": {"tables": "dedicated"}, "shards": 12, "retention": "1d", "paused": True}),
    ("Counter", {"windows": ["1m", "1d"]}, {"windows": ["24h", "60s"]}),
    ("Counter", {}, {"type": "sum", "buckets": 64, "tokenWindow": "900s", "mutator": {"lifetime": "6h"}}),
)
"""Changes that the rules on change must let pass."""
