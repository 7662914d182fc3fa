"""From Arrow batches to puts or updates, a piece of bounded size at a time, and the keys of rows, by which a row
that is written again is known: "Sink" in docs/internals/protocols/spark.md. Pure.

A row is the values of its columns; the order of rows in a partition does not matter. A value that cannot be put is
reported with its column, in one line; nothing of its piece is written.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import pyarrow as pa

from headgate.client.model.outgoing import Put
from headgate.errors import InvalidRequest

SCOPES = 64
"""Keys of one task are claimed in this many places: many of them at once, and no place grows too large."""


class RowUnfit(InvalidRequest):
    """A row cannot be written."""


@dataclass(frozen=True)
class TaskName:
    """Which task of which batch writes."""

    query: str
    batch: int
    partition: int


@dataclass(frozen=True, slots=True)
class RowKey:
    """A once key, and its scope; no scope: by the key itself."""

    text: str
    scope: str | None


class RowKeys:
    """The keys of the rows of one task's partition, each row once: by a column of the user's, or by their values."""

    def __init__(self, task: TaskName, key_column: str | None = None) -> None:
        self._task = task
        self._key_column = key_column
        self._counts: Counter[bytes] = Counter()

    def key_of(self, row: Mapping[str, object]) -> RowKey:
        """The key of the next row; of equal rows the first, the second and so on have keys of their own."""
        if self._key_column is not None:
            key = row[self._key_column]
            if not key:
                raise RowUnfit("The key column is empty in a row", column=self._key_column)
            return RowKey(str(key), None)
        digest = _digest(repr(tuple(row.values())))
        self._counts[digest] += 1
        task = self._task
        scope = f"spark {task.query} {task.batch} {task.partition} {digest[0] % SCOPES}"
        return RowKey(f"{task.batch} {task.partition} {digest.hex()} {self._counts[digest]}", scope)


def _digest(text: str) -> bytes:
    return blake2b(text.encode(), digest_size=16).digest()


def token_name(query: str, key: RowKey) -> str:
    """The name of a counter's token: short, for any key."""
    return _digest(f"{query}\n{key.scope}\n{key.text}").hex()


@dataclass(frozen=True, slots=True)
class CounterUpdateRow:
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


def put_of(row: Mapping[str, Any], key: RowKey | None) -> Put:
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
