"""What an owner leaves to the next one: a position with its record of passed rows, copies to finish, a settle log."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any
from uuid import UUID, uuid4

from headgate.engines.contract import Ack, DeadLetterDelivery, NackDelivery
from headgate.engines.lanes.log.settle_log_format import RowFacts, encode
from headgate.engines.packed_row import unpack
from headgate.engines.timeline.engine import TimelineQueue
from headgate.engines.timeline.read.lane_records import part_key
from headgate.engines.timeline.read.reading import row_key
from headgate.store.model.positions import first_at, position_order, time_us_of
from headgate.store.model.statements import Insert
from headgate.store.store import OutcomeUnknown
from tests.kit.simulated_world import ProcessState
from tests.simulation.store.disks import Disks
from tests.simulation.timeline.timeline_puts import SECOND, Queue, simulate
from tests.simulation.timeline.timeline_workers import WORKED, Consumer, DeliveryLog, lanes_ready, put_many

ONE_LANE = replace(WORKED, generations=(replace(WORKED.generations[0], shards=1),))


# ---- the position


class SlowPassing:
    """The first write of passed rows takes long, and all later ones fail."""

    def __init__(self) -> None:
        self.writes = 0

    async def gate(self, statement: Any) -> None:
        """Before each statement."""
        parts = getattr(statement, "statements", (statement,))
        if any(each.shape.table.name.endswith("_passed") for each in parts):
            self.writes += 1
            is_first = self.writes == 1
            await asyncio.sleep(0.6)
            if not is_first:
                raise OutcomeUnknown("lost in this test")


async def work_until_a_write_is_slow(engine: TimelineQueue, passing: SlowPassing) -> None:
    """Settle what comes; some more of it while passed rows are being written."""
    while not passing.writes:
        await engine.settle([Ack(each.receipt) for each in await engine.receive(3, wait_us=SECOND)])
    await engine.settle([Ack(each.receipt) for each in await engine.receive(3)])


def give_back(kill_before: int | None) -> int:
    """Give a lane back while passed rows are being written, and maybe die at a step of it; how many steps it has.
    No row at or below the position is left out of the record of passed rows, at any time."""

    async def scenario(queue: Queue) -> int:
        await lanes_ready(queue)
        consumer, passing = Consumer(queue, "owner", DeliveryLog()), SlowPassing()
        consumer.store.gate = passing.gate
        await put_many(queue, "producer", 10, every_s=0.05)
        engine = await consumer.process.start(consumer.open())
        await consumer.process.start(work_until_a_write_is_slow(engine, passing))
        consumer.process.count_steps()
        if kill_before is not None:
            consumer.process.kill_before_step(kill_before)
        consumer.process.start(engine.close())
        disks = Disks(queue.cluster, queue.settings)
        for _ in range(30):
            await asyncio.sleep(0.2)
            assert [] == [row.place for row in disks.late()]
        return consumer.process.steps

    return simulate(scenario, settings=ONE_LANE)


def test_no_row_is_passed_without_a_record_at_whatever_step_of_a_give_back_its_owner_dies() -> None:
    steps = give_back(None)
    for step in range(1, steps + 1, max(1, steps // 40)):
        give_back(step)


# ---- copies


def messages_written(consumer: Consumer) -> set[tuple[UUID, str]]:
    """The messages in rows that a process has written: by queue, all that a row has of them but its own place, which
    is another one for a row that is written again too late."""
    written = set()
    for statement in consumer.store.sent_to("work"):
        if isinstance(statement, Insert):
            value_of: dict[str, Any] = dict(zip(statement.shape.names, statement.values, strict=True))
            run = replace(unpack(value_of["run"]), replaces=None)
            written.add((value_of["queue"], str(run)))
    return written


def test_attack_D1_a_copy_that_the_next_owner_finishes_has_all_that_the_first_one_had() -> None:
    dead = replace(ONE_LANE, queue=UUID(int=9), name="emails-dead", dead_letter=None)
    settings = replace(ONE_LANE, dead_letter="emails-dead")

    async def scenario(queue: Queue) -> None:
        await lanes_ready(queue)
        await put_many(queue, "producer", 2)
        owner, other = (Consumer(queue, name, DeliveryLog(), dead=dead) for name in ("owner", "other"))
        copied = False

        async def die_before_the_originals_are_settled(statement: Any) -> None:
            nonlocal copied
            parts = getattr(statement, "statements", (statement,))
            names = {each.shape.table.name for each in parts}
            if copied and "timeline_settled" in names:
                owner.process.kill()
            copied = copied or ("timeline_work" in names and any(isinstance(each, Insert) for each in parts))

        owner.store.gate = die_before_the_originals_are_settled

        async def fail_both() -> None:
            engine = await owner.open()
            first, second = [(await engine.receive(1, wait_us=20 * SECOND))[0] for _ in range(2)]
            failed = [NackDelivery(first.receipt, delay_us=60 * SECOND), DeadLetterDelivery(second.receipt, "never")]
            await engine.settle(failed)

        owner.process.start(fail_both())
        await asyncio.sleep(10)
        assert ProcessState.DEAD is owner.process.state
        other.start()
        await asyncio.sleep(30)
        assert 2 == len(messages_written(owner))
        assert messages_written(owner) == messages_written(other)

    simulate(scenario, settings=settings)


# ---- the settle log

PIECES, ROWS_A_PIECE = 60, 250


def test_a_long_settle_log_is_read_in_steps_and_only_what_is_above_the_position_is_kept() -> None:
    async def scenario(queue: Queue) -> None:
        await lanes_ready(queue)
        client = queue.client("writer")
        begin_us = client.process.clock.wall_us() // SECOND * SECOND
        dues = [client.host.positions.at(begin_us + number) for number in range(PIECES * ROWS_A_PIECE)]
        key = part_key(queue.settings, 1, 0, time_us_of(dues[0]) // queue.settings.part_us)
        writer = uuid4()
        for piece in range(PIECES):
            named = dues[piece * ROWS_A_PIECE : (piece + 1) * ROWS_A_PIECE]
            facts = encode({row_key(0, due, due): RowFacts(settled=1) for due in named}, epoch=1, piece=piece)
            values = {**key, "writer": writer, "piece": piece, "facts": facts}
            settled = Insert(queue.settings.tables.settled, values, timestamp_us=begin_us, ttl_s=100)
            await client.process.start(client.store.write(settled))
        consumer = Consumer(queue, "owner", DeliveryLog())
        engine = await consumer.process.start(consumer.open())
        await consumer.process.start(engine.receive(1, wait_us=5 * SECOND))
        (dispatcher,) = engine.lanes.held.values()

        async def read() -> tuple[int, int]:
            last = position_order(dues[len(dues) // 2])
            consumer.process.count_steps()
            facts = await dispatcher.source.known(last, position_order(first_at(begin_us + SECOND)))
            return consumer.process.steps, len(facts)

        steps, kept = await consumer.process.start(read())
        assert len(dues) // 2 == kept
        assert steps >= PIECES

    simulate(scenario, settings=ONE_LANE)


def test_a_new_owner_reads_the_record_of_every_part_that_it_reads() -> None:
    """One message stays open for minutes while later ones are settled, in parts of five seconds; its owner dies."""

    async def scenario(queue: Queue) -> tuple[int, list[bytes]]:
        await lanes_ready(queue)
        dying, log = Consumer(queue, "dying", DeliveryLog()), DeliveryLog()
        engine = await dying.process.start(dying.open())
        await put_many(queue, "blocking", 1)
        (blocker,) = await dying.process.start(engine.receive(1, visibility_us=600 * SECOND, wait_us=10 * SECOND))
        put = dying.process.start(put_many(queue, "producer", 60, every_s=5))
        settled = 0
        while settled < 60:
            given = await dying.process.start(engine.receive(10, wait_us=SECOND))
            await dying.process.start(engine.settle([Ack(each.receipt) for each in given]))
            settled += len(given)
        await put
        dying.process.kill()
        Consumer(queue, "next", log).start()
        await asyncio.sleep(600)
        return settled, [each.message_id == blocker.message_id for _, each in log.deliveries]

    assert simulate(scenario, settings=ONE_LANE) == (60, [True])
