"""The place of a message: its part, its day in the index, its time to live, and its encoding.

A place is (generation, part, sub, shard, due, index): row and index in the row. The id of a message is its first
place, for its whole life, at any later place (rule R7). Pure.
"""

from __future__ import annotations

import base64
import binascii
import struct
from dataclasses import dataclass
from functools import lru_cache
from uuid import UUID

from headgate.errors import InvalidRequest
from headgate.store.model.positions import time_us_of

DAY_US = 86_400_000_000
SECOND_US = 1_000_000
TTL_S_MAX = 630_720_000
LATER_SUBS_FROM = 0x8000
"""Subs from this number on are in the table `later`: so a place alone determines the table."""
SUBS_MAX = 0x8000
DAYS = -1
"""Under this day the index lists the days themselves that hold something."""

OUTLIVES_US = 3_600 * SECOND_US
"""Rows about messages live this much longer than the messages: of two cells that expire, the explaining one is
last."""

_PLACE = struct.Struct("<BIHH16sH")
PLACE_BYTES = _PLACE.size
_TIMELINE = 1


@dataclass(frozen=True, slots=True)
class RowPlace:
    """The place of a row."""

    generation: int
    sub: int
    shard: int
    due: UUID

    def part(self, part_us: int) -> int:
        """The part of its due time."""
        return time_us_of(self.due) // part_us

    @property
    def lies_later(self) -> bool:
        """Whether it is in the table of messages due beyond the retention."""
        return self.sub >= LATER_SUBS_FROM


@dataclass(frozen=True, slots=True)
class MessagePlace:
    """The place of a message: a row, and an index in it."""

    row: RowPlace
    index: int

    def to_bytes(self) -> bytes:
        """As it is stored: 27 bytes."""
        row = self.row
        return _PLACE.pack(_TIMELINE, row.generation, row.shard, row.sub, row.due.bytes, self.index)

    @classmethod
    def from_bytes(cls, stored: bytes) -> MessagePlace:
        """The place that these bytes name."""
        try:
            engine, generation, shard, sub, due, index = _PLACE.unpack(stored)
        except struct.error:
            raise InvalidRequest("Not a message id of this queue", length=len(stored)) from None
        if engine != _TIMELINE:
            raise InvalidRequest("Not a message id of a timeline queue", engine=engine)
        return cls(RowPlace(generation, sub, shard, UUID(bytes=due)), index)


def id_text(message_id: bytes) -> str:
    """A message id in its external form."""
    return base64.b32encode(message_id).decode().rstrip("=").lower()


_ALPHABET = "abcdefghijklmnopqrstuvwxyz234567"
_PAIRS = [first + second for first in _ALPHABET for second in _ALPHABET]


def _last_characters(bits: int) -> str:
    """Forty bits are eight letters, which are four pairs."""
    return _PAIRS[bits >> 30] + _PAIRS[bits >> 20 & 1023] + _PAIRS[bits >> 10 & 1023] + _PAIRS[bits & 1023]


_FORTY_BITS = (1 << 40) - 1


def row_text(row: RowPlace) -> str:
    """The 40 letters with which the ids of a row's messages begin: as `id_text`, many times as fast."""
    return due_text(row.generation, row.shard, row.sub, row.due)


def due_text(generation: int, shard: int, sub: int, due: UUID) -> str:
    """The same, of a row given by its fields."""
    number = due.int
    return (
        _first_text(generation, shard, sub, number >> 120)
        + _last_characters(number >> 80 & _FORTY_BITS)
        + _known_characters(number >> 40 & _FORTY_BITS)
        + _last_characters(number & _FORTY_BITS)
    )


@lru_cache(4096)
def _first_text(generation: int, shard: int, sub: int, due_start: int) -> str:
    """Of all but the last fifteen bytes, which are the same for many rows of a lane."""
    stored = _PLACE.pack(_TIMELINE, generation, shard, sub, (due_start << 120).to_bytes(16, "big"), 0)
    return "".join(_last_characters(int.from_bytes(stored[at : at + 5], "big")) for at in (0, 5))


@lru_cache(4096)
def _known_characters(bits: int) -> str:
    """Of the bytes that all rows of one process share for a while."""
    return _last_characters(bits)


_SUFFIX_INDEXES = 512
_ROW_TEXT = 40
"""A message id is 27 bytes: 25 of its row, which are 40 letters, and 2 of its index, which are the last 4."""


def _suffix(index: int) -> str:
    return id_text(bytes(25) + index.to_bytes(2, "little"))[_ROW_TEXT:]


_SUFFIXES = tuple(_suffix(index) for index in range(_SUFFIX_INDEXES))


def id_suffix(index: int) -> str:
    """The part of a message's id after its row's text."""
    return _SUFFIXES[index] if index < _SUFFIX_INDEXES else _suffix(index)


def id_alone(generation: int, shard: int, sub: int, due: UUID) -> str:
    """The id of the first message of a row, which is the only one of a row of its own."""
    return due_text(generation, shard, sub, due) + _SUFFIXES[0]


def ids_of(row: RowPlace, count: int) -> list[str]:
    """The ids of the messages of a row, in order. All share their beginning, so this costs little."""
    start = row_text(row)
    if count == 1:
        return [start + _SUFFIXES[0]]
    suffixes = _SUFFIXES if count <= _SUFFIX_INDEXES else [_suffix(index) for index in range(count)]
    return [start + suffix for suffix in suffixes[:count]]


def id_bytes(text: str) -> bytes:
    """The bytes of a message id, or one line about its fault."""
    try:
        decoded = base64.b32decode(text.upper() + "=" * (-len(text) % 8))
    except (binascii.Error, ValueError):
        decoded = b""
    if len(decoded) != _PLACE.size:
        raise InvalidRequest("Not a message id", remedy="pass the id as put returned it", id=text[:80])
    return decoded


def part_of(due_us: int, part_us: int) -> int:
    """The part of a time."""
    return due_us // part_us


def day_of(part: int, part_us: int) -> int:
    """The day under which the index keeps a part."""
    return part * part_us // DAY_US


def parts_of_day(day: int, part_us: int) -> range:
    """The parts that begin on a day."""
    return range(-(-day * DAY_US // part_us), -(-(day + 1) * DAY_US // part_us))


def ttl_s_of(due_us: int, *, now_us: int, retention_us: int, last_expiry_s: int) -> int:
    """How long a row has to be kept: until it is due, and then for the queue's retention.

    A row that the store cannot keep that long is rejected with the reason: it would vanish before its time.
    """
    ttl_s = -(-(max(due_us - now_us, 0) + retention_us) // SECOND_US)
    if ttl_s > TTL_S_MAX:
        raise InvalidRequest(
            "The due time is later than Cassandra can store",
            remedy="delay and retention together are at most 20 years",
            years=round(ttl_s / 31_536_000, 1),
        )
    if now_us // SECOND_US + ttl_s > last_expiry_s:
        raise InvalidRequest(
            "The due time is later than this Cassandra can store",
            remedy="set its storage_compatibility_mode to NONE or UPGRADING for times beyond 2038",
            last_expiry_s=last_expiry_s,
        )
    return ttl_s


def ttl_s_kept(due_us: int, *, now_us: int, retention_us: int, last_expiry_s: int) -> int:
    """How long a row is kept that was accepted: as `ttl_s_of`, cut where a second of rounding leads past the end."""
    ttl_s = -(-(max(due_us - now_us, 0) + retention_us) // SECOND_US)
    return max(1, min(ttl_s, TTL_S_MAX, last_expiry_s - now_us // SECOND_US))
