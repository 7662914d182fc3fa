"""The settings of a queue in memory."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from headgate.api.read.versions import resource_of
from headgate.api.resources.queues import QueueResource
from headgate.errors import Bug
from headgate.store.catalogue.entry import Entry

SECOND_US = 1_000_000
DAY_US = 86_400 * SECOND_US
MS_US = 1_000
STALE_MIN = 1_000
"""Heaps of messages and timers are cleaned when this many of their entries, and more than half of them, are stale."""


@dataclass(frozen=True)
class MemorySettings:
    """One queue."""

    queue: UUID
    name: str
    visibility_us: int
    delay_us: int
    max_receives: int
    message_bytes_max: int
    retention_us: int
    once_window_us: int
    skew_us: int
    dead_letter: str | None = None
    receipt_key: bytes = b""
    free_visibility_us: int | None = None


def settings_of(entry: Entry, _data_center: str) -> MemorySettings:
    """From the entry of a queue of any engine: what they have in common."""
    resource = resource_of(entry.document)
    if not isinstance(resource, QueueResource):
        raise Bug("The resource is not a queue", resource=entry.name)
    spec = resource.spec
    return MemorySettings(
        entry.id,
        f"{entry.name.namespace}/{entry.name.name}",
        visibility_us=spec.visibility_timeout.ms * MS_US,
        delay_us=spec.delay.ms * MS_US,
        max_receives=spec.max_receives,
        message_bytes_max=spec.max_message_size.bytes,
        retention_us=spec.retention.ms * MS_US,
        once_window_us=spec.once_window.ms * MS_US,
        skew_us=spec.max_clock_skew.ms * MS_US,
        dead_letter=spec.dead_letter,
        receipt_key=entry.receipt_key,
    )
