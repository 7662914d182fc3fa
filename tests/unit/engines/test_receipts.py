"""Receipts: each names one delivery of one message, and nobody else can make one or change one."""

from __future__ import annotations

from itertools import combinations
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.engines import receipts as module
from headgate.engines.lanes.lane_name import LaneName
from headgate.engines.receipts import Receipt, Receipts, read_receipt, receipts_of
from headgate.errors import InvalidRequest

QUEUE, OTHER = UUID(int=1), UUID(int=2)
SECRET = b"secret"
ROWS = st.tuples(
    st.lists(st.integers(0, 2**128 - 1), max_size=4).map(tuple),
    st.integers(0, 2**32 - 1),
    st.integers(0, 2**32 - 1),
    st.binary(max_size=255),
)


@given(ROWS, st.integers(0, 65_535))
def test_what_a_receipt_names_is_read_from_it_by_any_process(
    row: tuple[LaneName, int, int, bytes], index: int
) -> None:
    text = Receipts(QUEUE, SECRET).of_row(*row, count=index + 1).text(index)
    lane, epoch, attempt, key = row
    named = Receipt(lane, epoch, attempt, index, key)
    for reader in (Receipts(QUEUE, SECRET), receipts_of(QUEUE, SECRET)):
        result, at = reader.read(text)
        assert named == Receipt(result.lane, result.epoch, result.attempt, at, result.key)
    assert named == read_receipt(text, queue=QUEUE, secret=SECRET)


def test_every_delivery_has_a_receipt_of_its_own() -> None:
    write = Receipts(QUEUE, SECRET)
    rows = [
        write.of_row((1, 2), 3, 4, b"key", count=600),
        write.of_row((2, 2), 3, 4, b"key", count=600),
        write.of_row((1, 3), 3, 4, b"key", count=600),
        write.of_row((1, 2), 4, 4, b"key", count=600),
        write.of_row((1, 2), 3, 5, b"key", count=600),
        write.of_row((1, 2), 3, 4, b"kez", count=600),
        Receipts(OTHER, SECRET).of_row((1, 2), 3, 4, b"key", count=600),
        Receipts(QUEUE, b"other").of_row((1, 2), 3, 4, b"key", count=600),
    ]
    texts = [row.text(index) for row in rows for index in range(600)]
    assert len(texts) == len(set(texts))
    seals = [{row.text(index)[-16:] for index in range(600)} for row in rows]
    assert all(not one & other for one, other in combinations(seals, 2))


def test_the_seal_does_not_depend_on_how_many_messages_were_asked_for() -> None:
    few, many = (Receipts(QUEUE, SECRET).of_row((1, 2), 3, 4, b"key", count=count) for count in (6, 500))
    assert few.text(5) == many.text(5)


@pytest.mark.parametrize("remembered", [True, False])
def test_a_receipt_that_was_changed_anywhere_is_refused(remembered: bool) -> None:
    write = Receipts(QUEUE, SECRET)
    text = write.of_row((1, 2), 3, 4, b"some key of a row", count=9).text(7)
    read = write if remembered else Receipts(QUEUE, SECRET)
    assert 7 == read.read(text)[1]
    for place, pending in enumerate(text):
        for other in "Ab-é":
            if other != pending:
                with pytest.raises(InvalidRequest):
                    read.read(text[:place] + other + text[place + 1 :])


@pytest.mark.parametrize("reader", [Receipts(OTHER, SECRET), Receipts(QUEUE, b"another secret")])
def test_another_queue_and_another_key_refuse_it(reader: Receipts) -> None:
    with pytest.raises(InvalidRequest):
        reader.read(Receipts(QUEUE, SECRET).of_row((1, 2), 3, 4, b"key", count=1).text(0))


@pytest.mark.parametrize("text", ["", "x", "é" * 50, "A" * 20, "A" * 64, "=" * 64, " " * 64, "AAAA" * 100])
def test_what_is_no_receipt_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        receipts_of(QUEUE, SECRET).read(text)
    assert 1 == len(str(refused.value).splitlines())


@given(st.text(max_size=90))
def test_no_text_makes_it_fail_otherwise(text: str) -> None:
    with pytest.raises(InvalidRequest):
        receipts_of(QUEUE, SECRET).read(text)


def test_seals_of_one_row_cannot_be_exchanged() -> None:
    row = Receipts(QUEUE, SECRET).of_row((1, 2), 3, 4, b"key", count=2)
    first, second = row.text(0), row.text(1)
    with pytest.raises(InvalidRequest):
        Receipts(QUEUE, SECRET).read(first[:-16] + second[-16:])


def test_what_is_remembered_is_bounded_and_what_is_forgotten_is_still_honoured(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "REMEMBERED_MESSAGES", 100)
    write = Receipts(QUEUE, SECRET)
    texts = [write.of_row((1, 2), 3, 4, b"%d" % number, count=10).text(3) for number in range(1_000)]
    assert len(write._rows) + len(write._rows_before) <= 20
    assert [b"%d" % number for number in range(1_000)] == [write.read(text)[0].key for text in texts]


@pytest.mark.parametrize("cut", range(1, 30))
def test_a_receipt_that_was_cut_short_is_refused(cut: int) -> None:
    text = Receipts(QUEUE, SECRET).of_row((1, 2), 3, 4, b"some key of a row", count=1).text(0)
    for part in (text[cut:], text[:-cut]):
        with pytest.raises(InvalidRequest):
            Receipts(QUEUE, SECRET).read(part)


def test_a_receipt_of_the_version_before_is_read_and_nothing_of_it_can_be_changed() -> None:
    before = "AgEAAAACAAcAAAADAAAAEgABERERESIiQzOERFVVVVVVVQAAAAAEMOfw6yhfEYGy-Y_Z"
    queue = UUID("11111111-2222-4333-8444-555555555555")
    read = read_receipt(before, queue=queue, secret=SECRET)
    assert Receipt((1, 2), 7, 3, 4, b"\x00\x01" + queue.bytes) == read
    for at, character in enumerate(before):
        with pytest.raises(InvalidRequest):
            changed = before[:at] + ("A" if character != "A" else "B") + before[at + 1 :]
            read_receipt(changed, queue=queue, secret=SECRET)
