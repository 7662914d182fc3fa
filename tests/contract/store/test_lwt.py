"""Lightweight transactions on one row: what conditions mean, what a refusal returns, which reader sees what."""

from __future__ import annotations

import asyncio
from uuid import uuid4

import pytest

from headgate.store.model.consistency import Consistency
from headgate.store.model.shapes import ComparisonOperator
from headgate.store.model.statements import CellCondition, InsertIfAbsent, Select, UpdateIf, below, is_, is_not
from headgate.store.store import Verdict
from tests.contract.store.tables import HEADS, LANES, MESSAGES
from tests.contract.store.worlds import World

Op = ComparisonOperator


async def test_the_first_to_insert_makes_the_row_and_the_second_is_shown_it(world: World) -> None:
    p, first, second = world.key(), uuid4(), uuid4()
    row = {"p": p, "c": 1, "epoch": 1, "name": "first"}
    made = await world.store.decide(InsertIfAbsent(LANES, row, attempt=first))
    refused = await world.store.decide(InsertIfAbsent(LANES, {**row, "name": "second"}, attempt=second))
    assert (Verdict.APPLIED, ()) == (made.verdict, made.rows)
    assert Verdict.REFUSED is refused.verdict
    (met,) = refused.rows
    assert {"p", "c", "lock", "epoch", "stop", "name", "attempt"} == set(met._fields)
    assert (p, 1, None, 1, None, "first", first) == (
        *(met.p, met.c, met.lock, met.epoch, met.stop, met.name, met.attempt),
    )


async def test_an_applied_lwt_leaves_its_attempt_beside_what_it_changed(world: World) -> None:
    p, attempt = world.key(), uuid4()
    await world.create_by_lwt(LANES, {"p": p, "c": 1, "epoch": 1})
    await world.change_by_lwt(LANES, {"p": p, "c": 1}, {"epoch": 2}, is_("epoch", 1), attempt=attempt)
    assert [(2, attempt)] == await world.serial(LANES, p, "epoch", "attempt")


async def test_a_refused_lwt_changes_nothing_and_shows_the_columns_of_its_conditions(world: World) -> None:
    p, made = world.key(), uuid4()
    await world.store.decide(InsertIfAbsent(LANES, {"p": p, "c": 1, "epoch": 1, "name": "n"}, attempt=made))
    refused = await world.change_by_lwt(
        LANES, {"p": p, "c": 1}, {"epoch": 9}, is_("epoch", 5), is_("lock", None), is_("name", "n")
    )
    assert Verdict.REFUSED is refused.verdict
    (met,) = refused.rows
    assert {"epoch": 1, "lock": None, "name": "n"} == met._asdict()
    assert [(1, made)] == await world.serial(LANES, p, "epoch", "attempt")


async def test_all_conditions_have_to_hold(world: World) -> None:
    p = world.key()
    key = {"p": p, "c": 1}
    await world.create_by_lwt(LANES, {**key, "epoch": 1, "stop": 0})
    assert not (await world.change_by_lwt(LANES, key, {"name": "x"}, is_("epoch", 1), is_("stop", 1))).applied
    assert (await world.change_by_lwt(LANES, key, {"name": "x"}, is_("epoch", 1), is_("stop", 0))).applied


COMPARED = [
    (5, Op.IS, 5, True), (5, Op.IS, 6, False), (None, Op.IS, 5, False), (None, Op.IS, None, True),
    (5, Op.IS, None, False),
    (5, Op.IS_NOT, 6, True), (5, Op.IS_NOT, 5, False), (None, Op.IS_NOT, 5, True), (None, Op.IS_NOT, None, False),
    (5, Op.IS_NOT, None, True),
    (5, Op.BELOW, 6, True), (5, Op.BELOW, 5, False), (None, Op.BELOW, 6, False), (-1, Op.BELOW, 0, True),
    (5, Op.AT_MOST, 5, True), (6, Op.AT_MOST, 5, False), (None, Op.AT_MOST, 5, False),
    (6, Op.ABOVE, 5, True), (5, Op.ABOVE, 5, False), (None, Op.ABOVE, -1, False), (1, Op.ABOVE, -1, True),
    (5, Op.AT_LEAST, 5, True), (4, Op.AT_LEAST, 5, False), (None, Op.AT_LEAST, 5, False),
]  # fmt: skip


@pytest.mark.parametrize(
    ("held", "operator", "value", "holds"),
    COMPARED,
    ids=[f"{held} {operator.value} {value}" for held, operator, value, _ in COMPARED],
)
async def test_a_condition_compares_as_in_cassandra(
    world: World, held: int | None, operator: ComparisonOperator, value: int | None, holds: bool
) -> None:
    p = world.key()
    await world.create_by_lwt(LANES, {"p": p, "c": 1, "stop": held})
    outcome = await world.change_by_lwt(
        LANES, {"p": p, "c": 1}, {"name": "x"}, CellCondition("stop", operator, value)
    )
    assert holds == outcome.applied


async def test_uuids_and_text_are_compared_for_order_as_their_types_order(world: World) -> None:
    p = world.key()
    key = {"p": p, "c": 1}
    await world.create_by_lwt(LANES, {**key, "name": "z"})
    assert (await world.change_by_lwt(LANES, key, {"epoch": 1}, below("name", "ä"))).applied
    assert not (await world.change_by_lwt(LANES, key, {"epoch": 2}, below("name", "Z"))).applied


async def test_null_is_what_a_missing_row_holds(world: World) -> None:
    p = world.key()
    key = {"p": p, "c": 1}
    refused = await world.change_by_lwt(LANES, key, {"epoch": 1}, is_("epoch", 1))
    assert (Verdict.REFUSED, ()) == (refused.verdict, refused.rows)
    below_all = await world.change_by_lwt(LANES, key, {"epoch": 1}, below("epoch", 100))
    assert (Verdict.REFUSED, ()) == (below_all.verdict, below_all.rows)
    assert (await world.change_by_lwt(LANES, key, {"epoch": 1}, is_("lock", None))).applied
    assert [(1, 1)] == await world.serial(LANES, p, "c", "epoch")


async def test_a_missing_row_holds_another_value_than_any(world: World) -> None:
    p = world.key()
    assert (await world.change_by_lwt(LANES, {"p": p, "c": 1}, {"epoch": 1}, is_not("epoch", 7))).applied


async def test_a_row_made_by_an_update_goes_with_its_cells(world: World) -> None:
    p = world.key()
    key = {"p": p, "c": 1}
    await world.change_by_lwt(LANES, key, {"epoch": 1}, is_("epoch", None))
    await world.change_by_lwt(LANES, key, {"epoch": None}, is_("epoch", 1))
    (row,) = await world.serial(LANES, p, "c", "epoch")
    assert (1, None) == row, "the attempt is a cell too, and holds the row"


async def test_a_cell_can_be_emptied_by_lwt(world: World) -> None:
    p, mine = world.key(), uuid4()
    key = {"p": p, "c": 1}
    await world.create_by_lwt(LANES, {**key, "lock": mine})
    assert (await world.change_by_lwt(LANES, key, {"lock": None}, is_("lock", mine))).applied
    assert [(None,)] == await world.serial(LANES, p, "lock")


async def test_what_was_decided_is_seen_by_plain_quorum_reads(world: World) -> None:
    p = world.key()
    await world.create_by_lwt(LANES, {"p": p, "c": 1, "epoch": 1})
    for consistency in (Consistency.LOCAL_QUORUM, Consistency.QUORUM, Consistency.ALL, Consistency.SERIAL):
        assert [(1,)] == await world.rows(LANES, p, "epoch", consistency=consistency)


async def test_of_many_at_once_one_is_applied(world: World) -> None:
    p = world.key()
    key = {"p": p, "c": 1}
    await world.create_by_lwt(LANES, {**key, "epoch": 1})
    attempts = [uuid4() for _ in range(6)]
    outcomes = await asyncio.gather(
        *(
            world.store.decide(UpdateIf(LANES, key, {"lock": mine}, is_("lock", None), attempt=mine))
            for mine in attempts
        )
    )
    winners = [mine for mine, outcome in zip(attempts, outcomes, strict=True) if outcome.applied]
    assert [(winners[0], winners[0])] == await world.serial(LANES, p, "lock", "attempt")
    assert 1 == len(winners)


async def test_a_counter_by_lwt_loses_no_step(world: World) -> None:
    """One whose answer was lost and whose attempt was overwritten may have counted: then it counts once more."""
    p = world.key()
    key = {"p": p, "c": 1}
    in_doubt = 0
    await world.create_by_lwt(LANES, {**key, "epoch": 0})

    async def add_one() -> None:
        nonlocal in_doubt
        while True:
            ((observation,),) = await world.serial(LANES, p, "epoch")
            outcome = await world.change_by_lwt(LANES, key, {"epoch": observation + 1}, is_("epoch", observation))
            if outcome.applied:
                return
            in_doubt += outcome.verdict is Verdict.OVERWRITTEN

    await asyncio.gather(*(add_one() for _ in range(4)))
    ((counted,),) = await world.serial(LANES, p, "epoch")
    assert 4 <= counted <= 4 + in_doubt


async def test_lwt_cells_beside_plain_cells_do_not_touch_each_other(world: World) -> None:
    p, at = world.key(), world.now_us()
    key = {"p": p, "c": 1}
    assert (await world.change_by_lwt(MESSAGES, key, {"version": 1}, is_("version", None))).applied
    await world.insert(MESSAGES, {**key, "payload": b"late"}, at - 1_000_000)
    assert [(b"late", 1)] == await world.rows(MESSAGES, p, "payload", "version")
    assert not (await world.change_by_lwt(MESSAGES, key, {"version": 1}, is_("version", None))).applied


async def test_a_row_that_exists_but_holds_no_such_cell_is_shown_with_null(world: World) -> None:
    p = world.key()
    await world.insert(MESSAGES, {"p": p, "c": 1, "payload": b"x"}, world.now_us())
    refused = await world.change_by_lwt(MESSAGES, {"p": p, "c": 1}, {"version": 2}, is_("version", 1))
    (met,) = refused.rows
    assert {"version": None} == met._asdict()


async def test_a_static_cell_is_changed_by_lwt_without_a_row(world: World) -> None:
    p = world.key()
    assert (await world.change_by_lwt(HEADS, {"p": p}, {"head": 1}, is_("head", None))).applied
    refused = await world.change_by_lwt(HEADS, {"p": p}, {"head": 1}, is_("head", None))
    assert [{"head": 1}] == [row._asdict() for row in refused.rows]
    assert (await world.change_by_lwt(HEADS, {"p": p}, {"head": 2}, is_("head", 1))).applied
    assert [(None, 2)] == await world.serial(HEADS, p, "c", "head")


async def test_a_row_is_changed_on_a_condition_of_its_static_cell(world: World) -> None:
    p = world.key()
    key = {"p": p, "c": 1}
    await world.change_by_lwt(HEADS, {"p": p}, {"head": 1}, is_("head", None))
    assert (await world.change_by_lwt(HEADS, key, {"state": "open"}, is_("head", 1))).applied
    refused = await world.change_by_lwt(HEADS, key, {"state": "sealed"}, is_("head", 2))
    assert [{"head": 1}] == [row._asdict() for row in refused.rows]
    assert [(1, "open", 1)] == await world.serial(HEADS, p, "c", "state", "head")


async def test_static_cells_do_not_make_a_row_present(world: World) -> None:
    p = world.key()
    await world.change_by_lwt(HEADS, {"p": p}, {"head": 1}, is_("head", None))
    assert (await world.create_by_lwt(HEADS, {"p": p, "c": 1, "state": "open"})).applied
    refused = await world.create_by_lwt(HEADS, {"p": p, "c": 1, "state": "open"})
    (met,) = refused.rows
    assert (1, "open", 1) == (met.c, met.state, met.head)


async def _write_time(world: World, partition: str) -> int:
    select = Select(LANES, {"p": partition}, ("epoch",), consistency=Consistency.SERIAL, write_times_of=("epoch",))
    (row,) = await world.store.read(select)
    written: int = row.epoch_written_us
    return written


async def test_an_lwt_is_stamped_by_the_servers_near_the_time_of_day(world: World) -> None:
    p = world.key()
    await world.create_by_lwt(LANES, {"p": p, "c": 1, "epoch": 1})
    assert abs(await _write_time(world, p) - world.now_us()) < 10_000_000


async def test_later_lwts_have_later_write_times(world: World) -> None:
    p, times = world.key(), []
    await world.create_by_lwt(LANES, {"p": p, "c": 1, "epoch": 0})
    for epoch in range(4):
        times.append(await _write_time(world, p))
        await world.change_by_lwt(LANES, {"p": p, "c": 1}, {"epoch": epoch + 1}, is_("epoch", epoch))
    assert sorted(set(times)) == times


async def test_a_plain_delete_above_the_write_time_removes_what_an_lwt_wrote(world: World) -> None:
    p = world.key()
    await world.create_by_lwt(LANES, {"p": p, "c": 1, "epoch": 1})
    written = await _write_time(world, p)
    await world.delete(LANES, {"p": p}, written + 1, above=written)
    assert [] == await world.serial(LANES, p, "c")
    assert (await world.create_by_lwt(LANES, {"p": p, "c": 1, "epoch": 2})).applied


async def test_a_plain_delete_below_the_write_time_leaves_it(world: World) -> None:
    p = world.key()
    await world.create_by_lwt(LANES, {"p": p, "c": 1, "epoch": 1})
    written = await _write_time(world, p)
    await world.delete(LANES, {"p": p}, written - 1, above=written - 2)
    assert [(1, 1)] == await world.serial(LANES, p, "c", "epoch")


async def test_a_plain_delete_stamped_in_the_future_swallows_what_an_lwt_writes_after_it(world: World) -> None:
    """Why a delete is stamped by the write time it has read, and never by a clock that is ahead."""
    p, ahead = world.key(), world.now_us() + 3_600_000_000
    await world.delete(LANES, {"p": p}, ahead, above=ahead - 1)
    assert (await world.create_by_lwt(LANES, {"p": p, "c": 1, "epoch": 1})).applied
    assert [] == await world.serial(LANES, p, "c")
