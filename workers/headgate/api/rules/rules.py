"""Rules between fields, and between a resource and its former version.

Each rule is a value: where it is scoped, which field is to blame, the sentence its author reads, and one condition
that the API server evaluates as CEL and everything else as Python (expressions.py). No webhook is needed, and
`headgate validate` refuses offline what the API server would refuse. Rules on change are scoped on `spec` and ask for
presence on both sides, since a transition rule on an optional field is skipped when the field comes or goes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from pydantic import BaseModel

from headgate.api.resources.counters import CounterSpec
from headgate.api.resources.model import Model, default_of, kind_of
from headgate.api.resources.queues import QueueSpec
from headgate.api.rules.rules import expressions as e
from headgate.api.values.names import NAME_LENGTH_MAX


@dataclass(frozen=True)
class Rule:
    """`scope` is "" (the whole resource), `spec`, or a list of the spec such as `spec.consumers[]`."""

    name: str
    scope: str
    field: str
    message: str
    condition: e.Expression
    on_change: bool = False


@dataclass(frozen=True)
class Fault:
    """A fault of a resource: the path of the field, the requirement, and the rule that it breaks."""

    path: str
    message: str
    rule: str = ""

    def __str__(self) -> str:
        return f"{self.path}: {self.message}"


def check_rules(rules: tuple[Rule, ...], resource: Mapping[str, Any], old: Mapping[str, Any] | None) -> list[Fault]:
    """The rules that a resource (as JSON) breaks, in the order of the rules."""
    return [
        Fault(_joined(path, rule.field), rule.message, rule.name)
        for rule in rules
        for path, subject, before in _subjects(rule.scope, resource, old)
        if (before is not None or not rule.on_change) and not rule.condition.holds(subject, before)
    ]


def _subjects(
    scope: str, resource: Mapping[str, Any], old: Mapping[str, Any] | None
) -> Iterator[tuple[str, Mapping[str, Any], Mapping[str, Any] | None]]:
    if not scope:
        yield "", resource, old
    elif scope.endswith("[]"):
        path = scope.removesuffix("[]")
        for index, item in enumerate(e.read_path(resource, path) or ()):
            yield f"{path}[{index}]", item, None
    else:
        yield scope, resource.get(scope) or {}, None if old is None else old.get(scope) or {}


def _joined(path: str, field: str) -> str:
    return ".".join(step for step in (path, field) if step)


def _effective(spec: type[BaseModel], path: str) -> e.Value:
    default = default_of(spec, path)
    if not isinstance(default, str | int):
        raise TypeError(f"{path} of {spec.__name__} has no default to fall back on")
    return e.Value(path, default)


def _fixed(spec: type[BaseModel], prefix: str, path: str, *, duration: bool = False, default: bool = True) -> Rule:
    return Rule(
        f"{prefix}.{path}.fixed",
        "spec",
        path,
        f"{path} is fixed when the {prefix} is made; make another {prefix} with the new value and move over",
        e.Unchanged(path, _effective(spec, path).default if default else None, duration),
        on_change=True,
    )


def _storage_fixed(spec: type[BaseModel], prefix: str) -> tuple[Rule, ...]:
    return (
        *(
            _fixed(spec, prefix, f"storage.{name}", default=False)
            for name in ("keyspace", "dataCenter", "replication")
        ),
        _fixed(spec, prefix, "storage.tables"),
    )


def _name_fits(prefix: str) -> Rule:
    return Rule(
        f"{prefix}.name",
        "",
        "metadata.name",
        f"the name of a {prefix} has at most {NAME_LENGTH_MAX} characters, since it becomes a label's value",
        e.NameFits(NAME_LENGTH_MAX),
    )


def _queue(path: str) -> e.Value:
    return _effective(QueueSpec, path)


def _counter(path: str) -> e.Value:
    return _effective(CounterSpec, path)


def _engine_is(engine: str) -> e.Expression:
    return e.Is(_queue("engine"), "==", engine)


def _engine_not(engine: str) -> e.Expression:
    return e.Is(_queue("engine"), "!=", engine)


def _own_block(engine: str) -> Rule:
    return Rule(
        f"queue.{engine}.engine",
        "spec",
        engine,
        f"the settings `{engine}` belong to engine {engine}; remove them, or set `engine: {engine}`",
        e.implies(e.Has(engine), _engine_is(engine)),
    )


_MODE = e.Value("mode", "")


def _bulk(name: str, field: str, message: str, mode: str, condition: e.Expression) -> Rule:
    return Rule(f"bulk.{name}", "spec.bulk[]", field, message, e.implies(e.Is(_MODE, "==", mode), condition))


def _unset(*paths: str) -> e.Expression:
    return e.All(tuple(e.Not(e.Has(path)) for path in paths))


_QUEUE_FIXED: Final = (
    _fixed(QueueSpec, "queue", "engine"),
    *_storage_fixed(QueueSpec, "queue"),
    _fixed(QueueSpec, "queue", "timeline.part", duration=True),
    _fixed(QueueSpec, "queue", "timeline.shardBy"),
    _fixed(QueueSpec, "queue", "bucket.size"),
)

_ENGINES: Final = (
    _own_block("timeline"),
    _own_block("bucket"),
    _own_block("extent"),
    Rule(
        "queue.timeline.safetyLag",
        "spec",
        "timeline.safetyLag",
        "safetyLag must be at least 2 maxClockSkew, else every put would come too late: raise it or lower "
        "maxClockSkew",
        e.implies(
            _engine_is("timeline"),
            e.Longer(_queue("timeline.safetyLag"), ">=", "0s", ((_queue("maxClockSkew"), 2),)),
        ),
    ),
    Rule(
        "queue.timeline.lease.ttl",
        "spec",
        "timeline.lease.ttl",
        "lease.ttl must be at least 1s + 2 maxClockSkew + 2 lease.touch, else an owner stops before it can renew",
        e.implies(
            _engine_is("timeline"),
            e.Longer(
                _queue("timeline.lease.ttl"),
                ">=",
                "1s",
                ((_queue("maxClockSkew"), 2), (_queue("timeline.lease.touch"), 2)),
            ),
        ),
    ),
    Rule(
        "queue.timeline.lateWriteTimeout",
        "spec",
        "timeline.lateWriteTimeout",
        "lateWriteTimeout must be at least 1s + 2 maxClockSkew, else repair reads before writes can have landed",
        e.implies(
            _engine_is("timeline"),
            e.Longer(_queue("timeline.lateWriteTimeout"), ">=", "1s", ((_queue("maxClockSkew"), 2),)),
        ),
    ),
    Rule(
        "queue.bucket.lateWriteTimeout",
        "spec",
        "bucket.lateWriteTimeout",
        "lateWriteTimeout must be at least 1s + 2 maxClockSkew, else a claim ends before its write can be "
        "acknowledged",
        e.implies(
            _engine_is("bucket"),
            e.Longer(_queue("bucket.lateWriteTimeout"), ">=", "1s", ((_queue("maxClockSkew"), 2),)),
        ),
    ),
    Rule(
        "queue.bucket.order",
        "spec",
        "bucket.order",
        "order fifo needs `shards: 1`, since there is no order between shards",
        e.implies(
            e.All((_engine_is("bucket"), e.Is(_queue("bucket.order"), "==", "fifo"))), e.Is(_queue("shards"), "==", 1)
        ),
    ),
    Rule(
        "queue.extent.fifo",
        "spec",
        "extent.fifo",
        "`fifo: true` needs `mode: CP`, since only then exactly one extent is open",
        e.implies(e.Is(_queue("extent.fifo"), "==", True), e.Is(_queue("extent.mode"), "==", "CP")),
    ),
    Rule(
        "queue.extent.dedup.contentBased",
        "spec",
        "extent.dedup.contentBased",
        "`contentBased: true` needs `fifo: true`, which brings deduplication",
        e.implies(e.Is(_queue("extent.dedup.contentBased"), "==", True), e.Is(_queue("extent.fifo"), "==", True)),
    ),
    Rule(
        "queue.extent.maxExtents",
        "spec",
        "shards",
        "shards is the fewest open extents, so at most extent.maxExtents (16 unless set): lower it or raise "
        "maxExtents",
        e.implies(_engine_is("extent"), e.Is(_queue("shards"), "<=", _queue("extent.maxExtents"))),
    ),
)

_QUEUE: Final = (
    Rule(
        "queue.retention",
        "spec",
        "retention",
        "retention must be at least visibilityTimeout, else a message that was received once is lost while hidden",
        e.Longer(_queue("retention"), ">=", "0s", ((_queue("visibilityTimeout"), 1),)),
    ),
    Rule(
        "queue.consumers.one",
        "spec",
        "consumers",
        "engines timeline and bucket take one consumer; raise its scaling.max, or use engine extent, where each is a "
        "consumer group",
        e.implies(_engine_not("extent"), e.AtMostItems("consumers", 1)),
    ),
    Rule(
        "queue.deadLetter",
        "",
        "spec.deadLetter",
        "a queue cannot be its own dead-letter queue; name another Queue of this namespace",
        e.NotOwnName("spec.deadLetter"),
    ),
    Rule(
        "queue.consumers.deadLetter",
        "",
        "spec.consumers",
        "a consumer's deadLetter cannot be the queue itself; name another Queue of this namespace",
        e.NoneOwnName("spec.consumers", "deadLetter"),
    ),
    Rule(
        "queue.bulk.move",
        "",
        "spec.bulk",
        "a bulk job of mode move cannot move a queue into itself; name another Queue of this namespace as its target",
        e.NoneOwnName("spec.bulk", "target", ("mode", "move")),
    ),
    Rule(
        "queue.consumers.startFrom",
        "spec",
        "consumers",
        "startFrom is for consumer groups, which only engine extent has; remove it",
        e.implies(_engine_not("extent"), e.NoItemHas("consumers", "startFrom")),
    ),
    Rule(
        "consumer.handler",
        "spec.consumers[]",
        "handler",
        "set either handler (a Python function, such as mailer.tasks:send) or http (a port and a path), and not both",
        e.ExactlyOne(("handler", "http")),
    ),
    Rule(
        "consumer.image",
        "spec.consumers[]",
        "image",
        "an http handler needs image: the container that listens on http.port",
        e.implies(e.Has("http"), e.Has("image")),
    ),
    Rule(
        "consumer.scaling",
        "spec.consumers[]",
        "scaling.min",
        "scaling.min must be at most scaling.max",
        e.implies(e.Has("scaling"), e.Is(e.Value("scaling.min", 0), "<=", e.Value("scaling.max", 10))),
    ),
)

_BULK: Final = (
    Rule(
        "bulk.trigger",
        "spec.bulk[]",
        "schedule",
        "set schedule, backlogAbove or both; else the job would never run",
        e.Any_((e.Has("schedule"), e.Has("backlogAbove"))),
    ),
    _bulk(
        "drain",
        "handler",
        "mode drain needs one of handler, sink and target, and not more",
        "drain",
        e.ExactlyOne(("handler", "sink", "target")),
    ),
    _bulk(
        "replay",
        "target",
        "mode replay needs one of target and sink, and not both",
        "replay",
        e.ExactlyOne(("target", "sink")),
    ),
    _bulk(
        "redrive",
        "mode",
        "mode redrive sends dead letters to their sources, or to a target; handler and sink do not go with it",
        "redrive",
        _unset("handler", "sink"),
    ),
    _bulk(
        "move",
        "target",
        "mode move needs a target, and neither handler nor sink",
        "move",
        e.All((e.Has("target"), _unset("handler", "sink"))),
    ),
    _bulk(
        "export",
        "sink",
        "mode export needs a sink, and neither handler nor target",
        "export",
        e.All((e.Has("sink"), _unset("handler", "target"))),
    ),
)

QUEUE_RULES: Final[tuple[Rule, ...]] = (_name_fits("queue"), *_QUEUE_FIXED, *_ENGINES, *_QUEUE, *_BULK)

COUNTER_RULES: Final[tuple[Rule, ...]] = (
    _name_fits("counter"),
    _fixed(CounterSpec, "counter", "type"),
    _fixed(CounterSpec, "counter", "buckets"),
    _fixed(CounterSpec, "counter", "tokenWindow", duration=True),
    *_storage_fixed(CounterSpec, "counter"),
    Rule(
        "counter.windows.fixed",
        "spec",
        "windows",
        "windows are fixed when the counter is made; make another counter with the new windows",
        e.SameDurations("windows"),
        on_change=True,
    ),
    Rule(
        "counter.windows.equal",
        "spec",
        "windows",
        "no two windows may have the same length (1d is 24h)",
        e.NoTwoEqual("windows"),
    ),
    Rule(
        "counter.retention",
        "spec",
        "retention",
        "retention must be at least the longest window, else it would expire before it ends",
        e.NoneLongerThan("windows", _counter("retention")),
    ),
    Rule(
        "counter.mutator.lifetime",
        "spec",
        "mutator.refuseWithin",
        "refuseWithin must be less than lifetime, else a mutator refuses from its birth",
        e.Longer(_counter("mutator.lifetime"), ">", "0s", ((_counter("mutator.refuseWithin"), 1),)),
    ),
    Rule(
        "counter.mutator.refuseWithin",
        "spec",
        "mutator.refuseWithin",
        "refuseWithin must be at least 4 maxClockSkew, so that no update is in flight when a mutator ends",
        e.Longer(_counter("mutator.refuseWithin"), ">=", "0s", ((_counter("maxClockSkew"), 4),)),
    ),
    Rule(
        "counter.gc.after",
        "spec",
        "gc.after",
        "gc.after must be at least 1m + 2 maxClockSkew, and longer than the hint window of Cassandra (3h unless set)",
        e.Longer(_counter("gc.after"), ">=", "1m", ((_counter("maxClockSkew"), 2),)),
    ),
)


def rules_of(model: type[Model]) -> tuple[Rule, ...]:
    """The rules of a kind."""
    return {"Queue": QUEUE_RULES, "Counter": COUNTER_RULES}[kind_of(model)]
