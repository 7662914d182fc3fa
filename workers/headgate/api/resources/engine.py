"""The settings of the three engines, one block each; a queue may set the block of its engine.

No block is filled in where it is absent (a bucket queue should not show timeline settings), so a rule that reads one
takes the default given here when the field, or the whole block, is not there.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from headgate.api.resources.model import Count, Flag, Model
from headgate.api.values.shapes import between, sized
from headgate.api.values.units import Duration, Size


class Lease(Model):
    """How long a lane is owned without a renewal, and how often its owner renews it."""

    ttl: Annotated[Duration, between("2s", "10m")] = Duration("10s")
    """How long a lane stays owned after its owner's last renewal, and so how long its messages wait when the owner
    dies. At least 1s + 2 maxClockSkew + 2 touch. Lower it for faster takeover. Raise it where pauses (garbage
    collection, a busy node) make live owners lose lanes."""
    touch: Annotated[Duration, between("100ms", "1m")] = Duration("2s")
    """How often an owner renews its lease and moves its position. Each renewal is one lightweight transaction per
    lane."""


class Timeline(Model):
    """Settings of the engine timeline: messages ordered by their due time, in parts of equal length."""

    part: Annotated[Duration, between("1s", "1h")] = Duration("1m")
    """The length of time that shares a partition of a shard. Shorten it above 10,000 messages per second and shard,
    so that partitions stay small. Lengthen it for queues with a few messages per hour. Fixed when the queue is
    created."""
    safety_lag: Annotated[Duration, between("10ms", "5m")] = Duration("1s")
    """How far in the future a message that is due at once is placed, so that its write is acknowledged before a
    reader passes that position. It is the minimum time from put to delivery. At least 2 maxClockSkew. Lower it (with
    maxClockSkew) for faster delivery where clocks and write latency are good. Raise it where writes often take
    longer, since a late message is restamped and sent again."""
    shard_by: Literal["flush", "second"] = "flush"
    """How messages without a group are spread over the shards. `flush`: each write batch goes to the next shard in
    turn, so that no second is a hot spot. `second`: all messages due in the same second go to one shard. Fixed when
    the queue is created."""
    late_write_timeout: Annotated[Duration, between("1s", "1d")] = Duration("1m")
    """How long after a part has closed repair reads it for the first time, to find late writes. Repair reads it again
    after 15m, after 4h, and after the end of hints and batch logs. At least 1s + 2 maxClockSkew."""
    lease: Lease = Field(default_factory=Lease)
    """The ownership of lanes by consumers."""


class Bucket(Model):
    """Settings of the engine bucket: ids that grow by one, in buckets of equal size, with pop receipts."""

    size: Count = Field(1000, ge=1, le=100_000)
    """The number of ids per bucket, which is a partition. Smaller buckets are closed and dropped sooner. Larger ones
    mean fewer partitions. Fixed when the queue is created."""
    order: Literal["random", "fifo"] = "random"
    """`random`: receivers take any message of the current bucket, so that they seldom collide. `fifo`: receivers take
    messages strictly by id and wait for each other, which needs `shards: 1`."""
    late_write_timeout: Annotated[Duration, between("1s", "1d")] = Duration("1m")
    """How long a claimed id may stay unwritten before repair gives it up. A put that is acknowledged later than this
    less 2 maxClockSkew claims a new id. At least 1s + 2 maxClockSkew."""
    keep_finalized: Annotated[Duration, between("0s", "30d")] = Duration("1h")
    """How long a bucket whose messages are all settled is kept before its partition is dropped."""


class Rotate(Model):
    """The conditions under which an extent is sealed and replaced."""

    size: Annotated[Size, sized("1Mi", "16Gi")] = Size("256Mi")
    """Seal an extent once it holds this much. Smaller ones are freed sooner."""
    age: Annotated[Duration, between("1m", "7d")] = Duration("1h")
    """Seal an extent that has been open this long, even if it holds little."""


class RetentionTimes(Model):
    """How long sealed extents are kept."""

    consumed: Annotated[Duration, between("0s", "3650d")] = Duration("1h")
    """How long an extent is kept once every consumer group has settled all of it. A group can be moved back this
    far."""
    unconsumed: Annotated[Duration, between("1m", "3650d")] = Duration("14d")
    """How long an extent is kept that some group has not settled. Older messages are lost to that group, and the loss
    is reported."""


class Dedup(Model):
    """Deduplication of puts in a queue with `fifo: true`."""

    window: Annotated[Duration, between("1s", "1d")] = Duration("5m")
    """A second put with the same deduplication id within this time adds no message."""
    content_based: Flag = False
    """For a put without a deduplication id, use a hash of its body. Needs `fifo: true`."""


class Extent(Model):
    """Settings of the engine extent: an append-only log with consumer groups."""

    mode: Literal["AP", "CP"] = "AP"
    """AP: under a network partition every side continues, and some messages may be delivered twice. CP: exactly one
    extent is open and order is kept, but a side without a majority stops."""
    fifo: Flag = False
    """Message groups (in order within a group, groups in parallel) and deduplication ids. Needs `mode: CP`."""
    writes_per_extent: Count = Field(2000, ge=1, le=1_000_000)
    """The number of messages per second that one extent should take. Above it another is opened, up to maxExtents."""
    max_extents: Count = Field(16, ge=1, le=1024)
    """The maximum number of open extents. At least `shards`."""
    rotate: Rotate = Field(default_factory=Rotate)
    retain: RetentionTimes = Field(default_factory=RetentionTimes)
    dedup: Dedup = Field(default_factory=Dedup)
    """Deduplication of puts. Needs `fifo: true`."""
