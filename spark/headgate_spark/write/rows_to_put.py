"""From Arrow batches to puts or updates, a piece of bounded size at a time. Pure.

A value that cannot be put is reported with its column, in one line; nothing of its piece is written.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from headgate.client.model.outgoing import Put
from headgate.errors import InvalidRequest
from headgate_spark.write.token_keys import RowKey, RowKeys


class RowUnfit(InvalidRequest):
    """A row cannot be written."""


@dataclass(frozen=True, slots=True)
class CounterUpdateRow:
    """One update of a counter."""

    key: str
    verb: str
    arguments: Sequence[Any]
    name: RowKey | None


def pieces(batches: Iterable[pa.RecordBatch], size: int) -> Iterator[list[dict[str, Any]]]:
    """Rows as mappings of column to value, this many at a time."""
    piece: list[dict[str, Any]] = []
    for batch in batches:
        for row in batch.to_pylist():
            piece.append(row)
            if len(piece) >= size:
                yield piece
                piece = []
    if piece:
        yield piece


class Keys:
    """Names rows: by a column of the user's, or by their values; or not at all."""

    def __init__(self, row_keys: RowKeys | None, key_column: str | None) -> None:
        self._row_keys = row_keys
        self._key_column = key_column

    def key_of(self, row: Mapping[str, Any]) -> RowKey | None:
        """None where rows are written without keys."""
        if self._row_keys is None:
            return None
        if self._key_column is None:
            return self._row_keys.key_of(tuple(row.values()))
        key = row[self._key_column]
        if not key:
            raise RowUnfit("The key column is empty in a row", column=self._key_column)
        return RowKey(key, None)


def put_of(row: Mapping[str, Any], key: RowKey | None) -> Put:
    """The message that a row means."""
    payload = row["payload"]
    if payload is None:
        raise RowUnfit("A message needs a payload; this row's is null", column="payload")
    return Put(
        payload,
        delay=row.get("delay"),
        deliver_at=row.get("due"),
        group=row.get("group"),
        once=None if key is None else key.text,
        once_scope=None if key is None else key.scope,
        attributes=attributes_of(row),
    )


def attributes_of(row: Mapping[str, Any]) -> dict[str, str | bytes]:
    """Of both columns that may hold some."""
    return {**dict(row.get("attributes") or ()), **dict(row.get("binary_attributes") or ())}


def update_of(row: Mapping[str, Any], key: RowKey | None) -> CounterUpdateRow:
    """The update of a counter that a row means."""
    if not row["key"]:
        raise RowUnfit("An update needs a key; this row's is empty", column="key")
    return CounterUpdateRow(row["key"], row.get("verb") or "add", _arguments(row.get("arguments")), key)


def _arguments(given: str | None) -> Sequence[Any]:
    arguments: Any = None
    with suppress(ValueError):
        arguments = [] if given is None else json.loads(given)
    if arguments is None:
        raise RowUnfit("Arguments must be JSON: a list, or one value", column="arguments", given=str(given)[:60])
    return arguments if isinstance(arguments, list) else [arguments]
