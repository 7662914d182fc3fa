"""`Counter`: a value kept in shards that are merged when it is read."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from headgate.api.durations import Duration
from headgate.api.metadata import Metadata
from headgate.api.model import Count, Flag, Model
from headgate.api.names import CounterType, Image
from headgate.api.shapes import CRON, between
from headgate.api.status import CounterStatus
from headgate.api.storage import Storage


class Mutator(Model):
    """The life of a mutator: the process-local writer of one shard."""

    lifetime: Annotated[Duration, between("10s", "30d")] = Field(
        Duration("24h"),
        description="How long a mutator writes to its shard before it dies and another is born. Longer lives make "
        "fewer shards to read; shorter ones are collected sooner.",
    )
    refuse_within: Annotated[Duration, between("1s", "7d")] = Field(
        Duration("1h"),
        description="How long before its end a mutator refuses updates, so that none is in flight when it ends. Less "
        "than lifetime, and at least 4 maxClockSkew.",
    )


class Collect(Model):
    """When ended shards are folded into the tally."""

    schedule: Annotated[str, CRON] = Field(
        "0 * * * *",
        description="When the collector passes over all keys, as cron in UTC. All counters of a namespace with the "
        "same schedule and connection share one CronJob.",
    )
    after: Annotated[Duration, between("1m", "30d")] = Field(
        Duration("24h"),
        description="How long after its end a shard is taken for final. It must be longer than Cassandra's hint "
        "window (3h unless set there) plus maxClockSkew: the collector reads the window of every node and refuses "
        "to run otherwise.",
    )
    image: Image | None = Field(
        None,
        description="The image of the collector: one that carries your own type, where `type` is vendor/name. Unset: "
        "the operator's.",
    )


class CounterSpec(Model):
    """What the counter should be."""

    type: CounterType = Field(
        "sum",
        description="What is kept of each key: sum, product, minmax, moments (count, mean, variance), distinct "
        "(approximate number of different values), audience (distinct, with and/or/not across counters), quantiles, "
        "topk, set, register (the last value), or a type of your own as vendor/name. Fixed when the counter is made.",
    )
    mutator: Mutator = Field(default_factory=Mutator, description="The life of the writers of shards.")
    gc: Collect = Field(
        default_factory=Collect, description="The collector, which folds ended shards into one tally."
    )
    buckets: Count = Field(
        64,
        ge=1,
        le=4096,
        description="Over how many partitions the keys are spread. More for counters with millions of keys; fewer "
        "make larger batches. Fixed when the counter is made.",
    )
    max_clock_skew: Annotated[Duration, between("5ms", "30s")] = Field(
        Duration("500ms"),
        description="The most by which the clocks of any two processes may differ. A process that finds itself out "
        "of this bound stops and says so.",
    )
    token_window: Annotated[Duration, between("1m", "24h")] = Field(
        Duration("15m"),
        description="For how long an update with an idempotency token, sent again to any process, still counts once. "
        "Fixed when the counter is made: it says when a minute of such updates is folded.",
    )
    windows: tuple[Annotated[Duration, between("1s", "366d")], ...] | None = Field(
        None,
        max_length=8,
        description="The grains of a time series of the same counter, such as [1m, 1h, 1d]. Unset: only the total is "
        "kept. Fixed when the counter is made.",
        json_schema_extra={"x-kubernetes-list-type": "set"},
    )
    storage: Storage = Field(
        default_factory=Storage, description="Where in Cassandra the tables lie. Fixed, but for connectionSecret."
    )
    retention: Annotated[Duration, between("1m", "3650d")] = Field(
        Duration("14d"),
        description="How long a window is kept after its end. At least the longest window. Totals do not expire.",
    )
    deletion_policy: Literal["Retain", "Delete"] = Field(
        "Retain",
        description="What becomes of the values when the resource is deleted. Retain: the tables stay, and a Counter "
        "made again can adopt them. Delete: they are dropped.",
    )
    paused: Flag = Field(
        False,
        description="true: the operator keeps its hands off; what it made goes on as it is.",
    )


class Counter(Model):
    """A counter whose updates need no order, kept in shards on Cassandra."""

    api_version: Literal["headgate.io/v1beta1"] = "headgate.io/v1beta1"
    kind: Literal["Counter"] = "Counter"
    metadata: Metadata
    spec: CounterSpec = Field(description="What the counter should be.")
    status: CounterStatus | None = Field(None, description="What the operator has found; written by it alone.")
