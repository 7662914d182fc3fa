"""Time to live: of cells, of markers, of a table; and what an expired cell leaves."""

from __future__ import annotations

from uuid import uuid4

from headgate.store.model.statements import BatchIf, UpdateIf, is_
from tests.contract.store.tables import FADING, LANES, LOG
from tests.contract.store.worlds import World

LIFE_S = 3
"""Long enough that a slow machine sees it, short enough to be waited for."""


async def test_everything_expires_cell_by_cell_and_row_by_row(world: World) -> None:
    """One wait for all claims about expiry on plain rows."""
    at = world.now_us()
    whole, updated, kept, again, static, older = (world.key() for _ in range(6))
    await world.insert(LOG, {"p": whole, "c": 1, "v": "v"}, at, ttl_s=LIFE_S)
    await world.insert(LOG, {"p": updated, "c": 1}, at)
    await world.update(LOG, {"p": updated, "c": 1}, {"v": "v"}, at, ttl_s=LIFE_S)
    await world.insert(LOG, {"p": kept, "c": 1, "v": "v"}, at, ttl_s=LIFE_S)
    await world.update(LOG, {"p": kept, "c": 1}, {"n": 1}, at)
    await world.insert(LOG, {"p": again, "c": 1, "v": "short"}, at, ttl_s=LIFE_S)
    await world.insert(LOG, {"p": again, "c": 1, "v": "for ever"}, at + 1)
    await world.update(LOG, {"p": static}, {"s": "short"}, at, ttl_s=LIFE_S)
    await world.insert(LOG, {"p": static, "c": 1}, at)
    await world.update(LOG, {"p": older, "c": 1}, {"v": "older"}, at)
    await world.update(LOG, {"p": older, "c": 1}, {"v": "newer"}, at + 1, ttl_s=LIFE_S)
    assert [(1, "v")] == await world.rows(LOG, whole, "c", "v")
    assert [("newer",)] == await world.rows(LOG, older, "v")
    await world.advance(LIFE_S + 1)
    assert [] == await world.rows(LOG, whole, "c", "v"), "marker and cells of the insert are gone"
    assert [(1, None)] == await world.rows(LOG, updated, "c", "v"), "the marker has a life of its own"
    assert [(1, None, 1)] == await world.rows(LOG, kept, "c", "v", "n"), "a cell without a TTL holds the row"
    assert [("for ever",)] == await world.rows(LOG, again, "v"), "a later write without a TTL removes the TTL"
    assert [(1, None)] == await world.rows(LOG, static, "c", "s"), "static cells expire like others"
    assert [] == await world.rows(LOG, older, "v"), "what it overwrote does not come back"


async def test_a_later_write_can_shorten_a_life(world: World) -> None:
    p, at = world.key(), world.now_us()
    await world.insert(LOG, {"p": p, "c": 1, "v": "long"}, at, ttl_s=3600)
    await world.insert(LOG, {"p": p, "c": 1, "v": "short"}, at + 1, ttl_s=LIFE_S)
    await world.advance(LIFE_S + 1)
    assert [] == await world.rows(LOG, p, "c")


async def test_a_table_can_have_a_time_to_live_that_each_write_may_set_aside(world: World) -> None:
    p, at = world.key(), world.now_us()
    await world.insert(FADING, {"p": p, "c": 1, "v": "fades"}, at)
    await world.insert(FADING, {"p": p, "c": 2, "v": "stays"}, at, ttl_s=3600)
    assert [(1,), (2,)] == await world.rows(FADING, p, "c")
    await world.advance(LIFE_S + 1)
    assert [(2,)] == await world.rows(FADING, p, "c")


async def test_a_lock_with_a_time_to_live_goes_and_what_was_written_beside_it_stays(world: World) -> None:
    p, mine = world.key(), uuid4()
    key = {"p": p, "c": 1}
    await world.create_by_lwt(LANES, {**key, "epoch": 1, "name": "lane"})
    outcome = await world.store.decide(
        BatchIf(
            [
                UpdateIf(LANES, key, {"lock": mine}, is_("lock", None), attempt=mine, ttl_s=LIFE_S),
                UpdateIf(LANES, key, {"epoch": 2}, attempt=mine),
            ]
        )
    )
    assert outcome.applied
    assert [(mine, 2, mine)] == await world.serial(LANES, p, "lock", "epoch", "attempt")
    await world.advance(LIFE_S + 1)
    assert [(None, 2, mine)] == await world.serial(LANES, p, "lock", "epoch", "attempt"), (
        "the attempt outlives the lock"
    )
    assert (await world.change_by_lwt(LANES, key, {"lock": uuid4()}, is_("lock", None))).applied


async def test_an_attempt_lives_as_long_as_what_it_wrote(world: World) -> None:
    p = world.key()
    key = {"p": p, "c": 1}
    await world.create_by_lwt(LANES, {**key, "name": "lane"})
    await world.change_by_lwt(LANES, key, {"lock": uuid4()}, is_("lock", None), ttl_s=LIFE_S)
    await world.advance(LIFE_S + 1)
    assert [("lane", None, None)] == await world.serial(LANES, p, "name", "lock", "attempt")


async def test_a_row_made_by_lwt_with_a_time_to_live_can_be_recreated(world: World) -> None:
    p = world.key()
    row = {"p": p, "c": 1, "name": "brief"}
    assert (await world.create_by_lwt(LANES, row, ttl_s=LIFE_S)).applied
    assert not (await world.create_by_lwt(LANES, row, ttl_s=LIFE_S)).applied
    await world.advance(LIFE_S + 1)
    assert [] == await world.serial(LANES, p, "c")
    assert (await world.create_by_lwt(LANES, row)).applied
