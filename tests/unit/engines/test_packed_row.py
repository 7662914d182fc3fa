"""The packed row: what goes in comes out, what is stored stays readable, and what is damaged is refused."""

from __future__ import annotations

import array
import zlib
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.engines import packed_row
from headgate.engines.packed_row import PackedRun, RowBroken, count_of, directory, memory_of, open_row, pack, unpack

GOLDEN = bytes.fromhex(
    "01000200 a0658ac7 68000000"  # version, not compressed, two messages; checksum; length of the body
    "04000000"  # four columns: number, kind, place, length
    "0100 0100 38000000 08000000"
    "0200 0200 40000000 10000000"
    "0400 0300 50000000 0f000000"
    "0300 0100 60000000 08000000"
    "00000000"  # up to a multiple of 8
    "40420f0000000000"  # due: 1 s, for both
    "80841e0000000000 c0c62d0000000000"  # put: 2 s, 3 s
    "00000000 02000000 03000000 616263 00"  # payload: ab, c
    "0100000000000000"  # attempt: 1, for both
)
"""Read by hand against docs/internals/formats.md: a change that cannot read it breaks what users have stored."""

numbers = st.integers(-(2**63), 2**63 - 1)


@st.composite
def runs(draw: st.DrawFn) -> PackedRun:
    """Any run: constant and varying columns, empty payloads, absent columns."""
    count = draw(st.integers(1, 40))
    many_numbers = st.one_of(
        st.lists(numbers, min_size=count, max_size=count), numbers.map(lambda one: [one] * count)
    )
    many_bytes = st.lists(st.binary(max_size=60), min_size=count, max_size=count)
    return PackedRun(
        due_us=draw(many_numbers),
        put_us=draw(many_numbers),
        payload=draw(many_bytes),
        attempt=draw(st.none() | many_numbers),
        attributes=draw(st.none() | many_bytes),
        group=draw(st.none() | many_bytes),
        message_id=draw(st.none() | many_bytes),
        replaces=draw(st.none() | st.binary(max_size=30)),
    )


def as_lists(run: PackedRun) -> dict[str, object]:
    """The columns as plain lists, whatever sequences they are."""
    columns = {name: getattr(run, name) for name in PackedRun.__dataclass_fields__}
    return {
        name: value if value is None or isinstance(value, bytes) else list(value) for name, value in columns.items()
    }


@given(runs())
def test_what_is_packed_is_unpacked(run: PackedRun) -> None:
    assert as_lists(run) == as_lists(unpack(pack(run)))


@given(runs(), st.data())
def test_a_flipped_bit_anywhere_is_refused(run: PackedRun, data: st.DataObject) -> None:
    cell = bytearray(pack(run))
    place = data.draw(st.integers(0, len(cell) * 8 - 1))
    cell[place // 8] ^= 1 << place % 8
    with pytest.raises(RowBroken):
        unpack(bytes(cell))


@given(runs(), st.data())
def test_a_row_cut_short_is_refused(run: PackedRun, data: st.DataObject) -> None:
    cell = pack(run)
    with pytest.raises(RowBroken):
        unpack(cell[: data.draw(st.integers(0, len(cell) - 1))])


def test_a_stored_row_of_version_1_stays_readable() -> None:
    expected = PackedRun(due_us=[1_000_000] * 2, put_us=[2_000_000, 3_000_000], payload=[b"ab", b"c"], attempt=[1, 1])
    assert as_lists(expected) == as_lists(unpack(GOLDEN))


def test_the_columns_of_bytes_are_laid_out_as_arrow_lays_them_out() -> None:
    payload = [b"first", b"", b"third"]
    _, body = open_row(pack(PackedRun([1, 2, 3], [1, 1, 1], payload)))
    kind, start, length = next(entry[1:] for entry in directory(body) if entry[0] == 4)
    content = bytes(body[start : start + length])
    assert (3, 0, [0, 5, 5, 10], b"firstthird") == (
        kind,
        start % 8,
        list(array.array("i", content[:16])),
        content[16:],
    )


def test_a_row_that_repeats_itself_is_stored_smaller() -> None:
    run = PackedRun([1] * 100, [1] * 100, [b'{"customer": "somebody", "amount": 12}'] * 100)
    assert len(pack(run)) < sum(map(len, run.payload)) / 4


def test_what_a_row_takes_in_memory_is_reported_of_its_content_however_small_it_is_stored() -> None:
    few, many = (pack(PackedRun([1] * 100, [1] * 100, [bytes(size)] * 100)) for size in (100, 10_000))
    assert len(many) < 10_000
    assert 9_900 * 100 <= memory_of(many) - memory_of(few) < 10_000 * 100
    assert 300 <= memory_of(pack(PackedRun([1], [1], [bytes(200)]))) < 600


def test_a_later_version_is_refused_with_what_to_do() -> None:
    cell = bytearray(pack(PackedRun([1], [1], [b"x"])))
    cell[0] = 2
    with pytest.raises(RowBroken, match="an unsupported version"):
        unpack(bytes(cell))


def sealed_again(cell: bytes) -> bytes:
    """With a checksum that is right."""
    checksum = zlib.crc32(cell[8:], zlib.crc32(cell[:4]))
    return cell[:4] + checksum.to_bytes(4, "little") + cell[8:]


@given(runs(), st.data())
def test_a_row_of_another_form_is_refused_by_no_other_error_though_its_checksum_is_right(
    run: PackedRun, data: st.DataObject
) -> None:
    cell = bytearray(pack(run))
    for _ in range(data.draw(st.integers(1, 4))):
        cell[data.draw(st.integers(8, len(cell) - 1))] = data.draw(st.integers(0, 255))
    with suppress(RowBroken):
        unpack(sealed_again(bytes(cell)))
    with suppress(RowBroken):
        unpack(sealed_again(bytes(cell[: data.draw(st.integers(12, len(cell)))])))


def test_a_compressed_row_that_does_not_decompress_is_refused() -> None:
    cell = pack(PackedRun([1] * 100, [1] * 100, [bytes(100)] * 100))
    assert 1 == cell[1]
    with pytest.raises(RowBroken, match="decompressed"):
        unpack(sealed_again(cell[:12] + b"\xff" * 40))


@pytest.mark.parametrize(("cell", "expected"), [(b"", 1), (bytes(40), 1), (b"\x01\x00\x07\x00" + bytes(8), 7)])
def test_the_messages_of_a_row_that_cannot_be_read_are_counted_by_its_header(cell: bytes, expected: int) -> None:
    assert expected == count_of(cell, most=512)
    assert 1 == count_of(b"\x01\x00\xff\xff" + bytes(8), most=512)


@given(st.binary(max_size=900), st.integers(-(2**63), 2**63 - 1), st.integers(-(2**63), 2**63 - 1))
def test_one_message_alone_is_packed_to_the_same_bytes_as_among_columns(payload: bytes, due: int, put: int) -> None:
    run = PackedRun(due_us=[due], put_us=[put], payload=[payload])
    assert packed_row._sealed(1, packed_row._body(packed_row._columns(run))) == pack(run)


@given(st.binary(max_size=700), numbers, numbers)
def test_a_message_alone_is_packed_and_read_as_its_columns_state(payload: bytes, due_us: int, put_us: int) -> None:
    cell = packed_row.pack_alone(payload, due_us=due_us, put_us=put_us)
    run = PackedRun([due_us], [put_us], [payload])
    count, body = open_row(cell)
    assert (1, packed_row._body(packed_row._columns(run))) == (count, bytes(body))
    assert as_lists(run) == as_lists(unpack(cell))


@given(st.binary(max_size=300), st.data())
def test_a_message_alone_that_is_damaged_is_refused(payload: bytes, data: st.DataObject) -> None:
    cell = bytearray(packed_row.pack_alone(payload, due_us=1, put_us=2))
    cell[data.draw(st.integers(0, len(cell) - 1))] ^= data.draw(st.integers(1, 255))
    with pytest.raises(RowBroken):
        unpack(bytes(cell))
