"""Repair in the simulated world: rows that land below a lane's position, by hint, batch log or a paused coordinator,
are delivered, once; and whatever dies, waits or comes twice meanwhile changes nothing of that.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import pytest

from penstock.engines.contract import Ack, Cancelled, Fate, Message, PassEnd, Repaired, Whereabouts
from penstock.engines.host import Host
from penstock.engines.lane import Lane
from penstock.engines.packed import PackedRun, pack
from penstock.engines.timeline.decide_repair import EVERYTHING, LOOKS
from penstock.engines.timeline.engine import TimelineQueue
from penstock.engines.timeline.lane_rows import lane_key, make_lanes
from penstock.engines.timeline.layout import CASSANDRA_4_LAST_EXPIRY_S, DAYS, Place, RowPlace, day_of, id_text
from penstock.engines.timeline.passed import encode_passed
from penstock.engines.timeline.repair import REPAIR_LANE, Pass, Repairer
from penstock.engines.timeline.settings import Generation
from penstock.store.consistency import Consistency
from penstock.store.positions import Positions, last_at
from penstock.store.statements import Batch, Insert, Select
from penstock.store.store import Unknown
from penstock.testing.world import State
from tests.invariants import Ledger
from tests.simulation.disks import Disks
from tests.simulation.timeline_checks import never_met
from tests.simulation.timeline_puts import QUEUE, SECOND, SKEW, Client, GatedStore, Queue, simulate
from tests.simulation.timeline_workers import WORKED, Consumer, Seen, lanes_ready

MINUTE_S, HOUR_S, DAY_S = 60, 3600, 86_400
REPAIRED = replace(WORKED, generations=(Generation(1, 1),), retention_us=30 * DAY_S * SECOND)


class Mender:
    """One process that repairs."""

    def __init__(self, queue: Queue, name: str) -> None:
        self.queue = queue
        self.process = queue.world.process(name)
        self.store = GatedStore(queue.cluster, self.process)
        self.host = Host(
            name,
            self.store,
            self.process.clock.wall_us,
            self.process.uuid,
            self.process.chance,
            Positions(lambda: self.process.chance.getrandbits(56)),
            CASSANDRA_4_LAST_EXPIRY_S,
        )

    async def repair(self, **options: Any) -> Repaired:
        """One pass, on knowledge of now."""
        return await self.process.start(self._repair(**options))

    def begin(self, **options: Any) -> asyncio.Task[Repaired]:
        """One pass that may not come to its end."""
        return self.process.start(self._repair(**options))

    async def _repair(self, **options: Any) -> Repaired:
        engine = TimelineQueue(self.host, self.queue.settings, read_us=self.process.clock.wall_us())
        try:
            return await engine.repair(**options)
        finally:
            await engine.close()


@dataclass
class Ward:
    """A queue, who works it, and who repairs it."""

    queue: Queue
    seen: Seen = field(default_factory=Seen)
    number: int = 0

    def worker(self) -> Consumer:
        """Somebody who receives and acknowledges."""
        self.number += 1
        consumer = Consumer(self.queue, f"worker-{self.number}", self.seen)
        consumer.start()
        return consumer

    async def work(self, for_s: float) -> None:
        """Somebody works for a while, and dies; his leases run out."""
        consumer = self.worker()
        await asyncio.sleep(for_s)
        consumer.process.kill()
        await asyncio.sleep(12)

    async def repair(self, **options: Any) -> Repaired:
        """One pass by a process of its own."""
        self.number += 1
        mender = Mender(self.queue, f"mender-{self.number}")
        done = await mender.repair(**options)
        mender.process.kill()
        return done

    async def repair_to_the_end(self) -> None:
        """All looks that will ever be due, with work in between."""
        for wait_s in (MINUTE_S, 15 * MINUTE_S, 5 * HOUR_S, 11 * DAY_S):
            await asyncio.sleep(wait_s)
            await self.repair()
            await self.work(20)

    def payloads(self) -> list[bytes]:
        """All that was delivered."""
        return sorted(each.payload for _, each in self.seen.deliveries)


async def opened(queue: Queue) -> Ward:
    """A queue with its lanes, and a first message that makes the index row of its part."""
    await lanes_ready(queue)
    return Ward(queue)


@dataclass(frozen=True)
class Row:
    """A row as a producer stamped it."""

    place: RowPlace
    run: PackedRun
    statement: Insert
    ttl_s: int

    @property
    def part(self) -> int:
        """Where it lies."""
        return self.place.part(REPAIRED.part_us)


def stamped(
    client: Client,
    *payloads: bytes,
    due_in_s: float = 1.0,
    groups: list[bytes] | None = None,
    twin_of: Row | None = None,
) -> Row:
    """A row of the first generation, not sent."""
    now_us = client.process.clock.wall_us()
    count = len(payloads)
    run = PackedRun(due_us=[now_us] * count, put_us=[now_us] * count, payload=list(payloads), group=groups)
    if twin_of is not None:
        ids = [Place(twin_of.place, index).to_bytes() for index in range(len(twin_of.run))]
        run = replace(twin_of.run, message_id=ids, replaces=Place(twin_of.place, 0).to_bytes())
    return _row(client, run, now_us + round(due_in_s * SECOND))


def _row(client: Client, run: PackedRun, due_us: int) -> Row:
    now_us = client.process.clock.wall_us()
    place = RowPlace(1, 0, 0, client.host.positions.at(due_us))
    ttl_s = (due_us - now_us + REPAIRED.retention_us) // SECOND
    values = {
        "queue": QUEUE,
        "generation": 1,
        "part": place.part(REPAIRED.part_us),
        "sub": 0,
        "shard": 0,
        "due": place.due,
        "run": pack(run),
    }
    statement = Insert(REPAIRED.tables.work, values, timestamp_us=now_us, ttl_s=ttl_s)
    return Row(place, run, statement, ttl_s)


async def told_of(queue: Queue, message_id: str) -> Whereabouts:
    """Where a message is, for somebody who asks."""
    asker = Consumer(queue, f"asker-{queue.world.now_s()}", Seen())

    async def ask() -> Whereabouts:
        return await (await asker.open()).where(message_id)

    return await asker.process.start(ask())


def index_rows(client: Client, place: RowPlace) -> list[Insert]:
    """The index row of a part, and that of its day."""
    now_us, part = client.process.clock.wall_us(), place.part(REPAIRED.part_us)
    rows = [(day_of(part, REPAIRED.part_us), part), (DAYS, day_of(part, REPAIRED.part_us))]
    return [
        Insert(
            REPAIRED.tables.parts,
            {"queue": QUEUE, "generation": place.generation, "day": day, "part": each, "sub": 0, "put_us": now_us},
            timestamp_us=REPAIRED.retention_us,
            ttl_s=2 * REPAIRED.retention_us // SECOND,
        )
        for day, each in rows
    ]


async def indexed(client: Client, row: Row) -> Row:
    """Its index rows are durable; it is not."""
    for statement in index_rows(client, row.place):
        await client.store.write(statement)
    return row


async def land(queue: Queue, row: Row) -> None:
    """What a producer sent long ago reaches the replicas, with the timestamp and the time to live of then."""
    hinter = queue.client(f"hinter-{queue.world.now_s()}")
    values = dict(zip(row.statement.shape.names, row.statement.values, strict=True))
    left_s = row.ttl_s - round(queue.world.now_s())
    table, timestamp_us = row.statement.shape.table, row.statement.timestamp_us
    await hinter.store.write(Insert(table, values, timestamp_us=timestamp_us, ttl_s=left_s))


async def passed_by(ward: Ward, row: Row | None = None) -> None:
    """A worker whose position goes beyond all that is due by now."""
    await ward.work(20)


# ---- what lands late


def test_attack_A3_a_row_that_lands_below_the_position_is_delivered_and_once() -> None:
    async def scenario(queue: Queue) -> None:
        ward = await opened(queue)
        client = queue.client("producer")
        await client.process.start(queue.put(client, Message(b"before")))
        queue.cluster.hold_hints()
        queue.world.network.delay("write", by_s=600, count=3)
        client.process.start(queue.put(client, Message(b"late")))
        await asyncio.sleep(0.05)
        client.process.kill()
        await passed_by(ward)
        assert [b"before"] == ward.payloads()
        await asyncio.sleep(700)
        done = await ward.repair()
        assert (PassEnd.DONE, 1, 1) == (done.end, done.late, done.put_anew)
        await ward.work(20)
        assert [b"before", b"late"] == ward.payloads()
        await ward.repair_to_the_end()
        assert [b"before", b"late"] == ward.payloads()

    simulate(scenario, settings=REPAIRED)


def test_attack_A4_a_logged_batch_is_replayed_after_hours_index_row_and_all() -> None:
    async def scenario(queue: Queue) -> None:
        ward = await opened(queue)
        client = queue.client("outbox")
        row = stamped(client, b"outbox")
        batch = Batch([row.statement, *index_rows(client, row.place)], logged=True)
        queue.cluster.hold_batchlog()
        queue.world.network.lose("write", count=12)
        client.store.exclude(frozenset({"n2", "n3"}))
        writing = client.process.start(_ends_unknown(client, batch))
        await asyncio.sleep(0.5)
        queue.cluster.kill("n1")
        await writing
        queue.world.network.calm()
        queue.cluster.restart("n1")
        await ward.work(20)
        for wait_s in (MINUTE_S, 20 * MINUTE_S):
            await asyncio.sleep(wait_s)
            assert 0 == (await ward.repair()).late
        queue.cluster.release_batchlog()
        await asyncio.sleep(4 * HOUR_S)
        assert 1 == (await ward.repair()).put_anew
        await ward.work(20)
        await ward.repair_to_the_end()
        assert [b"outbox"] == ward.payloads()

    simulate(scenario, settings=REPAIRED)


async def _ends_unknown(client: Client, batch: Batch) -> None:
    with pytest.raises(Unknown):
        await client.store.attempt(batch, 10)


def test_an_index_row_that_comes_late_itself_is_found_by_the_next_look() -> None:
    async def scenario(queue: Queue) -> None:
        ward = await opened(queue)
        client = queue.client("producer")
        row = stamped(client, b"late")
        await ward.work(20)
        await asyncio.sleep(2 * MINUTE_S)
        await land(queue, row)
        assert 0 == (await ward.repair()).late
        await asyncio.sleep(HOUR_S)
        await indexed(client, row)
        assert 1 == (await ward.repair()).put_anew
        await ward.work(20)
        assert [b"late"] == ward.payloads()

    simulate(scenario, settings=REPAIRED)


def test_a_row_that_no_index_row_names_comes_to_nobody_and_was_promised_to_nobody() -> None:
    """A producer sends a row and its index row side by side; of its tries only those of the row land."""

    async def scenario(queue: Queue) -> None:
        ward = await opened(queue)
        cut_off = queue.client("cut off")

        async def gate(statement: Any) -> None:
            if statement.shape.table.name == REPAIRED.tables.parts.name:
                await asyncio.Event().wait()

        cut_off.store.gate = gate
        assert await cut_off.process.start(queue.put(cut_off, Message(b"in doubt"))) is None
        assert [Unknown] == [type(error) for error in queue.failed]
        assert any(row.ids for row in Disks(queue.cluster, REPAIRED).rows()), "it is there, and durable"
        await ward.work(20)
        await ward.repair_to_the_end()
        assert [] == ward.payloads()
        client = queue.client("who puts again")
        assert await client.process.start(queue.put(client, Message(b"in doubt"))) is not None
        await ward.work(20)
        assert [b"in doubt"] == ward.payloads()

    simulate(scenario, settings=REPAIRED)


@pytest.mark.parametrize(("named", "promised"), [(False, False), (True, False), (False, True)])
def test_a_life_owes_what_is_durable_anywhere_and_named_by_the_index_or_promised(named: bool, promised: bool) -> None:
    """What `make simulate` judges by: the row, and the two rows of the index, are on one replica each."""

    async def scenario(queue: Queue) -> None:
        ward = await opened(queue)
        client = queue.client("producer")
        queue.cluster.hold_hints()
        row = stamped(client, b"late")
        await ward.work(20)
        await _on_one_replica(queue, row.statement, "n3")
        if named:
            for statement, node in zip(index_rows(client, row.place), ("n1", "n2"), strict=True):
                await _on_one_replica(queue, statement, node)
        ledger = Ledger(client.process.clock.wall_us)
        message_id = id_text(Place(row.place, 0).to_bytes())
        if promised:
            ledger.acknowledged(ledger.trying([Message(b"late")], "producer"), [message_id])
        owed = list(never_met(Disks(queue.cluster, REPAIRED), ledger, REPAIRED))
        assert (named or promised) == any(message_id in each for each in owed)
        assert len(owed) <= 1

    simulate(scenario, settings=REPAIRED)


def test_what_repair_alone_can_bring_is_told_from_what_was_met_and_what_its_lane_will_read() -> None:
    """By the disks alone, as a life asks it: of these it expects nothing before repair has looked."""

    async def scenario(queue: Queue) -> None:
        ward = await opened(queue)
        client = queue.client("producer")
        disks = Disks(queue.cluster, REPAIRED)
        met = await indexed(client, stamped(client, b"met"))
        await client.store.write(met.statement)
        late = await indexed(client, stamped(client, b"late"))
        await ward.work(20)
        ahead = await indexed(client, stamped(client, b"ahead"))
        await client.store.write(ahead.statement)
        for row in (stamped(client, due_in_s=-5, twin_of=met), late):
            await land(queue, row)
        assert [late.place] == [row.place for row in disks.late()]
        await asyncio.sleep(2 * MINUTE_S)
        await ward.repair()
        assert [] == list(disks.late()), "it is on its way"
        await ward.work(20)
        assert [] == list(disks.late())
        assert [b"ahead", b"late", b"met"] == ward.payloads()

    simulate(scenario, settings=REPAIRED)


async def _on_one_replica(queue: Queue, statement: Insert, node: str) -> None:
    client = queue.client(f"only to {node} at {queue.world.now_s()}")
    others = {"n1", "n2", "n3"} - {node}
    client.store.exclude(frozenset(others))
    for other in others:
        queue.world.network.lose("write", target=other)
    await client.process.start(_ends_unknown_of(client, statement))


def test_the_last_look_finds_an_index_row_too_that_one_replica_alone_has() -> None:
    async def scenario(queue: Queue) -> None:
        ward = await opened(queue)
        client = queue.client("producer")
        queue.cluster.hold_hints()
        row = stamped(client, b"late")
        for statement in (row.statement, *index_rows(client, row.place)):
            await _on_one_replica(queue, statement, "n3")
        await ward.work(20)
        await asyncio.sleep(11 * DAY_S)
        queue.world.network.slow("n3", 0.4)
        assert 1 == (await ward.repair()).put_anew
        queue.world.network.slow("n3", 0)
        await ward.work(20)
        assert [b"late"] == ward.payloads()

    simulate(scenario, settings=REPAIRED)


def test_a_row_of_many_messages_comes_whole_under_its_ids() -> None:
    async def scenario(queue: Queue) -> None:
        ward = await opened(queue)
        client = queue.client("producer")
        row = await indexed(client, stamped(client, *(b"%d" % each for each in range(20))))
        await ward.work(20)
        await asyncio.sleep(2 * MINUTE_S)
        await land(queue, row)
        await ward.repair()
        await ward.work(20)
        wanted = {id_text(Place(row.place, index).to_bytes()): b"%d" % index for index in range(20)}
        found = await told_of(queue, [*wanted][7])
        assert (Fate.SETTLED, 2) == (found.fate, len(found.places))
        assert wanted == {each.message_id: each.payload for _, each in ward.seen.deliveries}
        assert 20 == len(ward.seen.deliveries)

    simulate(scenario, settings=REPAIRED)


# ---- what must not come again


def test_attack_D9_an_original_that_lands_after_its_twin_was_settled_is_not_delivered_again() -> None:
    async def scenario(queue: Queue) -> None:
        ward = await opened(queue)
        client = queue.client("producer")
        original = await indexed(client, stamped(client, b"once"))
        twin = await indexed(client, stamped(client, due_in_s=3, twin_of=original))
        await client.store.write(twin.statement)
        await ward.work(20)
        assert [b"once"] == ward.payloads()
        await asyncio.sleep(2 * MINUTE_S)
        await land(queue, original)
        done = await ward.repair()
        assert (0, 0) == (done.late, done.put_anew)
        await ward.repair_to_the_end()
        assert [b"once"] == ward.payloads()

    simulate(scenario, settings=REPAIRED)


def test_attack_D9_a_twin_that_lands_after_its_original_was_settled_is_not_delivered_again() -> None:
    async def scenario(queue: Queue) -> None:
        ward = await opened(queue)
        client = queue.client("producer")
        original = await indexed(client, stamped(client, b"once"))
        twin = await indexed(client, stamped(client, due_in_s=3, twin_of=original))
        await client.store.write(original.statement)
        await ward.work(20)
        await asyncio.sleep(2 * MINUTE_S)
        await land(queue, twin)
        done = await ward.repair()
        assert (1, 0) == (done.late, done.put_anew)
        await ward.repair_to_the_end()
        assert [b"once"] == ward.payloads()

    simulate(scenario, settings=REPAIRED)


@pytest.mark.parametrize("new_owner", [False, True])
def test_an_original_found_while_its_twin_is_still_unread_is_one_message_with_it(new_owner: bool) -> None:
    async def scenario(queue: Queue) -> None:
        ward = await opened(queue)
        client = queue.client("producer")
        original = await indexed(client, stamped(client, b"once"))
        twin = await indexed(client, stamped(client, due_in_s=100, twin_of=original))
        await client.store.write(twin.statement)
        worker = ward.worker()
        await asyncio.sleep(80)
        await land(queue, original)
        assert 1 == (await ward.repair()).put_anew
        if new_owner:
            worker.process.kill()
            ward.worker()
        await asyncio.sleep(60)
        assert [b"once"] == ward.payloads()

    simulate(scenario, settings=REPAIRED)


def test_an_original_and_its_twin_that_both_land_late_are_one_message() -> None:
    async def scenario(queue: Queue) -> None:
        ward = await opened(queue)
        client = queue.client("producer")
        original = await indexed(client, stamped(client, b"once"))
        twin = await indexed(client, stamped(client, due_in_s=9, twin_of=original))
        await ward.work(40)
        await asyncio.sleep(2 * MINUTE_S)
        await land(queue, twin)
        assert 1 == (await ward.repair()).put_anew
        message_id = id_text(Place(original.place, 0).to_bytes())
        assert Fate.WAITING is (await told_of(queue, message_id)).fate
        await land(queue, original)
        await asyncio.sleep(15 * MINUTE_S)
        assert 0 == (await ward.repair()).put_anew
        await ward.work(20)
        await ward.repair_to_the_end()
        assert [b"once"] == ward.payloads()

    simulate(scenario, settings=REPAIRED)


def test_attack_D10_what_was_put_before_a_purge_does_not_come_back() -> None:
    async def scenario(queue: Queue) -> None:
        ward = await opened(queue)
        client = queue.client("producer")
        row = await indexed(client, stamped(client, b"purged"))
        await asyncio.sleep(1)
        purger = Consumer(queue, "purger", ward.seen)

        async def purge() -> None:
            engine = await purger.open()
            await engine.purge()

        await purger.process.start(purge())
        await ward.work(20)
        await asyncio.sleep(2 * MINUTE_S)
        await land(queue, row)
        done = await ward.repair()
        assert (1, 0) == (done.late, done.put_anew)
        await ward.repair_to_the_end()
        assert [] == ward.payloads()

    simulate(scenario, settings=REPAIRED)


def test_what_was_cancelled_does_not_come_back() -> None:
    async def scenario(queue: Queue) -> None:
        ward = await opened(queue)
        client = queue.client("producer")
        due_us = client.process.clock.wall_us() + 20 * SECOND
        ids = await client.process.start(client.producer.put([Message(b"cancelled", due_us=due_us)]))
        assert Cancelled.CANCELLED is await client.process.start(client.cancels.cancel(ids[0]))
        await ward.work(40)
        await ward.repair_to_the_end()
        assert [] == ward.payloads()

    simulate(scenario, settings=REPAIRED)


def test_what_is_cancelled_after_it_was_moved_is_cancelled_where_it_went() -> None:
    async def scenario(queue: Queue) -> None:
        ward = await opened(queue)
        await resharded(queue, 2)
        await retired(queue, 1)
        client = queue.client("producer")
        row = await indexed(client, _alone_at(client, b"far", 3 * HOUR_S))
        await asyncio.sleep(2 * MINUTE_S)
        await land(queue, row)
        assert 1 == (await ward.repair()).put_anew
        fresh = queue.client("canceller")
        message_id = id_text(Place(row.place, 0).to_bytes())
        assert Cancelled.CANCELLED is await fresh.process.start(fresh.cancels.cancel(message_id))
        await asyncio.sleep(3 * HOUR_S)
        await ward.work(20)
        await ward.repair_to_the_end()
        assert [] == ward.payloads()

    simulate(scenario, settings=REPAIRED)


def _alone_at(client: Client, payload: bytes, in_s: float) -> Row:
    """A row of one message that is due later."""
    now_us = client.process.clock.wall_us()
    due_us = now_us + round(in_s * SECOND)
    return _row(client, PackedRun([due_us], [now_us], [payload]), due_us)


# ---- crashes and rivals


async def _one_late(queue: Queue) -> Ward:
    """A message that landed below the position, more than a look ago."""
    ward = await opened(queue)
    client = queue.client("producer")
    row = await indexed(client, stamped(client, b"late"))
    await ward.work(20)
    await asyncio.sleep(2 * MINUTE_S)
    await land(queue, row)
    return ward


@pytest.mark.parametrize("is_sent", [False, True])
def test_attack_D1_a_repairer_killed_at_any_statement_leaves_one_copy(is_sent: bool) -> None:
    for number in range(1, 60):
        if not simulate(partial(_is_killed_at, number=number, is_sent=is_sent), settings=REPAIRED):
            break
    assert 10 < number < 40


async def _is_killed_at(queue: Queue, *, number: int, is_sent: bool) -> bool:
    """Whether a pass has so many statements; it dies with this one, and all has to come right."""
    ward = await _one_late(queue)
    mender = Mender(queue, "killed")

    async def gate(statement: Any) -> None:
        if len(mender.store.sent) == number:
            if is_sent:
                queue.world.outside(0.0001, mender.process.kill)
                return
            mender.process.kill()
            await asyncio.sleep(1)

    mender.store.gate = gate
    mender.begin()
    await asyncio.sleep(15)
    if mender.process.state is State.RUNNING:
        return False
    for wait_s in (0, 11 * DAY_S):
        await asyncio.sleep(wait_s)
        assert PassEnd.DONE is (await ward.repair()).end
        await ward.work(20)
    assert [b"late"] == ward.payloads(), f"killed at statement {number}: {mender.store.sent[-1]}"
    return True


@pytest.mark.parametrize("is_ended", [False, True])
def test_two_repairers_at_once_make_one_message(is_ended: bool) -> None:
    class Always:
        def holds(self) -> bool:
            return True

    async def scenario(queue: Queue) -> None:
        ward = await opened(queue)
        client = queue.client("producer")
        rows = [await indexed(client, stamped(client, b"%d" % each)) for each in range(10)]
        await ward.work(20)
        if is_ended:
            await resharded(queue, 8)
            await retired(queue, 1)
        await asyncio.sleep(2 * MINUTE_S)
        for row in rows:
            await land(queue, row)

        async def one(mender: Mender) -> Repaired:
            engine = TimelineQueue(mender.host, queue.settings, read_us=mender.process.clock.wall_us())
            leader: Any = Always()
            this = Pass(mender.host, queue.settings, engine.producer.sender, leader, deadline_us=2**62)
            return await this.run(dead_letters=None, keeper=None)

        menders = [Mender(queue, name) for name in ("one", "other")]
        done = await asyncio.gather(*(mender.process.start(one(mender)) for mender in menders))
        assert 10 <= sum(each.put_anew for each in done)
        await ward.work(30)
        await ward.repair_to_the_end()
        assert [b"%d" % each for each in range(10)] == ward.payloads()

    simulate(scenario, settings=REPAIRED)


def test_a_second_repairer_leaves_the_queue_to_the_first() -> None:
    async def scenario(queue: Queue) -> None:
        ward = await _one_late(queue)
        holder = Mender(queue, "holder")
        halted = asyncio.Event()

        async def gate(statement: Any) -> None:
            if len(holder.store.sent) == 8:
                await halted.wait()

        holder.store.gate = gate
        passing = holder.begin()
        await asyncio.sleep(1)
        assert PassEnd.BUSY is (await ward.repair()).end
        halted.set()
        assert PassEnd.DONE is (await passing).end
        assert PassEnd.DONE is (await ward.repair()).end

    simulate(scenario, settings=REPAIRED)


def test_a_pass_whose_time_is_up_goes_on_where_it_stood() -> None:
    async def scenario(queue: Queue) -> None:
        ward = await opened(queue)
        client = queue.client("producer")
        rows = []
        for each in range(5):
            rows.append(await indexed(client, stamped(client, b"%d" % each)))
            await asyncio.sleep(5)
        await ward.work(30)
        await asyncio.sleep(2 * MINUTE_S)
        for row in rows:
            await land(queue, row)
        stopped = await ward.repair(within_us=0)
        assert (PassEnd.STOPPED, 0) == (stopped.end, stopped.looked)
        assert stopped.oldest_owed_us == (rows[0].part + 1) * REPAIRED.part_us + REPAIRED.late_write_us
        mender = Mender(queue, "slow")

        async def gate(statement: Any) -> None:
            await asyncio.sleep(0.1)

        mender.store.gate = gate
        stopped = await mender.repair(within_us=3 * SECOND)
        assert PassEnd.STOPPED is stopped.end
        assert 0 < stopped.put_anew < 5
        rest = await ward.repair()
        assert (PassEnd.DONE, 5 - stopped.put_anew, None) == (rest.end, rest.put_anew, rest.oldest_owed_us)
        await ward.work(30)
        assert [b"%d" % each for each in range(5)] == ward.payloads()

    simulate(scenario, settings=REPAIRED)


def test_a_copy_that_came_too_late_itself_is_found_by_a_look_at_its_own_part() -> None:
    async def scenario(queue: Queue) -> None:
        ward = await _one_late(queue)
        mender = Mender(queue, "stopped")
        copy: list[Any] = []

        async def gate(statement: Any) -> None:
            if isinstance(statement, Insert) and statement.shape.table.name == "timeline_work":
                copy.append(statement)
                mender.process.kill()
                await asyncio.sleep(1)

        mender.store.gate = gate
        mender.begin()
        await asyncio.sleep(1)
        await ward.work(20)
        sender = queue.client("the wire")
        await sender.store.write(copy[0])
        for statement in index_rows(sender, _place_of(copy[0])):
            await sender.store.write(statement)
        await asyncio.sleep(2 * MINUTE_S)
        assert 1 == (await ward.repair()).put_anew
        await ward.work(20)
        assert [b"late"] == ward.payloads()
        await ward.repair_to_the_end()
        assert [b"late"] == ward.payloads()

    simulate(scenario, settings=REPAIRED)


def _place_of(statement: Insert) -> RowPlace:
    values = dict(zip(statement.shape.names, statement.values, strict=True))
    return RowPlace(values["generation"], values["sub"], values["shard"], values["due"])


# ---- when looks are taken


def test_looks_are_due_after_a_minute_a_quarter_hours_and_the_grace_of_the_tables() -> None:
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
        looked = []
        for delay_s in (60, 15 * MINUTE_S, 4 * HOUR_S, 10 * DAY_S):
            await asyncio.sleep(end_s + delay_s - 2 - queue.world.now_s())
            early = await ward.repair()
            await asyncio.sleep(end_s + delay_s + 2 - queue.world.now_s())
            in_time = await ward.repair()
            looked.append((early.looked, in_time.looked, in_time.oldest_owed_us))
        assert [(0, 1, None)] * 4 == looked
        assert 0 == (await ward.repair()).looked

    simulate(scenario, settings=REPAIRED)


def test_only_the_last_look_asks_all_replicas() -> None:
    async def scenario(queue: Queue) -> None:
        ward = await _one_late(queue)
        asked = []
        for wait_s in (0, 15 * MINUTE_S, 4 * HOUR_S, 10 * DAY_S):
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


def test_looks_that_are_due_together_are_one() -> None:
    async def scenario(queue: Queue) -> None:
        ward = await _one_late(queue)
        await asyncio.sleep(5 * HOUR_S)
        assert 1 == (await ward.repair()).looked
        await ward.work(20)
        await asyncio.sleep(MINUTE_S)
        assert 1 == (await ward.repair()).looked, "the first at the part of the copy"
        assert [b"late"] == ward.payloads()

    simulate(scenario, settings=REPAIRED)


def test_a_lane_that_is_far_behind_owes_no_look() -> None:
    async def scenario(queue: Queue) -> None:
        ward = await opened(queue)
        client = queue.client("producer")
        for each in range(3):
            await client.process.start(queue.put(client, Message(b"%d" % each)))
            await asyncio.sleep(10)
        await asyncio.sleep(5 * HOUR_S)
        behind = await ward.repair()
        assert (PassEnd.DONE, 0, None) == (behind.end, behind.looked, behind.oldest_owed_us)
        await ward.work(30)
        caught_up = await ward.repair()
        assert (3, 0) == (caught_up.looked, caught_up.late)
        assert [b"0", b"1", b"2"] == ward.payloads()

    simulate(scenario, settings=REPAIRED)


def test_the_last_look_waits_for_all_and_finds_what_one_replica_alone_has() -> None:
    async def scenario(queue: Queue) -> None:
        ward = await opened(queue)
        client = queue.client("producer")
        row = await indexed(client, stamped(client, b"on one replica"))
        queue.cluster.hold_hints()
        client.store.exclude(frozenset({"n1", "n2"}))
        queue.world.network.lose("write", target="n1")
        queue.world.network.lose("write", target="n2")
        client.process.start(_ends_unknown_of(client, row.statement))
        await asyncio.sleep(0.5)
        queue.cluster.kill("n3")
        await ward.work(20)
        for wait_s in (2 * MINUTE_S, 15 * MINUTE_S, 5 * HOUR_S):
            await asyncio.sleep(wait_s)
            done = await ward.repair()
            assert (1, 0, None, False) == (done.looked, done.late, done.oldest_owed_us, done.waits_for_all)
        await asyncio.sleep(10 * DAY_S)
        waits = await ward.repair()
        assert waits.waits_for_all
        assert (row.part + 1) * REPAIRED.part_us + 10 * DAY_S * SECOND == waits.oldest_owed_us
        assert () == waits.problems, "it is told as what it is"
        queue.cluster.restart("n3")
        await asyncio.sleep(60)
        done = await ward.repair()
        assert (1, None, False) == (done.put_anew, done.oldest_owed_us, done.waits_for_all)
        await ward.work(20)
        assert [b"on one replica"] == ward.payloads()

    simulate(scenario, settings=REPAIRED)


async def _ends_unknown_of(client: Client, statement: Insert) -> None:
    with pytest.raises(Unknown):
        await client.store.attempt(statement, 10)


def test_while_all_can_not_be_had_the_looks_before_the_last_go_on() -> None:
    async def scenario(queue: Queue) -> None:
        ward = await opened(queue)
        client = queue.client("producer")
        old = await indexed(client, stamped(client, b"old"))
        await client.store.write(old.statement)
        await ward.work(20)
        await asyncio.sleep(10 * DAY_S)
        queue.cluster.kill("n3")
        client = queue.client("producer again")
        late = await indexed(client, stamped(client, b"late"))
        await ward.work(20)
        await asyncio.sleep(2 * MINUTE_S)
        await land(queue, late)
        done = await ward.repair()
        assert (1, True) == (done.put_anew, done.waits_for_all)
        await ward.work(20)
        assert [b"late", b"old"] == ward.payloads()

    simulate(scenario, settings=REPAIRED)


def test_where_the_record_of_passed_rows_can_not_be_read_the_look_is_owed() -> None:
    async def scenario(queue: Queue) -> None:
        ward = await _one_late(queue)
        client = queue.client("saboteur")
        (part,) = await _parts(queue, client)
        key = {**lane_key(REPAIRED, 1, 0), "part": part, "writer": client.process.uuid(), "piece": 0}
        now_us = client.process.clock.wall_us()
        passed = REPAIRED.tables.passed
        await client.store.write(Insert(passed, {**key, "ids": b"\xff"}, timestamp_us=now_us))
        done = await ward.repair()
        assert (0, 0) == (done.looked, done.put_anew)
        assert (part + 1) * REPAIRED.part_us + REPAIRED.late_write_us == done.oldest_owed_us
        assert any("another version" in each for each in done.problems)
        await client.store.write(Insert(passed, {**key, "ids": encode_passed([])}, timestamp_us=now_us + 1))
        done = await ward.repair()
        assert (1, 1, None, ()) == (done.looked, done.put_anew, done.oldest_owed_us, done.problems)

    simulate(scenario, settings=REPAIRED)


async def _parts(queue: Queue, client: Client) -> list[int]:
    found = []
    day = client.process.clock.wall_us() // (DAY_S * SECOND)
    for each in (day - 1, day):
        key = {"queue": QUEUE, "generation": 1, "day": each}
        found += [row.part for row in await client.store.read(Select(REPAIRED.tables.parts, key, ("part",)))]
    return found


def test_what_was_passed_is_known_though_the_retention_was_lowered() -> None:
    async def scenario(queue: Queue) -> None:
        ward = await opened(queue)
        client = queue.client("producer")
        await client.process.start(queue.put(client, Message(b"once")))
        queue.settings = replace(REPAIRED, retention_us=HOUR_S * SECOND)
        await ward.work(20)
        queue.settings = REPAIRED
        await asyncio.sleep(10 * DAY_S + HOUR_S)
        done = await ward.repair()
        assert (1, 0, ()) == (done.looked, done.late, done.problems)
        await ward.work(20)
        assert [b"once"] == ward.payloads()

    simulate(scenario, settings=REPAIRED)


def test_a_part_that_nobody_looked_at_until_its_record_may_be_gone_is_told_and_left() -> None:
    async def scenario(queue: Queue) -> None:
        ward = await opened(queue)
        client = queue.client("producer")
        await client.process.start(queue.put(client, Message(b"once")))
        queue.settings = replace(REPAIRED, retention_us=HOUR_S * SECOND)
        await ward.work(20)
        queue.settings = REPAIRED
        await asyncio.sleep(18 * DAY_S)
        done = await ward.repair()
        assert (0, 0, None) == (done.looked, done.late, done.oldest_owed_us)
        assert ["what was late there" in each for each in done.problems] == [True]
        assert () == (await ward.repair()).problems, "once"
        await ward.work(20)
        assert [b"once"] == ward.payloads()

    simulate(scenario, settings=REPAIRED)


# ---- generations


async def retired(queue: Queue, generation: int) -> None:
    """All lanes of a generation are left for good, as far as now."""
    client = queue.client(f"retirer-{generation}")
    settings = queue.settings
    shards = next(each.shards for each in settings.generations if each.number == generation)

    async def retire(shard: int) -> None:
        key = lane_key(settings, generation, shard)
        lane = Lane(client.host, settings.tables.lanes, key, settings.lease)
        seen = await lane.look()
        assert seen is not None
        if seen.is_retired:
            return
        tenure = await lane.take(seen)
        assert tenure is not None
        assert await lane.retire(tenure, last=last_at(client.process.clock.wall_us()))

    for shard in range(shards):
        await client.process.start(retire(shard))


async def resharded(queue: Queue, shards: int) -> None:
    """From now on the queue is one whose first generation is written by nobody any more."""
    maker = queue.client("maker of the second")
    now_us = maker.process.clock.wall_us()
    first = replace(queue.settings.generations[0], until_us=now_us, sure_us=now_us - SKEW - SECOND)
    second = Generation(2, shards, now_us)
    queue.settings = replace(queue.settings, generations=(first, second))
    await maker.process.start(make_lanes(maker.host, queue.settings, second))


def test_a_late_row_waits_while_its_lane_may_still_be_read_and_then_goes_to_the_generation_of_now() -> None:
    async def scenario(queue: Queue) -> None:
        ward = await opened(queue)
        client = queue.client("producer")
        late = await indexed(client, stamped(client, b"late"))
        slow = Consumer(queue, "slow", ward.seen)
        settle = asyncio.Event()
        await ward.work(20)
        await client.process.start(queue.put(queue.client("another"), Message(b"slow")))

        async def work_slowly() -> None:
            engine = await slow.open()
            (found,) = await engine.receive(1, visibility_us=HOUR_S * SECOND, wait_us=30 * SECOND)
            await settle.wait()
            await engine.settle([Ack(found.receipt)])

        slow.process.start(work_slowly())
        await asyncio.sleep(30)
        await resharded(queue, 3)
        await asyncio.sleep(2 * MINUTE_S)
        await land(queue, late)
        done = await ward.repair()
        assert (1, 0) == (done.waiting, done.put_anew)
        assert (late.part + 1) * REPAIRED.part_us < (done.oldest_owed_us or 0)
        settle.set()
        await asyncio.sleep(MINUTE_S)
        slow.process.kill()
        done = await ward.repair()
        assert (0, 1, None) == (done.waiting, done.put_anew, done.oldest_owed_us)
        await ward.work(20)
        await ward.repair_to_the_end()
        assert [b"late"] == ward.payloads()

    simulate(scenario, settings=REPAIRED)


def test_a_pass_closes_lanes_of_ended_generations_that_nobody_works() -> None:
    async def scenario(queue: Queue) -> None:
        ward = await opened(queue)
        client = queue.client("producer")
        due_us = client.process.clock.wall_us() + HOUR_S * SECOND
        await client.process.start(queue.put(client, Message(b"in an hour", due_us=due_us)))
        await ward.work(20)
        await resharded(queue, 3)
        await asyncio.sleep(MINUTE_S)
        assert 1 == (await ward.repair()).lanes_retired
        assert 0 == (await ward.repair()).lanes_retired
        await asyncio.sleep(HOUR_S)
        assert 0 == (await ward.repair()).late, "what was moved is known to have been"
        await ward.work(20)
        await ward.repair_to_the_end()
        assert [b"in an hour"] == ward.payloads()
        assert [] == ward.seen.early

    simulate(scenario, settings=REPAIRED)


def test_a_lane_with_messages_to_be_handed_out_is_left_to_who_hands_out() -> None:
    async def scenario(queue: Queue) -> None:
        ward = await opened(queue)
        client = queue.client("producer")
        await client.process.start(queue.put(client, Message(b"waits")))
        await asyncio.sleep(5)
        await resharded(queue, 3)
        done = await ward.repair()
        assert (PassEnd.DONE, 0) == (done.end, done.lanes_retired)
        await ward.work(40)
        assert [b"waits"] == ward.payloads()

    simulate(scenario, settings=REPAIRED)


def test_late_messages_of_groups_part_by_the_shards_of_now() -> None:
    groups = [b"g%d" % (each % 6) for each in range(24)]

    async def scenario(queue: Queue) -> None:
        await lanes_ready(queue)
        ward = Ward(queue)
        client = queue.client("producer")
        late = await indexed(client, stamped(client, *(b"%02d" % each for each in range(24)), groups=groups))
        await ward.work(30)
        await resharded(queue, 4)
        await retired(queue, 1)
        await asyncio.sleep(2 * MINUTE_S)
        await land(queue, late)
        assert 1 == (await ward.repair()).put_anew
        await ward.work(40)
        await ward.repair_to_the_end()
        assert [b"%02d" % each for each in range(24)] == ward.payloads()
        for index in range(24):
            found = await told_of(queue, id_text(Place(late.place, index).to_bytes()))
            assert (Fate.SETTLED, 2) == (found.fate, len(found.places))
        orders: dict[str, list[bytes]] = {}
        for _, each in ward.seen.deliveries:
            orders.setdefault(each.group or "", []).append(each.payload)
        assert 6 == len(orders)
        assert all(order == sorted(order) for order in orders.values())

    simulate(scenario, settings=REPAIRED)


def test_a_row_that_lands_in_the_future_of_a_retired_lane_is_due_as_before() -> None:
    async def scenario(queue: Queue) -> None:
        ward = await opened(queue)
        await resharded(queue, 2)
        await retired(queue, 1)
        client = queue.client("producer")
        row = await indexed(client, _alone_at(client, b"tomorrow", DAY_S))
        await asyncio.sleep(2 * MINUTE_S)
        await land(queue, row)
        assert 1 == (await ward.repair()).put_anew
        await ward.work(30)
        assert [] == ward.payloads()
        await asyncio.sleep(DAY_S)
        await ward.work(20)
        await ward.repair_to_the_end()
        assert [b"tomorrow"] == ward.payloads()
        assert [] == ward.seen.early

    simulate(scenario, settings=REPAIRED)


@dataclass
class Keeper:
    """The catalogue, as repair sees it."""

    asked: list[str] = field(default_factory=list)

    async def make_sure(self) -> None:
        self.asked.append("sure")

    async def retire(self, number: int) -> None:
        self.asked.append(f"retire {number}")


def test_a_generation_leaves_the_catalogue_after_the_last_look_at_its_last_lane() -> None:
    async def scenario(queue: Queue) -> None:
        ward = await opened(queue)
        client = queue.client("producer")
        late = await indexed(client, stamped(client, b"late"))
        await ward.work(30)
        await resharded(queue, 2)
        await asyncio.sleep(2 * MINUTE_S)
        await land(queue, late)
        keeper = Keeper()
        for wait_s in (0, 20 * MINUTE_S, 5 * HOUR_S):
            await asyncio.sleep(wait_s)
            assert () == (await ward.repair(keeper=keeper)).generations_left
            await ward.work(20)
        await asyncio.sleep(10 * DAY_S)
        assert (1,) == (await ward.repair(keeper=keeper)).generations_left
        assert ["sure", "sure", "sure", "sure", "retire 1"] == keeper.asked
        client = queue.client("reader")
        looks = {"queue": QUEUE, "generation": 1}
        rows = await client.store.read(Select(queue.settings.tables.looks, looks))
        assert {(look, EVERYTHING) for look in LOOKS} == {(row.look, row.up_to) for row in rows}
        assert [b"late"] == ward.payloads()

    simulate(scenario, settings=REPAIRED)


def test_repair_makes_its_own_lane_where_nobody_has() -> None:
    async def scenario(queue: Queue) -> None:
        ward = await opened(queue)
        assert PassEnd.DONE is (await ward.repair()).end
        client = queue.client("reader")
        key = lane_key(REPAIRED, REPAIR_LANE.number, 0)
        state = await client.process.start(Lane(client.host, REPAIRED.tables.lanes, key, REPAIRED.lease).look())
        assert state is not None
        assert (1, None, 1) == (state.epoch, state.lock, state.released)

    simulate(scenario, settings=REPAIRED)


def test_without_fresh_knowledge_of_the_generations_nothing_is_put() -> None:
    async def scenario(queue: Queue) -> None:
        ward = await _one_late(queue)
        mender = Mender(queue, "stale")
        engine = TimelineQueue(mender.host, queue.settings, read_us=mender.process.clock.wall_us() - 61 * SECOND)
        repairer = Repairer(mender.host, queue.settings, engine.producer.sender)
        done = await mender.process.start(repairer.run())
        assert (0, 0) == (done.looked, done.put_anew)
        assert done.oldest_owed_us is not None
        assert any("catalogue" in each for each in done.problems)
        assert 1 == (await ward.repair()).put_anew

    simulate(scenario, settings=REPAIRED)
