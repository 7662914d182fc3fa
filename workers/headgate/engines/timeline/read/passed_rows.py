"""The rows that owners of a lane have passed: they distinguish a row that lands late from one that was handled.

A piece holds due ids in order, each as its difference from the one before: eight bytes of time and low half would do
for any, most take fewer. Pieces are written once and only added to by others, so nothing is ever read in order to be
written (attacks A3, A4). Pure.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator
from uuid import UUID

from headgate.errors import HeadgateError

VERSION = 1
_LOW_HALF = (1 << 64) - 1
_ABOVE_ALL = 1 << 128


class PassedBroken(HeadgateError):
    """A stored record of passed rows cannot be read."""


def encode_passed(ids: Iterable[UUID]) -> bytes:
    """One piece: a version byte, then ascending numbers as differences, seven bits a byte, the lowest first."""
    out = bytearray([VERSION])
    before = 0
    for number in sorted({_number_of(each) for each in ids}):
        rest = number - before
        before = number
        while rest > 0x7F:
            out.append(rest & 0x7F | 0x80)
            rest >>= 7
        out.append(rest)
    return bytes(out)


def decode_passed(piece: bytes) -> set[UUID]:
    """The ids of one piece."""
    return set(map(_uuid_of, _numbers_in(piece)))


def _numbers_in(piece: bytes) -> Iterator[int]:
    if not piece or piece[0] != VERSION:
        raise PassedBroken("A record of passed rows has an unsupported version", remedy="upgrade this process")
    number, rest, shift = 0, 0, 0
    for byte in piece[1:]:
        rest |= (byte & 0x7F) << shift
        shift += 7
        if not byte & 0x80:
            number += rest
            yield number
            rest, shift = 0, 0
    if shift:
        raise PassedBroken("A record of passed rows is truncated", length=len(piece))


class PassedRows:
    """The record of one part, all pieces of all owners: queried for some rows at a time.

    A part may hold millions of rows. The record is kept in its stored form, and only the pieces whose span contains
    queried rows are decoded; owners pass rows in order, a second of rows to a piece, so these are few.
    """

    def __init__(self, pieces: Iterable[tuple[bytes, UUID | None]]) -> None:
        """Each piece with the highest row of its write, where that is known."""
        self._spans = [
            (next(_numbers_in(piece), _ABOVE_ALL), _ABOVE_ALL if up_to is None else _number_of(up_to), piece)
            for piece, up_to in pieces
        ]

    def among(self, ids: Collection[UUID]) -> set[UUID]:
        """Those of some rows that were passed."""
        matching: set[UUID] = set()
        numbers = sorted(map(_number_of, ids))
        for lowest, highest, piece in self._spans:
            at = bisect_left(numbers, lowest)
            if at < len(numbers) and numbers[at] <= highest:
                matching |= decode_passed(piece).intersection(ids)
        return matching


def _number_of(due: UUID) -> int:
    """A time uuid as a number that grows with time: its time, then its low half."""
    return due.time << 64 | due.int & _LOW_HALF


def _uuid_of(number: int) -> UUID:
    time, low = number >> 64, number & _LOW_HALF
    high = (time & 0xFFFFFFFF) << 32 | (time >> 32 & 0xFFFF) << 16 | 0x1000 | time >> 48
    return UUID(int=high << 64 | low)
