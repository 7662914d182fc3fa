"""The values that go into and come out of the books of a lane: rows, deliveries, requested copies. Values alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

HOLES_MAX = 10_000
ROWS_A_TURN = 200
"""After this many rows a loop over many yields: a loop that runs for long delays leases, clocks and deliveries of all
lanes."""


@dataclass(frozen=True)
class DeliveryTerms:
    """A queue's settings for deliveries."""

    max_receives: int
    hold_us_max: int
    """A failed message without a group waits in the lane up to this time; for a longer backoff it is copied."""
    remembered_us: int
    """A message hidden longer than this is written down, so that the next owner hides it too."""
    dead_letters: bool = True
    """Whether there is a queue for them."""
    in_flight_max: int = 20_000
    holes_max: int = HOLES_MAX


@dataclass(slots=True, eq=False)
class LaneRow:
    """A row as the engine reads it. `order` sorts as the lane does; `key` names it in records; the rest is the
    engine's own."""

    key: bytes
    order: Any
    count: int
    size_bytes: int
    content: Any = None
    where: Any = None
    groups: Sequence[bytes] | None = None
    attempts: Sequence[int] | None = None
    settled: int = 0
    """Bits of messages that the engine knows need no delivery: cancelled, purged, replaced, expired."""
    moved: Mapping[int, bytes] = field(default_factory=dict)
    """The places that its messages were moved to: a copy is finished there, and nothing is delivered from this
    row."""
    stands_at: Any = None
    """The order of where its messages were first put, where that is another: their turn within a group."""

    def release(self, settled: int) -> int:
        """Drop the content of these messages, which are handed out no more; how many bytes that frees."""
        return 0 if self.content is None else int(self.content.release(settled))


class Why(Enum):
    """Why a message moves to another place."""

    RETRY = "retry"
    DEAD = "dead"
    MOVED = "moved"
    """Its own row names the place."""


@dataclass(slots=True)
class HandOut:
    """A delivered message: the row and index identify it, the attempt its delivery."""

    row: LaneRow
    index: int
    attempt: int
    until_us: int
    suspect: bool = False


@dataclass(frozen=True, slots=True)
class Move:
    """A requested copy: fix its place first, unless it is fixed, then write it, then report that it is written."""

    row: LaneRow
    index: int
    attempt: int
    why: Why
    due_us: int
    reason: str
    place: bytes | None = None

    def at(self, place: bytes) -> Move:
        """The same, with its place."""
        return replace(self, place=place)
