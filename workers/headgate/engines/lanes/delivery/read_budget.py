"""How many bytes of messages the lanes of one process hold together.

Each lane reads ahead up to a bound of its own. A process holds many lanes, so there is one bound over all of them:
its memory depends neither on their number nor on how large messages are. A lane that has nothing left to hand out may
exceed the bound by one row, so that no lane waits for another.

It counts; it knows neither lanes nor rows, and reads nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

HELD_BYTES_MAX = 64 * 1024 * 1024


class ReadBudget:
    """The bytes in the books of all lanes of a process."""

    def __init__(self, bytes_max: int = HELD_BYTES_MAX) -> None:
        self.bytes_max = bytes_max
        self.held_bytes = 0

    @property
    def bytes_left(self) -> int:
        """How many bytes more may be read; less than 0 where lanes have exceeded the bound."""
        return self.bytes_max - self.held_bytes

    def hold(self, size_bytes: int) -> None:
        """This much more is in the books of a lane; less than 0 for what a lane has dropped."""
        self.held_bytes += size_bytes

    @contextmanager
    def reserve(self, expected_bytes: int) -> Iterator[None]:
        """Count the expected size of a read while it is under way: of many lanes that start at once, each includes
        the expected sizes of the others."""
        self.held_bytes += expected_bytes
        try:
            yield
        finally:
            self.held_bytes -= expected_bytes
