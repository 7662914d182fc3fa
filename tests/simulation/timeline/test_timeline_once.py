"""Once keys: one message, whichever process dies between which two steps, whichever comes again and when."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from headgate.engines.contract import NewMessage
from headgate.engines.packed_row import unpack
from headgate.engines.timeline.model.decide_place import decide_shard
from headgate.engines.timeline.model.layout import MessagePlace, RowPlace, id_bytes
from headgate.engines.timeline.model.settings import GenerationSettings
from headgate.engines.timeline.put.decide_once import CLAIMED_AT_ONCE_MAX, SLOTS_A_SHARE_MAX
from headgate.engines.timeline.put.row_sender import Sender
from headgate.errors import HeadgateError, Unavailable
from headgate.store.model.positions import position_order
from headgate.store.model.statements import BatchIf, Insert, Select
from headgate.store.store import OutcomeUnknown
from tests.simulation.timeline.timeline_puts import SECOND, SETTINGS, Client, Queue, Reader, simulate

KEYED = NewMessage(b"invoice", once="invoice 7")


async def put_until_it_works(client: Client, *messages: NewMessage) -> list[str]:
    """As the SDK does: again, while it is not known."""
    for _ in range(50):
        try:
            return await client.once.put(messages)
        except HeadgateError:
            await asyncio.sleep(0.5)
    raise AssertionError("fifty tries were not enough")


async def one_message(queue: Queue, reader: Reader, payload: bytes = b"invoice", after_s: float = 15.0) -> None:
    """After all has fallen due and was repaired, the message was delivered once."""
    queue.world.network.calm()
    await asyncio.sleep(after_s)
    await reader.process.start(reader.turn())
    await reader.process.start(reader.repair())
    assert [payload] == [each for each in reader.payloads() if each == payload]


def steps_of_a_once_put() -> int:
    """How many steps there are between whose each two a producer can die."""

    async def scenario(queue: Queue) -> int:
        client = queue.client("first")
        client.process.count_steps()
        await client.process.start(client.once.put([KEYED]))
        return client.process.steps

    return simulate(scenario)


@pytest.mark.parametrize("comes_again_after_s", [0.1, 1.0, 4.0])
def test_a_put_killed_before_any_step_and_come_again_makes_one_message(comes_again_after_s: float) -> None:
    for step in range(1, steps_of_a_once_put() + 1):

        async def scenario(queue: Queue, step: int = step) -> None:
            first, second = queue.client("first"), queue.client("second", ahead_us=200_000)
            reader = Reader(queue, ahead_us=-200_000)
            reader.process.start(reader.run())
            first.process.kill_before_step(step)
            first.process.start(first.once.put([KEYED]))
            await asyncio.sleep(comes_again_after_s)
            ids = await second.process.start(put_until_it_works(second, KEYED))
            await one_message(queue, reader)
            assert 1 == reader.times(ids[0])

        simulate(scenario)


def test_a_process_that_finishes_a_claim_for_another_time_states_the_time_that_was_claimed() -> None:
    """The first claims for now and dies; the second puts the same key for later, and finishes what was claimed."""
    for step in range(1, steps_of_a_once_put() + 1):

        async def scenario(queue: Queue, step: int = step) -> None:
            first, second = queue.client("first"), queue.client("second")
            reader = Reader(queue)
            reader.process.start(reader.run())
            first.process.kill_before_step(step)
            first.process.start(first.once.put([KEYED]))
            await asyncio.sleep(0.1)
            later = replace(KEYED, due_us=second.process.clock.wall_us() + 9 * SECOND)
            await second.process.start(put_until_it_works(second, later))
            await asyncio.sleep(20)
            (delivered,) = reader.delivered
            assert delivered.at_us >= delivered.due_us

        simulate(scenario)


@pytest.mark.parametrize("paused_for_s", [0.3, 2.0, 9.0])
def test_a_put_paused_before_any_step_while_another_finishes_it_makes_one_message(paused_for_s: float) -> None:
    for step in range(1, steps_of_a_once_put() + 1):

        async def scenario(queue: Queue, step: int = step) -> None:
            first, second = queue.client("first"), queue.client("second")
            reader = Reader(queue)
            reader.process.start(reader.run())
            first.process.pause_before_step(step, for_s=paused_for_s)
            both = [
                first.process.start(put_until_it_works(first, KEYED)),
                second.process.start(put_until_it_works(second, KEYED)),
            ]
            ids = {(await each)[0] for each in both}
            await one_message(queue, reader)
            assert 1 == len(ids)
            assert 1 == reader.times(ids.pop())

        simulate(scenario)


@pytest.mark.parametrize("seed", range(10))
def test_one_key_from_many_processes_makes_one_message_before_and_after_it_was_delivered(seed: int) -> None:
    async def scenario(queue: Queue) -> None:
        clients = [queue.client(f"c{number}") for number in range(4)]
        reader = Reader(queue)
        reader.process.start(reader.run())
        network = queue.world.network
        rng = queue.world.rng("scenario")
        for kind in ("answer", "write-ack", "commit-ack", "promise"):
            network.lose(kind, count=rng.randrange(3))
        network.delay("write", by_s=rng.random() * 4, count=rng.randrange(9))
        messages = [NewMessage(b"%d" % key, once=f"key {key}", once_scope="task") for key in range(6)]
        asked = [each.process.start(put_until_it_works(each, *rng.sample(messages, 4))) for each in clients]
        for task in asked:
            await task
        first = await clients[0].process.start(put_until_it_works(clients[0], *messages))
        await asyncio.sleep(10)
        again = await clients[1].process.start(put_until_it_works(clients[1], *messages))
        assert first == again
        for message in messages:
            await one_message(queue, reader, message.payload, 5.0)

    simulate(scenario, seed)


def test_a_key_that_is_written_costs_no_further_row() -> None:
    async def scenario(queue: Queue) -> None:
        first, second = queue.client("first"), queue.client("second")
        ids = await first.process.start(first.once.put([KEYED]))
        assert ids == await second.process.start(second.once.put([KEYED]))
        assert [] == second.store.sent_to("work")

    simulate(scenario)


def test_a_key_twice_in_one_put_is_one_message() -> None:
    async def scenario(queue: Queue) -> None:
        client = queue.client("first")
        ids = await client.process.start(client.once.put([KEYED, KEYED, NewMessage(b"other", once="other")]))
        assert ids[0] == ids[1] != ids[2]
        assert 2 == len(client.store.sent_to("work"))

    simulate(scenario)


def test_after_the_window_the_key_makes_a_new_message() -> None:
    async def scenario(queue: Queue) -> None:
        client = queue.client("first")
        first = await client.process.start(client.once.put([KEYED]))
        await asyncio.sleep(30)
        refreshed = client.process.clock.wall_us()
        client.producer.settings_changed(queue.settings, read_us=refreshed)
        again = await client.process.start(client.once.put([KEYED]))
        assert first != again

    simulate(scenario, settings=replace(SETTINGS, once_window_us=20 * SECOND))


def test_the_note_that_a_message_is_written_never_outlives_its_claim() -> None:
    """Else INSERT IF NOT EXISTS finds a row without a place, and the key is stuck until the note goes too."""

    async def scenario(queue: Queue) -> None:
        client = queue.client("first")
        await client.process.start(client.once.put([KEYED]))
        note = next(each for each in client.store.sent_to("once") if "written" in each.shape.value_names)
        slot = note.values[note.shape.value_names.index("slot")]
        key = {"queue": SETTINGS.queue, "slot": slot}
        observations = set()
        for _ in range(300):
            rows = await client.store.read(Select(SETTINGS.tables.once, key, ("place", "written")))
            observations |= {(row.place is not None, row.written is not None) for row in rows}
            await asyncio.sleep(0.1)
        assert {(True, True), (True, False)} == observations

    simulate(scenario, settings=replace(SETTINGS, once_window_us=20 * SECOND))


@pytest.mark.parametrize("is_written", [True, False])
def test_a_claim_in_a_generation_that_has_ended_is_finished_by_checking(is_written: bool) -> None:
    async def scenario(queue: Queue) -> None:
        first, second = queue.client("first"), queue.client("second")
        now_us = first.process.clock.wall_us()
        ended = (GenerationSettings(1, 3, 0, now_us + 2 * SECOND), GenerationSettings(2, 5, now_us + 2 * SECOND))
        message = replace(KEYED, due_us=now_us + 20 * SECOND)
        if is_written:
            first.store.gate = _lose_notes
        else:
            first.store.gate = _lose_rows
        task = first.process.start(first.once.put([message]))
        await asyncio.sleep(3)
        first.process.kill()
        del task
        queue.settings = replace(SETTINGS, generations=ended)
        second.producer.settings_changed(queue.settings, read_us=second.process.clock.wall_us())
        reader = Reader(queue)
        reader.process.start(reader.run())
        observed: list[RowPlace] = []
        see_to = second.once._see_to

        async def recorded(sender: Sender, place: RowPlace) -> None:
            observed.append(place)
            await see_to(sender, place)

        second.once._see_to = recorded
        ids = await second.process.start(second.once.put([message]))
        assert is_written == bool(observed), "a row that is there is read, found or moved before it is answered"
        await one_message(queue, reader, after_s=30)
        assert 1 == reader.times(ids[0])

    simulate(scenario)


async def _lose_notes(statement: object) -> None:
    if "written" in getattr(getattr(statement, "shape", None), "value_names", ()):
        await asyncio.Event().wait()


async def _lose_rows(statement: object) -> None:
    if "run" in getattr(getattr(statement, "shape", None), "value_names", ()):
        await asyncio.Event().wait()


def test_once_messages_of_a_group_keep_its_order() -> None:
    async def scenario(queue: Queue) -> None:
        client = queue.client("first")
        reader = Reader(queue)
        reader.process.start(reader.run())
        puts = []
        for number in range(8):
            message = NewMessage(b"%d" % number, group="g", once=f"key {number}" if number % 2 else None)
            put = client.once.put if message.once else client.producer.put
            puts.append(client.process.start(put([message])))
            await asyncio.sleep(0.005)
        for each in puts:
            await each
        await asyncio.sleep(15)
        ordered = sorted(reader.delivered, key=lambda each: each.order)
        assert [b"%d" % number for number in range(8)] == [each.payload for each in ordered]

    simulate(scenario)


def test_keys_that_are_claimed_together_lie_in_one_shard_and_those_of_groups_in_theirs() -> None:
    async def scenario(queue: Queue) -> None:
        client = queue.client("first")
        many = [
            NewMessage(b"x", once=f"key {number}", once_scope="task 7") for number in range(3 * CLAIMED_AT_ONCE_MAX)
        ]
        ids = await client.process.start(client.once.put(many))
        shards = [MessagePlace.from_bytes(id_bytes(each)).row.shard for each in ids]
        chunks = [set(shards[at : at + CLAIMED_AT_ONCE_MAX]) for at in range(0, len(ids), CLAIMED_AT_ONCE_MAX)]
        assert [1, 1, 1] == [len(each) for each in chunks]
        assert 3 == len(set.union(*chunks))
        grouped = [replace(each, once=f"{each.once} g", group=f"g{at % 9}") for at, each in enumerate(many[:90])]
        ids = await client.process.start(client.once.put(grouped))
        shards = [MessagePlace.from_bytes(id_bytes(each)).row.shard for each in ids]
        assert [decide_shard(b"g%d" % (at % 9), 3) for at in range(90)] == shards

    simulate(scenario)


async def hold_claims(statement: object) -> None:
    """Claims take long."""
    if isinstance(statement, BatchIf):
        await asyncio.sleep(0.1)


def test_a_large_put_of_slow_claims_needs_no_restamped_rows() -> None:
    """A place is proposed just before its claim, and not when the put began."""

    async def scenario(queue: Queue) -> None:
        client = queue.client("first")
        client.store.gate = hold_claims
        ids = await client.process.start(
            client.once.put([NewMessage(b"x", once=f"key {number}") for number in range(600)])
        )
        assert 600 == len(set(ids))
        cells = [each.values[-1] for each in client.store.sent_to("work") if isinstance(each, Insert)]
        assert 600 == len(cells)
        assert [] == [cell for cell in cells if isinstance(cell, bytes) and unpack(cell).replaces is not None]

    simulate(scenario)


def test_the_rows_and_the_notes_of_several_slots_are_a_write_each() -> None:
    async def scenario(queue: Queue) -> None:
        client = queue.client("first")
        await client.process.start(client.once.put([KEYED]))  # its index row is written
        client.store.sent.clear()
        many = [NewMessage(b"x", once=f"key {number}") for number in range(SLOTS_A_SHARE_MAX)]
        await client.process.start(client.once.put(many))
        claims = [each for each in client.store.sent if isinstance(each, BatchIf)]
        writes = [each for each in client.store.sent if not isinstance(each, BatchIf)]
        assert SLOTS_A_SHARE_MAX == len(claims)
        assert [SLOTS_A_SHARE_MAX, SLOTS_A_SHARE_MAX] == [len(each.statements) for each in writes]

    simulate(scenario)


@pytest.mark.parametrize("scope", [None, "task 7"])
def test_an_error_of_one_share_reports_that_others_may_be_put(scope: str | None) -> None:
    """A share of other slots, or a later one of the same scope."""

    async def scenario(queue: Queue) -> None:
        client = queue.client("first")

        async def refuse_one(statement: object) -> None:
            if isinstance(statement, BatchIf) and any(b"key 300" in each.values for each in statement.statements):
                raise Unavailable("refused in this test")

        client.store.gate = refuse_one
        many = [NewMessage(b"x", once=f"key {number}", once_scope=scope) for number in range(301)]
        with pytest.raises(OutcomeUnknown, match="Only some of the messages are put"):
            await client.process.start(client.once.put(many))

    simulate(scenario)


def test_grouped_keys_of_several_slots_are_placed_in_the_order_of_the_put() -> None:
    async def scenario(queue: Queue) -> None:
        client = queue.client("first")
        many = [
            NewMessage(b"x", group="g", once=f"key {number}", once_scope=f"s{number % 3}") for number in range(60)
        ]
        ids = await client.process.start(client.once.put(many))
        orders = [position_order(MessagePlace.from_bytes(id_bytes(each)).row.due) for each in ids]
        assert sorted(orders) == orders

    simulate(scenario)
