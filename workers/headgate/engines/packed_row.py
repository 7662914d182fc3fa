"""A run of messages in one cell: the packed row of docs/internals/formats.md, which another language would read.

Columnar: payloads follow each other after their offsets, as Arrow lays out binary arrays, so a row of a hundred
messages costs a few calls and no loop over messages. Pure: bytes in, columns out; it does not know tables. A row that
fails its checksum, or is of a later version, is rejected whole with the reason.
"""

from __future__ import annotations

import base64
import json
import struct
import sys
import zlib
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

import lz4.block

from headgate.engines.contract import Attributes
from headgate.errors import HeadgateError, InvalidRequest

VERSION = 1
MESSAGES_MAX = 65_535
COMPRESS_FROM_BYTES = 512
COMPRESS_SAVES_MIN = 8
"""Compression is kept when it saves at least one eighth."""
MESSAGE_MEMORY_BYTES = 100
"""The memory of a message besides its content: an object for its payload, a place in some lists."""

_HEADER = struct.Struct("<BBHII")
_CHECKED = 8
"""The checksum covers the four bytes before itself and everything from this offset on."""
_ENTRY = struct.Struct("<HHII")
_COUNT = struct.Struct("<I")
_NUMBER = struct.Struct("<q")
_START = struct.Struct("<BBH")
_ALONE = struct.Struct("<IIHHIIHHIIHHIIqqii")
"""The length of the body, its directory of three columns, and all columns up to the payload itself."""
_ALONE_BYTES = _ALONE.size - _COUNT.size
ALONE_PAYLOAD_AT = _HEADER.size + _ALONE_BYTES
"""The offset of the payload in a cell of `pack_alone`, uncompressed."""
_PLAIN, _LZ4 = 0, 1
_CONSTANT, _NUMBERS, _BYTES, _ROW = 1, 2, 3, 4
_DUE, _PUT, _ATTEMPT, _PAYLOAD, _ATTRIBUTES, _GROUP, _ID, _REPLACES = range(1, 9)


class RowBroken(HeadgateError):
    """A stored row cannot be read."""


@dataclass(slots=True)
class PackedRun:
    """The columns of a row. A column of byte strings that is None holds nothing for any message.

    A value, not to be changed; not frozen, since one is created for each row, and many rows are of one message.
    """

    due_us: Sequence[int]
    put_us: Sequence[int]
    payload: Sequence[bytes]
    attempt: Sequence[int] | None = None
    attributes: Sequence[bytes] | None = None
    group: Sequence[bytes] | None = None
    message_id: Sequence[bytes] | None = None
    replaces: bytes | None = None

    def __len__(self) -> int:
        return len(self.payload)


def pack(run: PackedRun) -> bytes:
    """The cell that holds this run."""
    count = len(run)
    if not 0 < count <= MESSAGES_MAX:
        raise InvalidRequest("A row must hold 1 to 65,535 messages", messages=count)
    if _is_alone(run):
        return pack_alone(run.payload[0], due_us=run.due_us[0], put_us=run.put_us[0])
    return _sealed(count, _body(_columns(run)))


def _is_alone(run: PackedRun) -> bool:
    """Whether it is one message and nothing else."""
    return (
        len(run.payload) == 1
        and run.attempt is None
        and run.attributes is None
        and run.group is None
        and run.message_id is None
        and run.replaces is None
    )


def pack_alone(payload: bytes, *, due_us: int, put_us: int) -> bytes:
    """The cell of one message and nothing else: delayed messages are alone in their row, and there are many of them.
    The same bytes as from the columns one by one, in one step."""
    length = len(payload)
    padding = -length % 8
    body_length = _ALONE_BYTES + length + padding
    stored = _ALONE.pack(body_length, *_ALONE_COLUMNS, 8 + length, due_us, put_us, 0, length)
    stored += payload + _PADDINGS[padding]
    if body_length >= COMPRESS_FROM_BYTES:
        return _sealed(1, stored[_COUNT.size :])
    return _ALONE_START + _COUNT.pack(zlib.crc32(stored, _ALONE_CHECKED)) + stored


def _unpack_alone(cell: bytes) -> PackedRun | None:
    """The one message of a cell from `pack_alone`; None for any other form, which is then decoded by the columns."""
    if len(cell) < _HEADER.size + _ALONE_BYTES:
        return None
    _, *columns, bytes_length, due_us, put_us, start, length = _ALONE.unpack_from(cell, _CHECKED)
    end = _HEADER.size + _ALONE_BYTES + length
    if columns != _ALONE_COLUMNS or (start, bytes_length) != (0, 8 + length) or len(cell) != end + -length % 8:
        return None
    (checksum,) = _COUNT.unpack_from(cell, _START.size)
    if zlib.crc32(memoryview(cell)[_CHECKED:], _ALONE_CHECKED) != checksum:
        return None
    return PackedRun([due_us], [put_us], [cell[end - length : end]])


_ALONE_COLUMNS = [3, _DUE, _CONSTANT, 40, 8, _PUT, _CONSTANT, 48, 8, _PAYLOAD, _BYTES, 56]
_PADDINGS = tuple(bytes(length) for length in range(8))
_ALONE_START = _START.pack(VERSION, _PLAIN, 1)
_ALONE_CHECKED = zlib.crc32(_ALONE_START)


def _columns(run: PackedRun) -> list[tuple[int, int, bytes]]:
    columns = [_numbers(_DUE, run.due_us), _numbers(_PUT, run.put_us), _bytes(_PAYLOAD, run.payload)]
    if run.attempt is not None:
        columns.append(_numbers(_ATTEMPT, run.attempt))
    for column, values in ((_ATTRIBUTES, run.attributes), (_GROUP, run.group), (_ID, run.message_id)):
        if values is not None:
            columns.append(_bytes(column, values))
    if run.replaces is not None:
        columns.append((_REPLACES, _ROW, run.replaces))
    return columns


def _sealed(count: int, body: bytes) -> bytes:
    compression, stored = _compressed(body)
    start = _START.pack(VERSION, compression, count)
    checked = _COUNT.pack(len(body)) + stored
    return start + _COUNT.pack(zlib.crc32(checked, zlib.crc32(start))) + checked


def unpack(cell: bytes) -> PackedRun:
    """The run in a cell, checked. Whatever is wrong with it, the error is `RowBroken`."""
    if cell.startswith(_ALONE_START):
        alone = _unpack_alone(cell)
        if alone is not None:
            return alone
    try:
        return _unpack_columns(*open_row(cell))
    except (struct.error, ValueError, IndexError) as error:  # its checksum is right, so its writer had another format
        raise RowBroken("A stored row has an unexpected form", length=len(cell)) from error


def _unpack_columns(count: int, body: memoryview) -> PackedRun:
    columns = {column: (kind, body[start : start + length]) for column, kind, start, length in directory(body)}
    for column in (_DUE, _PUT, _PAYLOAD):
        if column not in columns:
            raise RowBroken("A stored row lacks a column", column=column)
    byte_columns = {
        column: _split(columns[column], count) if column in columns else None for column in (_ATTRIBUTES, _GROUP, _ID)
    }
    return PackedRun(
        due_us=_spread(columns[_DUE], count),
        put_us=_spread(columns[_PUT], count),
        payload=_split(columns[_PAYLOAD], count),
        attempt=_spread(columns[_ATTEMPT], count) if _ATTEMPT in columns else None,
        attributes=byte_columns[_ATTRIBUTES],
        group=byte_columns[_GROUP],
        message_id=byte_columns[_ID],
        replaces=bytes(columns[_REPLACES][1]) if _REPLACES in columns else None,
    )


def open_row(cell: bytes) -> tuple[int, memoryview]:
    """The number of messages and the body, checked and decompressed; columns are views into it."""
    if len(cell) < _HEADER.size:
        raise RowBroken("A stored row is truncated", length=len(cell))
    version, compression, count, checksum, length = _HEADER.unpack_from(cell)
    if version != VERSION:
        raise RowBroken("A stored row has an unsupported version", remedy="upgrade this process", version=version)
    if zlib.crc32(memoryview(cell)[_CHECKED:], zlib.crc32(cell[:4])) != checksum:
        raise RowBroken("A stored row fails its checksum", checksum=checksum)
    stored = memoryview(cell)[_HEADER.size :]
    if compression == _LZ4:
        try:
            stored = memoryview(lz4.block.decompress(stored, uncompressed_size=length))
        except (lz4.block.LZ4BlockError, ValueError, OverflowError, MemoryError) as error:
            raise RowBroken("A stored row cannot be decompressed", length=length) from error
    elif compression != _PLAIN:
        raise RowBroken("A stored row has an unsupported compression", compression=compression)
    return count, stored


def memory_of(cell: bytes) -> int:
    """The approximate memory of a cell's messages: a compressed cell may take ten times its size."""
    count: int
    length: int
    _, _, count, _, length = _HEADER.unpack_from(cell)
    return length + count * MESSAGE_MEMORY_BYTES


def count_of(cell: bytes, *, most: int) -> int:
    """The number of messages by the header of a cell that cannot be read; 1 where that cannot be right either."""
    if len(cell) < _HEADER.size:
        return 1
    count: int = _HEADER.unpack_from(cell)[2]
    return count if 0 < count <= most else 1


def directory(body: memoryview) -> list[tuple[int, int, int, int]]:
    """The columns of a body: number, kind, where it starts, how long it is."""
    try:
        (entries,) = _COUNT.unpack_from(body)
        return list(_ENTRY.iter_unpack(body[_COUNT.size : _COUNT.size + entries * _ENTRY.size]))
    except struct.error as error:
        raise RowBroken("A stored row has no directory", length=len(body)) from error


def _numbers(column: int, values: Sequence[int]) -> tuple[int, int, bytes]:
    first = values[0]
    if values.count(first) == len(values):
        return column, _CONSTANT, _NUMBER.pack(first)
    return column, _NUMBERS, _little_endian(array("q", values))


def _bytes(column: int, values: Sequence[bytes]) -> tuple[int, int, bytes]:
    offsets = struct.pack(f"<{len(values) + 1}i", *accumulate(map(len, values), initial=0))
    return column, _BYTES, offsets + b"".join(values)


def _little_endian(numbers: array[int]) -> bytes:
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers.tobytes()


def _body(columns: Sequence[tuple[int, int, bytes]]) -> bytes:
    place = _aligned(_COUNT.size + len(columns) * _ENTRY.size)
    head = [_COUNT.pack(len(columns))]
    parts: list[bytes] = []
    for column, kind, content in columns:
        head.append(_ENTRY.pack(column, kind, place, len(content)))
        padding = _aligned(len(content)) - len(content)
        parts += [content, bytes(padding)]
        place += len(content) + padding
    start = b"".join(head)
    return b"".join([start, bytes(_aligned(len(start)) - len(start)), *parts])


def _aligned(length: int) -> int:
    return (length + 7) // 8 * 8


def _compressed(body: bytes) -> tuple[int, bytes]:
    if len(body) >= COMPRESS_FROM_BYTES:
        smaller = lz4.block.compress(body, store_size=False)
        if len(smaller) <= len(body) - len(body) // COMPRESS_SAVES_MIN:
            return _LZ4, smaller
    return _PLAIN, body


def _spread(column: tuple[int, memoryview], count: int) -> Sequence[int]:
    kind, content = column
    if kind == _CONSTANT:
        return [_NUMBER.unpack(content)[0]] * count
    numbers = array("q", bytes(content))
    if sys.byteorder == "big":
        numbers.byteswap()
    if kind != _NUMBERS or len(numbers) != count:
        raise RowBroken("A column of a stored row has an unexpected length", kind=kind, messages=count)
    return numbers


def _split(column: tuple[int, memoryview], count: int) -> list[bytes]:
    kind, content = column
    if kind != _BYTES:
        raise RowBroken("A column of a stored row has an unexpected type", kind=kind)
    offsets = array("i", bytes(content[: 4 * (count + 1)]))
    if sys.byteorder == "big":
        offsets.byteswap()
    data = bytes(content[4 * (count + 1) :])
    if len(offsets) != count + 1 or offsets[-1] != len(data):
        raise RowBroken("A stored row has offsets beyond its data", messages=count)
    return [data[start:end] for start, end in pairwise(offsets)]


# ---- attributes


def attribute_bytes(attributes: Attributes) -> bytes:
    """Attributes of a message, for its column."""
    if not attributes:
        return b""
    if len(attributes) == 1:
        stored = _OF_CONTENT_TYPE.get(attributes.get("content-type"))
        if stored is not None:
            return stored
    return _encode_attributes(attributes)


def _encode_attributes(attributes: Attributes) -> bytes:
    stored = {
        name: value if isinstance(value, str) else {"binary": base64.b64encode(value).decode()}
        for name, value in attributes.items()
    }
    return _json(stored).encode()


_json = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
_OF_CONTENT_TYPE: dict[str | bytes | None, bytes] = {
    each: _encode_attributes({"content-type": each}) for each in ("application/json", "text/plain; charset=utf-8")
}
"""Most messages have one of these and no other attribute."""


def attributes_of(stored: bytes) -> Attributes:
    """Attributes as they were given."""
    if not stored:
        return {}
    return {
        name: value if isinstance(value, str) else base64.b64decode(value["binary"])
        for name, value in json.loads(stored).items()
    }
