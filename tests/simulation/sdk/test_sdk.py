"""The SDK in the simulated world: what it knows grows old, its queues change, its process stands still."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

import pytest

from headgate.client.catalogue.opened import ConnectionClosed
from headgate.client.catalogue.queue_record import QueueDeleted, QueueNotReady, QueueRecreated
from headgate.client.message import Message
from headgate.client.model.times import SECOND_US
from headgate.client.queue import Queue
from headgate.client.queues import CatalogueUnreadable
from headgate.engines.contract import PassEnd
from headgate.engines.lanes.ownership.lease import Lane
from headgate.engines.timeline.model.lane_rows import lane_key
from headgate.errors import HeadgateError
from headgate.runtime.worker.worker_queue import WorkerQueue
from headgate.store.catalogue.catalogue import Catalogue
from headgate.store.catalogue.entry import EntryState, Name
from headgate.store.catalogue.tables import ENTRIES
from headgate.store.clock.clock import ClockNotTrusted
from headgate.store.model.consistency import Consistency
from headgate.store.model.statements import Insert, UpdateIf
from tests.kit.simulated_store import Cluster, SimulatedStore
from tests.kit.simulated_world import World
from tests.simulation.sdk.sdk_world import Program, Shop, queue_text

T = TypeVar("T")
EMAILS = Name("Queue", "shop", "emails")


def simulate(scenario: Callable[[Shop], Coroutine[Any, Any, T]], seed: int = 1) -> T:
    """Run a scenario in a world of its own."""
    with World(seed) as world:
        return world.run(scenario(Shop(world, Cluster(world))))


async def opened(program: Program, name: str = "shop/emails") -> Queue:
    """The queue as that process has it."""
    await program.process.start(program.connection.open())
    return await program.process.start(program.connection.queue(name))


async def refused(work: Awaitable[object]) -> HeadgateError | None:
    """The error that the call raises, if any."""
    try:
        await work
    except HeadgateError as error:
        return error
    return None


async def receive_all(program: Program, queue: Queue, observation: list[Message], *, until: int) -> None:
    """Receive and acknowledge, in the process."""
    while len(observation) < until:
        for message in await queue.receive(50, wait=5):
            observation.append(message)
            await message.ack()


# ---- opening


def test_a_queue_opened_before_the_clocks_could_be_compared_waits_for_that_and_then_works() -> None:
    async def scenario(shop: Shop) -> None:
        await shop.apply(queue_text())
        program = shop.program("producer")
        shop.world.network.slow(program.process.name, 0.5)
        await program.process.start(program.connection.open())
        opening = program.process.start(program.connection.queue("shop/emails"))
        await shop.world.sleep(2)
        assert not opening.done()
        shop.world.network.calm()
        queue = await opening
        assert await program.process.start(queue.put("hello"))

    simulate(scenario)


def test_where_the_clocks_cannot_be_compared_at_all_the_opening_reports_why() -> None:
    async def scenario(shop: Shop) -> None:
        await shop.apply(queue_text())
        program = shop.program("producer")
        shop.world.network.slow(program.process.name, 0.5)
        await program.process.start(program.connection.open())
        error = await program.process.start(refused(program.connection.queue("shop/emails")))
        assert isinstance(error, ClockNotTrusted)
        assert "too few nodes answered fast enough" in str(error)

    simulate(scenario)


# ---- what is known of the catalogue


def test_a_process_without_the_catalogue_for_a_minute_refuses_to_put_with_the_reason_and_continues_afterwards() -> (
    None
):
    async def scenario(shop: Shop) -> None:
        await shop.apply(queue_text())
        program = shop.program("producer")
        queue = await opened(program)
        program.reads_catalogue = False
        await shop.world.sleep(30)
        await program.process.start(queue.put("still known"))
        await shop.world.sleep(50)
        error = await program.process.start(refused(queue.put("not known any more")))
        assert isinstance(error, CatalogueUnreadable)
        assert "queue=shop/emails" in str(error)
        assert "the catalogue is unavailable in this test" in str(error)
        assert 1 == len(str(error).splitlines())
        waiting = program.process.start(queue.put("waits a while, and continues"))
        await shop.world.sleep(4)
        assert not waiting.done()
        program.reads_catalogue = True
        assert await waiting
        assert shop.world.now_s() < 100

    simulate(scenario)


def test_what_fails_too_often_without_the_catalogue_costs_no_lane_and_goes_to_the_dead_letters_afterwards() -> None:
    async def scenario(shop: Shop) -> None:
        await shop.apply(queue_text("{shards: 1, maxReceives: 1, deadLetter: dead}"), queue_text(name="dead"))
        program = shop.program("consumer")
        queue = await opened(program)
        await program.process.start(queue.put("broken", delay=70))
        program.reads_catalogue = False
        (message,) = await program.process.start(queue.receive(1, wait=90))
        held = {name: each.lease_term.epoch for name, each in queue.engine.lanes.held.items()}
        await program.process.start(message.nack(reason="it is broken"))
        await shop.world.sleep(30)
        assert held == {name: each.lease_term.epoch for name, each in queue.engine.lanes.held.items()}
        program.reads_catalogue = True
        dead = await program.process.start(program.connection.queue("shop/dead"))
        (pending,) = await program.process.start(dead.receive(1, wait=20))
        assert "it is broken" == pending.attributes["headgate.dead.reason"]

    simulate(scenario)


def test_a_catalogue_that_was_unavailable_is_read_within_a_second_of_its_return_also_by_one_that_puts_nothing() -> (
    None
):
    async def scenario(shop: Shop) -> None:
        await shop.apply(queue_text())
        program = shop.program("consumer")
        queue = await opened(program)
        program.reads_catalogue = False
        await shop.world.sleep(35)
        program.reads_catalogue = True
        returned_us = program.process.clock.wall_us()
        await shop.world.sleep(2)
        one_read_us = round(program.store.within_s * SECOND_US)
        assert returned_us - queue.record.read_us < one_read_us + SECOND_US, "or by a read that was under way"

    simulate(scenario)


def test_the_catalogue_is_read_four_times_a_minute_and_no_more_by_a_queue_that_is_busy() -> None:
    async def scenario(shop: Shop) -> None:
        await shop.apply(queue_text())
        program = shop.program("producer")
        queue = await opened(program)
        program.store.sent.clear()
        began_s = shop.world.now_s()
        while shop.world.now_s() < began_s + 120:
            await program.process.start(queue.put("x"))
            await shop.world.sleep(0.5)
        reads = [each for each in program.store.sent if each.shape.table is ENTRIES]
        assert 7 <= len(reads) <= 9

    simulate(scenario)


def test_a_process_that_stood_still_for_longer_than_its_knowledge_is_good_continues_and_keeps_no_lane() -> None:
    async def scenario(shop: Shop) -> None:
        await shop.apply(queue_text())
        program, other = shop.program("first"), shop.program("second")
        queue, others = await opened(program), await opened(other)
        observations: list[Message] = []
        receiving = program.process.start(receive_all(program, queue, observations, until=3))
        await program.process.start(queue.put("before"))
        await shop.world.sleep(10)
        program.process.pause(for_s=90)
        takers: list[Message] = []
        other.process.start(receive_all(other, others, takers, until=1000))
        await shop.world.sleep(91)
        assert await program.process.start(queue.put("after")), "by itself: the clock is compared, the catalogue read"
        await shop.world.sleep(15)
        assert ["after", "before"] == sorted(each.text() for each in [*observations, *takers])
        receiving.cancel()

    simulate(scenario)


def test_a_short_pause_costs_no_lane() -> None:
    async def scenario(shop: Shop) -> None:
        await shop.apply(queue_text())
        program = shop.program("consumer")
        queue = await opened(program)
        observations: list[Message] = []
        program.process.start(receive_all(program, queue, observations, until=1000))
        await shop.world.sleep(15)
        held = {name: each.lease_term.epoch for name, each in queue.engine.lanes.held.items()}
        assert 3 == len(held)
        for _ in range(5):
            program.process.pause(for_s=2)
            await shop.world.sleep(6)
        assert held == {name: each.lease_term.epoch for name, each in queue.engine.lanes.held.items()}

    simulate(scenario)


def test_a_clock_that_is_off_by_more_than_one_queue_allows_is_refused_there_with_the_reason() -> None:
    async def scenario(shop: Shop) -> None:
        narrow = queue_text("{shards: 1, maxClockSkew: 100ms}", name="narrow")
        await shop.apply(narrow, queue_text("{shards: 1}"))
        program = shop.program("producer")
        program.process.clock.step(0.08)
        wide = await opened(program)
        queue = await opened(program, "shop/narrow")
        assert await program.process.start(wide.put("x"))
        error = await program.process.start(refused(queue.put("x")))
        assert isinstance(error, ClockNotTrusted)
        assert "this host's clock and a node's differ too much" in str(error)
        assert "bound_ms=50" in str(error)
        assert await program.process.start(wide.put("y"))

    simulate(scenario)


# ---- queues that change in use


@pytest.mark.parametrize("seed", range(2))
def test_more_shards_while_programs_put_and_receive_lose_nothing(seed: int) -> None:
    async def scenario(shop: Shop) -> None:
        await shop.apply(queue_text("{shards: 2}"))
        producer, consumer = shop.program("producer"), shop.program("consumer")
        queue, received = await opened(producer), await opened(consumer)
        ids: list[str] = []
        observations: list[Message] = []

        async def put_on() -> None:
            while shop.world.now_s() < 90:
                ids.append(await queue.put(str(len(ids))))
                await asyncio.sleep(0.5)

        putting = producer.process.start(put_on())
        consumer.process.start(receive_all(consumer, received, observations, until=10_000))
        await shop.world.sleep(5)
        await shop.apply(queue_text("{shards: 5}"))
        await putting
        await shop.world.sleep(5)
        assert sorted(ids) == sorted(each.id for each in observations)
        assert {1, 2} == {each.number for each in queue.engine.settings.generations}
        assert {(2, shard) for shard in range(5)} <= set(received.engine.lanes.held)
        (again,) = await shop.apply(queue_text("{shards: 5}"))
        assert again.entry is not None
        assert (2, 5) == (again.entry.generations.current.number, again.entry.generations.current.shards)

    simulate(scenario, seed)


def test_repair_brings_a_change_of_shards_to_its_end_and_the_old_generation_leaves_the_catalogue() -> None:
    async def scenario(shop: Shop) -> None:
        await shop.apply(queue_text("{shards: 1}"))
        program = shop.program("program")
        queue = await opened(program)
        observations: list[Message] = []
        receiving = program.process.start(refused(receive_all(program, queue, observations, until=10_000)))
        far = await program.process.start(queue.put("far ahead", delay=3600))
        await shop.apply(queue_text("{shards: 2}"))
        await shop.world.sleep(90)
        await program.process.start(queue.repair())
        await program.process.start(program.connection.refresh())
        now = queue.entry.generations
        assert (2, [1]) == (now.current.number, [window.number for window in now.earlier])
        await shop.world.sleep(30)
        assert 2 == len((await program.process.start(queue.where(far))).places), "moved into the new generation"
        await program.process.start(program.connection.close())
        assert isinstance(await receiving, ConnectionClosed)
        await shop.world.sleep(12 * 86_400)
        later = shop.program("later")
        again = await opened(later)
        assert PassEnd.DONE is (await later.process.start(again.repair())).outcome
        await later.process.start(later.connection.refresh())
        assert [(2, 2)] == [(each.number, each.shards) for each in again.entry.generations.windows()]
        (result,) = await later.process.start(again.receive(1))
        assert "far ahead" == result.text()

    simulate(scenario)


def test_a_queue_of_dead_letters_that_is_made_later_takes_what_fails_too_often_from_then_on() -> None:
    spec = "{shards: 1, maxReceives: 2, deadLetter: emails-dead}"

    async def scenario(shop: Shop) -> None:
        await shop.apply(queue_text(spec))
        program = shop.program("consumer")
        queue = await opened(program)
        await program.process.start(queue.put("broken"))
        attempts: list[int] = []

        async def fail() -> None:
            for message in await queue.receive(1, wait=1):
                attempts.append(message.attempt)
                await message.nack(reason="it is broken")

        while len(attempts) < 4:
            await program.process.start(fail())
        assert [1, 2, 3, 4] == attempts, "as long as there is no such queue it stays"
        await shop.apply(queue_text("{shards: 2}", name="emails-dead"))
        await shop.world.sleep(20)
        await program.process.start(fail())
        dead = await program.process.start(program.connection.queue("shop/emails-dead"))
        (pending,) = await program.process.start(dead.receive(1, wait=30))
        assert ("broken", "received too often") == (pending.text(), pending.attributes["headgate.dead.reason"])

    simulate(scenario)


def test_what_is_changed_in_the_catalogue_is_in_force_for_open_queues_and_lanes_that_are_held() -> None:
    async def scenario(shop: Shop) -> None:
        await shop.apply(queue_text("{shards: 1, visibilityTimeout: 60s}"))
        program = shop.program("consumer")
        queue = await opened(program)
        assert [] == await program.process.start(queue.receive(1, wait=5))
        await shop.apply(queue_text("{shards: 1, visibilityTimeout: 2s, maxMessageSize: 1Ki}"))
        await program.process.start(program.connection.refresh())
        error = await program.process.start(refused(queue.put(b"x" * 2000)))
        assert error is not None and "too large" in str(error)
        await program.process.start(queue.put("x"))
        got = [await program.process.start(queue.receive(1, wait=10)) for _ in range(2)]
        assert [1, 2] == [each.attempt for (each,) in got]

    simulate(scenario)


def test_a_queue_that_was_deleted_or_recreated_is_reported_to_all_that_still_uses_it() -> None:
    async def scenario(shop: Shop) -> None:
        (made,) = await shop.apply(queue_text())
        assert made.entry is not None
        program = shop.program("consumer")
        queue = await opened(program)
        await program.process.start(queue.put("x"))
        person = shop.world.process("person")
        catalogue = Catalogue(SimulatedStore(shop.cluster, person), now_us=person.clock.wall_us, owner="cli/test")
        await person.start(catalogue.set_state(made.entry, EntryState.DELETING))
        await shop.world.sleep(16)
        assert isinstance(await program.process.start(refused(queue.put("y"))), QueueDeleted)
        await person.start(catalogue.set_state(made.entry, EntryState.GONE))
        await shop.apply(queue_text())
        again = await program.process.start(program.connection.queue("shop/emails"))
        assert again is not queue
        assert await program.process.start(again.put("z"))

    simulate(scenario)


def test_a_queue_that_was_recreated_at_once_is_another_to_whichever_process_had_it_open() -> None:
    async def scenario(shop: Shop) -> None:
        (made,) = await shop.apply(queue_text())
        assert made.entry is not None
        program = shop.program("consumer")
        queue = await opened(program)
        person = shop.world.process("person")
        catalogue = Catalogue(SimulatedStore(shop.cluster, person), now_us=person.clock.wall_us, owner="cli/test")
        for state in (EntryState.DELETING, EntryState.GONE):
            await person.start(catalogue.set_state(made.entry, state))
        await shop.apply(queue_text())
        await shop.world.sleep(16)
        error = await program.process.start(refused(queue.receive(1)))
        assert isinstance(error, QueueRecreated)
        assert "open the queue again" in str(error)

    simulate(scenario)


def test_a_connection_that_is_closed_gives_every_lane_back_at_once_and_answers_the_waiting() -> None:
    async def scenario(shop: Shop) -> None:
        await shop.apply(queue_text())
        first, second = shop.program("first"), shop.program("second")
        queue = await opened(first)
        await first.process.start(queue.receive(1, wait=8))
        assert 3 == len(queue.engine.lanes.held)
        waiting = first.process.start(refused(queue.receive(1, wait=600)))
        await first.process.start(first.connection.close())
        assert isinstance(await asyncio.wait_for(waiting, 1), ConnectionClosed)
        others = await opened(second)
        await second.process.start(others.receive(1, wait=3))
        assert 3 == len(others.engine.lanes.held)

    simulate(scenario)


# ---- applied step by step


def test_killed_before_any_step_apply_shows_no_generation_whose_lanes_are_not_there() -> None:
    """Also to a reader while it is under way; and the next apply does the rest."""

    def strike(step: int) -> int:
        async def scenario(shop: Shop) -> int:
            process = shop.world.process("struck")
            process.kill_before_step(step)
            process.start(both(shop, process))
            await shop.world.sleep(5)
            taken = process.steps
            await read_state(shop)
            await shop.apply(queue_text("{shards: 2}"))
            await shop.apply(queue_text("{shards: 4}"))
            assert (1, 4) == await read_state(shop)
            return 0 if taken >= step else taken

        return simulate(scenario, step)

    async def both(shop: Shop, process: Any) -> None:
        await shop.applied(process, queue_text("{shards: 2}"))
        await shop.applied(process, queue_text("{shards: 4}"))

    async def read_state(shop: Shop) -> tuple[int, int] | None:
        """Every generation that the catalogue shows of an active entry has all its lanes."""
        process = shop.world.process(f"looker-{shop.world.now_s()}")
        program = shop.program(f"program-{shop.world.now_s()}")
        store = SimulatedStore(shop.cluster, process)
        catalogue = Catalogue(store, now_us=process.clock.wall_us)
        known = await process.start(catalogue.find(EMAILS, consistency=Consistency.SERIAL))
        if known is None or known.entry.state is not EntryState.ACTIVE:
            if known is not None:
                await program.process.start(program.connection.open())
                error = await program.process.start(refused(program.connection.queue("shop/emails")))
                assert isinstance(error, QueueNotReady)
            return None
        queue = await opened(program)
        settings = queue.engine.settings
        for number, shards in [(0, 1), *((each.number, each.shards) for each in settings.generations)]:
            for shard in range(shards):
                key = lane_key(settings, number, shard)
                lane = Lane(queue.engine.host, settings.tables.lanes, key, settings.lease)
                assert await program.process.start(lane.read_state()) is not None, (number, shard)
        result = known.entry.generations
        return result.current.number, (result.next or result.current).shards

    step, whole = 1, 0
    while not whole:
        whole = strike(step)
        step += 11
    assert whole > 50


@pytest.mark.parametrize("loop", ["lanes", "arrivals in empty lanes", "members", "catalogue", "clock"])
def test_a_worker_reports_each_background_loop_that_is_dead(loop: str) -> None:
    async def scenario(shop: Shop) -> None:
        await shop.apply(queue_text())
        program = shop.program("worker")
        queue = await opened(program)
        port = WorkerQueue(program.connection, queue)
        await program.process.start(port.receive(1, visibility_us=8_000_000, wait_us=5_000_000))
        assert [] == port.dead_loops()
        (task,) = [each for each in asyncio.all_tasks() if each.get_name() == f"headgate: {loop}"]
        task.cancel()
        await shop.world.sleep(1)
        assert [f"the loop of {loop} has ended"] == port.dead_loops()

    simulate(scenario)


def test_a_process_that_ends_releases_its_lanes_before_it_writes_its_counts() -> None:
    async def scenario(shop: Shop) -> None:
        await shop.apply(queue_text("{shards: 1}"))
        program = shop.program("both")
        queue = await opened(program)
        receiving = program.process.start(queue.receive(1, wait=60))
        await shop.world.sleep(5)
        await program.process.start(queue.put("later", delay=600))
        began = len(program.store.sent)
        receiving.cancel()
        await program.process.start(program.connection.close())
        tables = [each.shape.table.name for each in program.store.sent[began:] if isinstance(each, Insert | UpdateIf)]
        released = next(at for at, name in enumerate(tables) if name.endswith("lanes"))
        counted = next(at for at, name in enumerate(tables) if name.endswith("put_counts"))
        assert released < counted

    simulate(scenario)
