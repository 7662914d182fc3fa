"""Scans find every key once, page by page, and nothing but keys."""

from __future__ import annotations

from itertools import pairwise

from headgate.store.model.statements import Batch, Insert, Scan
from tests.contract.store.tables import SCANNED
from tests.contract.store.worlds import ALL, World

PARTITIONS = 40


async def _filled(world: World) -> list[str]:
    at = world.now_us()
    keys = [world.key() for _ in range(PARTITIONS)]
    for key in keys:
        rows = [Insert(SCANNED, {"p": key, "c": c, "v": "v"}, timestamp_us=at) for c in range(3)]
        await world.store.write(Batch(rows, consistency=ALL))
    return keys


async def _scan(world: World, wanted: set[str], scan: Scan) -> list[tuple[object, ...]]:
    return [tuple(row) async for row in world.store.scan(scan) if row.p in wanted]


async def test_a_scan_finds_each_partition_once_however_small_its_pages(world: World) -> None:
    keys = await _filled(world)
    for page_rows in (7, 1000):
        result = await _scan(world, set(keys), Scan(SCANNED, ["p"], page_rows=page_rows))
        assert sorted((key,) for key in keys) == sorted(result)


async def test_a_scan_of_whole_keys_finds_each_row_once(world: World) -> None:
    keys = await _filled(world)
    result = await _scan(world, set(keys), Scan(SCANNED, ["p", "c"], page_rows=11))
    assert sorted((key, c) for key in keys for c in range(3)) == sorted(result)


async def test_token_ranges_side_by_side_find_each_key_once(world: World) -> None:
    keys = await _filled(world)
    ends = [-(2**63), -(2**61), 0, 2**62, 2**63 - 1]
    matches: list[tuple[object, ...]] = []
    for start, end in pairwise(ends):
        part = await _scan(world, set(keys), Scan(SCANNED, ["p"], from_token=start, to_token=end, page_rows=5))
        assert not set(part) & set(matches)
        matches += part
    assert sorted((key,) for key in keys) == sorted(matches)


async def test_a_scan_does_not_find_what_was_deleted(world: World) -> None:
    keys = await _filled(world)
    for key in keys[::2]:
        await world.delete(SCANNED, {"p": key}, world.now_us() + 10)
    result = await _scan(world, set(keys), Scan(SCANNED, ["p"], page_rows=9))
    assert sorted((key,) for key in keys[1::2]) == sorted(result)


async def test_a_scan_of_an_empty_range_finds_nothing(world: World) -> None:
    await _filled(world)
    assert [] == [row async for row in world.store.scan(Scan(SCANNED, ["p"], from_token=5, to_token=5))]
