"""Crash suspects: messages that were in flight when their consumer's process ended, of which one may have ended it.

They are delivered again in groups that halve with each death, until the guilty one runs alone. Only that is charged.
A message's *level* is the number of deaths that it was part of; it is kept with the message's record, so each owner
continues where the one before it ended. Level 0 is no suspect. Pure.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from enum import Enum
from typing import Protocol
from uuid import UUID

GROUP_MAX = 64
LEVEL_ALONE = GROUP_MAX.bit_length()
"""Here a group is one message: a death is charged to it."""


class ProcessLife(Enum):
    """What this process knows of the one that delivered a message before."""

    ALIVE = "alive"
    ENDED = "ended"
    UNKNOWN = "unknown"


class Peers(Protocol):
    """The processes that share a queue's lanes."""

    @property
    def me(self) -> UUID:
        """This process, in the settle logs that it writes."""
        ...

    def life_of(self, member: UUID, *, since_us: int) -> ProcessLife:
        """Whether a process has run since a given time."""
        ...


class NoPeers:
    """A process that shares its lanes with no other: a previous owner has ended."""

    me = UUID(int=0)

    def life_of(self, member: UUID, *, since_us: int) -> ProcessLife:
        """As far as it can be known."""
        return ProcessLife.ENDED


def group_max(level: int) -> int:
    """How many suspects of a level are in flight together: 64 after one death, and half as many after each other."""
    return max(1, GROUP_MAX >> level - 1)


def level_of_group(size: int) -> int:
    """The lowest level whose groups are not larger than this one could be: few suspects need fewer deaths."""
    return max(1, LEVEL_ALONE - (size - 1).bit_length())


def level_after_death(level: int) -> int:
    """The level of a message that was in flight when its process ended."""
    return min(level + 1, LEVEL_ALONE)


def is_charged(level: int) -> bool:
    """Whether the death of its process counts as a delivery of a message of this level: no other suspect was in
    flight."""
    return level >= LEVEL_ALONE


@dataclass(frozen=True)
class DeliveredGroup:
    """Suspects to be delivered now."""

    level: int
    """Of these."""
    size: int
    delivered_as: int
    """Their level from then on."""


def decide_group(waiting: Counter[int], in_flight: Counter[int]) -> DeliveredGroup | None:
    """The suspects that a process may deliver, by how many of each level wait there and are in flight. Those of one
    level are in flight together, the highest level first, since it is the nearest to its guilty message."""
    running = [level for level, count in in_flight.items() if count]
    level = max(running or waiting, default=0)
    left = group_max(level) - in_flight[level] if level else 0
    if left <= 0 or not waiting[level] or any(each != level for each in running):
        return None
    return DeliveredGroup(level, left, level if running else max(level, level_of_group(waiting[level])))
