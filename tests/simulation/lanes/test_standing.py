"""The results of passes of repair and of the collector, as the operator reads them."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, TypeVar
from uuid import UUID

import pytest

from headgate.counters.model.decide_passes import DAY_US
from headgate.engines.summary.pass_results import (
    Failure,
    PassStatus,
    RepairResult,
    read_pass_status,
    read_result,
    write_pass_result,
)
from headgate.engines.summary.rows import slice_of
from headgate.errors import HeadgateError, Unavailable
from headgate.maintenance import passes
from headgate.maintenance.pass_groups import PassOutcome, record_failure
from headgate.maintenance.passes import collect_counter, repair_queue
from tests.kit.simulated_store import Cluster, SimulatedStore
from tests.kit.simulated_world import World
from tests.simulation.sdk.sdk_world import Program, Shop, counter_text, queue_text

T = TypeVar("T")


def simulate(scenario: Callable[[Shop], Coroutine[Any, Any, T]], seed: int = 1) -> T:
    """Run a scenario in a world of its own."""
    with World(seed) as world:
        return world.run(scenario(Shop(world, Cluster(world))))


async def standing_of(program: Program, id_: UUID) -> PassStatus | None:
    """As the operator reads it: by slices."""
    return (await program.process.start(read_result(program.store, slice_of(id_)))).get(id_)


def test_a_pass_of_repair_is_reported_with_its_time_and_what_is_owed() -> None:
    async def scenario(shop: Shop) -> None:
        (made,) = await shop.apply(queue_text())
        assert made.entry is not None
        program = shop.program("job")
        await program.process.start(program.connection.open())
        assert await standing_of(program, made.entry.id) is None
        began_us = program.process.clock.wall_us()
        problems = (await program.process.start(repair_queue(program.connection, "shop/emails"))).problems
        assert () == problems
        report = await standing_of(program, made.entry.id)
        assert report is not None
        assert began_us < report.ended_us <= program.process.clock.wall_us()
        assert (0, None, None, "") == (report.problems, report.owed_us, report.waits_for_all_us, report.refused)
        assert report.message.startswith("checked 0 parts")

    simulate(scenario)


def test_a_pass_of_the_collector_reports_what_it_walked_over() -> None:
    async def scenario(shop: Shop) -> None:
        (made,) = await shop.apply(counter_text())
        assert made.entry is not None
        program = shop.program("job")
        await program.process.start(program.connection.open())
        views = await program.process.start(program.connection.counter("shop/page-views"))
        for key in ("a", "b", "c"):
            await program.process.start(views.add(key, 1))
        assert not (await program.process.start(collect_counter(program.connection, "shop/page-views"))).problems
        report = await standing_of(program, made.entry.id)
        assert report is not None
        assert (3, 3, 0) == (report.keys, report.shards, report.expired)
        assert report.full_us is not None

    simulate(scenario)


def test_where_gc_after_is_too_short_the_refusal_is_reported_until_a_pass_is_made() -> None:
    async def scenario(shop: Shop) -> None:
        (made,) = await shop.apply(counter_text())
        assert made.entry is not None
        program = shop.program("job")
        await program.process.start(program.connection.open())
        program.hints.window_us = 48 * 3_600_000_000
        assert (await program.process.start(collect_counter(program.connection, "shop/page-views"))).problems
        report = await standing_of(program, made.entry.id)
        assert report is not None
        assert 1 == report.problems
        assert "gc.after" in report.refused
        program.hints.window_us = 3 * 3_600_000_000
        assert not (await program.process.start(collect_counter(program.connection, "shop/page-views"))).problems
        report = await standing_of(program, made.entry.id)
        assert report is not None
        assert (0, "") == (report.problems, report.refused)

    simulate(scenario)


def test_while_a_node_is_unavailable_a_pass_waits_reports_it_and_is_no_failure() -> None:
    async def scenario(shop: Shop) -> None:
        (made,) = await shop.apply(counter_text())
        assert made.entry is not None
        program = shop.program("job")
        await program.process.start(program.connection.open())
        assert not (await program.process.start(collect_counter(program.connection, "shop/page-views"))).problems
        before = await standing_of(program, made.entry.id)
        program.hints.is_down = True
        assert not (await program.process.start(collect_counter(program.connection, "shop/page-views"))).problems
        report = await standing_of(program, made.entry.id)
        assert report is not None
        assert before is not None
        assert (0, "", before.full_us) == (report.problems, report.refused, report.full_us)
        assert report.message.endswith("waiting: the node is down (node=10.0.0.1)")
        views = await program.process.start(program.connection.counter("shop/page-views"))
        full_us = before.full_us or 0
        for later_us, overdue_us in ((5 * DAY_US, None), (5 * DAY_US + 1, 5 * DAY_US + 1)):  # gc_grace / 2
            assert overdue_us == await program.process.start(passes._overdue_us(views, full_us + later_us))

    simulate(scenario)


def test_a_pass_that_fails_is_reported_and_leaves_what_was_reported_of_the_rest() -> None:
    async def scenario(shop: Shop) -> None:
        (made,) = await shop.apply(queue_text())
        assert made.entry is not None
        entry = made.entry
        program = shop.program("job")
        await program.process.start(program.connection.open())
        store = program.store
        earlier = RepairResult(program.process.clock.wall_us(), "checked", owed_us=17)
        await program.process.start(write_pass_result(store, entry.id, earlier))
        await shop.world.sleep(1)

        async def fails() -> PassOutcome:
            raise Unavailable("no lane can be read")

        async def run() -> PassOutcome:
            return await record_failure(program.connection, entry, fails)

        with pytest.raises(HeadgateError, match="no lane"):
            await program.process.start(run())
        report = await standing_of(program, entry.id)
        assert report is not None
        assert ("no lane can be read", 1, 17) == (report.message, report.problems, report.owed_us)
        assert report.ended_us > earlier.ended_us

    simulate(scenario)


def test_results_of_one_slice_come_by_one_read_and_those_of_others_do_not() -> None:
    async def scenario(shop: Shop) -> None:
        await shop.apply(queue_text())
        process = shop.world.process("job")
        store = SimulatedStore(shop.cluster, process)
        ids = [UUID(int=number) for number in (3, 19, 4)]
        for id_ in ids:
            await process.start(write_pass_result(store, id_, Failure(7, str(id_.int))))
        assert set(ids[:2]) == set(await process.start(read_result(store, 3)))
        one = await process.start(read_pass_status(store, ids[2]))
        assert one is not None
        assert ("4", None) == (one.message, one.full_us)

    simulate(scenario)
