"""The settings of the simulated Cassandra: the defaults of 5.0's cassandra.yaml, as far as they matter to it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Settings:
    """Seconds, all of them."""

    write_timeout_s: float = 2.0
    read_timeout_s: float = 5.0
    range_timeout_s: float = 10.0
    cas_contention_timeout_s: float = 1.8
    cas_backoff_s_max: float = 0.1
    speculative_retry_s: float | None = 0.05
    """When a read queries one more replica; the real default is each table's 99th percentile."""
    detection_s: float = 8.0
    """How long a node has to be unreachable before another one considers it dead."""
    hints_every_s: float = 10.0
    max_hint_window_s: float = 3 * 3600.0
    batchlog_every_s: float = 10.0
