"""A case's demands on its queue, in words that every engine understands."""

from __future__ import annotations

from dataclasses import dataclass

SECOND_US = 1_000_000


@dataclass(frozen=True)
class Terms:
    """A queue. Times are short, so that they can be waited for on a real server too."""

    lanes: int = 3
    """How many may be worked beside each other; one where a case is about the order of all messages."""
    visibility_s: float = 2.0
    delay_s: float = 0.0
    max_receives: int = 3
    dead_letters: bool = False
    message_bytes_max: int = 64 * 1024
    retention_s: int = 3_600
    once_window_s: int = 600
    lease_s: int = 8
    skew_s: float = 0.2

    @property
    def visibility_us(self) -> int:
        """How long a delivery is hidden by default."""
        return round(self.visibility_s * SECOND_US)
