"""The settle log of one lease term, cut into pieces: the cells to write so that new facts are durable.

A piece is overwritten by its owner as it grows, and closed when it is full, so that no write is large. Facts of rows
that the lane's position has passed leave an open piece only once that position is known to be in the lane (attack
D5). Pure: it returns the writes and does not write.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from headgate.engines.lanes.settle_log_format import RowFacts, encode_head, encode_row

PIECE_BYTES_MAX = 8 * 1024

Where = TypeVar("Where", bound=Hashable)
"""The partition of a record, as the engine names it: for timeline a part and its sub."""


@dataclass(frozen=True)
class Piece(Generic[Where]):
    """One cell to be written, whole."""

    where: Where
    number: int
    content: bytes


@dataclass
class _Open:
    """A piece that still grows. Its text about a row is encoded when that changes, not with every write."""

    number: int = 0
    facts: dict[bytes, RowFacts] = field(default_factory=dict)
    encoded: dict[bytes, bytes] = field(default_factory=dict)

    def add(self, key: bytes, latest: RowFacts) -> None:
        """The latest of one row."""
        facts = self.facts.get(key)
        if facts is None:
            facts = self.facts[key] = RowFacts()
        facts.overrule(latest)
        self.encoded[key] = encode_row(key, facts)


class Record(Generic[Where]):
    """The pieces that one lease term writes."""

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self._open: dict[Where, _Open] = {}

    def add(self, pending_facts: Mapping[Where, Mapping[bytes, RowFacts]]) -> list[Piece[Where]]:
        """Add new facts; returns the writes that make them durable now."""
        pieces = []
        for where, facts in pending_facts.items():
            piece = self._open.setdefault(where, _Open())
            for key, latest in facts.items():
                piece.add(key, latest)
            content = b"".join((encode_head(epoch=self.epoch, piece=piece.number), *piece.encoded.values()))
            pieces.append(Piece(where, piece.number, content))
            if len(content) > PIECE_BYTES_MAX:
                self._open[where] = _Open(piece.number + 1)
        return pieces

    def forget(self, passed: Mapping[Where, Iterable[bytes]]) -> None:
        """Drop the facts of rows below a position that is known to be in the lane. The facts of moved messages stay:
        `where` locates them by it, and they exist nowhere else."""
        for where, keys in passed.items():
            piece = self._open.get(where)
            if piece is not None:
                for key in keys:
                    facts = piece.facts.get(key)
                    if facts is not None and not facts.moved:
                        del piece.facts[key], piece.encoded[key]

    def close(self, where: Where) -> None:
        """No further facts of this partition follow."""
        self._open.pop(where, None)
