"""Rows as they came over the wire: the same rows as a read gives, from the real server and from the simulated one."""

from __future__ import annotations

from uuid import UUID

from headgate.store.model.rows import row_at
from headgate.store.model.statements import Select, Slice, SliceBound
from headgate.store.model.types import Type, Value
from tests.contract.store.tables import LOG, TIES
from tests.contract.store.worlds import World

VALUES: dict[Type, tuple[Value, ...]] = {
    Type.BOOLEAN: (True, False),
    Type.INT: (-(2**31), 7),
    Type.BIGINT: (-(2**63), 2**63 - 1),
    Type.DOUBLE: (-0.5, 1e300),
    Type.TEXT: ("", "größer\U0001f600"),
    Type.BLOB: (b"", b"\x00\xff" * 5_000),
    Type.UUID: (UUID(int=0), UUID(int=2**128 - 1)),
    Type.TIMEUUID: (UUID("f0d7dc1c-c53a-11f0-8080-808080808080"), UUID("00000000-0000-1000-7f7f-7f7f7f7f7f7f")),
}


async def wired(world: World, select: Select) -> list[tuple[Value, ...]]:
    """The rows of `read_wired`, decoded."""
    result = await world.store.read_wired(select)
    columns = [select.shape.table.by_name[name] for name in select.shape.result_names]
    rows, place = [], 0
    for _ in range(result.count):
        row, place = row_at(result.content, place, columns)
        rows.append(tuple(row))
    assert len(result.content) == place
    return rows


async def test_values_of_each_type_and_nulls_are_those_of_a_read(world: World) -> None:
    p, at = world.key(), world.now_us()
    for c in (0, 1):
        cells = {f"a_{kind.name.lower()}": values[c] for kind, values in VALUES.items()}
        await world.insert(TIES, {"p": p, "c": c, **cells}, at)
    await world.insert(TIES, {"p": p, "c": 2}, at)
    select = Select(TIES, {"p": p})
    expected = [tuple(row) for row in await world.store.read(select)]
    assert [0, 1, 2] == [row[1] for row in expected]
    assert expected == await wired(world, select)


async def test_a_slice_with_a_limit_is_that_of_a_read(world: World) -> None:
    p, at = world.key(), world.now_us()
    for c in range(6):
        await world.insert(LOG, {"p": p, "c": c, "v": f"v{c}"}, at)
    within = Slice("c", SliceBound(1, inclusive=False), SliceBound(5, inclusive=True))
    assert [(2, "v2"), (3, "v3")] == await wired(world, Select(LOG, {"p": p}, ("c", "v"), within=within, limit=2))
    backwards = Select(LOG, {"p": p}, ("c", "v"), within=within, limit=1, backwards=True)
    assert [(5, "v5")] == await wired(world, backwards)


async def test_the_same_read_brings_values_to_one_and_bytes_to_another(world: World) -> None:
    p = world.key()
    await world.insert(LOG, {"p": p, "c": 1, "v": "v"}, world.now_us())
    select = Select(LOG, {"p": p}, ("c", "v"))
    for _ in range(2):
        assert [(1, "v")] == await wired(world, select)
        assert [(1, "v")] == [tuple(row) for row in await world.store.read(select)]


async def test_a_partition_that_was_never_written_has_no_rows(world: World) -> None:
    result = await world.store.read_wired(Select(LOG, {"p": world.key()}, ("c",)))
    assert (0, b"") == (result.count, result.content)
