"""The column types that Headgate uses, and their order.

Cassandra orders and compares values by their type, not as Python does. The low half of a time uuid compares as signed
bytes, text by its UTF-8, and the raw bytes of the value decide a tie of timestamps. All code that compares column
values uses this module, so that a position read from the store and one held in memory agree.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Callable
from enum import Enum
from operator import attrgetter
from typing import Any

Value = bool | int | float | str | bytes | uuid.UUID | None


def time_of(value: uuid.UUID) -> int:
    """The 60-bit time of a version 1 uuid: steps of 100 ns since 1582."""
    number = value.int
    return (number >> 64 & 0x0FFF) << 48 | (number >> 80 & 0xFFFF) << 32 | number >> 96


_LOW_HALF = 2**64 - 1
_SIGNS = 0x8080808080808080


def time_order(value: uuid.UUID) -> int:
    """How Cassandra orders time uuids: by time, then by the low eight bytes, each as a signed byte.

    One number: turning the sign bit of each byte puts signed bytes in the order of unsigned ones.
    """
    return time_of(value) << 64 | (value.int & _LOW_HALF) ^ _SIGNS


def _uuid_order(value: uuid.UUID) -> tuple[int, Any]:
    """The order of Cassandra's uuid type: by version, then by the time of time uuids, then by bytes, unsigned in this
    case."""
    version = value.int >> 76 & 0xF
    return version, (value.time, value.bytes[8:]) if version == 1 else value.bytes


def _itself(value: Any) -> Any:
    return value


def _number_in(form: str) -> Callable[[bytes], Any]:
    unpack = struct.Struct(form).unpack
    return lambda stored: unpack(stored)[0]


def _uuid_in(stored: bytes) -> uuid.UUID:
    return uuid.UUID(bytes=stored)


class Type(Enum):
    """A column's type. Collections are left out on purpose: they are many cells, and some need a read to write."""

    BOOLEAN = "boolean", bool, lambda value: b"\x01" if value else b"\x00", lambda stored: stored != b"\x00", _itself
    INT = "int", int, struct.Struct(">i").pack, _number_in(">i"), _itself
    BIGINT = "bigint", int, struct.Struct(">q").pack, _number_in(">q"), _itself
    DOUBLE = "double", float, struct.Struct(">d").pack, _number_in(">d"), _itself
    TEXT = "text", str, str.encode, bytes.decode, str.encode
    BLOB = "blob", bytes, bytes, bytes, _itself
    UUID = "uuid", uuid.UUID, attrgetter("bytes"), _uuid_in, _uuid_order
    TIMEUUID = "timeuuid", uuid.UUID, attrgetter("bytes"), _uuid_in, time_order

    def __init__(
        self,
        cql: str,
        python: type,
        encode: Callable[[Any], bytes],
        decode: Callable[[bytes], Any],
        order: Callable[[Any], Any],
    ) -> None:
        """`encode` gives the bytes as Cassandra stores them, which decide a tie of timestamps; `order` gives a key
        that sorts as Cassandra sorts such a clustering column."""
        self.cql = cql
        self.python = python
        self.encode = encode
        self.decode = decode
        self.order = order

    def accepts(self, value: object) -> bool:
        """Whether a column can hold this value; null is allowed where the column is not part of the key."""
        if isinstance(value, bool):
            return self is Type.BOOLEAN
        return isinstance(value, self.python)
