"""`Queue`: the declared spec, and the status that the operator reports."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from headgate.api.resources.bulk import Bulk
from headgate.api.resources.consumer import Consumer
from headgate.api.resources.engine import Bucket, Extent, Timeline
from headgate.api.resources.model import Count, Flag, Metadata, Model, Storage
from headgate.api.resources.status import QueueStatus
from headgate.api.values.cron import CRON
from headgate.api.values.names import QueueName
from headgate.api.values.shapes import between, sized
from headgate.api.values.units import Duration, Size

SHARDS_MAX = 1024


class Repair(Model):
    """The repair job."""

    schedule: Annotated[str, CRON] = "*/5 * * * *"
    """The schedule of the repair job, as cron in UTC. All resources of a namespace with the same schedule and
    connection share one CronJob."""


class QueueSpec(Model):
    """The desired queue."""

    engine: Literal["timeline", "bucket", "extent"] = "timeline"
    """How messages are kept. `timeline`: ordered by due time, with delays of any length, cancel and groups. `bucket`:
    by growing ids, with pop receipts. `extent`: an append-only log with consumer groups. Fixed when the queue is
    created."""
    shards: Count = Field(4, ge=1, le=SHARDS_MAX)
    """The number of parts of the queue, and so the maximum number of workers that can drain it at once. `kubectl
    scale queue/NAME --replicas=N` sets it. `timeline`: the number of lanes, where a change starts a new generation
    while the old one drains. `bucket`: the number of id counters. `extent`: the minimum number of open extents."""
    retention: Annotated[Duration, between("1m", "3650d")] = Duration("14d")
    """How long an unsettled message is kept, counted from its due time. Engine extent keeps and drops whole extents,
    by `extent.retain`."""
    visibility_timeout: Annotated[Duration, between("1s", "7d")] = Duration("30s")
    """How long a received message stays hidden before it is delivered again. Set it above the time a handler needs.
    Workers extend it while a handler lives."""
    delay: Annotated[Duration, between("0s", "3650d")] = Duration("0s")
    """How long a message waits before its first delivery, unless its put sets a delay."""
    max_receives: Count = Field(5, ge=1, le=1000)
    """How often a message is delivered before it goes to the dead-letter queue. A delivery that kills its worker
    counts. Without a dead-letter queue it is delivered until its retention ends."""
    max_message_size: Annotated[Size, sized("1Ki", "8Mi")] = Size("1Mi")
    """The maximum size of a message, body and attributes together. A put of a larger one is refused."""
    once_window: Annotated[Duration, between("1m", "30d")] = Duration("24h")
    """How long a key of put(once=...) is remembered. Within this time the same key makes one message. A Spark query
    that was stopped for longer than this cannot be resumed."""
    max_clock_skew: Annotated[Duration, between("5ms", "30s")] = Duration("500ms")
    """The maximum difference between the clocks of any two processes. A process whose clock is out of this bound
    stops and reports it. Lower it where clocks are well kept, since safetyLag and takeovers grow with it."""
    dead_letter: QueueName | None = None
    """The queue for messages that failed maxReceives times: another Queue of this namespace. Default: they stay, and
    are delivered again."""
    timeline: Timeline | None = None
    """Settings of engine timeline. Refused with another engine."""
    bucket: Bucket | None = None
    """Settings of engine bucket. Refused with another engine."""
    extent: Extent | None = None
    """Settings of engine extent. Refused with another engine."""
    consumers: tuple[Consumer, ...] | None = Field(
        None,
        max_length=32,
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
    )
    """The workers that drain the queue, one Deployment each. With engine extent each is a consumer group and gets all
    messages. The other engines take at most one. Without any, the gateway or the SDK drains the queue."""
    repair: Repair = Field(default_factory=Repair)
    """The job that finds late writes."""
    bulk: tuple[Bulk, ...] | None = Field(
        None,
        max_length=32,
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
    )
    """The bulk jobs, run by Spark."""
    storage: Storage = Field(default_factory=Storage)
    """The location of the tables in Cassandra. Fixed, except for connectionSecret."""
    deletion_policy: Literal["Retain", "Delete"] = "Retain"
    """Retain: the tables stay when the resource is deleted, and a recreated Queue can adopt them. Delete: the tables
    are dropped."""
    paused: Flag = False
    """true: the operator does not change the queue or its children. Existing workers keep running."""


class QueueResource(Model):
    """A durable queue on Cassandra."""

    api_version: Literal["headgate.io/v1beta1"] = "headgate.io/v1beta1"
    kind: Literal["Queue"] = "Queue"
    metadata: Metadata
    spec: QueueSpec
    """The desired state of the queue."""
    status: QueueStatus | None = None
    """The observed state. Only the operator writes it."""
