"""The rows that owners of a lane have passed: by these a row that lands late is told from one that was handled.

A piece holds due ids in order, each as its difference from the one before: eight bytes of time and low half would do
for any, most take fewer. Pieces are written once and only added to by others, so nothing here is ever read to be
written (attacks A3, A4). Pure.
"""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID

from penstock.errors import PenstockError

VERSION = 1
_LOW_HALF = (1 << 64) - 1


class PassedBroken(PenstockError):
    """A stored record of passed rows can not be read."""


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
        raise PassedBroken("a record of passed rows is of another version", remedy="upgrade this process")
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
        raise PassedBroken("a record of passed rows is cut short", length=len(piece))
    return ids


def _number_of(due: UUID) -> int:
    """A time uuid as a number that grows with time: its time, then its low half."""
    return due.time << 64 | due.int & _LOW_HALF


def _uuid_of(number: int) -> UUID:
    time, low = number >> 64, number & _LOW_HALF
    high = (time & 0xFFFFFFFF) << 32 | (time >> 32 & 0xFFFF) << 16 | 0x1000 | time >> 48
    return UUID(int=high << 64 | low)
