"""`Queue`: what a person declares, and what the operator reports of it."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from headgate.api.bulk import Bulk
from headgate.api.consumer import Consumer
from headgate.api.durations import Duration
from headgate.api.engine import Bucket, Extent, Timeline
from headgate.api.metadata import Metadata
from headgate.api.model import Count, Flag, Model
from headgate.api.names import QueueName
from headgate.api.quantities import Size
from headgate.api.shapes import CRON, between, sized
from headgate.api.status import QueueStatus
from headgate.api.storage import Storage

SHARDS_MAX = 1024


class Repair(Model):
    """When repair runs."""

    schedule: Annotated[str, CRON] = Field(
        "*/5 * * * *",
        description="When the repair job runs, as cron in UTC. All resources of a namespace with the same schedule "
        "and connection share one CronJob.",
    )


class QueueSpec(Model):
    """What the queue should be."""

    engine: Literal["timeline", "bucket", "extent"] = Field(
        "timeline",
        description="How messages are kept. timeline: by the moment they are due; delays of any length, cancel, "
        "groups. bucket: by growing ids, with pop receipts. extent: an append-only log with consumer groups. "
        "Fixed when the queue is made.",
    )
    shards: Count = Field(
        4,
        ge=1,
        le=SHARDS_MAX,
        description="Into how many parts the queue is divided, so the most workers that can drain it at once. "
        "`kubectl scale queue/NAME --replicas=N` sets it. timeline: lanes (a change makes a new generation, the old "
        "one drains); bucket: counters of ids; extent: the fewest open extents.",
    )
    retention: Annotated[Duration, between("1m", "3650d")] = Field(
        Duration("14d"),
        description="How long a message that nobody settled is kept, counted from the moment it is due. Engine "
        "extent keeps and drops whole extents, by `extent.retain`.",
    )
    visibility_timeout: Annotated[Duration, between("1s", "7d")] = Field(
        Duration("30s"),
        description="How long a message that was received stays hidden before it is delivered again. Set it above "
        "the time a handler needs; workers extend it while a handler lives.",
    )
    delay: Annotated[Duration, between("0s", "3650d")] = Field(
        Duration("0s"), description="How long a message waits before it is first delivered, unless its put says else."
    )
    max_receives: Count = Field(
        5,
        ge=1,
        le=1000,
        description="How often a message is delivered before it goes to the dead letter queue. A worker that dies "
        "by a message counts as a delivery. Without a dead letter queue it is delivered until its retention ends.",
    )
    max_message_size: Annotated[Size, sized("1Ki", "8Mi")] = Field(
        Size("1Mi"),
        description="The largest message, body and attributes together; a greater one is refused when it is put.",
    )
    once_window: Annotated[Duration, between("1m", "30d")] = Field(
        Duration("24h"),
        description="How long a key given to put(once=...) is remembered: within it the same key makes one message. "
        "A Spark query that was stopped for longer than this can not be resumed.",
    )
    max_clock_skew: Annotated[Duration, between("5ms", "30s")] = Field(
        Duration("500ms"),
        description="The most by which the clocks of any two processes may differ. A process that finds itself out "
        "of this bound stops and says so. Lower it where clocks are well kept, since safetyLag and takeovers grow "
        "with it.",
    )
    dead_letter: QueueName | None = Field(
        None,
        description="Where messages go that failed maxReceives times: another Queue of this namespace. Unset: they "
        "stay, and are delivered again.",
    )
    timeline: Timeline | None = Field(None, description="Settings of engine timeline; refused with another engine.")
    bucket: Bucket | None = Field(None, description="Settings of engine bucket; refused with another engine.")
    extent: Extent | None = Field(None, description="Settings of engine extent; refused with another engine.")
    consumers: tuple[Consumer, ...] | None = Field(
        None,
        max_length=32,
        description="What drains the queue: a Deployment each. Engine extent: each is a consumer group and gets all "
        "messages; the other engines: at most one. None: drained through the gateway or the SDK.",
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
    )
    repair: Repair = Field(
        default_factory=Repair, description="The job that finds what was written late or left behind."
    )
    bulk: tuple[Bulk, ...] | None = Field(
        None,
        max_length=32,
        description="Work on many messages at once, by Spark.",
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
    )
    storage: Storage = Field(
        default_factory=Storage, description="Where in Cassandra the tables lie. Fixed, but for connectionSecret."
    )
    deletion_policy: Literal["Retain", "Delete"] = Field(
        "Retain",
        description="What becomes of the messages when the resource is deleted. Retain: the tables stay, and a Queue "
        "made again can adopt them. Delete: they are dropped.",
    )
    paused: Flag = Field(
        False,
        description="true: the operator keeps its hands off; what it made goes on as it is.",
    )

    def engine_settings(self) -> Timeline | Bucket | Extent:
        """The settings in force of the queue's engine, also where its block is absent."""
        if self.engine == "timeline":
            return self.timeline or Timeline()
        return (self.bucket or Bucket()) if self.engine == "bucket" else (self.extent or Extent())


class Queue(Model):
    """A durable queue on Cassandra."""

    api_version: Literal["headgate.io/v1beta1"] = "headgate.io/v1beta1"
    kind: Literal["Queue"] = "Queue"
    metadata: Metadata
    spec: QueueSpec = Field(description="What the queue should be.")
    status: QueueStatus | None = Field(None, description="What the operator has found; written by it alone.")
