"""The type of a row: a named tuple for each list of columns, made once. Pure."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Iterable, Sequence
from functools import lru_cache, partial
from typing import Any

Row = Any
"""A row is a named tuple with a field for each requested column, in that order."""


@lru_cache(4096)
def row_type(names: tuple[str, ...]) -> type[Any]:
    """The named tuple of these columns."""
    return namedtuple("Row", names)


def rows_of(names: tuple[str, ...], values: Iterable[Sequence[Any]]) -> list[Any]:
    """Rows of these columns."""
    return list(map(partial(tuple.__new__, row_type(names)), values))
