"""The settings of a queue in memory."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

SECOND_US = 1_000_000
DAY_US = 86_400 * SECOND_US


@dataclass(frozen=True)
class MemorySettings:
    """One queue. Default: as the default values of a Queue resource."""

    queue: UUID
    name: str
    visibility_us: int = 30 * SECOND_US
    delay_us: int = 0
    max_receives: int = 5
    message_bytes_max: int = 1024 * 1024
    retention_us: int = 14 * DAY_US
    once_window_us: int = DAY_US
    skew_us: int = SECOND_US // 2
    dead_letter: str | None = None
    receipt_key: bytes = b""
