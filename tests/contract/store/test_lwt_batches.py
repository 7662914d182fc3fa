"""Conditional batches: one partition, one attempt, wholly or not at all."""

from __future__ import annotations

from uuid import UUID, uuid4

from headgate.store.model.statements import BatchIf, Conditional, InsertIfAbsent, UpdateIf, below, is_
from headgate.store.model.table import Table
from headgate.store.model.types import Value
from headgate.store.store import Outcome, Verdict
from tests.contract.store.tables import HEADS, LANES, MESSAGES
from tests.contract.store.worlds import World

Change = tuple[int, dict[str, Value]]


async def _lanes(world: World, *epochs: int) -> str:
    p = world.key()
    for c, epoch in enumerate(epochs, start=1):
        await world.create_by_lwt(LANES, {"p": p, "c": c, "epoch": epoch})
    return p


def _raise(
    p: str, c: int, observation: int | None, attempt: UUID, *, table: Table = LANES, name: str = "epoch"
) -> UpdateIf:
    return UpdateIf(table, {"p": p, "c": c}, {name: (observation or 0) + 1}, is_(name, observation), attempt=attempt)


async def _decide(world: World, *parts: Conditional) -> Outcome:
    return await world.store.decide(BatchIf(parts))


async def test_all_of_a_batch_is_applied_when_all_conditions_hold(world: World) -> None:
    p, mine = await _lanes(world, 1, 5), uuid4()
    outcome = await _decide(world, _raise(p, 1, 1, mine), _raise(p, 2, 5, mine), _raise(p, 3, None, mine))
    assert (Verdict.APPLIED, ()) == (outcome.verdict, outcome.rows)
    assert [(1, 2, mine), (2, 6, mine), (3, 1, mine)] == await world.serial(LANES, p, "c", "epoch", "attempt")


async def test_nothing_of_a_batch_is_applied_when_one_condition_fails(world: World) -> None:
    p, mine = await _lanes(world, 1, 5), uuid4()
    outcome = await _decide(world, _raise(p, 1, 1, mine), _raise(p, 2, 6, mine), _raise(p, 3, None, mine))
    assert Verdict.REFUSED is outcome.verdict
    assert [(1, 1), (2, 5)] == await world.serial(LANES, p, "c", "epoch")


async def test_a_refused_batch_shows_every_row_that_its_conditions_are_about(world: World) -> None:
    p, mine = await _lanes(world, 1, 5, 9), uuid4()
    outcome = await _decide(world, _raise(p, 3, 9, mine), _raise(p, 1, 7, mine), _raise(p, 4, None, mine))
    shown = [row._asdict() for row in outcome.rows]
    assert [{"p": p, "c": 1, "epoch": 1}, {"p": p, "c": 3, "epoch": 9}] == shown


async def test_a_refused_batch_shows_the_columns_of_all_its_conditions_in_each_row(world: World) -> None:
    p, mine = await _lanes(world, 1, 5), uuid4()
    named = UpdateIf(LANES, {"p": p, "c": 2}, {"name": "x"}, is_("lock", mine), attempt=mine)
    outcome = await _decide(world, _raise(p, 1, 1, mine), named)
    shown = [row._asdict() for row in outcome.rows]
    assert [{"p": p, "c": 1, "epoch": 1, "lock": None}, {"p": p, "c": 2, "epoch": 5, "lock": None}] == shown


async def test_a_refused_batch_on_rows_that_are_not_there_shows_none(world: World) -> None:
    p, mine = world.key(), uuid4()
    outcome = await _decide(world, _raise(p, 1, 1, mine), _raise(p, 2, 1, mine))
    assert (Verdict.REFUSED, ()) == (outcome.verdict, outcome.rows)


async def test_a_part_without_conditions_rides_along(world: World) -> None:
    p, mine = await _lanes(world, 1, 5), uuid4()
    ride = UpdateIf(LANES, {"p": p, "c": 2}, {"name": "along"}, attempt=mine)
    assert (await _decide(world, _raise(p, 1, 1, mine), ride)).applied
    assert [(2, None), (5, "along")] == await world.serial(LANES, p, "epoch", "name")
    refused = await _decide(world, _raise(p, 1, 1, mine), UpdateIf(LANES, ride_key(p), {"name": "no"}, attempt=mine))
    assert [{"p": p, "c": 1, "epoch": 2}] == [row._asdict() for row in refused.rows]
    assert [(2, None), (5, "along")] == await world.serial(LANES, p, "epoch", "name")


def ride_key(p: str) -> dict[str, Value]:
    return {"p": p, "c": 2}


async def test_two_parts_on_one_row_share_its_attempt(world: World) -> None:
    p, mine = await _lanes(world, 1), uuid4()
    key = {"p": p, "c": 1}
    parts = (
        UpdateIf(LANES, key, {"lock": mine}, is_("lock", None), attempt=mine, ttl_s=60),
        UpdateIf(LANES, key, {"epoch": 2}, is_("epoch", 1), attempt=mine),
    )
    assert (await _decide(world, *parts)).applied
    assert [(mine, 2, mine)] == await world.serial(LANES, p, "lock", "epoch", "attempt")


async def test_inserts_in_a_batch_are_made_wholly_or_not_at_all(world: World) -> None:
    p = world.key()

    def make(c: int, mine: UUID) -> InsertIfAbsent:
        return InsertIfAbsent(LANES, {"p": p, "c": c, "epoch": c}, attempt=mine)

    first, second = uuid4(), uuid4()
    assert (await _decide(world, make(1, first), make(2, first))).applied
    refused = await _decide(world, make(2, second), make(3, second))
    assert Verdict.REFUSED is refused.verdict
    (met,) = refused.rows
    assert {"p", "c", "lock", "epoch", "stop", "name", "attempt"} == set(met._fields)
    assert (2, 2, first) == (met.c, met.epoch, met.attempt)
    assert [(1,), (2,)] == await world.serial(LANES, p, "c")


async def test_inserts_and_updates_in_one_batch_stand_or_fall_together(world: World) -> None:
    p, mine = await _lanes(world, 1), uuid4()
    make = InsertIfAbsent(LANES, {"p": p, "c": 2, "epoch": 7}, attempt=mine)
    assert not (await _decide(world, make, _raise(p, 1, 2, mine))).applied
    assert (await _decide(world, make, _raise(p, 1, 1, mine))).applied
    assert [(1, 2), (2, 7)] == await world.serial(LANES, p, "c", "epoch")


async def test_a_head_moves_with_the_row_it_points_to(world: World) -> None:
    p, mine, other = world.key(), uuid4(), uuid4()

    def succeed(observation: int | None, attempt: UUID) -> tuple[Conditional, ...]:
        c = (observation or 0) + 1
        return (
            UpdateIf(HEADS, {"p": p}, {"head": c}, is_("head", observation), attempt=attempt),
            InsertIfAbsent(HEADS, {"p": p, "c": c, "state": "open"}, attempt=attempt),
        )

    assert (await _decide(world, *succeed(None, mine))).applied
    refused = await _decide(world, *succeed(None, other))
    assert Verdict.REFUSED is refused.verdict
    assert [(1, 1, "open")] == [(row.head, row.c, row.state) for row in refused.rows]
    assert (await _decide(world, *succeed(1, other))).applied
    assert [(1, "open", 2, other), (2, "open", 2, other)] == await world.serial(
        HEADS, p, "c", "state", "head", "attempt"
    )


async def test_a_condition_on_a_static_cell_alone_guards_the_rows_of_a_batch(world: World) -> None:
    p, mine = world.key(), uuid4()
    guard = UpdateIf(HEADS, {"p": p}, {"head": 2}, is_("head", 1), attempt=mine)
    change = UpdateIf(HEADS, {"p": p, "c": 1}, {"state": "sealed"}, attempt=mine)
    refused = await _decide(world, guard, change)
    assert (Verdict.REFUSED, ()) == (refused.verdict, refused.rows)
    await world.change_by_lwt(HEADS, {"p": p}, {"head": 1}, is_("head", None))
    assert (await _decide(world, guard, change)).applied
    assert [(1, "sealed", 2)] == await world.serial(HEADS, p, "c", "state", "head")


async def test_a_hundred_rows_are_claimed_at_once(world: World) -> None:
    p, at, mine, other = world.key(), world.now_us(), uuid4(), uuid4()
    for c in range(100):
        await world.insert(MESSAGES, {"p": p, "c": c, "payload": b"m"}, at)

    def claims(attempt: UUID) -> list[UpdateIf]:
        return [_raise(p, c, None, attempt, table=MESSAGES, name="version") for c in range(100)]

    assert (await _decide(world, *claims(mine))).applied
    refused = await _decide(world, *claims(other))
    assert [(c, 1) for c in range(100)] == [(row.c, row.version) for row in refused.rows]
    assert {(1, mine)} == set(await world.serial(MESSAGES, p, "version", "attempt"))


async def test_a_stopped_owner_can_neither_renew_nor_move(world: World) -> None:
    """The touch of a lane: IF lock = mine AND stop < my epoch, with a life for the lock and none for the rest."""
    p, mine = world.key(), uuid4()
    key = {"p": p, "c": 1}
    await world.create_by_lwt(LANES, {**key, "lock": mine, "epoch": 3, "stop": 0, "name": "0"})

    def touch(name: str) -> BatchIf:
        attempt = uuid4()
        return BatchIf(
            [
                UpdateIf(LANES, key, {"lock": mine}, is_("lock", mine), below("stop", 3), attempt=attempt, ttl_s=60),
                UpdateIf(LANES, key, {"name": name}, attempt=attempt),
            ]
        )

    assert (await world.store.decide(touch("1"))).applied
    await world.change_by_lwt(LANES, key, {"stop": 3}, below("stop", 3))
    refused = await world.store.decide(touch("2"))
    assert [{"p": p, "c": 1, "lock": mine, "stop": 3}] == [row._asdict() for row in refused.rows]
    assert [("1",)] == await world.serial(LANES, p, "name")
