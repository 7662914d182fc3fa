"""A bulk read of a timeline queue, in the simulated world, shows the same messages as peek, and each of them once."""

from __future__ import annotations

import asyncio
import logging
from types import SimpleNamespace
from typing import Any

import pytest

from headgate.engines.context import Host
from headgate.engines.contract import Ack, NackDelivery, NewMessage
from headgate.engines.timeline.engine import TimelineQueue
from headgate.engines.timeline.inspect.peek import peek
from headgate_spark.engines.contract import HISTORY, LIVE, ReadRange, ScanRequest
from headgate_spark.engines.packed_columns import TYPES
from headgate_spark.engines.timeline import alone_rows
from headgate_spark.engines.timeline import scan as scanning
from headgate_spark.engines.timeline.entry import ENGINE
from tests.simulation.timeline.timeline_damage import DAMAGES, damage
from tests.simulation.timeline.timeline_history import TWO_LANES, one_waits_behind
from tests.simulation.timeline.timeline_puts import SECOND, Queue, simulate
from tests.simulation.timeline.timeline_workers import Consumer, DeliveryLog, lanes_ready


@pytest.fixture(autouse=True)
def together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that may be read together are, however few there are."""
    monkeypatch.setattr(alone_rows, "TOGETHER_MIN", 1)


async def scanned(
    host: Host, queue: Queue, state: str, *, wanted: ReadRange | None = None, per_split: int = 7
) -> list[dict[str, Any]]:
    """All messages, as tasks read them, one split after the other."""
    opened: Any = SimpleNamespace(engine=SimpleNamespace(host=host, settings=queue.settings), now_us=host.now_us)
    request = ScanRequest(state, wanted or ReadRange(), tuple(TYPES), per_split)
    matches: list[dict[str, Any]] = []
    for split in await ENGINE.scan.plan(opened, request):
        async for batch in ENGINE.scan.read(opened, request, split):
            matches += batch.to_pylist()
    return matches


async def work_some(consumer: Consumer) -> TimelineQueue:
    """Settle some, fail some, of which some come again at another place, keep some in flight."""
    engine = await consumer.open()
    got = []
    while len(got) < 20:
        got += await engine.receive(20 - len(got), wait_us=10 * SECOND, visibility_us=25 * SECOND)
    await engine.settle([Ack(each.receipt) for each in got[:8]])
    await engine.settle([NackDelivery(each.receipt, delay_us=5 * SECOND) for each in got[8:10]])
    await engine.settle([NackDelivery(each.receipt, delay_us=60 * SECOND) for each in got[10:14]])
    return engine


@pytest.mark.parametrize("seed", range(5))
def test_live_is_what_peek_shows(seed: int) -> None:
    async def scenario(queue: Queue) -> None:
        await lanes_ready(queue)
        client = queue.client("producer")
        rng = queue.world.rng("puts")
        for at in range(12):
            group = f"g{at % 3}" if at % 4 == 0 else None
            some = [NewMessage(f"{at}-{n}".encode(), group=group) for n in range(rng.randrange(1, 9))]
            await client.process.start(queue.put(client, *some))
        now_us = client.process.clock.wall_us()
        late = [NewMessage(b"later-%d" % n, due_us=now_us + 60 * SECOND + n) for n in range(8)]
        ids = await client.process.start(queue.put(client, *late))
        assert ids is not None
        await client.process.start(client.cancels.cancel(ids[0]))
        await asyncio.sleep(3)
        consumer = Consumer(queue, "worker", DeliveryLog())
        engine = await consumer.process.start(work_some(consumer))
        await asyncio.sleep(4)
        looker = queue.client("looker")
        peeked = await looker.process.start(peek(looker.host, queue.settings, {}, 1000))
        rows = await looker.process.start(scanned(looker.host, queue, LIVE))
        assert {
            (each.message_id, each.payload, each.group, each.attempt, each.standing.value) for each in peeked
        } == {
            (row["id"], row["payload"], row["group"], row["attempt"], row["standing"].replace("_", " "))
            for row in rows
        }
        assert len(peeked) == len(rows)
        await consumer.process.start(engine.close())

    simulate(scenario, seed, settings=TWO_LANES)


def test_what_was_purged_is_live_no_more_and_what_came_after_is() -> None:
    async def scenario(queue: Queue) -> None:
        await lanes_ready(queue)
        client = queue.client("producer")
        due_us = client.process.clock.wall_us() + 60 * SECOND

        async def put_some(name: bytes) -> None:
            some = [NewMessage(name + b"%d" % at, due_us=due_us + at) for at in range(30)]
            await client.process.start(queue.put(client, *some))

        await put_some(b"before")
        await asyncio.sleep(1)
        consumer = Consumer(queue, "worker", DeliveryLog())
        engine = await consumer.process.start(consumer.open())
        await consumer.process.start(engine.purge())
        await asyncio.sleep(1)
        await put_some(b"after")
        looker = queue.client("looker")
        rows = await looker.process.start(scanned(looker.host, queue, LIVE))
        assert sorted(b"after%d" % at for at in range(30)) == sorted(row["payload"] for row in rows)
        assert {"later"} == {row["standing"] for row in rows}
        await consumer.process.start(engine.close())

    simulate(scenario, settings=TWO_LANES)


@pytest.mark.parametrize("seed", range(5))
def test_history_has_each_message_once_settled_or_not(seed: int) -> None:
    async def scenario(queue: Queue) -> None:
        await lanes_ready(queue)
        client = queue.client("producer")
        client.store.answers_late_s = 0.0
        for at in range(25):
            client.store.answers_late_s = 1.2 if at % 5 == seed else 0.0  # so that some are restamped
            await client.process.start(queue.put(client, NewMessage(b"%d" % at), NewMessage(b"x%d" % at)))
        client.store.answers_late_s = 0.0
        await client.process.start(client.once.put([NewMessage(b"once", once="key")]))
        await asyncio.sleep(3)
        consumer = Consumer(queue, "worker", DeliveryLog())
        engine = await consumer.process.start(work_some(consumer))
        await asyncio.sleep(8)
        looker = queue.client("looker")
        rows = await looker.process.start(scanned(looker.host, queue, HISTORY))
        payloads = sorted(row["payload"] for row in rows)
        acknowledged = set(queue.acknowledged.values()) | {b"once"}
        assert acknowledged <= set(payloads)
        ids = [row["id"] for row in rows]
        assert len(ids) == len(set(ids))
        await consumer.process.start(engine.close())

    simulate(scenario, seed, settings=TWO_LANES)


@pytest.mark.parametrize("state", [LIVE, HISTORY])
def test_a_row_that_cannot_be_read_is_named_in_one_line_and_all_others_are_read(
    state: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(queue: Queue) -> None:
        await lanes_ready(queue)
        client = queue.client("producer")
        due_us = client.process.clock.wall_us() + 60 * SECOND
        damaged = set()
        for at in range(24):
            many = [NewMessage(b"%d %d" % (at, each) * 30) for each in range(5)]
            one = [NewMessage(b"%d" % at * 30, due_us=due_us)]
            ids = await client.process.start(queue.put(client, *(many if at % 2 else one)))
            assert ids is not None
            if at % 6 < 2:
                how = DAMAGES[at // 6 % len(DAMAGES)]
                damaged.add(str((await client.process.start(damage(queue, client, ids[0], how))).due))
                for each in ids:
                    del queue.acknowledged[each]
        looker = queue.client("looker")
        rows = await looker.process.start(scanned(looker.host, queue, state))
        assert sorted(queue.acknowledged) == sorted(row["id"] for row in rows)
        lines = [vars(each)["due"] for each in caplog.records if each.message.startswith("an unreadable row")]
        assert sorted(damaged) == sorted(lines)

    with caplog.at_level(logging.ERROR, "headgate"):
        simulate(scenario, settings=TWO_LANES)


def test_a_backlog_in_one_shard_and_one_part_spreads_over_splits() -> None:
    async def scenario(queue: Queue) -> None:
        await lanes_ready(queue)
        client = queue.client("producer")
        now_us = client.process.clock.wall_us()
        base_us = (now_us // queue.settings.part_us + 4) * queue.settings.part_us
        for start in range(0, 600, 50):
            some = [
                NewMessage(b"%d" % at, due_us=base_us + at * 1000, group="hot") for at in range(start, start + 50)
            ]
            await client.process.start(queue.put(client, *some))
        await client.process.start(client.producer.close())
        looker = queue.client("looker")
        opened: Any = SimpleNamespace(
            engine=SimpleNamespace(host=looker.host, settings=queue.settings), now_us=looker.host.now_us
        )
        request = ScanRequest(LIVE, ReadRange(), ("payload",), 100)
        splits = await looker.process.start(ENGINE.scan.plan(opened, request))
        sizes = []
        for split in splits:

            async def read(split: Any = split) -> int:
                return sum([batch.num_rows async for batch in ENGINE.scan.read(opened, request, split)])

            sizes.append(await looker.process.start(read()))
        assert 600 == sum(sizes)
        assert 5 <= len(sizes) <= 12, sizes
        assert max(sizes) <= 200, sizes

    simulate(scenario, settings=TWO_LANES)


def test_only_parts_within_the_range_are_read() -> None:
    async def scenario(queue: Queue) -> None:
        await lanes_ready(queue)
        client = queue.client("producer")
        now_us = client.process.clock.wall_us()
        part_us = queue.settings.part_us
        base_us = (now_us // part_us + 4) * part_us
        dues = [base_us + at * part_us for at in range(10)]
        await client.process.start(queue.put(client, *(NewMessage(b"%d" % due, due_us=due) for due in dues)))
        looker = queue.client("looker")
        looker.store.sent.clear()
        first, last = dues[3], dues[5]
        wanted = ReadRange(
            scanning.position_order(scanning.first_at(first)), scanning.position_order(scanning.last_at(last))
        )
        rows = await looker.process.start(scanned(looker.host, queue, HISTORY, wanted=wanted))
        assert [b"%d" % due for due in dues[3:6]] == sorted(row["payload"] for row in rows)
        read = {statement.values[2] for statement in looker.store.sent_to("work")}
        assert {due // part_us for due in dues[3:6]} == read

    simulate(scenario, settings=TWO_LANES)


def requests_of_a_live_plan(parts: int) -> int:
    """The number of requests of planning where this number of parts was put and settled before, and one waits."""

    async def scenario(queue: Queue) -> int:
        looker = await one_waits_behind(queue, parts)
        opened: Any = SimpleNamespace(
            engine=SimpleNamespace(host=looker.host, settings=queue.settings), now_us=looker.host.now_us
        )
        splits = await looker.process.start(
            ENGINE.scan.plan(opened, ScanRequest(LIVE, ReadRange(), ("payload",), 100))
        )
        assert splits
        return len(looker.store.sent)

    return simulate(scenario, settings=TWO_LANES)


def test_what_planning_a_live_read_asks_does_not_grow_with_history() -> None:
    assert requests_of_a_live_plan(2) == requests_of_a_live_plan(40)
