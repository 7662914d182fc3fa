"""The summary in the simulated world: reports of producers and owners, and wake-ups of a queue that sleeps (E7).

The prose is docs/internals/protocols/summary.md.
"""

from __future__ import annotations

import asyncio
from typing import Any

from headgate.client.catalogue.overview import QueueOverview
from headgate.client.model.outgoing import Put
from headgate.client.queue import Queue
from headgate.engines.summary.reading import QueueFigures
from headgate.store.catalogue.tables import SUMMARY
from headgate.store.model.statements import Delete, Insert, Select
from tests.simulation.sdk.sdk_world import Program, Shop, queue_text
from tests.simulation.sdk.test_sdk import opened, simulate

SECOND = 1_000_000


def written(program: Program) -> list[Any]:
    """The writes of a process to the summary."""
    return [each for each in program.store.sent if isinstance(each, Insert | Delete) and each.shape.table is SUMMARY]


async def figures(program: Program, name: str = "shop/emails") -> QueueFigures:
    """Of one queue, as a process sees it."""
    matches: list[QueueOverview] = await program.process.start(program.connection.read_overview())
    return next(each.figures for each in matches if each.name == name)


async def receive_for_ever(queue: Queue, *, work_s: float = 0.0) -> None:
    """A consumer."""
    while True:
        for message in await queue.receive(10, wait=5):
            await asyncio.sleep(work_s)
            await message.ack()


async def put_all(queue: Queue, count: int, **how: Any) -> None:
    """This many messages, in one write."""
    await queue.put_many([Put(b"%d" % number, **how) for number in range(count)])


async def hold_the_summary(statement: Any) -> None:
    """A gate that lets no write to the summary pass."""
    if isinstance(statement, Insert) and statement.shape.table is SUMMARY:
        await asyncio.sleep(3600)


def test_what_was_put_is_seen_by_one_that_checks_and_wakes_one_that_slept() -> None:
    async def scenario(shop: Shop) -> None:
        await shop.apply(queue_text())
        producer, looker = shop.program("producer"), shop.program("looker")
        queue = await opened(producer)
        await looker.process.start(looker.connection.open())
        assert QueueFigures() == await figures(looker)
        before_us = producer.process.clock.wall_us()
        await producer.process.start(queue.put("hello"))
        await shop.world.sleep(0.5)
        observation = await figures(looker)
        assert None is observation.backlog
        assert observation.wakes(before_us, now_us=looker.process.clock.wall_us())
        assert not observation.wakes(before_us + 5 * SECOND, now_us=looker.process.clock.wall_us())

    simulate(scenario)


def test_attack_e7_that_slept_right_after_the_write_is_woken_for_what_is_due_after_that() -> None:
    """E7: the mark is compared with how far the lanes were read, not with the time of the put."""

    async def scenario(shop: Shop) -> None:
        await shop.apply(queue_text())
        producer = shop.program("producer")
        queue = await opened(producer)
        await producer.process.start(queue.put("hello"))
        slept_us = producer.process.clock.wall_us()
        await shop.world.sleep(2)
        observation = await figures(producer)
        assert observation.wakes(slept_us, now_us=producer.process.clock.wall_us())

    simulate(scenario)


def test_attack_e7_a_mark_from_a_slower_clock_hides_none_and_none_is_ever_cleared() -> None:
    """E7, as it was attacked."""

    async def scenario(shop: Shop) -> None:
        await shop.apply(queue_text())
        fast, slow = shop.program("fast"), shop.program("slow")
        fast.process.clock.step(0.2)
        queues = await opened(fast), await opened(slow)
        await fast.process.start(queues[0].put("first"))
        await shop.world.sleep(2)
        first = await figures(fast)
        await slow.process.start(queues[1].put("second"))
        await shop.world.sleep(2)
        second = await figures(fast)
        assert first.put_us is not None
        assert second.put_us is not None
        assert second.put_us > first.put_us
        assert [] == [each for each in written(fast) + written(slow) if isinstance(each, Delete)]

    simulate(scenario)


def test_a_producer_writes_once_a_second_while_it_puts_and_nothing_while_it_does_not() -> None:
    async def scenario(shop: Shop) -> None:
        await shop.apply(queue_text())
        producer = shop.program("producer")
        queue = await opened(producer)
        for _ in range(50):
            await producer.process.start(queue.put("hello"))
            await shop.world.sleep(0.1)
        assert 4 <= len(written(producer)) <= 8
        await shop.world.sleep(3)
        calm = len(written(producer))
        await shop.world.sleep(60)
        assert calm == len(written(producer))

    simulate(scenario)


def test_of_what_is_due_later_the_earliest_part_is_marked_and_the_next_one_when_that_has_passed() -> None:
    async def scenario(shop: Shop) -> None:
        await shop.apply(queue_text())
        producer = shop.program("producer")
        queue = await opened(producer)
        for minutes in (7, 3, 5):
            await producer.process.start(queue.put("hello", delay=60 * minutes))
        await shop.world.sleep(2)
        now_us = producer.process.clock.wall_us()
        next_us = (await figures(producer)).next_due_us(now_us)
        assert next_us is not None
        assert 170 * SECOND < next_us - now_us <= 180 * SECOND
        await shop.world.sleep(185)
        now_us = producer.process.clock.wall_us()
        next_us = (await figures(producer)).next_due_us(now_us)
        assert next_us is not None
        assert 100 * SECOND < next_us - now_us <= 120 * SECOND

    simulate(scenario)


def held(shop: Shop, *, compacted: bool = False) -> int:
    """The rows of the summary on the disks of the node that has most, expired ones too."""
    counts = []
    for name, node in shop.cluster.nodes.items():
        if compacted:
            shop.cluster.purge(name, SUMMARY)
        slices = node.replica.tables.get(SUMMARY.name, {}).values()
        counts.append(sum(len(each.partition.rows) for each in slices))
    return max(counts)


def test_a_producer_that_marks_two_hundred_parts_leaves_one_row_and_the_last_put() -> None:
    async def scenario(shop: Shop) -> None:
        await shop.apply(queue_text('{shards: 1, timeline: {part: "10s"}}'))
        producer = shop.program("producer")
        queue = await opened(producer)
        for _ in range(200):
            await producer.process.start(queue.put("hello", delay=30))
            await shop.world.sleep(10)
        assert 2 == held(shop)

    simulate(scenario)


def test_what_ended_writers_left_is_compacted_while_others_write_marks_all_the_time() -> None:
    """A slice whose newest rows had the timestamps of 1970 would keep every tombstone for ever."""

    async def scenario(shop: Shop) -> None:
        await shop.apply(queue_text('{shards: 1, timeline: {part: "10s"}}'))
        shop.cluster.alter_gc_grace(SUMMARY, 600)
        lasting = shop.program("lasting")
        queue = await opened(lasting)
        for number in range(8):
            short = shop.program(f"short-{number}")
            await short.process.start((await opened(short)).put("hello", delay=30))
            await shop.world.sleep(3)
            short.process.kill()
        for _ in range(60):
            await lasting.process.start(queue.put("hello", delay=30))
            await shop.world.sleep(90)
        assert 10 == held(shop)
        assert 2 == held(shop, compacted=True)

    simulate(scenario)


def test_a_shared_mark_whose_time_has_come_is_not_lost_when_the_next_one_overwrites_it() -> None:
    async def scenario(shop: Shop) -> None:
        await shop.apply(queue_text())
        producer, repairer = shop.program("producer"), shop.program("repairer")
        queue = await opened(producer)
        producer.store.gate = hold_the_summary
        slept_us = producer.process.clock.wall_us()
        await producer.process.start(queue.put("first", delay=100))
        await producer.process.start(queue.put("second", delay=3000))
        producer.process.kill()
        mine = await opened(repairer)
        await repairer.process.start(mine.repair())
        assert 1 == len((await figures(repairer)).later)
        await shop.world.sleep(150)
        await repairer.process.start(mine.repair())
        observation = await figures(repairer)
        now_us = repairer.process.clock.wall_us()
        assert 1 == len(observation.later), "one row for all that put nothing"
        assert not any(mark.due_us <= now_us for mark in observation.later)
        assert observation.wakes(slept_us, now_us=now_us)

    simulate(scenario)


def test_an_owner_that_leaves_marks_what_is_next_although_its_producer_is_long_gone() -> None:
    async def scenario(shop: Shop) -> None:
        await shop.apply(queue_text())
        producer, worker, looker = shop.program("producer"), shop.program("worker"), shop.program("looker")
        queue = await opened(producer)
        await producer.process.start(put_all(queue, 1, delay=90))
        await producer.process.start(put_all(queue, 1, delay=4000))
        await shop.world.sleep(2)
        producer.process.kill()
        mine = await opened(worker)
        working = worker.process.start(receive_for_ever(mine))
        await shop.world.sleep(150)
        working.cancel()
        await worker.process.start(worker.connection.close())
        assert 1 == sum(1 for each in written(worker) if "due_us" in each.shape.value_names)
        slept_us = worker.process.clock.wall_us()
        await looker.process.start(looker.connection.open())
        observation = await figures(looker)
        assert 0 == observation.workers
        assert not observation.wakes(slept_us, now_us=slept_us)
        next_us = observation.next_due_us(slept_us)
        assert next_us is not None
        assert 3700 * SECOND < next_us - slept_us < 4000 * SECOND
        assert observation.wakes(slept_us, now_us=next_us)

    simulate(scenario)


def test_owners_report_what_is_behind_in_flight_and_how_fast_it_goes() -> None:
    async def scenario(shop: Shop) -> None:
        await shop.apply(queue_text())
        producer, workers = shop.program("producer"), [shop.program("one"), shop.program("two")]
        queue = await opened(producer)
        for each in workers:
            mine = await opened(each)
            each.process.start(receive_for_ever(mine, work_s=0.2))
        await shop.world.sleep(15)
        for _ in range(40):
            await producer.process.start(put_all(queue, 10))
        await shop.world.sleep(15)
        observation = await figures(producer)
        exact = await producer.process.start(queue.read_stats())
        assert (2, 3) == (observation.workers, observation.lanes)
        assert observation.backlog is not None
        assert abs(observation.backlog + observation.in_flight - exact.backlog - exact.in_flight) < 45
        assert 6 <= observation.rate <= 12
        assert observation.oldest_us is not None
        await shop.world.sleep(60)
        observation = await figures(producer)
        assert (0, 0, None, 0.0, 2) == (
            observation.backlog,
            observation.in_flight,
            observation.oldest_us,
            observation.rate,
            observation.workers,
        )

    simulate(scenario)


def test_an_idle_owner_writes_only_so_that_its_row_does_not_expire() -> None:
    async def scenario(shop: Shop) -> None:
        await shop.apply(queue_text())
        worker = shop.program("worker")
        mine = await opened(worker)
        worker.process.start(receive_for_ever(mine))
        await shop.world.sleep(10)
        began = len(written(worker))
        for _ in range(60):
            await shop.world.sleep(1)
            assert 1 == (await figures(worker)).workers
        assert 9 <= len(written(worker)) - began <= 11

    simulate(scenario)


def test_an_owner_that_was_killed_is_gone_within_its_row_and_one_that_leaves_at_once() -> None:
    async def scenario(shop: Shop) -> None:
        await shop.apply(queue_text())
        killed, leaving, looker = shop.program("killed"), shop.program("leaving"), shop.program("looker")
        for each in (killed, leaving):
            mine = await opened(each)
            working = each.process.start(receive_for_ever(mine))
        await looker.process.start(looker.connection.open())
        await shop.world.sleep(30)
        assert 2 == (await figures(looker)).workers
        killed.process.kill()
        await shop.world.sleep(16)
        assert 1 == (await figures(looker)).workers
        working.cancel()
        await leaving.process.start(leaving.connection.close())
        assert 0 == (await figures(looker)).workers

    simulate(scenario)


def test_a_backlog_that_books_do_not_hold_is_counted_by_one_owner_and_seldom() -> None:
    async def scenario(shop: Shop) -> None:
        await shop.apply(queue_text("{shards: 2}"))
        producer, workers = shop.program("producer"), [shop.program("one"), shop.program("two")]
        queue = await opened(producer)
        for _ in range(60):
            large = [producer.process.rng.randbytes(100_000) for _ in range(10)]
            await producer.process.start(queue.put_many(large))
        await shop.world.sleep(3)
        counts = dict.fromkeys(("one", "two"), 0)
        for each in workers:
            mine = await opened(each)
            count = mine.engine.stats

            async def counting(name: str = each.process.name, count: Any = count) -> Any:
                counts[name] += 1
                return await count()

            assert mine.engine.lanes.summary is not None
            mine.engine.lanes.summary._count = counting
            each.process.start(receive_for_ever(mine, work_s=2))
        await shop.world.sleep(60)
        observation = await figures(producer)
        exact = await producer.process.start(queue.read_stats())
        assert exact.backlog > 500
        assert observation.backlog is not None
        assert abs(observation.backlog - exact.backlog) < 20
        assert sorted(counts.values())[0] <= 1, "while both began, both may have"
        assert 3 <= sorted(counts.values())[1] <= 13

    simulate(scenario)


def test_where_the_summary_cannot_be_written_queues_continue() -> None:
    async def scenario(shop: Shop) -> None:
        await shop.apply(queue_text())
        program = shop.program("both")
        queue = await opened(program)
        program.store.gate = hold_the_summary
        receiving = program.process.start(receive_for_ever(queue))
        await program.process.start(put_all(queue, 20))
        await shop.world.sleep(30)
        assert (0, 0) == ((await program.process.start(queue.stats())).backlog, int(receiving.done()))
        receiving.cancel()
        program.store.gate = None
        await program.process.start(program.connection.close())

    simulate(scenario)


def test_what_was_never_marked_is_marked_by_the_next_pass_of_repair() -> None:
    async def scenario(shop: Shop) -> None:
        await shop.apply(queue_text())
        producer, repairer = shop.program("producer"), shop.program("repairer")
        queue = await opened(producer)
        producer.store.gate = hold_the_summary
        slept_us = producer.process.clock.wall_us()
        await producer.process.start(queue.put("soon"))
        await producer.process.start(queue.put("later", delay=3000))
        producer.process.kill()
        await shop.world.sleep(30)
        mine = await opened(repairer)
        assert not (await figures(repairer)).wakes(slept_us, now_us=repairer.process.clock.wall_us())
        assert () == (await repairer.process.start(mine.repair())).problems
        observation = await figures(repairer)
        now_us = repairer.process.clock.wall_us()
        assert observation.wakes(slept_us, now_us=now_us)
        next_us = observation.next_due_us(now_us)
        assert next_us is not None
        assert 2900 * SECOND < next_us - now_us < 3000 * SECOND

    simulate(scenario)


def test_a_check_of_all_queues_is_sixteen_reads_and_names_are_read_again_only_when_they_are_old() -> None:
    async def scenario(shop: Shop) -> None:
        names = [f"queue-{number}" for number in range(12)]
        await shop.apply(*(queue_text("{shards: 1}", name) for name in names))
        producer, looker = shop.program("producer"), shop.program("looker")
        for name in names[:5]:
            queue = await opened(producer, f"shop/{name}")
            await producer.process.start(queue.put("hello"))
        await looker.process.start(looker.connection.open())
        await shop.world.sleep(3)

        async def inspection() -> tuple[int, int, list[str]]:
            began = len(looker.store.sent)
            result = await looker.process.start(looker.connection.read_overview("shop"))
            reads = [each for each in looker.store.sent[began:] if isinstance(each, Select)]
            of_summary = sum(each.shape.table is SUMMARY for each in reads)
            put = [each.name.removeprefix("shop/") for each in result if each.figures.put_us is not None]
            assert 12 == len(result)
            return of_summary, len(reads) - of_summary, put

        of_summary, of_catalogue, put = await inspection()
        assert (16, names[:5]) == (of_summary, put)
        assert of_catalogue > 0
        assert (16, 0, names[:5]) == await inspection()
        await shop.world.sleep(16)
        assert 16 == (await inspection())[0]
        assert [] == await looker.process.start(looker.connection.read_overview("elsewhere"))

    simulate(scenario)
