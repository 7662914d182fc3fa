"""Rules between fields, and between a resource and its former version.

Each rule is a value: where it is scoped, which field is to blame, the sentence its author reads, and one condition
that the API server evaluates as CEL and everything else as Python (expressions.py). No webhook is needed, and
`headgate validate` refuses offline what the API server would refuse. Rules on change are scoped on `spec` and ask for
presence on both sides, since a transition rule on an optional field is skipped when the field comes or goes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from headgate.api.resources.counters import CounterSpec
from headgate.api.resources.model import Model, default_of, kind_of
from headgate.api.resources.queues import QueueSpec
from headgate.api.rules import expressions as e
from headgate.api.values.names import NAME_LENGTH_MAX


@dataclass(frozen=True)
class Rule:
    """`scope` is "" (the whole resource), `spec`, or a list of the spec such as `spec.consumers[]`."""

    name: str
    scope: str
    field: str
    message: str
    condition: e.Predicate

    @property
    def on_change(self) -> bool:
        """Whether it compares the resource with its former version: then a new resource cannot break it."""
        return "oldSelf" in self.condition.cel


@dataclass(frozen=True)
class Fault:
    """A fault of a resource: the path of the field, the requirement, and the rule that it breaks."""

    path: str
    message: str
    rule: str = ""

    def __str__(self) -> str:
        return f"{self.path}: {self.message}"


def format_path(steps: Iterable[str | int]) -> str:
    """`spec.consumers[0].template`, as the API server writes it."""
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in steps).lstrip(".")


def check_rules(model: type[Model], resource: Mapping[str, Any], old: Mapping[str, Any] | None) -> list[Fault]:
    """The rules that a resource (as JSON) breaks, in the order of the rules."""
    return [
        Fault(".".join(step for step in (path, rule.field) if step), rule.message, rule.name)
        for rule in rules_of(model)
        if old is not None or not rule.on_change
        for path, subject, before in _subjects(rule.scope, resource, old or {})
        if not rule.condition.holds(subject, before)
    ]


def _subjects(
    scope: str, resource: Mapping[str, Any], old: Mapping[str, Any]
) -> Iterator[tuple[str, Mapping[str, Any], Mapping[str, Any]]]:
    if not scope:
        yield "", resource, old
    elif scope.endswith("[]"):
        path = scope.removesuffix("[]")
        for index, item in enumerate(e.read_path(resource, path) or ()):
            yield f"{path}[{index}]", item, {}
    else:
        yield scope, resource.get(scope) or {}, old.get(scope) or {}


def _value(spec: type[Model], path: str) -> e.Value:
    default = default_of(spec, path)
    if not isinstance(default, str | int):
        raise TypeError(f"{path} of {spec.__name__} has no default to fall back on")
    return e.Value(path, default)


_queue: Final = partial(_value, QueueSpec)
_counter: Final = partial(_value, CounterSpec)


def _fixed(spec: type[Model], prefix: str, path: str, *, duration: bool = False) -> Rule:
    return Rule(
        f"{prefix}.{path}.fixed",
        "spec",
        path,
        f"{path} is fixed when the {prefix} is made; make another {prefix} with the new value and move over",
        e.unchanged(path, default_of(spec, path), duration=duration),
    )


def _storage_fixed(spec: type[Model], prefix: str) -> Iterator[Rule]:
    for name in ("keyspace", "dataCenter", "replication", "tables"):
        yield _fixed(spec, prefix, f"storage.{name}")


def _name_fits(prefix: str) -> Rule:
    return Rule(
        f"{prefix}.name",
        "",
        "metadata.name",
        f"the name of a {prefix} has at most {NAME_LENGTH_MAX} characters, since it becomes a label's value",
        e.name_fits(NAME_LENGTH_MAX),
    )


def _engine_is(engine: str) -> e.Predicate:
    return e.compare(_queue("engine"), "==", engine)


def _of_spec(prefix: str, field: str, message: str, condition: e.Predicate, *, name: str = "") -> Rule:
    return Rule(f"{prefix}.{name or field}", "spec", field, message, condition)


_of_queue: Final = partial(_of_spec, "queue")
_of_counter: Final = partial(_of_spec, "counter")


def _of_engine(field: str, message: str, condition: e.Predicate) -> Rule:
    """A rule on a block of settings, in force with the engine that the block is named for."""
    return _of_queue(field, message, e.implies(_engine_is(field.partition(".")[0]), condition))


def _own_block(engine: str) -> Rule:
    message = f"the settings `{engine}` belong to engine {engine}; remove them, or set `engine: {engine}`"
    return _of_queue(engine, message, e.implies(e.has(engine), _engine_is(engine)), name=f"{engine}.engine")


def _of_bulk(mode: str, field: str, message: str, condition: e.Predicate) -> Rule:
    in_mode = e.implies(e.compare(e.Value("mode", ""), "==", mode), condition)
    return Rule(f"bulk.{mode}", "spec.bulk[]", field, f"mode {mode} {message}", in_mode)


def _unset(*paths: str) -> e.Predicate:
    return e.all_of(*(e.negate(e.has(path)) for path in paths))


_QUEUE_FIXED: Final = (
    _fixed(QueueSpec, "queue", "engine"),
    *_storage_fixed(QueueSpec, "queue"),
    _fixed(QueueSpec, "queue", "timeline.part", duration=True),
    _fixed(QueueSpec, "queue", "timeline.shardBy"),
    _fixed(QueueSpec, "queue", "bucket.size"),
)

_SKEW: Final = _queue("maxClockSkew")
_ENGINES: Final = (
    _own_block("timeline"),
    _own_block("bucket"),
    _own_block("extent"),
    _of_engine(
        "timeline.safetyLag",
        "safetyLag must be at least 2 maxClockSkew, else every put would come too late: raise it or lower "
        "maxClockSkew",
        e.longer(_queue("timeline.safetyLag"), ">=", "0s", (_SKEW, 2)),
    ),
    _of_engine(
        "timeline.lease.ttl",
        "lease.ttl must be at least 1s + 2 maxClockSkew + 2 lease.touch, else an owner stops before it can renew",
        e.longer(_queue("timeline.lease.ttl"), ">=", "1s", (_SKEW, 2), (_queue("timeline.lease.touch"), 2)),
    ),
    _of_engine(
        "timeline.lateWriteTimeout",
        "lateWriteTimeout must be at least 1s + 2 maxClockSkew, else repair reads before writes can have landed",
        e.longer(_queue("timeline.lateWriteTimeout"), ">=", "1s", (_SKEW, 2)),
    ),
    _of_engine(
        "bucket.lateWriteTimeout",
        "lateWriteTimeout must be at least 1s + 2 maxClockSkew, else a claim ends before its write can be "
        "acknowledged",
        e.longer(_queue("bucket.lateWriteTimeout"), ">=", "1s", (_SKEW, 2)),
    ),
    _of_queue(
        "bucket.order",
        "order fifo needs `shards: 1`, since there is no order between shards",
        e.implies(
            e.all_of(_engine_is("bucket"), e.compare(_queue("bucket.order"), "==", "fifo")),
            e.compare(_queue("shards"), "==", 1),
        ),
    ),
    _of_queue(
        "extent.fifo",
        "`fifo: true` needs `mode: CP`, since only then exactly one extent is open",
        e.implies(e.compare(_queue("extent.fifo"), "==", True), e.compare(_queue("extent.mode"), "==", "CP")),
    ),
    _of_queue(
        "extent.dedup.contentBased",
        "`contentBased: true` needs `fifo: true`, which brings deduplication",
        e.implies(
            e.compare(_queue("extent.dedup.contentBased"), "==", True), e.compare(_queue("extent.fifo"), "==", True)
        ),
    ),
    _of_queue(
        "shards",
        "shards is the fewest open extents, so at most extent.maxExtents (16 unless set): lower it or raise "
        "maxExtents",
        e.implies(_engine_is("extent"), e.compare(_queue("shards"), "<=", _queue("extent.maxExtents"))),
        name="extent.maxExtents",
    ),
)

_NO_GROUPS: Final = e.compare(_queue("engine"), "!=", "extent")
_QUEUE: Final = (
    _of_queue(
        "retention",
        "retention must be at least visibilityTimeout, else a message that was received once is lost while hidden",
        e.longer(_queue("retention"), ">=", "0s", (_queue("visibilityTimeout"), 1)),
    ),
    _of_queue(
        "consumers",
        "engines timeline and bucket take one consumer; raise its scaling.max, or use engine extent, where each is a "
        "consumer group",
        e.implies(_NO_GROUPS, e.at_most_items("consumers", 1)),
        name="consumers.one",
    ),
    Rule(
        "queue.deadLetter",
        "",
        "spec.deadLetter",
        "a queue cannot be its own dead-letter queue; name another Queue of this namespace",
        e.not_own_name("spec.deadLetter"),
    ),
    Rule(
        "queue.consumers.deadLetter",
        "",
        "spec.consumers",
        "a consumer's deadLetter cannot be the queue itself; name another Queue of this namespace",
        e.none_own_name("spec.consumers", "deadLetter"),
    ),
    Rule(
        "queue.bulk.move",
        "",
        "spec.bulk",
        "a bulk job of mode move cannot move a queue into itself; name another Queue of this namespace as its target",
        e.none_own_name("spec.bulk", "target", ("mode", "move")),
    ),
    _of_queue(
        "consumers",
        "startFrom is for consumer groups, which only engine extent has; remove it",
        e.implies(_NO_GROUPS, e.no_item_has("consumers", "startFrom")),
        name="consumers.startFrom",
    ),
    Rule(
        "consumer.handler",
        "spec.consumers[]",
        "handler",
        "set either handler (a Python function, such as mailer.tasks:send) or http (a port and a path), and not both",
        e.exactly_one("handler", "http"),
    ),
    Rule(
        "consumer.image",
        "spec.consumers[]",
        "image",
        "an http handler needs image: the container that listens on http.port",
        e.implies(e.has("http"), e.has("image")),
    ),
    Rule(
        "consumer.scaling",
        "spec.consumers[]",
        "scaling.min",
        "scaling.min must be at most scaling.max",
        e.implies(e.has("scaling"), e.compare(e.Value("scaling.min", 0), "<=", e.Value("scaling.max", 10))),
    ),
)

SPARK_CONF: Final = "spark."
SPARK_CONF_EXCLUDED: Final = (
    "spark.master",
    "spark.submit.",
    "spark.kubernetes.namespace",
    "spark.kubernetes.context",
    "spark.kubernetes.authenticate.",
    "spark.kubernetes.driver.master",
    "spark.kubernetes.driver.pod.",
    "spark.kubernetes.driver.podTemplate",
    "spark.kubernetes.executor.pod.",
    "spark.kubernetes.executor.podTemplate",
    "spark.kubernetes.file.upload.",
)
"""Where a job runs, as which account, by which pod templates, and which files of the submitting pod go with it. The
Spark operator submits with rights in every namespace that it serves, so these decide what a job may do."""

_BULK: Final = (
    Rule(
        "bulk.spark.conf",
        "spec.bulk[]",
        "spark.conf",
        "keys begin with `spark.`, and none sets the master, namespace, account, pod templates or uploads: remove "
        "spark.master, spark.submit.*, spark.kubernetes.namespace, .context, .authenticate.*, .file.upload.*, "
        ".driver.master, .driver.pod.*, .executor.pod.* and podTemplate*",
        e.keys_begin_with("spark.conf", SPARK_CONF, excluded=SPARK_CONF_EXCLUDED),
    ),
    Rule(
        "bulk.sink.headgate",
        "spec.bulk[]",
        "sink.path",
        "a sink of format headgate is a Queue of this namespace; write its name alone",
        e.implies(e.compare(e.Value("sink.format", ""), "==", "headgate"), e.lacks_text("sink.path", "/")),
    ),
    Rule(
        "bulk.trigger",
        "spec.bulk[]",
        "schedule",
        "set schedule, backlogAbove or both; else the job would never run",
        e.any_of(e.has("schedule"), e.has("backlogAbove")),
    ),
    _of_bulk(
        "drain",
        "handler",
        "needs one of handler, sink and target, and not more",
        e.exactly_one("handler", "sink", "target"),
    ),
    _of_bulk("replay", "target", "needs one of target and sink, and not both", e.exactly_one("target", "sink")),
    _of_bulk(
        "redrive",
        "mode",
        "sends dead letters to their sources, or to a target; handler and sink do not go with it",
        _unset("handler", "sink"),
    ),
    _of_bulk(
        "move",
        "target",
        "needs a target, and neither handler nor sink",
        e.all_of(e.has("target"), _unset("handler", "sink")),
    ),
    _of_bulk(
        "export",
        "sink",
        "needs a sink, and neither handler nor target",
        e.all_of(e.has("sink"), _unset("handler", "target")),
    ),
)

QUEUE_RULES: Final[tuple[Rule, ...]] = (_name_fits("queue"), *_QUEUE_FIXED, *_ENGINES, *_QUEUE, *_BULK)

COUNTER_RULES: Final[tuple[Rule, ...]] = (
    _name_fits("counter"),
    _fixed(CounterSpec, "counter", "type"),
    _fixed(CounterSpec, "counter", "buckets"),
    _fixed(CounterSpec, "counter", "tokenWindow", duration=True),
    *_storage_fixed(CounterSpec, "counter"),
    _of_counter(
        "windows",
        "windows are fixed when the counter is made; make another counter with the new windows",
        e.same_durations("windows"),
        name="windows.fixed",
    ),
    _of_counter(
        "windows",
        "no two windows may have the same length (1d is 24h)",
        e.no_two_equal("windows"),
        name="windows.equal",
    ),
    _of_counter(
        "retention",
        "retention must be at least the longest window, else it would expire before it ends",
        e.none_longer_than("windows", _counter("retention")),
    ),
    _of_counter(
        "mutator.refuseWithin",
        "refuseWithin must be less than lifetime, else a mutator refuses from its birth",
        e.longer(_counter("mutator.lifetime"), ">", "0s", (_counter("mutator.refuseWithin"), 1)),
        name="mutator.lifetime",
    ),
    _of_counter(
        "mutator.refuseWithin",
        "refuseWithin must be at least 4 maxClockSkew, so that no update is in flight when a mutator ends",
        e.longer(_counter("mutator.refuseWithin"), ">=", "0s", (_counter("maxClockSkew"), 4)),
    ),
    _of_counter(
        "gc.after",
        "gc.after must be at least 1m + 2 maxClockSkew, and longer than the hint window of Cassandra (3h unless set)",
        e.longer(_counter("gc.after"), ">=", "1m", (_counter("maxClockSkew"), 2)),
    ),
)


def rules_of(model: type[Model]) -> tuple[Rule, ...]:
    """The rules of a kind."""
    return {"Queue": QUEUE_RULES, "Counter": COUNTER_RULES}[kind_of(model)]
