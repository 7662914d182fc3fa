"""A bulk job borrows a range of a lane beside live consumers: deliveries by both, and the state after a death."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import UUID

import pytest

from headgate.engines.contract import Ack, Delivery, NackDelivery, NewMessage, Settled
from headgate.engines.lanes.dispatcher import Dispatcher
from headgate.engines.lanes.log.settle_log import Piece
from headgate.engines.lanes.log.settle_log_format import Facts
from headgate.engines.lanes.ownership.decide_lease import LaneState, LeaseTerm
from headgate.engines.lanes.ownership.lease import Lane
from headgate.engines.lanes.reservation_by_job import (
    RangeReserver,
    RangeTaken,
    ReservationNotGranted,
    ReservationOver,
    ReservedRange,
    ReservedRow,
)
from headgate.engines.lanes.source import RangeReservation
from headgate.engines.timeline.engine import TimelineQueue
from headgate.engines.timeline.inspect.peek import peek
from headgate.engines.timeline.model.lane_rows import lane_key
from headgate.engines.timeline.model.settings import GenerationSettings
from headgate.engines.timeline.read.reading import RowContent
from headgate.engines.timeline.read.source import TimelineSource
from headgate.errors import HeadgateError
from headgate.expiry import Promise
from headgate.process.live import Live
from headgate.store.model.positions import first_at, last_at, position_order, time_us_of
from tests.kit.invariants import Ledger
from tests.kit.simulated_world import Process
from tests.simulation.timeline.timeline_puts import SECOND, Client, Queue, simulate
from tests.simulation.timeline.timeline_workers import WORKED, Consumer, DeliveryLog, lanes_ready

ONE_LANE = replace(WORKED, generations=(GenerationSettings(1, 1),), visibility_us=4 * SECOND)
MINUTE = 60 * SECOND


class Job:
    """One process that borrows: the driver and a task in one."""

    def __init__(self, queue: Queue, name: str = "job", *, number: int = 7, ahead_us: int = 0) -> None:
        self.queue = queue
        self.client: Client = queue.client(name, ahead_us=ahead_us)
        self.process: Process = self.client.process
        self.id = UUID(int=number)
        self.writer = self.client.host.uuid()
        self.lane = Lane(
            self.client.host, queue.settings.tables.lanes, lane_key(queue.settings, 1, 0), queue.settings.lease
        )
        lease_term = LeaseTerm(self.writer, 0, Promise.until(0, sent_us=0), None, 0, 0)
        self.source = TimelineSource(
            self.client.host,
            self.client.producer.sender,
            Live(None),
            generation=1,
            shard=0,
            lease_term=lease_term,
        )
        self.reserver = RangeReserver(self.client.host, self.lane, self.source)
        self.worked: list[bytes] = []
        self.tried: set[bytes] = set()
        """Payloads that it asked to settle: this may have happened without an answer."""
        self.done: list[bytes] = []

    def reservation(self, first_us: int, last_us: int, *, for_us: int = MINUTE) -> RangeReservation:
        """A range by its times, from now on."""
        deadline_us = self.client.host.now_us() + for_us
        return RangeReservation(
            self.id, position_order(first_at(first_us)), position_order(last_at(last_us)), deadline_us
        )

    async def begin(self, reservation: RangeReservation) -> ReservedRange:
        """Borrow, as the driver, and open the range, as a task."""
        self.reserved = await self.reserver.reserve(reservation)
        return ReservedRange(self.client.host, self.lane, self.source, self.reserved)

    async def read(self, reserved: ReservedRange) -> list[ReservedRow]:
        """All of the range."""
        rows = [each async for each in reserved.rows()]
        self.worked += [payload for row in rows for payload in texts(row)]
        return rows

    async def settle(self, reserved: ReservedRange, rows: Sequence[ReservedRow]) -> Settled:
        """Settle, and count what was confirmed."""
        self.tried |= {payload for row in rows for payload in texts(row)}
        how = await reserved.settle(rows)
        if how is Settled.DONE:
            self.done += [payload for row in rows for payload in texts(row)]
        return how

    async def all_of_it(self, reservation: RangeReservation) -> None:
        """Borrow, do all, give back."""
        reserved = await self.begin(reservation)
        await self.settle(reserved, await self.read(reserved))
        await self.reserver.give_back(self.reserved)


def texts(row: ReservedRow) -> list[bytes]:
    """The payloads of a row that are the job's."""
    content: RowContent = row.row.content
    assert content.run is not None
    return [payload for index, payload in enumerate(content.run.payload) if row.mine >> index & 1]


@dataclass
class Scene:
    """A queue of one lane, its backlog, and live consumers with a ledger."""

    queue: Queue
    ledger: Ledger
    consumers: list[Consumer] = field(default_factory=list)
    given: list[Delivery] = field(default_factory=list)

    async def put(self, count: int, *, name: str = "producer", group: str | None = None) -> list[bytes]:
        """Messages in rows of their own, so that they can be lent singly."""
        client = self.queue.client(f"{name}-{self.queue.world.now_s()}")
        payloads = [f"{name}-{number}".encode() for number in range(count)]
        for payload in payloads:
            message = NewMessage(payload, group=group)
            await client.process.start(self.ledger.put(client.producer.put, [message], name))
            await asyncio.sleep(0.01)
        return payloads

    def consumer(self, name: str = "live", *, work_s: float = 0.01, settles: bool = True) -> Consumer:
        """Begin to consume."""
        consumer = Consumer(self.queue, name, DeliveryLog())
        consumer.process.start(self._consume(consumer, work_s, settles))
        self.consumers.append(consumer)
        return consumer

    async def _consume(self, consumer: Consumer, work_s: float, settles: bool) -> None:
        engine: TimelineQueue = await consumer.open()
        actor, visibility_us = consumer.process.name, self.queue.settings.visibility_us
        while True:
            try:
                result = await engine.receive(5, wait_us=SECOND)
                if result:
                    clock_us = consumer.process.clock.wall_us()
                    self.ledger.delivered(actor, result, clock_us=clock_us, visibility_us=visibility_us)
                    self.given += result
                    await asyncio.sleep(work_s)
                    if settles:
                        await self.ledger.settle(engine.settle, [Ack(each.receipt) for each in result], actor)
            except HeadgateError:
                await asyncio.sleep(0.2)

    def given_after(self, count: int) -> set[bytes]:
        """The deliveries to live consumers since they had got this number."""
        return {each.payload for each in self.given[count:]}

    async def lane(self) -> LaneState:
        """The lane's row."""
        client = self.queue.client(f"reads-{self.queue.world.now_s()}")
        key = lane_key(self.queue.settings, 1, 0)
        lane = Lane(client.host, self.queue.settings.tables.lanes, key, self.queue.settings.lease)
        row = await client.process.start(lane.read_state())
        assert row is not None
        return row

    async def until_drained(self, *, but: Collection[bytes] = (), within_s: float = 120) -> None:
        """Until live consumers have settled everything but what the job did, which may grow meanwhile."""
        until_s = self.queue.world.now_s() + within_s
        by_id = self.ledger.payloads
        while left := {by_id[each] for each in self.ledger.open_ids()} - set(but):
            assert self.queue.world.now_s() < until_s, f"still open: {sorted(left)[:5]}"
            await asyncio.sleep(0.5)

    async def until_nothing_is_live(self, *, within_s: float = 120) -> None:
        """Wait until the tables show that everything is settled."""
        client = self.queue.client(f"peeks-{self.queue.world.now_s()}")
        until_s = self.queue.world.now_s() + within_s
        while live := await client.process.start(peek(client.host, self.queue.settings, {}, 100)):
            assert self.queue.world.now_s() < until_s, f"still live: {[each.payload for each in live[:5]]}"
            await asyncio.sleep(1)


def scene_of(queue: Queue) -> Scene:
    """With a ledger by the world's own clock."""
    truth = queue.world.process("truth")
    return Scene(queue, Ledger(truth.clock.wall_us))


async def receives(engine: TimelineQueue, count: int, **how: int) -> list[Delivery]:
    """This many messages, by as many calls as that takes."""
    deliveries: list[Delivery] = []
    while len(deliveries) < count:
        deliveries += await engine.receive(count - len(deliveries), wait_us=20 * SECOND, **how)
    return deliveries


def judged(scene: Scene, *jobs: Job) -> None:
    """The invariants hold, what the job confirmed nobody else was given after, and nothing is lost."""
    done = {payload for job in jobs for payload in job.done}
    tried = {payload for job in jobs for payload in job.tried}
    by_id = scene.ledger.payloads
    for violation in scene.ledger.violations(there={each for each, payload in by_id.items() if payload in tried}):
        raise AssertionError(str(violation))
    acked = {by_id[tale.id] for tale in scene.ledger.tales.values() if tale.honoured()}
    assert set() == done & acked, "settled by the job and by a consumer"
    asked = {by_id[tale.id] for tale in scene.ledger.tales.values() if tale.finished_us() is not None}
    assert set() == set(by_id.values()) - tried - asked, "settled by nobody"


@pytest.mark.parametrize("seed", range(6))
def test_a_job_beside_live_consumers_takes_its_range_and_they_take_the_rest(seed: int) -> None:
    async def scenario(queue: Queue) -> None:
        scene = scene_of(queue)
        await lanes_ready(queue)
        backlog = await scene.put(60, name="backlog")
        end_us = scene.queue.client("now").process.clock.wall_us() + 2 * SECOND
        await asyncio.sleep(3)
        job = Job(queue)
        scene.consumer(work_s=0.6)
        rng = queue.world.rng("begin")
        await asyncio.sleep(rng.uniform(0.1, 3))
        reserved = await job.process.start(job.begin(job.reservation(0, end_us)))
        before = len(scene.given)
        live = await scene.put(20, name="live")
        rows = await job.process.start(job.read(reserved))
        for start in range(0, len(rows), 7):
            assert Settled.DONE is await job.process.start(job.settle(reserved, rows[start : start + 7]))
        assert set() == scene.given_after(before) & set(backlog) & set(job.worked)
        await scene.until_drained(but=job.done)
        state = await scene.lane()
        assert time_us_of(state.last) <= end_us, "the position entered what is lent"
        assert await job.process.start(job.reserver.give_back(job.reserved))
        await asyncio.sleep(8)
        state = await scene.lane()
        assert (None, True) == (state.reserved, time_us_of(state.last) > end_us)
        assert set(live) <= {each.payload for each in scene.given}
        assert set() == scene.given_after(0) & set(job.done)
        judged(scene, job)

    simulate(scenario, seed, settings=ONE_LANE)


def test_what_is_in_flight_there_stays_the_owner_s_and_can_be_settled() -> None:
    async def scenario(queue: Queue) -> None:
        scene = scene_of(queue)
        await lanes_ready(queue)
        put = await scene.put(10)
        await asyncio.sleep(2)
        consumer = Consumer(queue, "live", DeliveryLog())

        async def hold() -> tuple[TimelineQueue, list[Delivery]]:
            engine = await consumer.open()
            return engine, [
                *await receives(engine, 2, visibility_us=60 * SECOND),
                *await receives(engine, 2, visibility_us=7 * SECOND),
            ]

        engine, held = await consumer.process.start(hold())
        job = Job(queue)
        reserved = await job.process.start(job.begin(job.reservation(0, job.client.host.now_us())))
        rows = await job.process.start(job.read(reserved))
        assert set(put) - {each.payload for each in held} == set(job.worked)
        assert {len(held)} == {len(job.reserved.opened)}
        assert [Settled.DONE] * len(held) == await consumer.process.start(
            engine.settle([Ack(each.receipt) for each in held])
        )
        assert Settled.DONE is await job.process.start(job.settle(reserved, rows))
        assert await job.process.start(job.reserver.give_back(job.reserved))
        await asyncio.sleep(5)
        assert [] == await consumer.process.start(engine.receive(10, wait_us=3 * SECOND))

    simulate(scenario, settings=ONE_LANE)


def test_what_waits_for_its_next_attempt_or_is_on_its_way_elsewhere_is_not_the_job_s() -> None:
    async def scenario(queue: Queue) -> None:
        scene = scene_of(queue)
        await lanes_ready(queue)
        put = await scene.put(6)
        await asyncio.sleep(2)
        consumer = Consumer(queue, "live", DeliveryLog())

        async def fail() -> tuple[TimelineQueue, list[Delivery]]:
            engine = await consumer.open()
            result = await receives(engine, 3)
            delays = (0.0, 8.0, 60.0)
            nacks = [
                NackDelivery(each.receipt, round(delay * SECOND)) for each, delay in zip(result, delays, strict=True)
            ]
            assert {Settled.DONE} == set(await engine.settle(nacks))
            return engine, result

        engine, failed = await consumer.process.start(fail())
        job = Job(queue)
        reserved = await job.process.start(job.begin(job.reservation(0, job.client.host.now_us())))
        await job.process.start(job.read(reserved))
        assert {put[0], *put[3:]} == set(job.worked) or set(put[3:]) == set(job.worked)
        assert not {failed[1].payload, failed[2].payload} & set(job.worked)
        await consumer.process.start(engine.close())

    simulate(scenario, settings=ONE_LANE)


def test_what_the_job_settled_counts_in_rows_too_that_the_owner_has_yet_to_read() -> None:
    async def scenario(queue: Queue) -> None:
        scene = scene_of(queue)
        await lanes_ready(queue)
        consumer = Consumer(queue, "live", DeliveryLog())

        async def own() -> tuple[TimelineQueue, Dispatcher]:
            engine = await consumer.open()
            assert [] == await engine.receive(1, wait_us=3 * SECOND)
            (dispatcher,) = engine.lanes.held.values()
            dispatcher.terms = replace(dispatcher.terms, read_ahead_bytes=1, slice_bytes=1)
            return engine, dispatcher

        engine, dispatcher = await consumer.process.start(own())
        put = await scene.put(60)
        await asyncio.sleep(3)
        assert dispatcher.delivery_state.unsettled < 60
        job = Job(queue)
        reserved = await job.process.start(job.begin(job.reservation(0, job.client.host.now_us())))
        rows = await job.process.start(job.read(reserved))
        assert put == job.worked
        assert Settled.DONE is await job.process.start(job.settle(reserved, rows))
        assert await job.process.start(job.reserver.give_back(job.reserved))
        await asyncio.sleep(5)
        assert [] == await consumer.process.start(engine.receive(10, wait_us=20 * SECOND))

    simulate(scenario, settings=ONE_LANE)


@pytest.mark.parametrize("seed", range(8))
def test_what_is_dropped_from_the_record_while_the_job_reads_it_is_not_the_job_s(seed: int) -> None:
    async def scenario(queue: Queue) -> None:
        scene = scene_of(queue)
        await lanes_ready(queue)
        put = await scene.put(12)
        await asyncio.sleep(2)
        consumer = Consumer(queue, "live", DeliveryLog())

        async def settle_but_one() -> tuple[TimelineQueue, Delivery]:
            engine = await consumer.open()
            result = await receives(engine, 10, visibility_us=60 * SECOND)
            assert {Settled.DONE} == set(await engine.settle([Ack(each.receipt) for each in result[:9]]))
            return engine, result[9]

        engine, last = await consumer.process.start(settle_but_one())
        await asyncio.sleep(queue.world.rng("begin").uniform(0, 2))
        job = Job(queue)
        known = job.source.known

        async def read_late(after: int, up_to: int) -> Facts:
            await asyncio.sleep(5)
            assert [Settled.DONE] == await consumer.process.start(engine.settle([Ack(last.receipt)]))
            return await known(after, up_to)

        job.source.known = read_late  # type: ignore[method-assign]
        reserved = await job.process.start(job.begin(job.reservation(0, job.client.host.now_us())))
        await job.process.start(job.read(reserved))
        assert put[10:] == job.worked

    simulate(scenario, seed, settings=ONE_LANE)


def test_the_owner_answers_only_once_what_it_accepted_is_on_record() -> None:
    async def scenario(queue: Queue) -> None:
        scene = scene_of(queue)
        await lanes_ready(queue)
        put = await scene.put(8)
        await asyncio.sleep(2)
        consumer = Consumer(queue, "live", DeliveryLog())
        job = Job(queue)
        asked, released = asyncio.Event(), asyncio.Event()

        async def acknowledge_slowly() -> list[Settled]:
            engine = await consumer.open()
            result = await receives(engine, 4)
            (dispatcher,) = engine.lanes.held.values()
            write = dispatcher.source.write_record

            async def hold_back(pieces: Sequence[Piece[Any]]) -> None:
                await released.wait()
                await write(pieces)

            dispatcher.source.write_record = hold_back  # type: ignore[method-assign]
            asked.set()
            return await engine.settle([Ack(each.receipt) for each in result])

        acknowledging = consumer.process.start(acknowledge_slowly())
        await asked.wait()
        await asyncio.sleep(0.1)
        asking = job.process.start(job.begin(job.reservation(0, job.client.host.now_us())))
        await asyncio.sleep(5)
        assert not asking.done() and None is (await scene.lane()).reservation_answer
        released.set()
        reserved = await asking
        assert {Settled.DONE} == set(await acknowledging)
        await job.process.start(job.read(reserved))
        assert put[4:] == job.worked

    simulate(scenario, settings=ONE_LANE)


def test_a_settle_that_is_acknowledged_after_the_deadline_is_not_confirmed() -> None:
    async def scenario(queue: Queue) -> None:
        scene = scene_of(queue)
        await lanes_ready(queue)
        await scene.put(3)
        await asyncio.sleep(2)
        job = Job(queue)
        reserved = await job.process.start(
            job.begin(job.reservation(0, job.client.host.now_us(), for_us=10 * SECOND))
        )
        rows = await job.process.start(job.read(reserved))
        write = job.source.write_record

        async def answered_late(pieces: Sequence[Piece[Any]]) -> None:
            await write(pieces)
            await asyncio.sleep(10)

        job.source.write_record = answered_late  # type: ignore[method-assign]
        assert Settled.UNKNOWN is await job.process.start(job.settle(reserved, rows))

    simulate(scenario, settings=ONE_LANE)


@pytest.mark.parametrize("seed", range(6))
def test_nobody_takes_a_range_back_before_two_clock_differences_after_its_deadline(seed: int) -> None:
    async def scenario(queue: Queue) -> None:
        scene = scene_of(queue)
        await lanes_ready(queue)
        await scene.put(3)
        await asyncio.sleep(2)
        scene.consumer()
        await asyncio.sleep(queue.world.rng("begin").uniform(1, 3))
        job, other = Job(queue, "job", number=1), Job(queue, "other", number=2)
        reservation = job.reservation(0, job.client.host.now_us(), for_us=6 * SECOND)
        await job.process.start(job.begin(reservation))
        end_us = reservation.deadline_us + 2 * queue.settings.lease.skew_us
        while (await scene.lane()).reserved is not None:
            if scene.ledger.now_us() < end_us - SECOND // 10:
                with pytest.raises(RangeTaken):
                    await other.process.start(other.begin(other.reservation(0, other.client.host.now_us())))
            await asyncio.sleep(0.1)
        assert end_us <= scene.ledger.now_us() < end_us + 4 * SECOND

    simulate(scenario, seed, settings=ONE_LANE)


def test_what_the_job_leaves_is_the_owner_s_again_when_the_deadline_is_over() -> None:
    async def scenario(queue: Queue) -> None:
        scene = scene_of(queue)
        await lanes_ready(queue)
        put = await scene.put(30)
        job = Job(queue)
        reservation = job.reservation(0, job.client.host.now_us() + SECOND, for_us=12 * SECOND)
        await asyncio.sleep(2)
        reserved = await job.process.start(job.begin(reservation))
        scene.consumer()
        rows = await job.process.start(job.read(reserved))
        assert put == job.worked
        assert Settled.DONE is await job.process.start(job.settle(reserved, rows[:10]))
        await asyncio.sleep(7)
        assert [] == scene.given
        await asyncio.sleep(6)
        assert Settled.STALE is await job.process.start(job.settle(reserved, rows[10:]))
        await scene.until_drained(but=job.done)
        assert set(put[10:]) == {each.payload for each in scene.given}
        assert (
            min(hand.given_us for tale in scene.ledger.tales.values() for hand in tale.deliveries)
            >= reservation.deadline_us
        )
        assert None is (await scene.lane()).reserved
        with pytest.raises(ReservationOver):
            await job.process.start(job.read(reserved))
        judged(scene, job)

    simulate(scenario, settings=ONE_LANE)


@pytest.mark.parametrize("seed", range(8))
def test_a_job_paused_past_its_deadline_settles_nothing_when_it_continues(seed: int) -> None:
    async def scenario(queue: Queue) -> None:
        scene = scene_of(queue)
        await lanes_ready(queue)
        put = await scene.put(12)
        job = Job(queue, ahead_us=queue.world.rng("clock").randint(-200_000, 200_000))
        reservation = job.reservation(0, job.client.host.now_us() + SECOND, for_us=15 * SECOND)
        await asyncio.sleep(2)
        scene.consumer(work_s=0.1)

        async def work() -> list[Settled]:
            reserved = await job.begin(reservation)
            rows = await job.read(reserved)
            answers = []
            for row in rows:
                answers.append(await job.settle(reserved, [row]))
                await asyncio.sleep(0.5)
            return answers

        working = job.process.start(work())
        await asyncio.sleep(queue.world.rng("pause").uniform(4, 12))
        job.process.pause(for_s=30)
        answers = await working
        assert set(answers) <= {Settled.DONE, Settled.UNKNOWN, Settled.STALE}
        await scene.until_drained(but=job.done)
        assert set(put) == {each.payload for each in scene.given} | set(job.done)
        assert set() == {each.payload for each in scene.given} & set(job.done)
        judged(scene, job)

    simulate(scenario, seed, settings=ONE_LANE)


@pytest.mark.parametrize("seed", range(6))
def test_an_owner_that_dies_during_the_loan_changes_nothing_for_the_job(seed: int) -> None:
    async def scenario(queue: Queue) -> None:
        scene = scene_of(queue)
        await lanes_ready(queue)
        put = await scene.put(40)
        end_us = queue.client("now").process.clock.wall_us() + SECOND
        await asyncio.sleep(2)
        first = scene.consumer("first", work_s=0.3)
        rng = queue.world.rng("death")
        await asyncio.sleep(1.5)
        job = Job(queue)
        asking = job.process.start(job.begin(job.reservation(0, end_us)))
        await asyncio.sleep(rng.uniform(0, 4))
        first.process.kill()
        scene.consumer("second", work_s=0.05)
        reserved = await asking
        before = len(scene.given)
        rows = await job.process.start(job.read(reserved))
        await asyncio.sleep(rng.uniform(0, 20))
        assert set() == scene.given_after(before) & set(job.worked)
        assert Settled.DONE is await job.process.start(job.settle(reserved, rows))
        assert await job.process.start(job.reserver.give_back(job.reserved))
        await scene.until_drained(but=job.done)
        assert set() == scene.given_after(before) & set(job.done)
        assert set(put) == {each.payload for each in scene.given} | set(job.done)
        judged(scene, job)

    simulate(scenario, seed, settings=ONE_LANE)


def test_a_lane_without_an_owner_is_borrowed_at_once_and_its_next_owner_reads_what_the_job_did() -> None:
    async def scenario(queue: Queue) -> None:
        scene = scene_of(queue)
        await lanes_ready(queue)
        put = await scene.put(25)
        await asyncio.sleep(70)  # further than restamps lie from their originals: reach alone does not lead there
        put += await scene.put(25, name="later")
        await asyncio.sleep(2)
        job = Job(queue)
        begun_us = job.client.host.now_us()
        reserved = await job.process.start(job.begin(job.reservation(0, begun_us)))
        assert job.client.host.now_us() < begun_us + SECOND
        assert None is (await scene.lane()).lock
        rows = await job.process.start(job.read(reserved))
        assert put == job.worked
        assert Settled.DONE is await job.process.start(job.settle(reserved, rows[:45]))
        assert await job.process.start(job.reserver.give_back(job.reserved))
        scene.consumer()
        await scene.until_drained(but=job.done)
        assert set(put[45:]) == {each.payload for each in scene.given}
        assert not any(each.suspect for each in scene.given)
        judged(scene, job)

    simulate(scenario, settings=ONE_LANE)


def test_one_range_of_a_lane_is_lent_at_a_time_and_one_whose_deadline_is_over_makes_room() -> None:
    async def scenario(queue: Queue) -> None:
        scene = scene_of(queue)
        await lanes_ready(queue)
        put = await scene.put(5)
        await asyncio.sleep(2)
        one, other = Job(queue, "one", number=1), Job(queue, "other", number=2)
        await one.process.start(one.begin(one.reservation(0, one.client.host.now_us(), for_us=8 * SECOND)))
        with pytest.raises(RangeTaken):
            await other.process.start(other.begin(other.reservation(0, other.client.host.now_us())))
        await asyncio.sleep(10)
        reserved = await other.process.start(other.begin(other.reservation(0, other.client.host.now_us())))
        assert put == [text for row in await other.process.start(other.read(reserved)) for text in texts(row)]

    simulate(scenario, settings=ONE_LANE)


def test_an_owner_keeps_its_lane_however_often_ranges_are_lent_and_given_back() -> None:
    """Each touch meets another loan than the one before; it is sent again at once, or the lease would run out."""

    async def scenario(queue: Queue) -> None:
        scene = scene_of(queue)
        await lanes_ready(queue)
        await scene.put(5)
        scene.consumer(work_s=30)
        await asyncio.sleep(3)
        before = await scene.lane()
        for number in range(1, 60):
            job = Job(queue, f"job {number}", number=number)
            await job.process.start(job.begin(job.reservation(0, job.client.host.now_us())))
            assert await job.process.start(job.reserver.give_back(job.reserved))
        after = await scene.lane()
        assert (before.epoch, before.lock) == (after.epoch, after.lock)

    simulate(scenario, settings=ONE_LANE)


def test_a_loan_that_the_owner_does_not_answer_in_time_is_given_up_and_nothing_stays_lent() -> None:
    async def scenario(queue: Queue) -> None:
        scene = scene_of(queue)
        await lanes_ready(queue)
        await scene.put(5)
        owner = scene.consumer()
        await asyncio.sleep(3)
        owner.process.pause(for_s=6)
        job = Job(queue)
        with pytest.raises(ReservationNotGranted):
            await job.process.start(job.begin(job.reservation(0, job.client.host.now_us(), for_us=2 * SECOND)))
        assert None is (await scene.lane()).reserved

    simulate(scenario, settings=ONE_LANE)


def test_of_a_group_the_job_takes_nothing_behind_what_is_not_its_own() -> None:
    async def scenario(queue: Queue) -> None:
        scene = scene_of(queue)
        await lanes_ready(queue)
        held, free = await scene.put(3, name="held", group="held"), await scene.put(3, name="free", group="free")
        await asyncio.sleep(2)
        consumer = Consumer(queue, "live", DeliveryLog())

        async def hold() -> tuple[TimelineQueue, list[Delivery]]:
            engine = await consumer.open()
            return engine, await engine.receive(1, wait_us=20 * SECOND, visibility_us=60 * SECOND)

        engine, (mine,) = await consumer.process.start(hold())
        assert held[0] == mine.payload
        job = Job(queue)
        reserved = await job.process.start(job.begin(job.reservation(0, job.client.host.now_us())))
        rows = await job.process.start(job.read(reserved))
        assert free == job.worked
        assert Settled.DONE is await job.process.start(job.settle(reserved, rows))
        assert [Settled.DONE] == await consumer.process.start(engine.settle([Ack(mine.receipt)]))
        assert [] == await consumer.process.start(engine.receive(10, wait_us=2 * SECOND))
        assert await job.process.start(job.reserver.give_back(job.reserved))
        for payload in held[1:]:
            (given,) = await consumer.process.start(engine.receive(10, wait_us=10 * SECOND))
            assert payload == given.payload
            await consumer.process.start(engine.settle([Ack(given.receipt)]))
        assert [] == await consumer.process.start(engine.receive(10, wait_us=2 * SECOND))

    simulate(scenario, settings=ONE_LANE)


def steps_of_a_job() -> int:
    """How many steps a whole job takes beside a live consumer."""

    async def whole(queue: Queue) -> int:
        _, job, reservation = await stage(queue)
        job.process.count_steps()
        await job.process.start(job.all_of_it(reservation))
        assert 12 <= len(job.done)
        return job.process.steps

    return simulate(whole, settings=ONE_LANE)


async def stage(queue: Queue) -> tuple[Scene, Job, RangeReservation]:
    """A backlog, a slow live consumer, and a job about to begin."""
    scene = scene_of(queue)
    await lanes_ready(queue)
    await scene.put(40)
    await asyncio.sleep(2)
    scene.consumer(work_s=0.6)
    await asyncio.sleep(2.2)
    job = Job(queue)
    return scene, job, job.reservation(0, job.client.host.now_us(), for_us=20 * SECOND)


def test_a_job_killed_before_any_step_loses_nothing_and_what_it_settled_stays_so() -> None:
    steps = steps_of_a_job()
    assert 20 <= steps
    for step in sorted({*range(1, steps, 4), *range(steps - 16, steps + 1)}):

        async def scenario(queue: Queue, step: int = step) -> None:
            scene, job, reservation = await stage(queue)
            job.process.kill_before_step(step)
            job.process.start(job.all_of_it(reservation))
            await scene.until_nothing_is_live()
            await asyncio.sleep(25)
            assert None is (await scene.lane()).reserved
            judged(scene, job)

        simulate(scenario, settings=ONE_LANE)


def test_an_owner_killed_before_any_step_during_a_loan_loses_nothing() -> None:
    for time in range(0, 60, 4):

        async def scenario(queue: Queue, time: int = time) -> None:
            scene, job, reservation = await stage(queue)
            working = job.process.start(job.all_of_it(reservation))
            await asyncio.sleep(time / 20)
            scene.consumers[0].process.kill_before_step(1 + time % 7)
            await asyncio.sleep(0.5)
            scene.consumer("second")
            await working
            await scene.until_nothing_is_live()
            assert set() == {each.payload for each in scene.given if each.attempt > 1} & set(job.done)
            judged(scene, job)

        simulate(scenario, settings=ONE_LANE)
