"""The times of repair's checks, and the replicas they ask: checks due, owed, waiting for all of them, or given up."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from headgate.engines.contract import NewMessage, PassEnd
from headgate.engines.timeline.model.lane_rows import lane_key
from headgate.engines.timeline.model.settings import GenerationSettings
from headgate.engines.timeline.read.passed_rows import encode_passed
from headgate.store.model.consistency import Consistency
from headgate.store.model.statements import Insert, Select
from tests.simulation.timeline.timeline_puts import QUEUE, SECOND, Client, Queue, simulate
from tests.simulation.timeline.timeline_repairs import (
    DAY_S,
    HOUR_S,
    MINUTE_S,
    REPAIRED,
    Mender,
    ends_unknown_of,
    indexed,
    land,
    one_late,
    opened,
    stamped,
)


def test_checks_are_due_after_a_minute_a_quarter_hours_and_the_grace_of_the_tables() -> None:
    async def scenario(queue: Queue) -> None:
        ward = await opened(queue)
        client = queue.client("producer")
        began_s = queue.world.now_s()
        row = await indexed(client, stamped(client, b"in time"))
        await client.store.write(row.statement)
        await ward.work(20)
        end_s = (row.part + 1) * REPAIRED.part_us / SECOND - client.process.clock.wall_us() / SECOND
        end_s += queue.world.now_s()
        assert end_s > began_s
        checked = []
        for delay_s in (60, 15 * MINUTE_S, 4 * HOUR_S, DAY_S):
            await asyncio.sleep(end_s + delay_s - 2 - queue.world.now_s())
            early = await ward.repair()
            await asyncio.sleep(end_s + delay_s + 2 - queue.world.now_s())
            in_time = await ward.repair()
            checked.append((early.checked, in_time.checked, in_time.oldest_owed_us))
        assert [(0, 1, None)] * 4 == checked
        assert 0 == (await ward.repair()).checked

    simulate(scenario, settings=REPAIRED)


def test_a_part_where_nothing_was_announced_to_come_late_is_checked_once() -> None:
    async def scenario(queue: Queue) -> None:
        ward = await opened(queue)
        client = queue.client("producer")
        row = await indexed(client, stamped(client, b"put"), announced=False)
        await client.store.write(row.statement)
        await ward.work(20)
        checked = 0
        for wait_s in (2 * MINUTE_S, 15 * MINUTE_S, 4 * HOUR_S, DAY_S):
            await asyncio.sleep(wait_s)
            done = await ward.repair()
            checked += done.checked
            assert done.oldest_owed_us is None
        assert 1 == checked

    simulate(scenario, settings=REPAIRED)


def test_the_first_check_is_taken_of_a_part_that_later_ones_leave_out_though_all_are_due() -> None:
    async def scenario(queue: Queue) -> None:
        ward = await opened(queue)
        client = queue.client("producer")
        row = await indexed(client, stamped(client, b"unannounced"), announced=False)
        await ward.work(20)
        await land(queue, row)
        await asyncio.sleep(2 * DAY_S)
        assert (1, 1) == ((done := await ward.repair()).checked, done.put_again)
        await ward.work(20)
        assert [b"unannounced"] == ward.payloads()

    simulate(scenario, settings=REPAIRED)


def test_an_idle_queue_costs_few_statements_and_ten_thousand_of_them_less_than_a_hundred_per_second() -> None:
    async def scenario(queue: Queue) -> None:
        ward = await opened(queue)
        client = queue.client("producer")
        await client.process.start(queue.put(client, NewMessage(b"long ago")))
        await ward.work(20)
        await asyncio.sleep(3 * DAY_S)
        for _ in range(30):
            await ward.repair()
            await asyncio.sleep(HOUR_S)
        mender = Mender(queue, "counted")
        for _ in range(24):
            assert PassEnd.DONE is (await mender.repair()).end
            await asyncio.sleep(300)
        passes_each_s = 10_000 / 300
        assert len(mender.store.sent) / 24 * passes_each_s < 100
        at_all = [each for each in mender.store.sent if getattr(each, "consistency", None) is Consistency.ALL]
        assert 1 <= len(at_all) <= 4, "all replicas are asked once per hour"

    simulate(scenario, settings=replace(REPAIRED, generations=(GenerationSettings(1, 4),)))


def test_a_node_that_is_down_costs_a_process_one_try_and_not_ten_seconds_for_each_queue() -> None:
    async def scenario(queue: Queue) -> None:
        ward = await opened(queue)
        client = queue.client("producer")
        row = await indexed(client, stamped(client, b"old"))
        await client.store.write(row.statement)
        await ward.work(20)
        await asyncio.sleep(2 * DAY_S)
        queue.cluster.kill("n3")
        await asyncio.sleep(300)
        mender = Mender(queue, "mender")
        began_s = queue.world.now_s()
        for _ in range(20):
            assert (await mender.repair()).waits_for_all
        assert queue.world.now_s() - began_s < 10
        at_all = [each for each in mender.store.sent if getattr(each, "consistency", None) is Consistency.ALL]
        assert 1 == len(at_all)
        queue.cluster.restart("n3")
        await asyncio.sleep(120)
        assert not (await mender.repair()).waits_for_all, "and it is tried again"

    simulate(scenario, settings=REPAIRED)


def test_only_the_last_check_asks_all_replicas() -> None:
    async def scenario(queue: Queue) -> None:
        ward = await one_late(queue)
        asked = []
        for wait_s in (0, 15 * MINUTE_S, 4 * HOUR_S, DAY_S):
            await asyncio.sleep(wait_s)
            mender = Mender(queue, f"asks-{wait_s}")
            await mender.repair()
            reads = [each for each in mender.store.sent_to("work") if isinstance(each, Select)]
            asked.append({each.consistency for each in reads} - {Consistency.SERIAL})
            mender.process.kill()
            await ward.work(20)
        assert [{Consistency.LOCAL_QUORUM}] * 3 == asked[:3]
        assert Consistency.ALL in asked[3]

    simulate(scenario, settings=REPAIRED)


def test_checks_that_are_due_together_are_one() -> None:
    async def scenario(queue: Queue) -> None:
        ward = await one_late(queue)
        await asyncio.sleep(5 * HOUR_S)
        assert 1 == (await ward.repair()).checked
        await ward.work(20)
        await asyncio.sleep(MINUTE_S)
        assert 1 == (await ward.repair()).checked, "the first at the part of the copy"
        assert [b"late"] == ward.payloads()

    simulate(scenario, settings=REPAIRED)


def test_a_lane_that_is_far_behind_owes_no_check() -> None:
    async def scenario(queue: Queue) -> None:
        ward = await opened(queue)
        client = queue.client("producer")
        for each in range(3):
            await client.process.start(queue.put(client, NewMessage(b"%d" % each)))
            await asyncio.sleep(10)
        await asyncio.sleep(5 * HOUR_S)
        behind = await ward.repair()
        assert (PassEnd.DONE, 0, None) == (behind.end, behind.checked, behind.oldest_owed_us)
        await ward.work(30)
        caught_up = await ward.repair()
        assert (3, 0) == (caught_up.checked, caught_up.late)
        assert [b"0", b"1", b"2"] == ward.payloads()

    simulate(scenario, settings=REPAIRED)


def test_the_last_check_waits_for_all_and_finds_what_one_replica_alone_has() -> None:
    async def scenario(queue: Queue) -> None:
        ward = await opened(queue)
        client = queue.client("producer")
        row = await indexed(client, stamped(client, b"on one replica"))
        queue.cluster.hold_hints()
        client.store.exclude(frozenset({"n1", "n2"}))
        queue.world.network.lose("write", target="n1")
        queue.world.network.lose("write", target="n2")
        client.process.start(ends_unknown_of(client, row.statement))
        await asyncio.sleep(0.5)
        queue.cluster.kill("n3")
        await ward.work(20)
        for wait_s in (2 * MINUTE_S, 15 * MINUTE_S, 5 * HOUR_S):
            await asyncio.sleep(wait_s)
            done = await ward.repair()
            assert (1, 0, None, False) == (done.checked, done.late, done.oldest_owed_us, done.waits_for_all)
        await asyncio.sleep(DAY_S)
        waits = await ward.repair()
        assert waits.waits_for_all
        assert (row.part + 1) * REPAIRED.part_us + DAY_S * SECOND == waits.oldest_owed_us
        assert () == waits.problems, "waiting is no problem"
        queue.cluster.restart("n3")
        await asyncio.sleep(60)
        done = await ward.repair()
        assert (1, None, False) == (done.put_again, done.oldest_owed_us, done.waits_for_all)
        await ward.work(20)
        assert [b"on one replica"] == ward.payloads()

    simulate(scenario, settings=REPAIRED)


def test_while_all_cannot_be_had_the_checks_before_the_last_continue() -> None:
    async def scenario(queue: Queue) -> None:
        ward = await opened(queue)
        client = queue.client("producer")
        old = await indexed(client, stamped(client, b"old"))
        await client.store.write(old.statement)
        await ward.work(20)
        await asyncio.sleep(DAY_S)
        queue.cluster.kill("n3")
        client = queue.client("producer again")
        late = await indexed(client, stamped(client, b"late"))
        await ward.work(20)
        await asyncio.sleep(2 * MINUTE_S)
        await land(queue, late)
        done = await ward.repair()
        assert (1, True) == (done.put_again, done.waits_for_all)
        await ward.work(20)
        assert [b"late", b"old"] == ward.payloads()

    simulate(scenario, settings=REPAIRED)


def test_where_the_record_of_passed_rows_cannot_be_read_the_check_is_owed() -> None:
    async def scenario(queue: Queue) -> None:
        ward = await one_late(queue)
        client = queue.client("saboteur")
        (part,) = await _parts(queue, client)
        key = {**lane_key(REPAIRED, 1, 0), "part": part, "writer": client.process.uuid(), "piece": 0}
        now_us = client.process.clock.wall_us()
        passed = REPAIRED.tables.passed
        await client.store.write(Insert(passed, {**key, "ids": b"\xff"}, timestamp_us=now_us))
        done = await ward.repair()
        assert (0, 0) == (done.checked, done.put_again)
        assert (part + 1) * REPAIRED.part_us + REPAIRED.late_write_us == done.oldest_owed_us
        assert any("unsupported version" in each for each in done.problems)
        await client.store.write(Insert(passed, {**key, "ids": encode_passed([])}, timestamp_us=now_us + 1))
        done = await ward.repair()
        assert (1, 1, None, ()) == (done.checked, done.put_again, done.oldest_owed_us, done.problems)

    simulate(scenario, settings=REPAIRED)


async def _parts(queue: Queue, client: Client) -> list[int]:
    matches = []
    day = client.process.clock.wall_us() // (DAY_S * SECOND)
    for each in (day - 1, day):
        key = {"queue": QUEUE, "generation": 1, "day": each}
        matches += [row.part for row in await client.store.read(Select(REPAIRED.tables.parts, key, ("part",)))]
    return matches


def test_what_was_passed_is_known_though_the_retention_was_lowered() -> None:
    async def scenario(queue: Queue) -> None:
        ward = await opened(queue)
        client = queue.client("producer")
        await client.process.start(queue.put(client, NewMessage(b"once")))
        queue.settings = replace(REPAIRED, retention_us=HOUR_S * SECOND)
        await ward.work(20)
        queue.settings = REPAIRED
        await asyncio.sleep(DAY_S + HOUR_S)
        done = await ward.repair()
        assert (1, 0, ()) == (done.checked, done.late, done.problems)
        await ward.work(20)
        assert [b"once"] == ward.payloads()

    simulate(scenario, settings=REPAIRED)


def test_a_part_that_nobody_checked_until_its_record_may_be_gone_is_reported_and_left() -> None:
    async def scenario(queue: Queue) -> None:
        ward = await opened(queue)
        client = queue.client("producer")
        await client.process.start(queue.put(client, NewMessage(b"once")))
        queue.settings = replace(REPAIRED, retention_us=HOUR_S * SECOND)
        await ward.work(20)
        queue.settings = REPAIRED
        await asyncio.sleep(9 * DAY_S)
        done = await ward.repair()
        assert (0, 0, None) == (done.checked, done.late, done.oldest_owed_us)
        assert ["late rows in them" in each for each in done.problems] == [True]
        assert () == (await ward.repair()).problems, "once"
        await ward.work(20)
        assert [b"once"] == ward.payloads()

    simulate(scenario, settings=REPAIRED)
