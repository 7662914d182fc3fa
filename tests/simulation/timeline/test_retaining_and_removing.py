"""An entry whose resource goes: kept and adopted, or removed with all it has; and processes that are late."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, TypeVar

import pytest
import yaml

from headgate.api.read.parse import parse_resource
from headgate.applying.apply import Applied, Applier
from headgate.applying.decide_steps import (
    Activate,
    Announce,
    CurrentState,
    DropTable,
    MarkDeleting,
    Retain,
    Step,
    decide_removal,
)
from headgate.applying.perform_steps import StepPerformer
from headgate.client.catalogue.queue_record import QueueRetained
from headgate.client.counter import Counter
from headgate.client.counters import CounterRetained
from headgate.client.queue import Queue
from headgate.counters.model import tables as counter_tables
from headgate.engines.registry import Making
from headgate.engines.timeline.entry import make_generation
from headgate.engines.timeline.model import tables as timeline_tables
from headgate.errors import Conflict, HeadgateError
from headgate.store.catalogue.catalogue import StaleEntry
from headgate.store.catalogue.decide_generation import Generation
from headgate.store.catalogue.entry import Entry, EntryState, Name
from headgate.store.model.consistency import Consistency
from headgate.store.model.statements import Select
from headgate.store.model.table import Table
from tests.kit.simulated_store import Cluster, SimulatedStore
from tests.kit.simulated_world import Process, World
from tests.simulation.sdk.sdk_world import KEYSPACE, Program, Shop, counter_text, queue_text

T = TypeVar("T")
EMAILS = Name("Queue", "shop", "emails")
VIEWS = Name("Counter", "shop", "page-views")
SHARED = "{shards: 3, storage: {tables: shared}}"


def simulate(scenario: Callable[[Shop], Coroutine[Any, Any, T]], seed: int = 1) -> T:
    """Run a scenario in a world of its own."""
    with World(seed) as world:
        return world.run(scenario(Shop(world, Cluster(world))))


async def opened(program: Program) -> Queue:
    """The queue as that process has it."""
    await program.process.start(program.connection.open())
    return await program.process.start(program.connection.queue("shop/emails"))


async def refused(work: Awaitable[object]) -> HeadgateError:
    """The error that the call raises."""
    try:
        await work
    except HeadgateError as error:
        return error
    raise AssertionError("it was not refused")


async def perform(applier: Applier, *steps: Step) -> Entry | None:
    """As the operator does; the entry after the last."""
    performer = StepPerformer(applier.schema, applier.catalogue, applier.store_in)
    entry = None
    for step in steps:
        entry = (await performer.perform(step)).entry
    return entry


async def keep(shop: Shop, process: Process, entry: Entry) -> None:
    """Its resource is deleted under Retain."""
    async with shop.applier(process) as applier:
        await perform(applier, Retain(entry))


async def remove(shop: Shop, process: Process, name: Name) -> None:
    """Its resource is deleted under Delete: asked again until nothing is left."""
    async with shop.applier(process) as applier:
        while (known := await applier.catalogue.find(name, consistency=Consistency.SERIAL)) is not None:
            entry = known.entry
            there = frozenset(await shop.schema.read_tables(entry.place.keyspace))
            noted = await applier.catalogue.tables_made(entry.place.keyspace)
            result = CurrentState(entry, there=there, noted=noted)
            decided = decide_removal(entry, result, now_us=applier.catalogue.now_us())
            if decided.steps:
                await perform(applier, *decided.steps)
            else:
                await shop.world.sleep(1)


async def apply_as(shop: Shop, owner: str, *texts: str, adopting: bool = False) -> Sequence[Applied]:
    """`headgate apply --as`."""
    process = shop.world.process(f"{owner}-{shop.world.now_s()}")

    async def run() -> Sequence[Applied]:
        async with shop.applier(process, owner) as applier:
            applier.adopting = adopting
            return await applier.apply([parse_resource(yaml.safe_load(text)) for text in texts])

    return await process.start(run())


async def made(shop: Shop, text: str) -> Entry:
    """Applied, and the state of the catalogue."""
    (done,) = await shop.apply(text)
    assert done.entry is not None
    return done.entry


async def rows_of(shop: Shop, table: Table, key: dict[str, Any], columns: Sequence[str]) -> list[Any]:
    """The rows that a reader finds."""
    process = shop.world.process(f"reader-{shop.world.now_s()}-{table.name}-{sorted(key.items())}")
    store = SimulatedStore(shop.cluster, process)
    return list(await process.start(store.read(Select(table, key, columns))))


# ---- kept


def test_what_is_retained_refuses_its_users_in_one_line_and_continues_with_all_it_had_once_it_is_adopted() -> None:
    async def scenario(shop: Shop) -> None:
        entry = await made(shop, queue_text())
        program = shop.program("shop")
        queue = await opened(program)
        kept = await program.process.start(queue.put("kept"))
        person = shop.world.process("person")
        await person.start(keep(shop, person, entry))
        await shop.world.sleep(16)
        for use in (queue.put("more"), queue.receive(1), program.connection.queue("shop/emails")):
            error = await refused(program.process.start(use))
            assert isinstance(error, QueueRetained)
            assert "headgate.io/adopt" in str(error)
            assert 1 == len(str(error).splitlines())
        (foreign,) = await apply_as(shop, "cli/others", queue_text())
        assert foreign.refused
        assert "--adopt" in foreign.notes[0]
        (adopted,) = await apply_as(shop, "cli/others", queue_text("{shards: 5}"), adopting=True)
        assert adopted.entry is not None
        assert ("updated", entry.id, EntryState.ACTIVE) == (adopted.outcome, adopted.entry.id, adopted.entry.state)
        assert "cli/others" == adopted.entry.owner
        assert adopted.entry.generations.next is not None
        assert 5 == adopted.entry.generations.next.shards
        (own,) = await apply_as(shop, "cli/test", queue_text())
        assert "owner=cli/others" in own.notes[0]
        again = await program.process.start(program.connection.queue("shop/emails"))
        (message,) = await program.process.start(again.receive(1))
        assert kept == message.id

    simulate(scenario)


def test_a_retained_counter_refuses_its_users_and_keeps_its_values() -> None:
    async def scenario(shop: Shop) -> None:
        entry = await made(shop, counter_text())
        program = shop.program("web")
        await program.process.start(program.connection.open())
        views: Counter = await program.process.start(program.connection.counter("shop/page-views"))
        await program.process.start(views.add("home", 7))
        person = shop.world.process("person")
        await person.start(keep(shop, person, entry))
        await shop.world.sleep(16)
        assert isinstance(await refused(program.process.start(views.add("home", 1))), CounterRetained)
        await apply_as(shop, "cli/test", counter_text())
        views = await program.process.start(program.connection.counter("shop/page-views"))
        assert 7 == await program.process.start(views.value("home"))

    simulate(scenario)


def test_an_entry_of_an_operator_that_still_manages_it_is_not_taken_over_by_a_command() -> None:
    async def scenario(shop: Shop) -> None:
        await made(shop, queue_text(name="others"))
        await apply_as(shop, "operator/c1/u1", queue_text())
        (taken,) = await apply_as(shop, "cli/test", queue_text(), adopting=True)
        assert taken.refused
        assert "deletionPolicy Retain" in taken.notes[0]
        async with shop.applier(shop.world.process("operator")) as applier:
            assert [EMAILS] == [each.entry.name for each in await applier.catalogue.owned("operator/c1/")]

    simulate(scenario)


def test_an_adoption_that_would_change_a_fixed_field_changes_nothing() -> None:
    async def scenario(shop: Shop) -> None:
        entry = await made(shop, queue_text())
        (changed,) = await apply_as(shop, "cli/others", queue_text("{engine: bucket}"), adopting=True)
        assert changed.refused
        assert "engine is fixed" in changed.notes[0]
        (unchanged,) = await apply_as(shop, "cli/test", queue_text())
        assert ("unchanged", entry) == (unchanged.outcome, unchanged.entry)

    simulate(scenario)


@pytest.mark.parametrize("seed", range(8))
def test_of_two_that_adopt_at_once_one_gets_it_and_the_other_is_reported_whose_it_is(seed: int) -> None:
    async def scenario(shop: Shop) -> None:
        entry = await made(shop, queue_text())
        rng = shop.world.rng("faults")
        owners = ["operator/c1/u1", "operator/c1/u2"]
        processes = {owner: shop.world.process(owner) for owner in owners}
        for node in shop.cluster.nodes:
            if rng.random() < 0.5:
                shop.world.network.lose(source=node, target=rng.choice(owners), count=1)

        async def adopt(owner: str) -> str:
            async with shop.applier(processes[owner], owner) as applier:
                try:
                    return (await applier.catalogue.adopt(entry, entry.document)).owner
                except HeadgateError as error:
                    return str(error)

        adopting = [processes[owner].start(adopt(owner)) for owner in owners]
        answers = [await each for each in adopting]
        async with shop.applier(shop.world.process("look")) as applier:
            known = await applier.catalogue.find(EMAILS, consistency=Consistency.SERIAL)
        assert known is not None
        winner = known.entry.owner
        assert winner in owners
        assert {winner} == {answer for answer in answers if answer in owners}
        assert any(f"owner={winner}" in answer for answer in answers)

    simulate(scenario, seed)


def test_a_process_that_is_late_brings_nothing_back_and_drops_nothing() -> None:
    """A second leader performs what it decided before the resource was deleted, or before it was adopted."""

    async def scenario(shop: Shop) -> None:
        entry = await made(shop, queue_text())
        process = shop.world.process("late")

        async def late(*steps: Step) -> HeadgateError:
            async with shop.applier(process) as applier:
                return await refused(perform(applier, *steps))

        person = shop.world.process("person")
        await person.start(keep(shop, person, entry))
        for step in (Activate(entry), Announce(entry, 2, 6, 500_000)):
            error = await process.start(late(step))
            assert isinstance(error, Conflict) or "was kept" in str(error)
        table = timeline_tables.dedicated_tables(entry.id).work.name
        assert isinstance(await process.start(late(DropTable(entry, KEYSPACE, table))), StaleEntry)
        assert table in shop.schema.tables[KEYSPACE]

    simulate(scenario)


# ---- removed


def test_a_process_that_marked_it_waits_as_long_as_whichever_process_reads_that_it_is() -> None:
    """The time of the mark is the same in the answer of the step and in the catalogue."""

    async def scenario(shop: Shop) -> None:
        entry = await made(shop, queue_text())
        await shop.world.sleep(100)
        process = shop.world.process("operator")

        async def mark() -> tuple[Entry | None, Entry | None]:
            async with shop.applier(process) as applier:
                marked = await perform(applier, MarkDeleting(entry))
                known = await applier.catalogue.find(EMAILS, consistency=Consistency.SERIAL)
                return marked, None if known is None else known.entry

        marked, result = await process.start(mark())
        assert marked is not None
        assert marked == result
        assert decide_removal(marked, CurrentState(marked), now_us=marked.changed_us).steps == ()

    simulate(scenario)


def test_what_is_removed_leaves_no_table_and_its_name_gets_fresh_ones() -> None:
    async def scenario(shop: Shop) -> None:
        entry = await made(shop, queue_text())
        program = shop.program("shop")
        await program.process.start((await opened(program)).put("x"))
        person = shop.world.process("person")
        await person.start(remove(shop, person, EMAILS))
        assert not any(entry.id.hex in name for name in shop.schema.tables[KEYSPACE])
        again = await made(shop, queue_text())
        assert entry.id != again.id
        assert not any(entry.id.hex in name for name in shop.schema.tables[KEYSPACE])
        async with shop.applier(shop.world.process("look")) as applier:
            noted = await applier.catalogue.tables_made(KEYSPACE)
        assert timeline_tables.dedicated_tables(entry.id).work.name in noted

    simulate(scenario)


@pytest.mark.parametrize("step", range(3, 130, 9))
def test_killed_at_any_step_a_removal_is_finished_by_the_next_and_leaves_no_lane_in_shared_tables(step: int) -> None:
    async def scenario(shop: Shop) -> None:
        entry = await made(shop, queue_text(SHARED))
        other = await made(shop, queue_text(SHARED, name="others"))
        first, second = shop.world.process("first"), shop.world.process("second")
        first.kill_before_step(step)
        first.start(remove(shop, first, EMAILS))
        await shop.world.sleep(60)
        await second.start(remove(shop, second, EMAILS))
        lanes = timeline_tables.shared_tables().lanes
        for generation, shard in [(0, 0), (1, 0), (1, 1), (1, 2)]:
            key = {"queue": entry.id, "generation": generation, "shard": shard}
            assert [] == await rows_of(shop, lanes, key, ("epoch",)), (generation, shard)
            assert await rows_of(shop, lanes, {**key, "queue": other.id}, ("epoch",))

    simulate(scenario, step)


def test_lanes_that_somebody_makes_after_the_removal_are_seen_by_nobody() -> None:
    async def scenario(shop: Shop) -> None:
        entry = await made(shop, queue_text(SHARED))
        person = shop.world.process("person")
        await person.start(remove(shop, person, EMAILS))
        late = shop.world.process("late")
        making = Making(SimulatedStore(shop.cluster, late), late.clock.wall_us, late.uuid)
        await late.start(make_generation(entry, Generation(1, 3), making))
        lanes = timeline_tables.shared_tables().lanes
        for shard in range(3):
            key = {"queue": entry.id, "generation": 1, "shard": shard}
            assert [] == await rows_of(shop, lanes, key, ("epoch",))

    simulate(scenario)


def test_a_removed_counter_leaves_nothing_in_shared_tables_also_of_what_is_written_late() -> None:
    async def scenario(shop: Shop) -> None:
        entry = await made(shop, counter_text("{buckets: 4, storage: {tables: shared}}"))
        program = shop.program("web")
        await program.process.start(program.connection.open())
        views: Counter = await program.process.start(program.connection.counter("shop/page-views"))

        async def count() -> None:
            for number in range(12):
                await views.add(f"page-{number}", 1)
                await views.add(f"page-{number}", 1, token=views.token())

        await program.process.start(count())
        program.reads_catalogue = False  # so it never hears of the removal
        person = shop.world.process("person")
        await person.start(remove(shop, person, VIEWS))
        await program.process.start(count())
        tables = counter_tables.shared_tables()
        minute = program.process.clock.wall_us() // 60_000_000
        for bucket in range(4):
            key = {"counter": entry.id, "bucket": bucket}
            assert [] == await rows_of(shop, tables.shards, key, ("key", "state"))
            assert [] == await rows_of(shop, tables.minutes, key, ("minute",))
            for each in range(minute - 3, minute + 1):
                assert [] == await rows_of(shop, tables.tokens, {**key, "minute": each}, ("key",))

    simulate(scenario)
