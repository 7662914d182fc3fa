"""The settings of a timeline queue, as the engine needs them: from the catalogue's spec, in its units."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from uuid import UUID

from headgate.engines.lanes.ownership.decide_lease import LeaseTerms
from headgate.engines.timeline.model.decide_repair import CheckTerms
from headgate.engines.timeline.model.tables import TimelineTables

DEFAULT_LEASE = LeaseTerms(ttl_s=10, touch_us=2_000_000, skew_us=500_000)


class ShardBy(Enum):
    """How a flush without a group finds its shard."""

    FLUSH = "flush"
    SECOND = "second"


@dataclass(frozen=True)
class GenerationSettings:
    """One generation of shards, and when it is written (rule R6; docs/internals/protocols/generations.md)."""

    number: int
    shards: int
    from_us: int = 0
    """Due times from this one on belong to it."""
    until_us: int | None = None
    """And up to this one, once a next one is announced."""
    sure_us: int | None = None
    """From this time on nobody writes to it any more; None while that is not sure."""


@dataclass(frozen=True)
class TimelineSettings:
    """One queue."""

    queue: UUID
    name: str
    tables: TimelineTables
    generations: tuple[GenerationSettings, ...]
    part_us: int = 60_000_000
    safety_lag_us: int = 1_000_000
    skew_us: int = 500_000
    retention_us: int = 14 * 86_400_000_000
    visibility_us: int = 30_000_000
    delay_us: int = 0
    max_receives: int = 5
    message_bytes_max: int = 1024 * 1024
    once_window_us: int = 86_400_000_000
    late_write_us: int = 60_000_000
    hint_window_us: int = 3 * 3_600_000_000
    """How long the server keeps hints for a node that is down (max_hint_window)."""
    shard_by: ShardBy = ShardBy.FLUSH
    lease: LeaseTerms = DEFAULT_LEASE
    dead_letter: str | None = None
    receipt_key: bytes = b""

    @property
    def free_visibility_us(self) -> int:
        """The owner of a lane remembers a delivery for as long as its lease is trusted; beyond that it records it."""
        return self.lease.promise(0).silent_after_us

    @property
    def check_terms(self) -> CheckTerms:
        """The times of repair's scans of parts."""
        tables = (self.tables.work, self.tables.later, self.tables.parts)
        return CheckTerms.of(
            part_us=self.part_us,
            skew_us=self.skew_us,
            late_write_us=self.late_write_us,
            hint_window_us=self.hint_window_us,
            gc_grace_us=max(table.gc_grace_s for table in tables) * 1_000_000,
        )
