"""Families of restamped rows, and the record of passed rows that they are known by below the position."""

from __future__ import annotations

import asyncio
import tracemalloc
from uuid import UUID

import pytest

from headgate.engines.timeline.read.passed_rows import PassedBroken, PassedRows, encode_passed
from headgate.engines.timeline.read.restamp_families import Families
from headgate.store.model.positions import Positions

SECOND, MINUTE_US = 1_000_000, 60_000_000
POSITIONS = Positions(lambda: 5)


class Lane:
    """One lease term's families, and its record of passed rows, in memory."""

    def __init__(self, *, epoch: int = 0) -> None:
        self.passed: set[UUID] = set()
        self.reads = 0
        self.families = Families(MINUTE_US, self._read, epoch=epoch)

    async def _read(self, part: int) -> PassedRows:
        self.reads += 1
        await asyncio.sleep(0)
        return PassedRows([(encode_passed(self.passed), None)])

    def passes(self, *rows: tuple[UUID, UUID]) -> None:
        """Rows by the first of their family and their own due id, as an owner passes them."""
        self.passed.update(due for row in rows for due in row)
        self.families.forget(rows)


def row_of(second: float) -> UUID:
    """A row that is due then."""
    return POSITIONS.at(round(second * SECOND))


def test_of_a_family_the_first_row_that_is_read_is_delivered() -> None:
    async def lease_term() -> None:
        lane, first, other = Lane(), row_of(1), row_of(2)
        assert lane.families.choose_first(first)
        assert not await lane.families.choose(first, row_of(3))
        assert await lane.families.choose(other, row_of(4))
        assert not await lane.families.choose(other, row_of(5))
        assert lane.families.choose_first(first), "it is read again"

    asyncio.run(lease_term())


def test_a_family_is_known_by_the_record_once_its_row_is_passed() -> None:
    async def lease_term() -> None:
        lane, first, other, restamp = Lane(), row_of(1), row_of(2), row_of(3)
        assert lane.families.choose_first(first)
        assert await lane.families.choose(other, restamp), "what was passed in the part is known from here on"
        lane.passes((first, first))
        assert not await lane.families.choose(first, row_of(4))
        lane.passes((other, restamp))
        assert not await lane.families.choose(other, row_of(5))

    asyncio.run(lease_term())


def test_a_row_that_is_passed_while_the_record_is_read_is_known() -> None:
    async def lease_term() -> None:
        lane, first, other = Lane(), row_of(1), row_of(2)
        assert lane.families.choose_first(first)
        reading = asyncio.ensure_future(lane.families.choose(other, row_of(3)))
        await asyncio.sleep(0)
        lane.passes((first, first))
        assert await reading
        assert not await lane.families.choose(first, row_of(4))

    asyncio.run(lease_term())


def test_a_dropped_row_that_is_passed_leaves_its_family_to_the_row_in_flight() -> None:
    async def lease_term() -> None:
        lane, first, restamp = Lane(epoch=5), row_of(1), row_of(2)
        lane.families.begun(first, restamp, epoch=4)
        assert not lane.families.choose_first(first)
        lane.passes((first, first))
        assert await lane.families.choose(first, restamp)
        assert not await lane.families.choose(first, row_of(3))

    asyncio.run(lease_term())


def test_many_restamped_rows_of_a_part_cost_one_read() -> None:
    async def lease_term() -> None:
        lane = Lane()
        for number in range(50):
            assert await lane.families.choose(row_of(number / 10), row_of(10 + number / 10))
        assert 1 == lane.reads

    asyncio.run(lease_term())


def test_memory_does_not_grow_with_rows_of_a_single_message() -> None:
    """A hundred minutes with ten rows in each second, each passed a second after it was read."""
    lane = Lane()

    def read(minutes: range) -> int:
        for second in range(60 * minutes.start, 60 * minutes.stop):
            rows = [row_of(second + tenth / 10) for tenth in range(10)]
            assert all(map(lane.families.choose_first, rows))
            lane.families.forget((row, row) for row in rows)
        return tracemalloc.get_traced_memory()[0]

    tracemalloc.start()
    warm = read(range(10))
    assert read(range(10, 100)) - warm < 10_000
    tracemalloc.stop()


# ---- the record


@pytest.mark.parametrize("is_bounded", [True, False])
def test_passed_rows_are_distinguished_from_others_however_large_the_record(is_bounded: bool) -> None:
    ids = [row_of(each) for each in range(300)]
    pieces = [ids[start : start + 30 : 2] for start in range(0, 300, 30)]
    passed = PassedRows((encode_passed(piece), piece[-1] if is_bounded else None) for piece in pieces)
    for start in range(0, 300, 7):
        asked = ids[start : start + 7]
        assert {each for each in asked if ids.index(each) % 2 == 0} == passed.among(asked)
    assert set() == passed.among([])


def test_only_the_pieces_around_a_row_are_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    ids = [row_of(each) for each in range(3_000)]
    pieces = [ids[start : start + 30] for start in range(0, 3_000, 30)]
    passed = PassedRows((encode_passed(piece), piece[-1]) for piece in pieces)
    decoded: list[int] = []

    def decode(piece: bytes) -> set[UUID]:
        decoded.append(len(piece))
        return set()

    monkeypatch.setattr("headgate.engines.timeline.read.passed_rows.decode_passed", decode)
    passed.among({ids[1_234]})
    assert 1 == len(decoded)


def test_a_record_that_cannot_be_read_is_refused_whole() -> None:
    with pytest.raises(PassedBroken):
        PassedRows([(encode_passed([row_of(1)]), None), (b"\xff", None)])
