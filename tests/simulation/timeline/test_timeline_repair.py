"""Repair in the simulated world: rows that land below a lane's position, by hint, batch log or a paused coordinator,
are delivered, once.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from headgate.engines.contract import MessageState, NewMessage, PassEnd
from headgate.engines.timeline.model.layout import MessagePlace, id_text
from headgate.store.model.statements import Batch, Insert
from headgate.store.store import OutcomeUnknown
from tests.kit.invariants import Ledger
from tests.simulation.store.disks import Disks
from tests.simulation.timeline.timeline_checks import never_met
from tests.simulation.timeline.timeline_puts import Client, Queue, simulate
from tests.simulation.timeline.timeline_repairs import (
    DAY_S,
    HOUR_S,
    MINUTE_S,
    REPAIRED,
    ends_unknown_of,
    index_rows,
    indexed,
    land,
    opened,
    passed_by,
    reported_of,
    stamped,
)


def test_attack_A3_a_row_that_lands_below_the_position_is_delivered_and_once() -> None:
    async def scenario(queue: Queue) -> None:
        ward = await opened(queue)
        client = queue.client("producer")
        await client.process.start(queue.put(client, NewMessage(b"before")))
        queue.cluster.hold_hints()
        queue.world.network.delay("write", by_s=600, count=3)
        client.process.start(queue.put(client, NewMessage(b"late")))
        await asyncio.sleep(0.05)
        client.process.kill()
        await passed_by(ward)
        assert [b"before"] == ward.payloads()
        await asyncio.sleep(700)
        done = await ward.repair()
        assert (PassEnd.DONE, 1, 1) == (done.end, done.late, done.put_again)
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
        assert 1 == (await ward.repair()).put_again
        await ward.work(20)
        await ward.repair_to_the_end()
        assert [b"outbox"] == ward.payloads()

    simulate(scenario, settings=REPAIRED)


async def _ends_unknown(client: Client, batch: Batch) -> None:
    with pytest.raises(OutcomeUnknown):
        await client.store.attempt(batch, 10)


def test_an_index_row_that_comes_late_itself_is_found_by_the_next_check() -> None:
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
        assert 1 == (await ward.repair()).put_again
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
        assert await cut_off.process.start(queue.put(cut_off, NewMessage(b"in doubt"))) is None
        assert [OutcomeUnknown] == [type(error) for error in queue.failed]
        assert any(row.ids for row in Disks(queue.cluster, REPAIRED).rows()), "it is there, and durable"
        await ward.work(20)
        await ward.repair_to_the_end()
        assert [] == ward.payloads()
        client = queue.client("retrying producer")
        assert await client.process.start(queue.put(client, NewMessage(b"in doubt"))) is not None
        await ward.work(20)
        assert [b"in doubt"] == ward.payloads()

    simulate(scenario, settings=REPAIRED)


@pytest.mark.parametrize(("named", "promised"), [(False, False), (True, False), (False, True)])
def test_a_life_owes_what_is_durable_anywhere_and_named_by_the_index_or_promised(named: bool, promised: bool) -> None:
    """The criterion of `make simulate`: the row, and the two rows of the index, are on one replica each."""

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
        message_id = id_text(MessagePlace(row.place, 0).to_bytes())
        if promised:
            ledger.acknowledged(ledger.trying([NewMessage(b"late")], "producer"), [message_id])
        owed = list(never_met(Disks(queue.cluster, REPAIRED), ledger, REPAIRED))
        assert (named or promised) == any(message_id in each for each in owed)
        assert len(owed) <= 1

    simulate(scenario, settings=REPAIRED)


def test_what_repair_alone_can_bring_is_distinguished_from_what_was_met_and_what_its_lane_will_read() -> None:
    """By the disks alone, as a life asks it: of these it expects nothing before repair has checked."""

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
        for row in (stamped(client, due_in_s=-5, copy_of=met), late):
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
    await client.process.start(ends_unknown_of(client, statement))


def test_the_last_check_finds_an_index_row_too_that_one_replica_alone_has() -> None:
    async def scenario(queue: Queue) -> None:
        ward = await opened(queue)
        client = queue.client("producer")
        queue.cluster.hold_hints()
        row = stamped(client, b"late")
        for statement in (row.statement, *index_rows(client, row.place)):
            await _on_one_replica(queue, statement, "n3")
        queue.world.network.slow("n3", 0.4)  # others answer first, so no usual read learns of it
        await ward.work(20)
        assert [] == ward.payloads()
        await asyncio.sleep(2 * DAY_S)
        assert 1 == (await ward.repair()).put_again
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
        wanted = {id_text(MessagePlace(row.place, index).to_bytes()): b"%d" % index for index in range(20)}
        result = await reported_of(queue, [*wanted][7])
        assert (MessageState.SETTLED, 2) == (result.fate, len(result.places))
        assert wanted == {each.message_id: each.payload for _, each in ward.delivery_log.deliveries}
        assert 20 == len(ward.delivery_log.deliveries)

    simulate(scenario, settings=REPAIRED)
