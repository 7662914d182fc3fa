"""The settle log of one lease term, cut into pieces: the cells to write so that new facts are durable.

A piece is overwritten by its owner as it grows, and closed when it is full, so that no write is large. Facts of rows
that the lane's position has passed leave their piece only once that position is known to be in the lane (attack D5).
No number of a piece is used twice, so nothing is kept of a piece that was emptied. Pure: it returns the writes and
does not write.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Generic, TypeVar
from uuid import UUID

from headgate.engines.lanes.delivery.rows import LaneRow
from headgate.engines.lanes.log.settle_log_format import NOBODY, RowFacts, encode_head, encode_row

PIECE_BYTES_MAX = 8 * 1024

Where = TypeVar("Where", bound=Hashable)
"""The partition of a record, as the engine names it: for timeline a part and its sub."""


@dataclass(frozen=True)
class Piece(Generic[Where]):
    """One cell to be written, whole."""

    where: Where
    number: int
    content: bytes


@dataclass(eq=False)
class _Growing(Generic[Where]):
    """A piece that is not emptied yet. Its text about a row is encoded when that changes, not with every write."""

    where: Where
    number: int
    up_to: Any
    rows: dict[bytes, tuple[Any, RowFacts, bytes]] = field(default_factory=dict)

    def add(self, row: LaneRow, latest: RowFacts) -> None:
        """The latest of one row."""
        facts = self.rows[row.key][1] if row.key in self.rows else RowFacts()
        facts.overrule(latest)
        self.rows[row.key] = row.order, facts, encode_row(row.key, facts)
        self.up_to = max(self.up_to, row.order)

    def keep(self, *, above: Any) -> None:
        """Drop the facts of rows up to an order. The facts of moved messages stay: `where` locates them by it, and
        they exist nowhere else."""
        self.rows = {key: row for key, row in self.rows.items() if row[0] > above or row[1].moved}


class Record(Generic[Where]):
    """The pieces that one lease term writes."""

    def __init__(self, epoch: int, owner: UUID = NOBODY) -> None:
        self.epoch = epoch
        self.owner = owner
        self._numbers = count()
        self._open: dict[Where, _Growing[Where]] = {}
        self._closed: list[_Growing[Where]] = []
        self._emptied: list[Piece[Where]] = []

    def add(self, pending_facts: Iterable[tuple[LaneRow, RowFacts]]) -> list[Piece[Where]]:
        """Add new facts; returns the writes that make them durable now, and those that empty earlier pieces."""
        grown = {}
        for row, latest in pending_facts:
            piece = self._open.get(row.where)
            if piece is None:
                piece = self._open[row.where] = _Growing(row.where, next(self._numbers), row.order)
            piece.add(row, latest)
            grown[piece.number] = piece
        pieces, self._emptied = self._emptied, []
        for piece in grown.values():
            pieces.append(self._as_stored(piece))
            if len(pieces[-1].content) > PIECE_BYTES_MAX:
                del self._open[piece.where]
                piece.keep(above=piece.up_to)
                self._closed.append(piece)
        return pieces

    def forget(self, last: Any) -> None:
        """Drop the facts of rows at or below a position that is known to be in the lane."""
        newest = max(self._open.values(), key=lambda piece: piece.number, default=None)
        for piece in self._open.values():
            piece.keep(above=last)
        over = [each for each in (*self._closed, *self._open.values()) if each.up_to <= last and each is not newest]
        for piece in over:
            self._emptied.append(self._as_stored(piece))
            if self._open.get(piece.where) is piece:
                del self._open[piece.where]
        self._closed = [piece for piece in self._closed if piece not in over]

    def _as_stored(self, piece: _Growing[Where]) -> Piece[Where]:
        head = encode_head(epoch=self.epoch, piece=piece.number, owner=self.owner)
        return Piece(piece.where, piece.number, b"".join((head, *(text for _, _, text in piece.rows.values()))))
