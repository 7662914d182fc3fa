"""The rows that owners of a lane have passed: they distinguish a row that lands late from one that was handled.

A piece holds due ids in order, each as its difference from the one before: eight bytes of time and low half would do
for any, most take fewer. Pieces are written once and only added to by others, so nothing is ever read in order to be
written (attacks A3, A4). Pure.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from uuid import UUID

from headgate.errors import HeadgateError

VERSION = 1
DECODED_BYTES_MAX = 256 * 1024
_LOW_HALF = (1 << 64) - 1


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
    if not piece or piece[0] != VERSION:
        raise PassedBroken("A record of passed rows has an unsupported version", remedy="upgrade this process")
    ids: set[UUID] = set()
    number, rest, shift = 0, 0, 0
    for byte in piece[1:]:
        rest |= (byte & 0x7F) << shift
        shift += 7
        if not byte & 0x80:
            number += rest
            ids.add(_uuid_of(number))
            rest, shift = 0, 0
    if shift:
        raise PassedBroken("A record of passed rows is truncated", length=len(piece))
    return ids


class PassedRows:
    """The record of one part, all pieces of all owners: queried for some rows at a time.

    A part may hold millions of rows. A large record is kept in its stored form, and only the pieces whose span
    contains queried rows are decoded; owners pass rows in order, so these are few.
    """

    def __init__(self, pieces: Iterable[bytes]) -> None:
        self._spans: list[tuple[int, int, bytes]] = []
        self._small: set[UUID] = set()
        small_bytes = 0
        for piece in pieces:
            ids = decode_passed(piece)
            small_bytes += len(piece)
            if small_bytes <= DECODED_BYTES_MAX:
                self._small |= ids
            elif ids:
                numbers = [_number_of(each) for each in ids]
                self._spans.append((min(numbers), max(numbers), piece))

    def among(self, ids: Collection[UUID]) -> set[UUID]:
        """Those of some rows that were passed."""
        matching = self._small.intersection(ids)
        if self._spans and ids:
            numbers = [_number_of(each) for each in ids]
            first, last = min(numbers), max(numbers)
            for lowest, highest, piece in self._spans:
                if lowest <= last and first <= highest:
                    matching |= decode_passed(piece).intersection(ids)
        return matching


def _number_of(due: UUID) -> int:
    """A time uuid as a number that grows with time: its time, then its low half."""
    return due.time << 64 | due.int & _LOW_HALF


def _uuid_of(number: int) -> UUID:
    time, low = number >> 64, number & _LOW_HALF
    high = (time & 0xFFFFFFFF) << 32 | (time >> 32 & 0xFFFF) << 16 | 0x1000 | time >> 48
    return UUID(int=high << 64 | low)
