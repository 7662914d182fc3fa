"""Rows of one message each from the wire to Arrow, many at a time. Delayed messages have this form, and a loop that
creates objects for each would cost more than all the rest (docs/internals/formats.md, "The packed row").

From an answer with due, run, cancelled and moved it extracts the rows that are *alone*: one message and nothing else,
as `pack_alone` writes it, neither cancelled nor moved, and whole by its checksum. numpy slices their columns. All
others are decoded one by one, for the caller to judge; broken rows are rejected then.

It knows neither tables nor liveness. Invariant: each row is returned once, in the order of the answer.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from headgate.engines.packed_row import ALONE_PAYLOAD_AT, pack_alone
from headgate.engines.timeline.model.layout import MessagePlace, RowPlace
from headgate.store.model.positions import EPOCH_TICKS, TICKS_IN_US
from headgate.store.model.rows import WiredRows, row_at
from headgate.store.model.table import Column
from headgate_spark.packed_columns import TIMESTAMP, TYPES, no_attributes

Numbers = NDArray[np.int64]
Octets = NDArray[np.uint8]
Mask = NDArray[np.bool_]

TOGETHER_MIN = 16
"""Fewer rows than that in a row are cheaper one by one."""

_LENGTH = struct.Struct(">i")
_RUN_LENGTH_AT = 20
"""Behind the length of the due id and the id itself."""
_RUN_AT = _RUN_LENGTH_AT + _LENGTH.size
_NULLS = _LENGTH.pack(-1) * 2
_DUE_BYTES = 16
_BETWEEN = _NULLS + _LENGTH.pack(_DUE_BYTES)
_HEAD_BYTES = _RUN_AT + ALONE_PAYLOAD_AT
_TEMPLATE = np.frombuffer(pack_alone(b"", due_us=0, put_us=0), np.uint8)
_START, _CHECKSUM, _BODY_LENGTH, _DIRECTORY, _BYTES_LENGTH, _DUE, _PUT, _FIRST, _PAYLOAD_LENGTH = (
    slice(*bounds) for bounds in pairwise((0, 4, 8, 12, 48, 52, 60, 68, 72, 76))
)
_CHECKED_FROM = _BODY_LENGTH.start
_CHECKED_BEFORE = zlib.crc32(_TEMPLATE[_START].tobytes())


class CutRows:
    """An answer, cut into rows."""

    def __init__(self, wired: WiredRows, columns: Sequence[Column]) -> None:
        self._content = wired.content
        self._columns = columns
        self._starts = _starts_of(wired)[:-1]
        padded = np.frombuffer(wired.content + bytes(_HEAD_BYTES), np.uint8)
        self._heads: Octets = sliding_window_view(padded, _HEAD_BYTES)[self._starts]
        self._tails: Octets = sliding_window_view(padded, len(_NULLS))
        self.due: Octets = self._heads[:, _LENGTH.size : _RUN_LENGTH_AT]
        """The bytes of the due ids."""
        self.alone: Mask = self._which_are_alone()

    def __len__(self) -> int:
        return len(self._starts)

    @property
    def put_us(self) -> Numbers:
        """When each was first put; of rows that are not alone it means nothing."""
        return self._numbers(_PUT)

    @property
    def due_us(self) -> Numbers:
        """When each was requested to be delivered, likewise."""
        return self._numbers(_DUE)

    def due_keys(self) -> list[bytes]:
        """The due ids."""
        together = self.due.tobytes()
        return [together[at : at + 16] for at in range(0, len(together), 16)]

    def times_us(self) -> Numbers:
        """The times of the due ids."""
        low = _read(self.due[:, 0:4], ">u4")
        mid, high = _read(self.due[:, 4:6], ">u2"), _read(self.due[:, 6:8], ">u2")
        ticks = (high & 0x0FFF) << 48 | mid << 32 | low
        return (ticks - EPOCH_TICKS) // TICKS_IN_US

    def payloads(self, rows: slice) -> pa.Array:
        """The content of rows that are alone."""
        starts = self._starts[rows] + _HEAD_BYTES
        offsets = np.empty(2 * len(starts), np.int32)
        offsets[0::2] = starts
        offsets[1::2] = starts + self._numbers(_PAYLOAD_LENGTH)[rows]
        with_gaps = pa.Array.from_buffers(
            pa.binary(), len(offsets) - 1, [None, pa.py_buffer(offsets), pa.py_buffer(self._content)]
        )
        return with_gaps.take(pa.array(np.arange(0, len(offsets), 2, dtype=np.int32)))

    def payload_bytes(self, rows: slice) -> int:
        """How much that is."""
        return int(self._numbers(_PAYLOAD_LENGTH)[rows].sum())

    def last_due(self) -> UUID:
        """The due id of the last row."""
        return UUID(bytes=self.due[-1].tobytes())

    def pieces(self, together: Mask, left_out: Mask | None = None) -> Iterator[slice | Any]:
        """All rows in their order: those that may go together, as slices; each other one decoded."""
        if not len(self):
            return
        edges = np.flatnonzero(np.diff(together)) + 1
        for start, end in pairwise((0, *edges.tolist(), len(self))):
            if together[start] and end - start >= TOGETHER_MIN:
                yield slice(start, end)
            else:
                for at in range(start, end):
                    if left_out is None or not left_out[at]:
                        yield self._row(at)

    def _row(self, at: int) -> Any:
        return row_at(self._content, int(self._starts[at]), self._columns)[0]

    def _which_are_alone(self) -> Mask:
        run_length = _read(self._heads[:, _RUN_LENGTH_AT:_RUN_AT], ">i4")
        payload_length = self._numbers(_PAYLOAD_LENGTH)
        fits = (
            (run_length == ALONE_PAYLOAD_AT + (payload_length + 7) // 8 * 8)
            & (self._numbers(_BODY_LENGTH) == run_length - _DIRECTORY.start)
            & (self._numbers(_BYTES_LENGTH) == payload_length + 8)
        )
        for fixed in (_START, _DIRECTORY, _FIRST):
            fits &= _as_one(self._cell(fixed)) == _as_one(_TEMPLATE[None, fixed])
        ends = np.where(fits, self._starts + _RUN_AT + run_length, 0)
        fits &= _read(self._tails[ends], "<i8") == -1
        checked = self._checksums(self._starts + (_RUN_AT + _CHECKED_FROM), ends, fits)
        whole: Mask = self._numbers(_CHECKSUM) & 0xFFFFFFFF == checked
        alone: Mask = fits & whole
        return alone

    def _checksums(self, starts: Numbers, ends: Numbers, wanted: Mask) -> Numbers:
        """By row; zero where it is not wanted."""
        content, crc32 = self._content, zlib.crc32
        bounds = zip(starts[wanted].tolist(), ends[wanted].tolist(), strict=True)
        checksums = np.zeros(len(self), np.int64)
        checksums[wanted] = [crc32(content[start:end], _CHECKED_BEFORE) for start, end in bounds]
        return checksums

    def _cell(self, where: slice) -> Octets:
        return self._heads[:, _RUN_AT + where.start : _RUN_AT + where.stop]

    def _numbers(self, where: slice) -> Numbers:
        """A number of each row's cell, little-endian."""
        return _read(self._cell(where), "<i8" if where.stop - where.start == 8 else "<i4")


def _starts_of(wired: WiredRows) -> Numbers:
    """Where each row begins, and where the last one ends."""
    guessed = _starts_guessed(wired)
    return _starts_followed(wired) if guessed is None else guessed


def _starts_guessed(wired: WiredRows) -> Numbers | None:
    """The same in one step, where all rows are neither cancelled nor moved: between two of them are two nulls and the
    length of a due id. The same bytes may occur in a payload too, so each row has to end where the next one
    begins."""
    if len(wired.content) <= len(_BETWEEN) or not wired.content.endswith(_NULLS):
        return None
    behind = np.flatnonzero(_words(wired.content, "<i8", len(_BETWEEN)) == -1) + len(_NULLS)
    behind = behind[_words(wired.content, ">i4", _LENGTH.size)[behind] == _DUE_BYTES]
    if len(behind) != wired.count - 1:
        return None
    starts = np.concatenate(([0], behind, [len(wired.content)]))
    octets = np.frombuffer(wired.content, np.uint8)
    if starts[-2] + _RUN_AT > len(octets):
        return None
    run_lengths = _read(sliding_window_view(octets, _LENGTH.size)[starts[:-1] + _RUN_LENGTH_AT], ">i4")
    return starts if (starts[:-1] + _RUN_AT + run_lengths + len(_NULLS) == starts[1:]).all() else None


def _as_one(octets: Octets) -> NDArray[Any]:
    """Each row's bytes as one value."""
    return np.ascontiguousarray(octets).view(np.dtype((np.void, octets.shape[1])))[:, 0]


def _words(content: bytes, kind: str, spare: int) -> NDArray[Any]:
    """The number that begins at each byte but the last ones."""
    return np.ndarray((len(content) - spare + 1,), kind, content, strides=(1,))


def _starts_followed(wired: WiredRows) -> Numbers:
    """Row by row."""
    content, length_at = wired.content, _LENGTH.unpack_from
    starts = [0]
    end = 0
    for _ in range(wired.count):
        end += _RUN_LENGTH_AT
        for _ in ("run", "cancelled", "moved"):
            (length,) = length_at(content, end)
            end += _LENGTH.size + max(length, 0)
        starts.append(end)
    return np.array(starts, np.int64)


def _read(octets: Octets, kind: str) -> Numbers:
    return np.ascontiguousarray(octets).view(kind)[:, 0].astype(np.int64)


# ---- columns


def columns_of(
    names: Sequence[str], cut: CutRows, rows: slice, place: RowPlace, suffix: str, standing: pa.Array | str
) -> list[pa.Array]:
    """Columns of rows that are alone. Of `place` the due id is theirs; the rest is not used."""
    count = rows.stop - rows.start
    made: dict[str, Callable[[], pa.Array]] = {
        "payload": lambda: cut.payloads(rows),
        "due": lambda: _timestamps(cut.due_us[rows]),
        "put": lambda: _timestamps(cut.put_us[rows]),
        "at": lambda: _timestamps(cut.times_us()[rows]),
        "id": lambda: id_texts(cut.due[rows], place, suffix),
        "position": lambda: position_texts(cut.due[rows]),
        "standing": lambda: pa.repeat(standing, count) if isinstance(standing, str) else standing,
        "attempt": lambda: pa.repeat(pa.scalar(0, TYPES["attempt"]), count),
        "generation": lambda: pa.repeat(pa.scalar(place.generation, TYPES["generation"]), count),
        "shard": lambda: pa.repeat(pa.scalar(place.shard, TYPES["shard"]), count),
        "group": lambda: pa.nulls(count, TYPES["group"]),
        "hidden_until": lambda: pa.nulls(count, TYPES["hidden_until"]),
        "attributes": lambda: no_attributes("attributes", count),
        "binary_attributes": lambda: no_attributes("binary_attributes", count),
    }
    return [made[name]() for name in names]


def _timestamps(us: Numbers) -> pa.Array:
    return pa.array(us).view(pa.timestamp("us")).cast(TIMESTAMP)


# ---- texts of due ids


_ALPHABET = np.frombuffer(b"abcdefghijklmnopqrstuvwxyz234567", np.uint8)
_FORTY_BITS = np.array([1 << 32, 1 << 24, 1 << 16, 1 << 8, 1], np.uint64)
_DIGITS = np.frombuffer(b"0123456789abcdef", np.uint8)
_DASHES = (8, 13, 18, 23)
_OF_DIGITS = np.array([at for at in range(36) if at not in _DASHES])


def id_texts(due: Octets, place: RowPlace, suffix: str) -> pa.Array:
    """The ids of the messages of these rows, which are alike but for their due id."""
    count = len(due)
    stored = np.empty((count, 25), np.uint64)
    stored[:, :9] = np.frombuffer(MessagePlace(place, 0).to_bytes()[:9], np.uint8)
    stored[:, 9:] = due
    made = np.empty((count, 40 + len(suffix)), np.uint8)
    made[:, 40:] = np.frombuffer(suffix.encode(), np.uint8)
    groups = stored.reshape(count, 5, 5) @ _FORTY_BITS  # five bytes are eight letters
    for position in range(8):
        made[:, position:40:8] = _ALPHABET[groups >> np.uint64(35 - 5 * position) & np.uint64(31)]
    return _texts(made)


def position_texts(due: Octets) -> pa.Array:
    """The due ids as uuids are written."""
    made = np.full((len(due), 36), ord("-"), np.uint8)
    digits = np.empty((len(due), 32), np.uint8)
    digits[:, 0::2] = _DIGITS[due >> 4]
    digits[:, 1::2] = _DIGITS[due & 15]
    made[:, _OF_DIGITS] = digits
    return _texts(made)


def _texts(characters: Octets) -> pa.Array:
    count, width = characters.shape
    offsets = np.arange(0, (count + 1) * width, width, dtype=np.int32)
    return pa.Array.from_buffers(pa.string(), count, [None, pa.py_buffer(offsets), pa.py_buffer(characters)])
