"""The settle log of a lease term: what a piece holds, and that it is emptied once the position is above it."""

from __future__ import annotations

from headgate.engines.lanes.log.settle_log import PIECE_BYTES_MAX, Piece, Record
from headgate.engines.lanes.log.settle_log_format import (
    Facts,
    Moved,
    RowFacts,
    decode,
    encode,
    encode_row,
    merge_facts,
)
from tests.unit.engines.test_delivery_state import row

EPOCH = 7
ROWS = 2_000


def add(record: Record[int], *orders: int, moved: bool = False, where: int = 0) -> list[Piece[int]]:
    """Settle a row of one message for each order, or fix a place for its copy."""
    facts = RowFacts(settled=1, moved={0: Moved(EPOCH, 0, 1, b"there")} if moved else {})
    return record.add([(row(order, 1, where=where), facts) for order in orders])


class Table:
    """The pieces as the store has them."""

    def __init__(self) -> None:
        self.pieces: dict[tuple[int, int], bytes] = {}

    def write(self, pieces: list[Piece[int]]) -> None:
        """A later piece of one number overwrites the earlier one."""
        for piece in pieces:
            self.pieces[piece.where, piece.number] = piece.content

    def facts(self) -> Facts:
        """All of them."""
        whole: Facts = {}
        for piece in self.pieces.values():
            merge_facts(whole, decode(piece))
        return whole

    @property
    def size_bytes(self) -> int:
        """Of all pieces."""
        return sum(map(len, self.pieces.values()))


def test_closed_pieces_are_emptied_once_the_position_is_above_them() -> None:
    record, table = Record[int](EPOCH), Table()
    for order in range(ROWS):
        table.write(add(record, order))
    assert len(table.pieces) >= 5
    record.forget(ROWS - 100)
    table.write(add(record, ROWS))
    keys = {b"row%d" % order for order in range(ROWS - 99, ROWS + 1)}
    assert keys <= set(table.facts())
    assert table.size_bytes < 2 * PIECE_BYTES_MAX


def test_the_place_of_a_copy_stays_in_a_piece_that_is_emptied() -> None:
    record, table = Record[int](EPOCH), Table()
    table.write(add(record, 1, moved=True))
    for order in range(2, ROWS):
        table.write(add(record, order))
    record.forget(ROWS)
    table.write(add(record, ROWS))
    assert {b"row1": b"there"} == {key: of.moved[0].place for key, of in table.facts().items() if of.moved}


def test_a_settle_log_does_not_grow_with_the_parts_that_its_owner_has_passed() -> None:
    record = Record[int](EPOCH)
    for part in range(300):
        add(record, part, where=part)
        record.forget(part)
        add(record, part, where=part)
    assert len(record._open) + len(record._closed) <= 3


def test_a_reason_is_kept_where_a_copy_needs_it_and_pieces_without_one_are_as_before() -> None:
    plain = {b"row": RowFacts(settled=1, moved={3: Moved(EPOCH, 5, 2, b"there")})}
    assert plain == decode(encode(plain, epoch=EPOCH, piece=5))
    named = {b"row": RowFacts(moved={3: Moved(EPOCH, 5, 2, b"there", "Fehler: ü")}), b"other": RowFacts(settled=1)}
    assert named == decode(encode(named, epoch=EPOCH, piece=5))
    assert encode_row(b"row", named[b"row"]) != encode_row(b"row", plain[b"row"])


def test_rows_that_nobody_wants_are_skipped() -> None:
    facts = {
        b"low": RowFacts(settled=3, moved={2: Moved(EPOCH, 5, 2, b"there", "reason")}),
        b"high": RowFacts(settled=5),
    }
    piece = encode(facts, epoch=EPOCH, piece=5)
    assert {b"high": facts[b"high"]} == decode(piece, wanted=lambda key: key == b"high")
