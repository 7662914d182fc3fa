"""Positions: the ids of due messages, and their order. A position is a time uuid: its time is the due time, and its
low eight bytes distinguish messages that are due at the same time.

A position in the store and one in memory have to compare alike, or a reader skips rows: Cassandra compares the low
eight bytes as signed, Python as unsigned. So there is one order, `position_order`, checked against the store in
tests/contract; and every byte that this module creates is below 0x80, where both agree.

It knows no messages and no clock: times come as microseconds since 1970.

Invariants: a process creates no position twice, from any thread and for any number due at one time. Two processes, a
parent and its forked child included, create the same one only by chance: of pairs that each create a million for the
same time, one in 2^35 would (`store/process_positions.py`). It does not survive a copy of a running virtual machine,
whose halves continue with one counter.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from uuid import UUID, SafeUUID

from headgate.errors import Bug
from headgate.store.model.types import time_of, time_order

TICKS_IN_US = 10
EPOCH_TICKS = 0x01B21DD213814000
"""From 1582, where version 1 uuids begin, to 1970, in their steps of 100 ns."""

LOW_BITS = 56
"""Seven in each of eight bytes."""

_TIME_BITS = 60
_VERSION_1 = 1 << 76
_LOWEST = 0x8080808080808080
_HIGHEST = 0x7F7F7F7F7F7F7F7F

position_order: Callable[[UUID], int] = time_order
"""The one order of positions: a key for `max`, `sorted` and `<`. Never compare them otherwise."""


class PositionBroken(Bug):
    """A time that no position can represent."""


_blank = object.__new__
_set = object.__setattr__
_UNKNOWN = SafeUUID.unknown
"""A uuid is created for each delayed message, and the class's own constructor takes twice as long."""


def _uuid_of(number: int) -> UUID:
    made = _blank(UUID)
    _set(made, "int", number)
    _set(made, "is_safe", _UNKNOWN)
    return made


def _uuid_at(ticks: int, low: int) -> UUID:
    return _uuid_of(_high_of(ticks) | low)


def _high_of(ticks: int) -> int:
    """The high half of a time uuid, in its place."""
    if not 0 <= ticks < 1 << _TIME_BITS:
        raise PositionBroken("The time is out of the range of a time uuid", ticks=ticks)
    time_low, time_mid, time_high = ticks & 0xFFFFFFFF, ticks >> 32 & 0xFFFF, ticks >> 48
    return time_low << 96 | time_mid << 80 | time_high << 64 | _VERSION_1


def _ticks_of(time_us: int) -> int:
    return time_us * TICKS_IN_US + EPOCH_TICKS


def time_us_of(position: UUID) -> int:
    return (time_of(position) - EPOCH_TICKS) // TICKS_IN_US


def first_at(time_us: int) -> UUID:
    """Below or equal to every position of that microsecond, from any process: the start of a slice from it."""
    return _uuid_at(_ticks_of(time_us), _LOWEST)


def last_at(time_us: int) -> UUID:
    """Above or equal to every position of that microsecond: where a slice up to it ends."""
    return _uuid_at(_ticks_of(time_us) + TICKS_IN_US - 1, _HIGHEST)


def position_at(order: int) -> UUID:
    """The position that has this order: the way back from `position_order`."""
    return _uuid_at(order >> 64, order & 2**64 - 1 ^ _LOWEST)


def is_after(one: UUID, other: UUID) -> bool:
    return position_order(one) > position_order(other)


class Positions:
    """Creates positions for one process: a random number of LOW_BITS bits first, then counted up."""

    def __init__(self, random_start: Callable[[], int]) -> None:
        self._random_start = random_start
        self._numbers = count()
        self._high = (-1, 0)
        self._low = (-1, 0)
        self.restart()

    def restart(self) -> None:
        self._numbers = count(self._random_start())

    def at(self, time_us: int) -> UUID:
        """A unique position for that time. Many are often created for one time, and their numbers follow each other,
        so the constant part is kept."""
        known_us, high = self._high
        if known_us != time_us:
            high = _high_of(_ticks_of(time_us))
            self._high = time_us, high
        number = next(self._numbers)
        known, low = self._low
        if known != number >> 7:
            low = _spread(number & ~0x7F)
            self._low = number >> 7, low
        return _uuid_of(high | low | number & 0x7F)


def _spread(number: int) -> int:
    """Seven bits in each byte, in the same order, so that signed and unsigned comparison agree."""
    halves = (number & 0x0FFFFFFF) | (number & 0xFFFFFFF0000000) << 4
    quarters = (halves & 0x00003FFF00003FFF) | (halves & 0x0FFFC0000FFFC000) << 2
    return (quarters & 0x007F007F007F007F) | (quarters & 0x3F803F803F803F80) << 1
