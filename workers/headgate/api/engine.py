"""The three engines' own settings: one block each, of which a queue may set that of its engine.

No block is filled in where it is absent (a bucket queue should not show timeline settings), so a rule that reads one
takes the default given here when the field, or the whole block, is not there.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from headgate.api.durations import Duration
from headgate.api.model import Count, Flag, Model
from headgate.api.quantities import Size
from headgate.api.shapes import between, sized


class Lease(Model):
    """How long a lane is owned without word from its owner, and how often the owner gives word."""

    ttl: Annotated[Duration, between("2s", "10m")] = Field(
        Duration("10s"),
        description="How long a lane stays owned after its owner's last sign of life: so long its messages wait when "
        "the owner dies. At least 1s + 2 maxClockSkew + 2 touch. Lower it for faster takeover; raise it where pauses "
        "(garbage collection, a busy node) make owners lose lanes that they still serve.",
    )
    touch: Annotated[Duration, between("100ms", "1m")] = Field(
        Duration("2s"),
        description="How often an owner renews its lease and moves its position: one lightweight transaction a lane.",
    )


class Timeline(Model):
    """Settings of the engine timeline: messages ordered by the moment they are due, in parts of equal length."""

    part: Annotated[Duration, between("1s", "1h")] = Field(
        Duration("1m"),
        description="The length of time that shares a partition of a shard. Shorten it above some 10,000 messages a "
        "second and shard, so that partitions stay small; lengthen it for queues with a few messages an hour. "
        "Fixed when the queue is made.",
    )
    safety_lag: Annotated[Duration, between("10ms", "5m")] = Field(
        Duration("1s"),
        description="How far in the future a message that is due at once is placed, so that its write is "
        "acknowledged before any reader passes its moment. It is the floor of the time from put to delivery: 1s "
        "unless set, at least 2 maxClockSkew. Lower it (with maxClockSkew) for faster delivery where clocks and "
        "write latency are good; raise it where writes often take longer, since each that comes too late is stamped "
        "and sent again.",
    )
    shard_by: Literal["flush", "second"] = Field(
        "flush",
        description="How messages without a group are spread over the shards. flush: each write batch goes to the "
        "next shard in turn, so that no second is a hot spot. second: by the second that they are due, which keeps "
        "all of a second together. Fixed when the queue is made.",
    )
    late_write_timeout: Annotated[Duration, between("1s", "1d")] = Field(
        Duration("1m"),
        description="How long after a part has closed repair looks at it for the first time, for writes that landed "
        "late; it looks again after 15m, after 4h and once hints and batch logs have ended. At least 1s + "
        "2 maxClockSkew.",
    )
    lease: Lease = Field(default_factory=Lease, description="The ownership of lanes by consumers.")


class Bucket(Model):
    """Settings of the engine bucket: ids that grow by one, in buckets of equal size, with pop receipts."""

    size: Count = Field(
        1000,
        ge=1,
        le=100_000,
        description="Ids to a bucket, which is a partition. Smaller buckets are closed and dropped sooner; larger "
        "ones mean fewer partitions. Fixed when the queue is made.",
    )
    order: Literal["random", "fifo"] = Field(
        "random",
        description="random: receivers take any message of the current bucket, so that they seldom meet on the same. "
        "fifo: strictly by id; needs `shards: 1`, and receivers wait for each other.",
    )
    late_write_timeout: Annotated[Duration, between("1s", "1d")] = Field(
        Duration("1m"),
        description="How long an id that was claimed may stay unwritten before repair gives it up: a put that is "
        "acknowledged later than this less 2 maxClockSkew is claimed anew. At least 1s + 2 maxClockSkew.",
    )
    keep_finalized: Annotated[Duration, between("0s", "30d")] = Field(
        Duration("1h"),
        description="How long a bucket whose messages are all settled is kept before its partition is dropped. "
        "Repair can return to it for that long.",
    )


class Rotate(Model):
    """When an extent is sealed and another takes its place."""

    size: Annotated[Size, sized("1Mi", "16Gi")] = Field(
        Size("256Mi"), description="Seal an extent once it holds this much. Smaller ones are freed sooner."
    )
    age: Annotated[Duration, between("1m", "7d")] = Field(
        Duration("1h"), description="Seal an extent that has been open this long, however little it holds."
    )


class Retain(Model):
    """How long sealed extents are kept."""

    consumed: Annotated[Duration, between("0s", "3650d")] = Field(
        Duration("1h"),
        description="How long an extent is kept once every consumer group has settled all of it: so far back a group "
        "can be moved.",
    )
    unconsumed: Annotated[Duration, between("1m", "3650d")] = Field(
        Duration("14d"),
        description="How long an extent is kept that some group has not settled. What is older is lost to that "
        "group, and said to be.",
    )


class Dedup(Model):
    """Deduplication of puts in a queue with `fifo: true`."""

    window: Annotated[Duration, between("1s", "1d")] = Field(
        Duration("5m"), description="Within this time a second put with the same deduplication id makes no message."
    )
    content_based: Flag = Field(
        False, description="Where a put names no deduplication id, use a hash of its body. Needs `fifo: true`."
    )


class Extent(Model):
    """Settings of the engine extent: an append-only log with consumer groups."""

    mode: Literal["AP", "CP"] = Field(
        "AP",
        description="What a network partition costs. AP: every side goes on, and some messages may be delivered "
        "twice. CP: exactly one extent is open and order is kept; the side without a majority stops.",
    )
    fifo: Flag = Field(
        False,
        description="Message groups (in order within a group, groups in parallel) and deduplication ids. Needs "
        "`mode: CP`.",
    )
    writes_per_extent: Count = Field(
        2000,
        ge=1,
        le=1_000_000,
        description="Messages a second that one extent should take; above it another is opened, up to maxExtents.",
    )
    max_extents: Count = Field(16, ge=1, le=1024, description="The most extents open at once. At least `shards`.")
    rotate: Rotate = Field(default_factory=Rotate, description="When an extent is sealed and replaced.")
    retain: Retain = Field(default_factory=Retain, description="How long sealed extents are kept.")
    dedup: Dedup = Field(default_factory=Dedup, description="Deduplication of puts; works with `fifo: true`.")
