"""The reads under way in a process: bounded in number and in bytes, in their order, and never stuck."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from headgate.engines.lanes.delivery.read_gate import ReadGate


class Reads:
    """Reads that last one turn each, and what was under way at most."""

    def __init__(self, gate: ReadGate) -> None:
        self.gate = gate
        self.under_way: list[int] = []
        self.order: list[int] = []
        self.most_reads = self.most_bytes = 0

    async def read(self, size: int, number: int = 0) -> None:
        async with self.gate.read(size):
            self.under_way.append(size)
            self.order.append(number)
            self.most_reads = max(self.most_reads, len(self.under_way))
            self.most_bytes = max(self.most_bytes, sum(self.under_way))
            await asyncio.sleep(0.001)
            self.under_way.remove(size)

    async def all(self, sizes: Sequence[int]) -> None:
        await asyncio.gather(*(self.read(size, number) for number, size in enumerate(sizes)))


def test_no_more_reads_are_under_way_than_the_bound() -> None:
    reads = Reads(ReadGate(reads_max=5, bytes_max=1_000))
    asyncio.run(reads.all([1] * 40))
    assert (5, 40) == (reads.most_reads, len(reads.order))


def test_no_more_bytes_are_asked_for_than_the_bound_and_reads_go_in_their_order() -> None:
    reads = Reads(ReadGate(reads_max=50, bytes_max=1_000))
    asyncio.run(reads.all([400, 500, 600, 10, 10, 10]))
    assert reads.most_bytes <= 1_000
    assert [0, 1, 2, 3, 4, 5] == reads.order


def test_a_read_that_is_larger_than_the_bound_goes_alone() -> None:
    reads = Reads(ReadGate(reads_max=50, bytes_max=1_000))
    asyncio.run(reads.all([300, 5_000, 300]))
    assert (5_000, [0, 1, 2]) == (reads.most_bytes, reads.order)


@pytest.mark.parametrize("is_granted", [True, False])
def test_a_reader_that_is_cancelled_leaves_its_place_to_others(is_granted: bool) -> None:
    async def scenario() -> int:
        reads = Reads(ReadGate(reads_max=1, bytes_max=1_000))
        first = asyncio.create_task(reads.read(1))
        waiting = asyncio.create_task(reads.read(1))
        await asyncio.sleep(0)
        if is_granted:
            await first  # the turn of the second has come, and it has not run since
        waiting.cancel()
        await asyncio.gather(first, waiting, return_exceptions=True)
        await asyncio.wait_for(reads.all([1, 1]), 1)
        return len(reads.order)

    assert asyncio.run(scenario()) >= 3
