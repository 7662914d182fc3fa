"""Statements that still work when replicas are down, and the errors of those that do not."""

from __future__ import annotations

from uuid import uuid4

import pytest

from headgate.errors import Unavailable
from headgate.store.model.consistency import Consistency
from headgate.store.model.statements import Batch, Insert, InsertIfAbsent, Scan, Select, UpdateIf, is_
from headgate.store.store import NotEnoughReplicas, OutcomeUnknown
from tests.contract.store.tables import LANES, LOG
from tests.contract.store.worlds import World

BRIEF_S = 2.0
ONE, QUORUM, ALL, SERIAL = Consistency.ONE, Consistency.LOCAL_QUORUM, Consistency.ALL, Consistency.SERIAL


def _insert(p: str, at: int, consistency: Consistency, c: int = 1) -> Insert:
    return Insert(LOG, {"p": p, "c": c, "v": "v"}, timestamp_us=at, consistency=consistency)


@pytest.mark.down(1)
async def test_with_one_down_a_quorum_writes_and_reads(world: World) -> None:
    for _ in range(10):
        p = world.key()
        await world.store.write(_insert(p, world.now_us(), QUORUM))
        assert [("v",)] == await world.rows(LOG, p, "v", consistency=QUORUM)


@pytest.mark.down(1)
async def test_with_one_down_all_is_refused_before_anything_is_done(world: World) -> None:
    p = world.key()
    with pytest.raises(NotEnoughReplicas):
        await world.store.write(_insert(p, world.now_us(), ALL), within_s=BRIEF_S)
    with pytest.raises(NotEnoughReplicas):
        await world.store.read(Select(LOG, {"p": p}, consistency=ALL), within_s=BRIEF_S)
    assert [] == await world.rows(LOG, p, "v", consistency=QUORUM)


@pytest.mark.down(1)
async def test_with_one_down_an_unlogged_batch_of_several_partitions_is_unknown(world: World) -> None:
    at = world.now_us()
    parts = [_insert(world.key(), at, ALL) for _ in range(3)]
    with pytest.raises(OutcomeUnknown):
        await world.store.write(Batch(parts, consistency=ALL), within_s=BRIEF_S)


@pytest.mark.down(1)
async def test_with_one_down_a_logged_batch_at_all_does_nothing(world: World) -> None:
    at, keys = world.now_us(), [world.key() for _ in range(3)]
    parts = [_insert(key, at, ALL) for key in keys]
    with pytest.raises(NotEnoughReplicas):
        await world.store.write(Batch(parts, logged=True, consistency=ALL), within_s=BRIEF_S)
    assert [[], [], []] == [await world.rows(LOG, key, "v", consistency=QUORUM) for key in keys]


@pytest.mark.down(1)
@pytest.mark.parametrize("logged", [False, True], ids=["unlogged", "logged"])
async def test_with_one_down_batches_at_quorum_are_whole(world: World, logged: bool) -> None:
    at, keys = world.now_us(), [world.key() for _ in range(4)]
    await world.store.write(Batch([_insert(key, at, QUORUM) for key in keys], logged=logged))
    assert [[("v",)]] * 4 == [await world.rows(LOG, key, "v", consistency=QUORUM) for key in keys]


@pytest.mark.down(1)
async def test_with_one_down_lwts_and_serial_reads_continue(world: World) -> None:
    p, mine = world.key(), uuid4()
    key = {"p": p, "c": 1}
    assert (await world.create_by_lwt(LANES, {**key, "epoch": 1})).applied
    assert not (await world.create_by_lwt(LANES, {**key, "epoch": 1})).applied
    assert (await world.change_by_lwt(LANES, key, {"epoch": 2}, is_("epoch", 1), attempt=mine)).applied
    assert [(2, mine)] == await world.serial(LANES, p, "epoch", "attempt")


@pytest.mark.down(1)
async def test_with_one_down_a_scan_finds_every_key(world: World) -> None:
    at, keys = world.now_us(), [world.key() for _ in range(10)]
    for key in keys:
        await world.store.write(_insert(key, at, QUORUM))
    matches = [row.p async for row in world.store.scan(Scan(LOG, ["p"], page_rows=50)) if row.p in keys]
    assert sorted(keys) == sorted(matches)


@pytest.mark.down(2)
async def test_with_two_down_one_still_writes_and_reads(world: World) -> None:
    for _ in range(10):
        p = world.key()
        await world.store.write(_insert(p, world.now_us(), ONE))
        assert [("v",)] == await world.rows(LOG, p, "v", consistency=ONE)


@pytest.mark.down(2)
async def test_with_two_down_a_quorum_is_refused_before_anything_is_done(world: World) -> None:
    p = world.key()
    with pytest.raises(NotEnoughReplicas):
        await world.store.write(_insert(p, world.now_us(), QUORUM), within_s=BRIEF_S)
    with pytest.raises(NotEnoughReplicas):
        await world.store.read(Select(LOG, {"p": p}), within_s=BRIEF_S)
    assert [] == await world.rows(LOG, p, "v", consistency=ONE)


@pytest.mark.down(2)
async def test_with_two_down_an_lwt_is_not_applied_and_is_not_reported_to_be(world: World) -> None:
    p = world.key()
    with pytest.raises(Unavailable):
        await world.store.decide(InsertIfAbsent(LANES, {"p": p, "c": 1}, attempt=uuid4()), within_s=BRIEF_S)
    change = UpdateIf(LANES, {"p": p, "c": 2}, {"epoch": 1}, is_("epoch", None), attempt=uuid4())
    with pytest.raises(Unavailable):
        await world.store.decide(change, within_s=BRIEF_S)
    assert [] == await world.rows(LANES, p, "c", consistency=ONE)


@pytest.mark.down(2)
async def test_with_two_down_a_serial_read_does_not_guess(world: World) -> None:
    with pytest.raises(Unavailable):
        await world.store.read(Select(LANES, {"p": world.key()}, consistency=SERIAL), within_s=BRIEF_S)
