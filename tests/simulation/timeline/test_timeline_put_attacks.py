"""The attacks on the putting side, by their numbers in ATTACKS.md: each fails when its defence is taken out."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from headgate.engines.contract import CatalogueStale, NewMessage
from headgate.engines.packed_row import unpack
from headgate.engines.timeline.model import partitions
from headgate.engines.timeline.model.layout import MessagePlace, id_bytes
from headgate.engines.timeline.model.settings import GenerationSettings
from headgate.engines.timeline.put.copies import Copy, write_copies
from headgate.errors import Unavailable
from headgate.store.model.positions import time_us_of
from headgate.store.model.statements import Select
from headgate.store.store import OutcomeUnknown
from tests.simulation.timeline.timeline_puts import (
    QUEUE,
    SECOND,
    SETTINGS,
    SKEW,
    Client,
    Queue,
    Reader,
    check,
    simulate,
)


async def started(queue: Queue, client: Client, *messages: NewMessage) -> asyncio.Task[list[str] | None]:
    """A put that has been sent, and may not have been answered."""
    task = client.process.start(queue.put(client, *messages))
    await asyncio.sleep(0.001)
    return task


def hold(client: Client, table: str, until: asyncio.Event) -> None:
    """Hold back what goes to a table."""

    async def gate(statement: Any) -> None:
        parts = getattr(statement, "statements", (statement,))
        if any(part.shape.table.name == f"timeline_{table}" for part in parts):
            await until.wait()

    client.store.gate = gate


async def index_of(queue: Queue, client: Client) -> set[tuple[int, int]]:
    """The index rows that a reader finds now: part and sub."""
    matches = set()
    day = client.process.clock.wall_us() // 86_400_000_000
    for number in {each.number for each in queue.settings.generations}:
        for each in (day, day + 1):
            key = {"queue": QUEUE, "generation": number, "day": each}
            rows = await client.store.read(Select(queue.settings.tables.parts, key, ("part", "sub")))
            matches |= {(row.part, row.sub) for row in rows}
    return matches


async def ending(queue: Queue, reader: Reader, after_s: float = 15.0) -> None:
    """Let all fall due, read it, repair it, and hold it against what has to be true."""
    queue.world.network.calm()
    await asyncio.sleep(after_s)
    await reader.process.start(reader.turn())
    await reader.process.start(reader.repair())
    check(queue, reader)


# ---- A13: the index


def test_attack_A13_a_put_is_not_acknowledged_before_its_index_row_is_durable() -> None:
    async def scenario(queue: Queue) -> None:
        client = queue.client("producer")
        durable = asyncio.Event()
        hold(client, "parts", durable)
        put = await started(queue, client, NewMessage(b"m", due_us=client.process.clock.wall_us() + 9 * SECOND))
        await asyncio.sleep(2)
        assert not put.done()
        durable.set()
        assert await put is not None
        assert 1 == len(await index_of(queue, client))

    simulate(scenario)


def test_attack_A13_a_put_whose_index_row_cannot_be_written_is_not_acknowledged() -> None:
    async def scenario(queue: Queue) -> None:
        client = queue.client("producer")
        hold(client, "parts", asyncio.Event())
        due_us = client.process.clock.wall_us() + 30 * SECOND
        assert await client.process.start(queue.put(client, NewMessage(b"m", due_us=due_us))) is None
        assert isinstance(queue.failed[0], OutcomeUnknown)

    simulate(scenario)


def test_attack_A13_when_the_retention_is_raised_the_index_row_is_written_again() -> None:
    async def scenario(queue: Queue) -> None:
        client = queue.client("producer")
        due_us = client.process.clock.wall_us() + 9 * SECOND
        await queue.put(client, NewMessage(b"short lived", due_us=due_us))
        longer = replace(SETTINGS, retention_us=4 * SETTINGS.retention_us)
        client.producer.settings_changed(longer, read_us=client.process.clock.wall_us())
        await queue.put(client, NewMessage(b"long lived", due_us=due_us))
        await asyncio.sleep(3 * SETTINGS.retention_us / SECOND)
        assert {(due_us // SETTINGS.part_us, 0)} == await index_of(queue, client)

    simulate(scenario)


def test_attack_A13_an_index_row_under_way_when_the_catalogue_changes_does_not_count_as_made_after_it() -> None:
    async def scenario(queue: Queue) -> None:
        client = queue.client("producer")
        due_us = client.process.clock.wall_us() + 9 * SECOND
        durable = asyncio.Event()
        hold(client, "parts", durable)
        before = await started(queue, client, NewMessage(b"short lived", due_us=due_us))
        longer = replace(SETTINGS, retention_us=4 * SETTINGS.retention_us)
        client.producer.settings_changed(longer, read_us=client.process.clock.wall_us())
        durable.set()
        await before
        await queue.put(client, NewMessage(b"long lived", due_us=due_us))
        await asyncio.sleep(3 * SETTINGS.retention_us / SECOND)
        assert {(due_us // SETTINGS.part_us, 0)} == await index_of(queue, client)

    simulate(scenario)


def test_attack_A13_a_producer_that_knows_a_shorter_retention_does_not_shorten_the_index() -> None:
    async def scenario(queue: Queue) -> None:
        knowing = queue.client("knowing")
        stale = queue.client("stale", ahead_us=200_000)
        longer = replace(SETTINGS, retention_us=4 * SETTINGS.retention_us)
        knowing.producer.settings_changed(longer, read_us=knowing.process.clock.wall_us())
        due_us = knowing.process.clock.wall_us() + 9 * SECOND
        await queue.put(knowing, NewMessage(b"long lived", due_us=due_us))
        await queue.put(stale, NewMessage(b"short lived", due_us=due_us))
        await asyncio.sleep(3 * SETTINGS.retention_us / SECOND)
        assert {(due_us // SETTINGS.part_us, 0)} == await index_of(queue, knowing)

    simulate(scenario)


# ---- E1, E5: slow and large


def test_attack_E1_in_a_slow_cluster_the_lag_grows_and_restamps_end() -> None:
    async def scenario(queue: Queue) -> None:
        client = queue.client("producer")
        reader = Reader(queue)
        reader.process.start(reader.run())
        for node in ("n1", "n2", "n3"):
            queue.world.network.slow(node, 0.25)
        for second in range(20):
            puts = [queue.put(client, NewMessage(b"%d-%d" % (second, each))) for each in range(10)]
            for task in [client.process.start(put) for put in puts]:
                await task
        rows = client.store.sent_to("work")
        assert [] == queue.failed
        assert client.producer.sender.lag.restamps <= 3
        assert len(rows) <= 30
        await ending(queue, reader)

    simulate(scenario)


def test_attack_E1_at_most_two_restamps_are_in_flight() -> None:
    async def scenario(queue: Queue) -> None:
        client = queue.client("producer")
        copies_in_attempt = 0
        most = 0
        stuck = asyncio.Event()

        async def gate(statement: Any) -> None:
            nonlocal copies_in_attempt, most
            parts = getattr(statement, "statements", (statement,))
            if not any("run" in part.shape.value_names for part in parts):
                return
            runs = [unpack(part.values[part.shape.value_names.index("run")]) for part in parts]
            restamp = any(run.replaces is not None for run in runs)
            copies_in_attempt += restamp
            most = max(most, copies_in_attempt)
            try:
                await stuck.wait()
            finally:
                copies_in_attempt -= restamp

        client.store.gate = gate
        large = b"x" * 100_000
        puts = [client.process.start(queue.put(client, NewMessage(large + b"%d" % each))) for each in range(8)]
        await asyncio.sleep(4)
        stuck.set()
        for put in puts:
            await put
        assert 2 == most

    simulate(scenario)


def test_attack_E5_after_enough_rows_of_its_own_a_producer_opens_a_further_sub(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(partitions, "SUB_ROWS_MAX", 10)

    async def scenario(queue: Queue) -> None:
        client = queue.client("producer")
        reader = Reader(queue)
        reader.process.start(reader.run())
        nine = (client.process.clock.wall_us() // SETTINGS.part_us + 5) * SETTINGS.part_us
        for each in range(25):
            await queue.put(client, NewMessage(b"%d" % each, due_us=nine))
        assert {0, 1, 2} == {sub for part, sub in await index_of(queue, client)}
        await ending(queue, reader)

    simulate(scenario)


# ---- A8: what is known of generations


def test_attack_A8_knowledge_is_as_old_as_the_start_of_its_read_and_nothing_is_stamped_by_it_then() -> None:
    async def scenario(queue: Queue) -> None:
        now_us = queue.client("clock").process.clock.wall_us()
        client = queue.client("producer", read_us=now_us - 60 * SECOND)
        with pytest.raises(CatalogueStale):
            await client.process.start(client.producer.put([NewMessage(b"m")]))
        assert [] == client.store.sent

    simulate(scenario)


def later_known(queue: Queue, client: Client, *generations: GenerationSettings) -> None:
    """A fresh read of the catalogue."""
    settings = replace(queue.settings, generations=generations)
    client.producer.settings_changed(settings, read_us=client.process.clock.wall_us())


@pytest.mark.parametrize(("fresh", "is_acknowledged"), [("nothing", False), ("the same", True), ("a next", False)])
def test_attack_A8_knowledge_is_checked_again_at_the_acknowledgement(fresh: str, is_acknowledged: bool) -> None:
    async def scenario(queue: Queue) -> None:
        now_us = queue.client("clock").process.clock.wall_us()
        client = queue.client("producer", read_us=now_us - 58 * SECOND)
        durable = asyncio.Event()
        hold(client, "parts", durable)
        put = await started(queue, client, NewMessage(b"m", due_us=now_us + 30 * SECOND))
        await asyncio.sleep(4)
        if fresh == "the same":
            later_known(queue, client, GenerationSettings(1, 3))
        if fresh == "a next":
            later_known(
                queue,
                client,
                GenerationSettings(1, 3, 0, now_us + 10 * SECOND),
                GenerationSettings(2, 5, now_us + 10 * SECOND),
            )
        durable.set()
        assert is_acknowledged == (await put is not None)
        assert is_acknowledged or isinstance(queue.failed[0], OutcomeUnknown)

    simulate(scenario)


def test_attack_A8_no_twin_is_written_to_a_generation_that_has_ended() -> None:
    async def scenario(queue: Queue) -> None:
        client = queue.client("producer")
        now_us = client.process.clock.wall_us()
        durable = asyncio.Event()
        hold(client, "work", durable)
        put = await started(queue, client, NewMessage(b"m"))
        later_known(
            queue,
            client,
            GenerationSettings(1, 3, 0, now_us + SECOND + 1),
            GenerationSettings(2, 5, now_us + SECOND + 1),
        )
        await asyncio.sleep(3)
        durable.set()
        assert await put is None
        assert {1} == {
            dict(zip(row.shape.value_names, row.values, strict=True))["generation"]
            for row in client.store.sent_to("work")
        }
        assert 1 == len(
            {dict(zip(row.shape.value_names, row.values, strict=True))["due"] for row in client.store.sent_to("work")}
        )

    simulate(scenario)


def test_attack_A8_what_is_due_after_a_change_goes_to_the_next_generation() -> None:
    async def scenario(queue: Queue) -> None:
        client = queue.client("producer")
        turn_us = client.process.clock.wall_us() + 5 * SECOND
        later_known(queue, client, GenerationSettings(1, 3, 0, turn_us), GenerationSettings(2, 5, turn_us))
        ids = [
            await client.process.start(client.producer.put([NewMessage(b"m", due_us=due_us)]))
            for due_us in (turn_us - 1, turn_us)
        ]
        assert [1, 2] == [MessagePlace.from_bytes(id_bytes(each[0])).row.generation for each in ids]

    simulate(scenario)


# ---- A10: places


def test_attack_A10_what_two_processes_put_for_the_same_time_has_different_places() -> None:
    async def scenario(queue: Queue) -> None:
        clients = [queue.client("one"), queue.client("other")]
        reader = Reader(queue)
        reader.process.start(reader.run())
        nine = clients[0].process.clock.wall_us() + 5 * SECOND
        for client in clients:
            messages = [NewMessage(b"%s %d" % (client.host.name.encode(), each), due_us=nine) for each in range(300)]
            assert await client.process.start(queue.put(client, *messages)) is not None
        assert 600 == len(queue.acknowledged)
        await ending(queue, reader)

    simulate(scenario)


# ---- A12: the clock


def test_attack_A12_nothing_is_acknowledged_while_the_clock_may_not_be_relied_on() -> None:
    async def scenario(queue: Queue) -> None:
        first = queue.client("producer")
        trusted = True

        def now_us() -> int:
            if not trusted:
                raise Unavailable("the clock is not trusted")
            return first.process.clock.wall_us()

        client = queue.client_on(replace(first.host, now_us=now_us), first.store, first.process)
        put = await started(queue, client, NewMessage(b"m"))
        trusted = False
        assert await put is None
        assert isinstance(queue.failed[0], OutcomeUnknown)
        assert await queue.put(client, NewMessage(b"not sent")) is None
        assert not isinstance(queue.failed[1], OutcomeUnknown)

    simulate(scenario)


def test_attack_A12_a_write_that_is_answered_within_the_skew_of_its_due_time_is_restamped() -> None:
    """P is behind and R ahead by half the bound each: acknowledged at due' - 0.3 s of P, passed by R before that."""

    async def scenario(queue: Queue) -> None:
        client = queue.client("producer", ahead_us=-250_000)
        reader = Reader(queue, ahead_us=250_000)
        reader.process.start(reader.run(0.01))
        queue.world.network.delay("request", by_s=0.7, source="producer", count=1)
        assert await client.process.start(queue.put(client, NewMessage(b"m"))) is not None
        assert client.producer.sender.lag.restamps > 0
        await ending(queue, reader)

    simulate(scenario)


# ---- C3, D9: restamped rows


def test_attack_D9_a_twin_names_what_was_stamped_first_and_the_id_is_for_life() -> None:
    async def scenario(queue: Queue) -> None:
        client = queue.client("producer")
        reader = Reader(queue)
        reader.process.start(reader.run())
        queue.world.network.delay("write", by_s=9.0, source=None, count=30)
        ids = await client.process.start(queue.put(client, NewMessage(b"a"), NewMessage(b"b")))
        assert ids is not None
        rows = [unpack(row.values[row.shape.value_names.index("run")]) for row in client.store.sent_to("work")]
        copies = [run for run in rows if run.replaces is not None]
        assert 3 <= len({row.values[row.shape.value_names.index("due")] for row in client.store.sent_to("work")})
        first = MessagePlace.from_bytes(id_bytes(ids[0]))
        assert {first.to_bytes()} == {run.replaces for run in copies}
        assert {tuple(id_bytes(each) for each in ids)} == {tuple(run.message_id or ()) for run in copies}
        await ending(queue, reader, 30.0)

    simulate(scenario)


def test_attack_C3_of_a_group_one_flush_is_unacknowledged_and_a_restamp_keeps_its_order() -> None:
    async def scenario(queue: Queue) -> None:
        client = queue.client("producer")
        reader = Reader(queue)
        reader.process.start(reader.run())
        now_us = client.process.clock.wall_us()
        queue.world.network.delay("write", by_s=6.0, count=9)
        soon = NewMessage(b"1", group="g", due_us=now_us + 1_400_000)
        puts = [await started(queue, client, NewMessage(b"0", group="g"), soon)]
        for each in range(2, 6):
            puts.append(await started(queue, client, NewMessage(b"%d" % each, group="g")))
            await asyncio.sleep(0.02)
        for put in puts:
            assert await put is not None
        await ending(queue, reader)
        assert [b"%d" % each for each in range(6)] == [
            each.payload for each in sorted(reader.delivered, key=_in_order)
        ]

    simulate(scenario)


def _in_order(each: Any) -> Any:
    return each.order


def test_attack_C3_the_order_of_a_group_survives_a_lag_that_falls() -> None:
    async def scenario(queue: Queue) -> None:
        client = queue.client("producer")
        client.producer.sender.lag.was_too_short(2**60, client.process.clock.wall_us())
        client.producer.sender.lag.was_too_short(2**61, client.process.clock.wall_us())
        due = []
        for each in range(30):
            ids = await client.process.start(client.producer.put([NewMessage(b"%d" % each, group="g")]))
            due.append(time_us_of(MessagePlace.from_bytes(id_bytes(ids[0])).row.due))
        assert sorted(due) == due

    simulate(scenario)


def test_finishing_what_another_began_reports_nothing_of_this_producers_writes() -> None:
    async def scenario(queue: Queue) -> None:
        first, second = queue.client("first"), queue.client("second")
        copies = []
        for each in range(5):
            place = first.producer.sender.fix_place(0)
            copies.append((place, Copy(b"%d" % each, bytes([each]) * 27, first.process.clock.wall_us(), 0)))
        await asyncio.sleep(5)
        await second.process.start(write_copies(second.producer.sender, copies))
        assert SETTINGS.safety_lag_us == second.producer.sender.lag.in_use_us(second.process.clock.wall_us())

    simulate(scenario)


# ---- D1: copies


@pytest.mark.parametrize("finished_after_s", [0.0, 0.4, 5.0])
def test_attack_D1_a_copy_written_again_by_another_is_one_message(finished_after_s: float) -> None:
    async def scenario(queue: Queue) -> None:
        first, second = queue.client("first"), queue.client("second")
        reader = Reader(queue)
        reader.process.start(reader.run())
        place = first.producer.sender.fix_place(0)
        copy = Copy(b"again", b"\1" * 27, first.process.clock.wall_us(), 0, attempt=2)
        await first.process.start(write_copies(first.producer.sender, [(place, copy)]))
        await asyncio.sleep(finished_after_s)
        await second.process.start(write_copies(second.producer.sender, [(place, copy)]))
        await ending(queue, reader)
        assert [b"again"] == reader.payloads()
        assert not reader.delivered[0].by_repair

    simulate(scenario)


def test_attack_D1_a_copy_that_was_never_written_is_delivered_though_its_place_was_passed() -> None:
    async def scenario(queue: Queue) -> None:
        first, second = queue.client("first"), queue.client("second")
        reader = Reader(queue)
        reader.process.start(reader.run())
        place = first.producer.sender.fix_place(0)
        copy = Copy(b"again", b"\1" * 27, first.process.clock.wall_us(), 0)
        first.process.kill()
        await asyncio.sleep(5)
        await second.process.start(write_copies(second.producer.sender, [(place, copy)]))
        await asyncio.sleep(2)
        assert [b"again"] == reader.payloads()
        await ending(queue, reader)
        assert [b"again"] == reader.payloads()

    simulate(scenario)


# ---- callers


def test_a_caller_that_disappears_takes_nothing_from_the_others() -> None:
    async def scenario(queue: Queue) -> None:
        client = queue.client("producer")
        reader = Reader(queue)
        reader.process.start(reader.run())
        durable = asyncio.Event()
        hold(client, "work", durable)
        busy = await started(queue, client, NewMessage(b"in flight"))
        gone = [await started(queue, client, NewMessage(b"gone %d" % each)) for each in range(5)]
        stays = [await started(queue, client, NewMessage(b"stays %d" % each)) for each in range(5)]
        for task in (busy, *gone[:3]):
            task.cancel()
        durable.set()
        for task in (*gone[3:], *stays):
            assert await task is not None
        await ending(queue, reader)
        delivered = sorted(reader.payloads())
        assert set(queue.acknowledged.values()) <= set(delivered)
        assert [] == [payload for payload in delivered if payload in (b"gone 0", b"gone 1", b"gone 2")]

    simulate(scenario)


def test_close_writes_what_waits_and_takes_nothing_more() -> None:
    async def scenario(queue: Queue) -> None:
        client = queue.client("producer")
        puts = [client.process.start(queue.put(client, NewMessage(b"%d" % each, group="g"))) for each in range(5)]
        await asyncio.sleep(0)
        await client.process.start(client.producer.close())
        for put in puts:
            assert put.done()
        assert 5 == len(queue.acknowledged)
        assert await queue.put(client, NewMessage(b"too late")) is None
        key = {"queue": QUEUE, "generation": 1, "part": _part_of(next(iter(queue.acknowledged)))}
        counts = await client.store.read(Select(queue.settings.tables.put_counts, key, ("messages",)))
        assert 5 == sum(row.messages for row in counts)

    simulate(scenario)


def _part_of(message_id: str) -> int:
    return MessagePlace.from_bytes(id_bytes(message_id)).row.part(SETTINGS.part_us)


def test_counts_are_written_at_most_once_a_second() -> None:
    async def scenario(queue: Queue) -> None:
        client = queue.client("producer")
        for each in range(1000):
            await client.process.start(queue.put(client, NewMessage(b"%d" % each)))
        took_s = queue.world.now_s()
        parts = {_part_of(each) for each in queue.acknowledged}
        assert len(client.store.sent_to("put_counts")) <= took_s + len(parts)

    simulate(scenario)


def test_the_skew_bound_is_less_than_half_of_the_lag() -> None:
    assert 2 * SKEW <= SETTINGS.safety_lag_us
