"""`Counter`: a value kept in shards that are merged when it is read."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from headgate.api.resources.model import Count, Flag, Metadata, Model, Storage
from headgate.api.resources.status import CounterStatus
from headgate.api.values.cron import CRON
from headgate.api.values.names import CounterType, Image
from headgate.api.values.shapes import between
from headgate.api.values.units import Duration


class MutatorSpec(Model):
    """The life of a mutator: the process-local writer of one shard."""

    lifetime: Annotated[Duration, between("10s", "30d")] = Duration("24h")
    """How long a mutator writes to its shard before a new one replaces it. With longer lives a read covers fewer
    shards. Shorter ones are collected sooner."""
    refuse_within: Annotated[Duration, between("1s", "7d")] = Duration("1h")
    """How long before its end a mutator refuses updates, so that none is in flight when it ends. Less than lifetime,
    and at least 4 maxClockSkew."""


class Collect(Model):
    """The collector: it folds ended shards into the tally."""

    schedule: Annotated[str, CRON] = "0 * * * *"
    """The schedule of the collector, as cron in UTC. Each run passes over all keys. All counters of a namespace with
    the same schedule and connection share one CronJob."""
    after: Annotated[Duration, between("1m", "30d")] = Duration("24h")
    """How long after its end a shard counts as final. It must be longer than Cassandra's hint window (3h by default)
    plus maxClockSkew. The collector reads the window of every node, and refuses to run otherwise."""
    image: Image | None = None
    """The image of the collector. For a `type` of your own (vendor/name) it contains that type. Default: the
    operator's."""


class CounterSpec(Model):
    """The desired counter."""

    type: CounterType = "sum"
    """The value kept per key. One of sum, product, minmax, moments (count, mean, variance), distinct (approximate),
    audience (distinct, with and/or/not across counters), quantiles, topk, set and register (the last value). Or a
    type of your own, as vendor/name. Fixed when the counter is created."""
    mutator: MutatorSpec = Field(default_factory=MutatorSpec)
    """The life of mutators, which write the shards."""
    gc: Collect = Field(default_factory=Collect)
    """The collector, which folds ended shards into one tally."""
    buckets: Count = Field(64, ge=1, le=4096)
    """The number of partitions that hold the keys. Use more for millions of keys. Fewer partitions make larger
    batches. Fixed when the counter is created."""
    max_clock_skew: Annotated[Duration, between("5ms", "30s")] = Duration("500ms")
    """The maximum difference between the clocks of any two processes. A process whose clock is out of this bound
    stops and reports it."""
    token_window: Annotated[Duration, between("1m", "24h")] = Duration("15m")
    """How long an idempotency key is remembered: an update that is repeated within it, to any process, counts once.
    Fixed when the counter is created, since it decides when a minute of such updates is folded."""
    windows: tuple[Annotated[Duration, between("1s", "366d")], ...] | None = Field(
        None, max_length=8, json_schema_extra={"x-kubernetes-list-type": "set"}
    )
    """The grains of a time series of the same counter, such as [1m, 1h, 1d]. Default: only the total is kept. Fixed
    when the counter is created."""
    storage: Storage = Field(default_factory=Storage)
    """The location of the tables in Cassandra. Fixed, except for connectionSecret."""
    retention: Annotated[Duration, between("1m", "3650d")] = Duration("14d")
    """How long a window is kept after its end. At least the longest window. Totals do not expire."""
    deletion_policy: Literal["Retain", "Delete"] = "Retain"
    """Retain: the tables stay when the resource is deleted, and a recreated Counter can adopt them. Delete: the
    tables are dropped."""
    paused: Flag = False
    """true: the operator does not change the counter or its children. Existing children keep running."""


class CounterResource(Model):
    """A counter whose updates need no order, kept in shards on Cassandra."""

    api_version: Literal["headgate.io/v1beta1"] = "headgate.io/v1beta1"
    kind: Literal["Counter"] = "Counter"
    metadata: Metadata
    spec: CounterSpec
    """The desired state of the counter."""
    status: CounterStatus | None = None
    """The observed state. Only the operator writes it."""
