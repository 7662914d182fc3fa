"""Rows of an answer: a named tuple for each list of columns, or their wire form, for callers that read millions and
extract the fields they need. Pure.

In its wire form a row is its columns one after the other, each behind its length in four bytes, big-endian; a length
of -1 is null.
"""

from __future__ import annotations

import struct
from collections import namedtuple
from collections.abc import Iterable, Sequence
from functools import lru_cache, partial
from typing import Any

from headgate.store.model.table import Column
from headgate.store.model.types import Value

Row = Any
"""A row is a named tuple with a field for each requested column, in that order."""

_LENGTH = struct.Struct(">i")
_NULL = _LENGTH.pack(-1)


@lru_cache(4096)
def row_type(names: tuple[str, ...]) -> type[Any]:
    return namedtuple("Row", names)


def rows_of(names: tuple[str, ...], values: Iterable[Sequence[Any]]) -> list[Any]:
    return list(map(partial(tuple.__new__, row_type(names)), values))


class WiredRows:
    __slots__ = ("content", "count")

    def __init__(self, count: int, content: bytes) -> None:
        self.count = count
        self.content = content
        """All rows, one after the other, with nothing between them."""

    def __len__(self) -> int:
        return self.count


def wire_rows(columns: Sequence[Column], rows: Iterable[Sequence[Value]]) -> WiredRows:
    values = [list(zip(columns, row, strict=True)) for row in rows]
    stored = [None if value is None else column.type.encode(value) for row in values for column, value in row]
    parts = (_NULL if each is None else _LENGTH.pack(len(each)) + each for each in stored)
    return WiredRows(len(values), b"".join(parts))


def row_at(content: bytes, place: int, columns: Sequence[Column]) -> tuple[Any, int]:
    """The row that begins at a place, decoded, and the place behind it."""
    values: list[Value] = []
    for column in columns:
        (length,) = _LENGTH.unpack_from(content, place)
        place += _LENGTH.size
        values.append(None if length < 0 else column.type.decode(content[place : place + length]))
        place += max(length, 0)
    return tuple.__new__(row_type(tuple(column.name for column in columns)), values), place
