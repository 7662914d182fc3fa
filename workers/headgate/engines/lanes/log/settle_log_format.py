"""The facts about rows above a lane's position: which messages are settled, hidden, tried before, or moved.

An owner writes these facts into the settle log, and the next owner reads them. They only grow, so the union of
several owners' facts, in any order and any number of times, is the truth (docs/internals/protocols/dispatcher.md).
Facts name a row and indexes in it, never a span of rows: a row that lands later between two others is covered by
neither (attack A3).

Pure. A row is known by an opaque key, whose meaning only the engine knows.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from uuid import UUID

from headgate.errors import HeadgateError

VERSION = 4
WITHOUT_OWNERS, WITHOUT_REASONS = 3, 2
_HEAD = struct.Struct("<BII")
_HEAD_WITH_OWNER = struct.Struct("<BII16s")
_ROW = struct.Struct("<BHHH")
_RANGE = struct.Struct("<HH")
_TRIED = struct.Struct("<HHIQB")
_TRIED_WITHOUT_OWNER = struct.Struct("<HHIQ")
_OPEN = 0x80
"""Of the last byte: the delivery was open. Its other bits are the level."""
_IN_FLIGHT = struct.Struct("<BHI")
_MOVED = struct.Struct("<HIBH")
_MOVED_WITHOUT_REASON = struct.Struct("<HIB")


NOBODY = UUID(int=0)
"""The owner in the settle log of a process that is no member."""


class RecordBroken(HeadgateError):
    """A stored settle log cannot be read."""


@dataclass(frozen=True, slots=True, order=True)
class Tried:
    """How often a message was delivered, and until when it is hidden. The later fact counts: of the later owner, and
    of one owner the one in its later piece."""

    epoch: int
    piece: int
    attempt: int
    hidden_until_us: int
    level: int = 0
    """Of a crash suspect: see `headgate/engines/crash_suspects.py`."""
    is_open: bool = False
    """Whether it was in flight: if its owner's process ended then, it may be why."""
    owner: UUID = NOBODY
    """The member of the queue that delivered it. Not written with the fact: a piece begins with it."""


@dataclass(frozen=True, slots=True, order=True)
class Moved:
    """The place of a message's copy, fixed before it is written. The later owner's fact counts: if an earlier one was
    durable in time, the later owner read it, and then fixed no other."""

    epoch: int
    piece: int
    attempt: int
    place: bytes
    reason: str = ""
    """Of a dead letter: the next owner writes the same copy."""


@dataclass(slots=True)
class RowFacts:
    """All that is known of one row; `settled` has a bit for each index."""

    settled: int = 0
    runs: dict[tuple[int, int], Tried] = field(default_factory=dict)
    """The first deliveries of neighbours, by the first index and the last; `tried` counts more. Only its writer keeps
    these: they are read as `tried`."""
    tried: dict[int, Tried] = field(default_factory=dict)
    moved: dict[int, Moved] = field(default_factory=dict)
    epoch: int = field(default=0, compare=False, repr=False)
    """The latest lease term whose record names the row. Not written with the row: a piece begins with it."""

    def merge(self, other: RowFacts) -> None:
        """Add another owner's facts of the same row."""
        self.epoch = max(self.epoch, other.epoch)
        self.settled |= other.settled
        for index, tried in other.tried.items():
            self.tried[index] = max(tried, self.tried.get(index, tried))
        for index, moved in other.moved.items():
            self.moved[index] = max(moved, self.moved.get(index, moved))

    def overrule(self, later: RowFacts) -> None:
        """Add the same owner's current facts: its later fact counts, whatever the numbers. Attempts of a settled
        message do not matter any more."""
        self.settled |= later.settled
        self.runs |= later.runs
        self.tried |= later.tried
        self.moved |= later.moved
        if self.settled:
            self.runs = {run: it for run, it in self.runs.items() if bits_of(run[0], run[1] + 1) & ~self.settled}
            self.tried = {index: it for index, it in self.tried.items() if not self.settled >> index & 1}


Facts = dict[bytes, RowFacts]


def merge_facts(into: Facts, other: Mapping[bytes, RowFacts]) -> None:
    """The union of two records."""
    for key, facts in other.items():
        into.setdefault(key, RowFacts()).merge(facts)


def ranges_of(settled: int) -> Iterator[tuple[int, int]]:
    """The runs of set bits, each as first index and the index after its last."""
    start = 0
    while settled:
        gap = (settled & -settled).bit_length() - 1
        settled >>= gap
        start += gap
        length = (~settled & (settled + 1)).bit_length() - 1
        yield start, start + length
        settled >>= length
        start += length


def bits_of(start: int, end: int) -> int:
    """The bits of the indexes from `start` up to, not including, `end`."""
    return ((1 << (end - start)) - 1) << start


def encode(facts: Mapping[bytes, RowFacts], *, epoch: int, piece: int, owner: UUID = NOBODY) -> bytes:
    """One piece of a record, as docs/internals/formats.md has it. All facts of a piece are of one lease term."""
    head = encode_head(epoch=epoch, piece=piece, owner=owner)
    return b"".join([head, *(encode_row(key, row) for key, row in facts.items())])


def encode_head(*, epoch: int, piece: int, owner: UUID) -> bytes:
    """How a piece begins; the rows follow in any order."""
    return _HEAD_WITH_OWNER.pack(VERSION, epoch, piece, owner.bytes)


def encode_row(key: bytes, row: RowFacts) -> bytes:
    """A piece's facts of one row."""
    ranges = list(ranges_of(row.settled)) if row.settled else ()
    tried = [(first, last, it) for (first, last), it in row.runs.items()]
    if row.tried:
        tried += _runs_of(row.tried)
    parts = [_ROW.pack(len(key), len(ranges), len(tried), len(row.moved)), key]
    parts += [_RANGE.pack(start, end - 1) for start, end in ranges]
    parts += [
        _TRIED.pack(first, last, it.attempt, it.hidden_until_us, it.level | (_OPEN if it.is_open else 0))
        for first, last, it in tried
    ]
    for index, moved in sorted(row.moved.items()):
        reason = moved.reason.encode()
        parts += [_MOVED.pack(index, moved.attempt, len(moved.place), len(reason)), moved.place, reason]
    return b"".join(parts)


def _runs_of(tried: Mapping[int, Tried]) -> Iterator[tuple[int, int, Tried]]:
    """Neighbours that were delivered together are encoded together: the first index, the last, and the facts."""
    first = last = -1
    same: Tried | None = None
    for index in sorted(tried):
        it = tried[index]
        if same is not None and index == last + 1 and (it is same or _is_same_attempt(it, same)):
            last = index
            continue
        if same is not None:
            yield first, last, same
        first, last, same = index, index, it
    if same is not None:
        yield first, last, same


def _is_same_attempt(one: Tried, other: Tried) -> bool:
    return (one.attempt, one.hidden_until_us, one.level, one.is_open) == (
        other.attempt,
        other.hidden_until_us,
        other.level,
        other.is_open,
    )


def decode(piece: bytes, *, wanted: Callable[[bytes], bool] | None = None) -> Facts:
    """The facts of one piece; of the rows that are wanted, by their keys."""
    try:
        return dict(_rows_of(piece, wanted))
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise RecordBroken("A stored settle record is truncated", length=len(piece)) from error


def _rows_of(piece: bytes, wanted: Callable[[bytes], bool] | None) -> Iterator[tuple[bytes, RowFacts]]:
    version, epoch, number = _HEAD.unpack_from(piece)
    if version not in (VERSION, WITHOUT_OWNERS, WITHOUT_REASONS):
        raise RecordBroken(
            "A settle record has an unsupported version", remedy="upgrade this process", version=version
        )
    at, owner, tried_shape = _HEAD.size, NOBODY, _TRIED_WITHOUT_OWNER
    if version == VERSION:
        at, owner, tried_shape = _HEAD_WITH_OWNER.size, UUID(bytes=_HEAD_WITH_OWNER.unpack_from(piece)[3]), _TRIED
    while at < len(piece):
        key_length, ranges, tried, moved = _ROW.unpack_from(piece, at)
        at += _ROW.size
        key = piece[at : at + key_length]
        at += key_length
        facts = RowFacts(epoch=epoch)
        is_wanted = wanted is None or wanted(key)
        if not is_wanted:  # a long log has hundreds of thousands of these
            at += ranges * _RANGE.size + tried * tried_shape.size
            ranges = tried = 0
        for _ in range(ranges):
            first, last = _RANGE.unpack_from(piece, at)
            facts.settled |= bits_of(first, last + 1)
            at += _RANGE.size
        for _ in range(tried):
            first, last, attempt, hidden_until_us, standing = (*tried_shape.unpack_from(piece, at), 0)[:5]
            recorded = Tried(
                epoch, number, attempt, hidden_until_us, standing & ~_OPEN, bool(standing & _OPEN), owner
            )
            facts.tried.update(dict.fromkeys(range(first, last + 1), recorded))
            at += tried_shape.size
        for _ in range(moved):
            index, at, fact = _moved_at(piece, at, version, epoch=epoch, number=number)
            facts.moved[index] = fact
        if is_wanted:
            yield key, facts


def _moved_at(piece: bytes, at: int, version: int, *, epoch: int, number: int) -> tuple[int, int, Moved]:
    """An index, where the next fact begins, and where the message moved."""
    shape = _MOVED_WITHOUT_REASON if version == WITHOUT_REASONS else _MOVED
    index, attempt, length, reason_length = (*shape.unpack_from(piece, at), 0)[:4]
    start = at + shape.size
    middle, end = start + length, start + length + reason_length
    if end > len(piece):
        raise IndexError
    return index, end, Moved(epoch, number, attempt, piece[start:middle], piece[middle:end].decode())


def encode_in_flight(in_flight: Iterable[tuple[bytes, int, int]]) -> bytes:
    """Open deliveries (row, index, attempt) of an owner in a reserved range."""
    return b"".join(_IN_FLIGHT.pack(len(key), index, attempt) + key for key, index, attempt in in_flight)


def decode_in_flight(stored: bytes) -> list[tuple[bytes, int, int]]:
    """The messages that the owner of a lane still has open in a reserved range."""
    in_flight = []
    at = 0
    while at < len(stored):
        length, index, attempt = _IN_FLIGHT.unpack_from(stored, at)
        at += _IN_FLIGHT.size
        in_flight.append((stored[at : at + length], index, attempt))
        at += length
    return in_flight
