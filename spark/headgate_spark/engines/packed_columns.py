"""From the cells of packed rows to Arrow columns, without a loop over messages (docs/internals/formats.md, "The
packed row").

A row of many messages becomes arrays over the very bytes that were decompressed. A row of one message adds a value to
lists, which become an array when the batch is full: an array for each of them would cost more than it saves.

It knows neither tables nor liveness: the caller selects the messages of a row.
"""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headgate.engines.lanes.log.settle_log_format import bits_of, ranges_of
from headgate.engines.packed_row import PackedRun, RowBroken, directory, open_row

BATCH_MESSAGES = 20_000
BATCH_BYTES = 16 * 1024 * 1024
CONSTANT, NUMBERS, BYTES = 1, 2, 3
DUE, PUT, ATTEMPT, PAYLOAD, ATTRIBUTES, GROUP, ID, REPLACES = range(1, 9)
TIMESTAMP = pa.timestamp("us", tz="UTC")
TYPES: Mapping[str, pa.DataType] = {
    "id": pa.string(),
    "payload": pa.binary(),
    "attributes": pa.map_(pa.string(), pa.string()),
    "binary_attributes": pa.map_(pa.string(), pa.binary()),
    "group": pa.string(),
    "due": TIMESTAMP,
    "put": TIMESTAMP,
    "at": TIMESTAMP,
    "attempt": pa.int32(),
    "standing": pa.string(),
    "hidden_until": TIMESTAMP,
    "position": pa.string(),
    "generation": pa.int32(),
    "shard": pa.int32(),
}
ATTRIBUTE_COLUMNS = {"attributes": 0, "binary_attributes": 1}
_TIMES = {"due": DUE, "put": PUT}


class OpenRow:
    """A row whose columns can be inspected; none of them is unpacked before."""

    __slots__ = ("body", "columns", "count")

    def __init__(self, cell: bytes) -> None:
        self.count, self.body = open_row(cell)
        self.columns = {column: (kind, start, length) for column, kind, start, length in directory(self.body)}

    @property
    def is_plain(self) -> bool:
        """Whether it is neither restamped nor a copy: this is the first place of all its messages."""
        return ID not in self.columns and REPLACES not in self.columns

    def numbers(self, column: int) -> pa.Array:
        """A column of numbers, or of times; zeros where the row has none."""
        entry = self.columns.get(column)
        if entry is None:
            return pa.array(np.zeros(self.count, np.int64))
        kind, start, length = entry
        if kind == CONSTANT:
            value = int.from_bytes(self.body[start : start + 8], "little", signed=True)
            return pa.array(np.full(self.count, value, np.int64))
        if kind != NUMBERS or length != 8 * self.count:
            raise RowBroken("A column of a stored row has an unexpected length", kind=kind, messages=self.count)
        return pa.Array.from_buffers(pa.int64(), self.count, [None, self._buffer(start, length)])

    def binaries(self, column: int) -> pa.Array:
        """A column of byte strings; empty ones where the row has none."""
        entry = self.columns.get(column)
        if entry is None:
            return pa.array([b""] * self.count, pa.binary())
        kind, start, length = entry
        offsets = 4 * (self.count + 1)
        if kind != BYTES or length < offsets:
            raise RowBroken("A column of a stored row has an unexpected type", kind=kind)
        end = int.from_bytes(self.body[start + offsets - 4 : start + offsets], "little")
        if end != length - offsets:
            raise RowBroken("A stored row has offsets beyond its data", messages=self.count)
        buffers = [None, self._buffer(start, offsets), self._buffer(start + offsets, length - offsets)]
        return pa.Array.from_buffers(pa.binary(), self.count, buffers)

    def _buffer(self, start: int, length: int) -> pa.Buffer:
        return pa.py_buffer(self.body[start : start + length])


@dataclass(slots=True)
class About:
    """The common part of all messages of a row, except for `Exceptions`. Not frozen, since one is created for each
    row, and many rows are of one message."""

    id_start: str
    """The letters with which the ids of messages whose first place is this row begin."""
    position: str
    at_us: int
    generation: int
    shard: int
    standing: str


@dataclass(frozen=True, slots=True)
class Exceptions:
    """The values of single messages of a row, by index."""

    ids: Mapping[int, str]
    attempts: Mapping[int, int]
    hidden_us: Mapping[int, int]
    hidden_standing: str = ""
    """The state of hidden messages."""


NONE = Exceptions({}, {}, {})
Pairs = Sequence[tuple[str, Any]]


@lru_cache(1024)
def attributes_in(stored: bytes) -> tuple[Pairs, Pairs]:
    """Texts, and byte strings: many messages have the same."""
    if not stored:
        return (), ()
    attributes = json.loads(stored)
    texts = [(name, value) for name, value in attributes.items() if isinstance(value, str)]
    others = [(name, b64decode(value["binary"])) for name, value in attributes.items() if not isinstance(value, str)]
    return texts, others


_ALONE: Mapping[str, Callable[[PackedRun, About], Any]] = {
    "payload": lambda run, _: run.payload[0],
    "attributes": lambda run, _: attributes_in(run.attributes[0])[0] if run.attributes is not None else (),
    "binary_attributes": lambda run, _: attributes_in(run.attributes[0])[1] if run.attributes is not None else (),
    "group": lambda run, _: run.group[0].decode() or None if run.group is not None else None,
    "due": lambda run, _: run.due_us[0],
    "put": lambda run, _: run.put_us[0],
    "at": lambda _, about: about.at_us,
    "attempt": lambda run, _: run.attempt[0] if run.attempt is not None else 0,
    "standing": lambda _, about: about.standing,
    "hidden_until": lambda _, __: None,
    "position": lambda _, about: about.position,
    "generation": lambda _, about: about.generation,
    "shard": lambda _, about: about.shard,
}
"""The values of a message that is alone in its row."""


class BatchBuilder:
    """Collects rows, and gives batches of about equal size with the wanted columns in the wanted order."""

    def __init__(
        self, columns: Sequence[str], id_suffixes: Sequence[str], *, batch_messages: int = BATCH_MESSAGES
    ) -> None:
        self.columns = tuple(columns)
        self._schema = pa.schema([(name, TYPES[name]) for name in columns])
        self._suffixes = pa.array(id_suffixes, pa.string())
        self._batch_messages = batch_messages
        self._pieces: list[pa.RecordBatch] = []
        self._alone: dict[str, list[Any]] = {name: [] for name in columns}
        first_suffix = id_suffixes[0]
        values_of: dict[str, Callable[[PackedRun, About], Any]] = {
            **_ALONE,
            "id": lambda _, about: about.id_start + first_suffix,
        }
        self._appenders = [(values.append, values_of[name]) for name, values in self._alone.items()]
        self._alone_count = 0
        self._messages = 0
        self._bytes = 0

    def add(self, row: OpenRow, about: About, wanted: int | None = None, but: Exceptions = NONE) -> None:
        """The messages of a row whose bits are set; None: all."""
        if self._alone_count:
            self._close_alone()  # so that messages stay in the order of their rows
        arrays = [self._column(name, row, about, but) for name in self.columns]
        piece = pa.RecordBatch.from_arrays(arrays, schema=self._schema)
        if wanted is not None and wanted != bits_of(0, row.count):
            piece = piece.take(pa.array(_indexes(wanted), pa.int32()))
        self._pieces.append(piece)
        self._grow(piece.num_rows, len(row.body))

    def add_columns(self, columns: Sequence[pa.Array], size_bytes: int) -> None:
        """Messages whose columns are complete already, in the wanted order."""
        if self._alone_count:
            self._close_alone()
        piece = pa.RecordBatch.from_arrays(columns, schema=self._schema)
        self._pieces.append(piece)
        self._grow(piece.num_rows, size_bytes)

    def take_full(self) -> Iterable[pa.RecordBatch]:
        """A batch, if it should be taken now."""
        return self.take() if self._messages >= self._batch_messages or self._bytes >= BATCH_BYTES else ()

    def take(self) -> Iterator[pa.RecordBatch]:
        """The collected messages, as one batch; nothing if there are none."""
        if self._alone_count:
            self._close_alone()
        pieces, self._pieces = self._pieces, []
        messages, self._messages, self._bytes = self._messages, 0, 0
        if not messages:
            return
        if len(pieces) == 1:
            yield pieces[0]
        else:
            columns = [pa.concat_arrays([piece.column(at) for piece in pieces]) for at in range(len(self.columns))]
            yield pa.RecordBatch.from_arrays(columns, schema=self._schema)

    def _grow(self, messages: int, size_bytes: int) -> None:
        self._messages += messages
        self._bytes += size_bytes

    # ---- rows of many messages

    def _column(self, name: str, row: OpenRow, about: About, but: Exceptions) -> pa.Array:
        count = row.count
        if name == "payload":
            return row.binaries(PAYLOAD)
        if name == "group":
            groups = row.binaries(GROUP).view(pa.string())
            return pc.if_else(pc.equal(pc.binary_length(groups), 0), pa.scalar(None, pa.string()), groups)
        if name in ATTRIBUTE_COLUMNS:
            return self._attributes(name, row)
        if name in _TIMES:
            return row.numbers(_TIMES[name]).view(pa.timestamp("us")).cast(TIMESTAMP)
        if name == "attempt":
            return _replaced(row.numbers(ATTEMPT).cast(pa.int32()), but.attempts)
        if name == "id":
            suffixes = self._suffixes
            if count > len(suffixes):
                raise RowBroken("A stored row holds more messages than one flush puts", messages=count)
            ids = pc.binary_join_element_wise(pa.scalar(about.id_start), suffixes.slice(0, count), "")
            return _replaced(ids, but.ids)
        if name == "hidden_until":
            return _replaced(pa.nulls(count, pa.int64()), but.hidden_us).view(pa.timestamp("us")).cast(TIMESTAMP)
        if name == "standing":
            plain = pa.array([about.standing] * count)
            return _replaced(plain, dict.fromkeys(but.hidden_us, but.hidden_standing)) if but.hidden_us else plain
        value = {"at": about.at_us, "position": about.position, "generation": about.generation, "shard": about.shard}
        return pa.repeat(pa.scalar(value[name], TYPES[name]), count)

    def _attributes(self, name: str, row: OpenRow) -> pa.Array:
        """As a map: most rows have none, or the same for all."""
        if ATTRIBUTES not in row.columns:
            return no_attributes(name, row.count)
        attributes = [attributes_in(stored) for stored in row.binaries(ATTRIBUTES).to_pylist()]
        return pa.array([each[ATTRIBUTE_COLUMNS[name]] for each in attributes], TYPES[name])

    # ---- rows of one message

    def add_alone(self, run: PackedRun, about: About, but: Exceptions = NONE) -> None:
        for append, value_of in self._appenders:
            append(value_of(run, about))
        if but is not NONE:
            self._overrule(but)
        self._alone_count += 1
        self._grow(1, len(run.payload[0]))

    def _overrule(self, but: Exceptions) -> None:
        """The own values of the message that was added last."""
        values = {"id": but.ids.get(0), "attempt": but.attempts.get(0), "hidden_until": but.hidden_us.get(0)}
        values["standing"] = but.hidden_standing if but.hidden_us else None
        for name, value in values.items():
            if value is not None and name in self._alone:
                self._alone[name][-1] = value

    def _close_alone(self) -> None:
        arrays = [pa.array(self._alone[name], TYPES[name]) for name in self.columns]
        self._pieces.append(pa.RecordBatch.from_arrays(arrays, schema=self._schema))
        for values in self._alone.values():
            values.clear()
        self._alone_count = 0


def no_attributes(name: str, count: int) -> pa.Array:
    kind = TYPES[name]
    nothing = pa.array(np.zeros(count + 1, np.int32))
    return pa.MapArray.from_arrays(nothing, pa.array([], kind.key_type), pa.array([], kind.item_type))


def _indexes(wanted: int) -> list[int]:
    return [index for start, end in ranges_of(wanted) for index in range(start, end)]


def _replaced(array: pa.Array, values: Mapping[int, Any]) -> pa.Array:
    if not values:
        return array
    plain = array.to_pylist()
    for index, value in values.items():
        plain[index] = value
    return pa.array(plain, array.type)
