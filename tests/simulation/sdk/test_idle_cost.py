"""The cost of queues in which nothing happens, counted in statements: repair's passes, the refresh of the catalogue,
the summary. Lanes without messages are in tests/simulation/lanes/test_empty_lanes.py."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Coroutine, Iterable
from typing import Any

from headgate.client.catalogue.queue_record import QueueDeleted
from headgate.engines.summary.rows import SLICES
from headgate.errors import HeadgateError
from headgate.maintenance.pass_groups import AT_ONCE, PassGroup, pass_over_all, results_of
from headgate.maintenance.passes import repair_queue, scheduled_queues
from headgate.store.catalogue.catalogue import Catalogue
from headgate.store.catalogue.entry import EntryState, Name
from headgate.store.catalogue.tables import STANDING
from headgate.store.model.consistency import Consistency
from headgate.store.model.statements import Select
from tests.kit.simulated_store import Cluster
from tests.kit.simulated_world import World
from tests.simulation.sdk.sdk_world import Program, Shop, queue_text

PASS_EVERY_S = 300.0
QUEUES = 10_000
SUMMARY_EVERY_S = 1.0


def simulate(scenario: Callable[[Shop], Coroutine[Any, Any, None]]) -> None:
    """Run a scenario in a world of its own."""
    with World(1) as world:
        world.run(scenario(Shop(world, Cluster(world))))


async def applied(shop: Shop, count: int) -> list[str]:
    """This many queues in shared tables."""
    names = [f"q{number:04d}" for number in range(count)]
    await shop.apply(*(queue_text("{shards: 4, storage: {tables: shared}}", name=name) for name in names))
    return [f"shop/{name}" for name in names]


async def pass_over(program: Program) -> int:
    """As `headgate repair --namespace shop` does it; how many statements that took."""
    connection = program.connection

    async def work() -> int:
        await connection.open()
        began = len(program.store.sent)
        entries = await scheduled_queues(connection, "shop", None, PassGroup())
        results = results_of(connection)
        failures: list[Any] = []

        def ended(_: str, outcome: Any) -> None:
            if isinstance(outcome, HeadgateError):
                failures.append(outcome)

        await pass_over_all(entries, lambda name: repair_queue(connection, name, results=results), ended)
        await results.write()
        await connection.close()
        assert [] == failures
        return len(program.store.sent) - began

    return await program.process.start(work())


async def opened(program: Program, names: Iterable[str]) -> None:
    """All of these, in one process."""

    async def work() -> None:
        await program.connection.open()
        for name in names:
            await program.connection.queue(name)

    await program.process.start(work())


def reads_of_catalogue(program: Program, began: int) -> list[Any]:
    """The reads of entries since then."""
    sent = [each for each in program.store.sent[began:] if isinstance(each, Select)]
    return [each for each in sent if each.shape.table.name.startswith("catalogue")]


def test_ten_thousand_idle_queues_cost_less_than_a_hundred_statements_per_second() -> None:
    async def scenario(shop: Shop) -> None:
        names = await applied(shop, 150)
        await pass_over(shop.program("first"))
        application, viewer = shop.program("application"), shop.program("viewer")
        await opened(application, names)
        await viewer.process.start(viewer.connection.open())
        await shop.world.sleep(60)
        began = len(application.store.sent), len(viewer.store.sent)
        passes = 0
        for number in range(12):
            passes += await pass_over(shop.program(f"job-{number}"))
            await shop.world.sleep(PASS_EVERY_S)
        seconds = 12 * PASS_EVERY_S
        await viewer.process.start(viewer.connection.overview())
        summary = (len(viewer.store.sent) - began[1]) / SUMMARY_EVERY_S
        refresh = (len(application.store.sent) - began[0]) / seconds
        whole = QUEUES / len(names) * passes / seconds + refresh + summary
        assert whole < 100

    simulate(scenario)


def test_a_pass_records_each_result_though_those_of_a_slice_are_one_write() -> None:
    async def scenario(shop: Shop) -> None:
        names = await applied(shop, 100)
        program = shop.program("job")
        await pass_over(program)
        writes = [each for each in program.store.sent if "standing" in repr(each)]
        assert len(writes) <= 2 * SLICES
        store = shop.program("reader").store
        selects = [Select(STANDING, {"slice": each}, ("id", "says")) for each in range(SLICES)]
        rows = [row for select in selects for row in await store.read(select)]
        assert len(names) == len(rows)
        assert {"checked 0 parts; 0 of 0 late rows put again"} == {row.says for row in rows}

    simulate(scenario)


def test_a_node_that_is_down_costs_a_process_the_reads_at_all_of_the_passes_that_it_makes_at_once() -> None:
    async def scenario(shop: Shop) -> None:
        await applied(shop, 20)
        await pass_over(shop.program("first"))
        shop.cluster.kill("n3")
        await shop.world.sleep(4_000)
        program = shop.program("job")
        began_s = shop.world.now_s()
        await pass_over(program)
        at_all = [each for each in program.store.sent if getattr(each, "consistency", None) is Consistency.ALL]
        assert 1 <= len(at_all) <= AT_ONCE
        assert shop.world.now_s() - began_s < 10

    simulate(scenario)


def test_many_open_queues_are_refreshed_by_one_read_and_what_changed_is_in_force() -> None:
    async def scenario(shop: Shop) -> None:
        names = await applied(shop, 40)
        program = shop.program("application")
        await opened(program, names)
        await shop.world.sleep(20)
        began = len(program.store.sent)
        await shop.world.sleep(60)
        tables = Counter(each.shape.table.name for each in reads_of_catalogue(program, began))
        assert 3 <= tables["catalogue_entries"] <= 6
        assert {"catalogue_entries": 1, "catalogue_homes": 1, "catalogue": 1} == {
            table: reads / tables["catalogue_entries"] for table, reads in tables.items()
        }, "what is in this data centre, in which others, and what an earlier version left"
        await shop.apply(queue_text("{shards: 4, maxReceives: 7, storage: {tables: shared}}", name="q0003"))
        await program.process.start(program.connection.refresh())
        queues = [await program.process.start(program.connection.queue(name)) for name in names]
        assert [7] == [each.engine.settings.max_receives for each in queues if each.entry.revision == 2]
        await program.process.start(queues[3].put(b"known to be fresh"))

    simulate(scenario)


def test_a_queue_that_is_opened_after_others_were_refreshed_is_as_the_catalogue_has_it() -> None:
    async def scenario(shop: Shop) -> None:
        names = await applied(shop, 20)
        program = shop.program("application")
        await opened(program, names[:-1])
        await shop.world.sleep(20)
        await shop.apply(queue_text("{shards: 4, maxReceives: 7, storage: {tables: shared}}", name="q0019"))
        queue = await program.process.start(program.connection.queue(names[-1]))
        assert 7 == queue.engine.settings.max_receives

    simulate(scenario)


def test_of_many_open_queues_the_one_that_is_deleted_ends() -> None:
    async def scenario(shop: Shop) -> None:
        names = await applied(shop, 20)
        program, person = shop.program("application"), shop.program("person")
        await opened(program, names)
        queues = [await program.process.start(program.connection.queue(name)) for name in names]
        async with shop.applier(person.process) as applier:
            catalogue: Catalogue = applier.catalogue
            known = await catalogue.find(Name("Queue", "shop", "q0005"))
            assert known is not None
            deleting = await catalogue.set_state(known.entry, EntryState.DELETING)
            await catalogue.set_state(deleting, EntryState.GONE)
        await shop.world.sleep(20)
        assert ["shop/q0005"] == [each.name for each in queues if isinstance(each.ended, QueueDeleted)]

    simulate(scenario)


def test_few_open_queues_of_a_large_namespace_are_read_by_themselves() -> None:
    async def scenario(shop: Shop) -> None:
        names = await applied(shop, 160)
        program = shop.program("application")
        await opened(program, names[:16])
        await shop.world.sleep(40)
        began = len(program.store.sent)
        await shop.world.sleep(15)
        assert 16 == len(reads_of_catalogue(program, began))

    simulate(scenario)
