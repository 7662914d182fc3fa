"""A put with a deadline: its caller learns whether the message was never sent, or whether its outcome is unknown."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from random import Random
from typing import Any

import pytest

from headgate.engines.contract import NewMessage
from headgate.engines.packed_row import unpack
from headgate.engines.timeline.put import waiting_calls
from headgate.errors import HeadgateError
from headgate.store.model.deadline import Deadline
from headgate.store.store import NotSent, OutcomeUnknown
from tests.simulation.timeline.test_timeline_put import harm
from tests.simulation.timeline.test_timeline_put_attacks import ending, hold
from tests.simulation.timeline.timeline_puts import SECOND, Client, Queue, Reader, simulate

KINDS = ("plain", "with attributes", "delayed", "grouped")


def message(client: Client, payload: bytes, kind: str = "plain") -> NewMessage:
    """One of a kind; each kind waits in a buffer of its own, or has columns of its own."""
    delayed_us = client.process.clock.wall_us() + 9 * SECOND if kind == "delayed" else None
    attributes = {"content-type": "application/json"} if kind == "with attributes" else {}
    return NewMessage(payload, delayed_us, attributes, "g" if kind == "grouped" else None)


def deadline_in(seconds: float) -> Deadline:
    """From now on."""
    return Deadline.after(seconds, now_s=asyncio.get_running_loop().time())


async def ended(put: asyncio.Task[Any]) -> tuple[str, float]:
    """How a put ends, and after which time from now."""
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    try:
        await put
    except HeadgateError as error:
        return type(error).__name__, round(loop.time() - began_s, 2)
    return "put", round(loop.time() - began_s, 2)


def put(client: Client, deadline: Deadline, *messages: NewMessage) -> asyncio.Task[list[str]]:
    """In the client's process."""
    return client.process.start(client.producer.put(messages, deadline=deadline))


def sent_payloads(client: Client) -> set[bytes]:
    """The payloads of all rows that were sent."""
    cells = [row.values[row.shape.value_names.index("run")] for row in rows_sent(client)]
    return {payload for cell in cells for payload in unpack(cell).payload}


def rows_sent(client: Client) -> list[Any]:
    """Single statements; rows that share a partition are one statement with several tails."""
    return client.store.sent_to("work")


def test_a_put_after_its_deadline_is_not_sent() -> None:
    async def scenario(queue: Queue) -> None:
        client = queue.client("producer")
        assert ("NotSent", 0.0) == await ended(put(client, deadline_in(0.0), message(client, b"m")))
        await asyncio.sleep(15)
        assert [] == rows_sent(client)

    simulate(scenario)


@pytest.mark.parametrize("kind", KINDS)
def test_a_message_whose_time_ends_in_the_buffer_is_never_sent(kind: str) -> None:
    async def scenario(queue: Queue) -> None:
        client = queue.client("producer")
        reader = Reader(queue)
        reader.process.start(reader.run())
        answered = asyncio.Event()
        hold(client, "work", answered)
        in_flight = client.process.start(queue.put(client, message(client, b"in flight", kind)))
        await asyncio.sleep(0.001)
        assert ("NotSent", 0.3) == await ended(put(client, deadline_in(0.3), message(client, b"waits", kind)))
        after = client.process.start(queue.put(client, message(client, b"after it", kind)))
        answered.set()
        assert await in_flight is not None
        assert await after is not None
        await ending(queue, reader)
        assert {b"in flight", b"after it"} == set(reader.payloads())
        assert b"waits" not in sent_payloads(client)

    simulate(scenario)


@pytest.mark.parametrize("kind", KINDS)
def test_a_message_that_is_sent_and_not_answered_in_time_is_unknown(kind: str) -> None:
    async def scenario(queue: Queue) -> None:
        client = queue.client("producer")
        reader = Reader(queue)
        reader.process.start(reader.run())
        hold(client, "work", asyncio.Event())
        assert ("OutcomeUnknown", 0.3) == await ended(put(client, deadline_in(0.3), message(client, b"m", kind)))
        assert rows_sent(client)
        client.store.gate = None
        assert await client.process.start(queue.put(client, message(client, b"after it", kind))) is not None
        await ending(queue, reader)

    simulate(scenario)


@pytest.mark.parametrize("kind", KINDS)
def test_a_message_that_is_answered_late_is_unknown_and_is_delivered_once(kind: str) -> None:
    async def scenario(queue: Queue) -> None:
        client = queue.client("producer")
        reader = Reader(queue)
        reader.process.start(reader.run())
        queue.world.network.delay("answer", by_s=0.5, count=20)
        task = put(client, deadline_in(0.3), message(client, b"m", kind))
        assert ("OutcomeUnknown", 0.3) == await ended(task)
        await ending(queue, reader)
        assert [b"m"] == reader.payloads()

    simulate(scenario)


def test_callers_of_one_row_each_have_their_own_deadline() -> None:
    async def scenario(queue: Queue) -> None:
        client = queue.client("producer")
        answered = asyncio.Event()
        hold(client, "work", answered)
        hasty = put(client, deadline_in(0.2), message(client, b"hasty"))
        patient = put(client, deadline_in(20.0), message(client, b"patient"))
        usual = client.process.start(client.producer.put([message(client, b"usual")]))
        assert ("OutcomeUnknown", 0.2) == await ended(hasty)
        await asyncio.sleep(0.2)
        answered.set()
        assert "put" == (await ended(patient))[0]
        assert 1 == len(await usual)

    simulate(scenario)


@pytest.mark.parametrize(("seconds", "ends"), [(3.0, ("OutcomeUnknown", 3.0)), (25.0, ("put", 15.0))])
def test_a_row_is_sent_for_as_long_as_its_callers_wait(seconds: float, ends: tuple[str, float]) -> None:
    """The store's usual time is ten seconds; its last attempt before the deadline is as long as it likes."""

    async def scenario(queue: Queue) -> None:
        client = queue.client("producer")
        answered = asyncio.Event()
        hold(client, "work", answered)
        asyncio.get_running_loop().call_later(15.0, answered.set)
        outcome, took_s = await ended(put(client, deadline_in(seconds), message(client, b"m", "delayed")))
        assert ends[0] == outcome
        assert ends[1] <= took_s < ends[1] + 0.1

    simulate(scenario)


def test_of_a_call_that_was_sent_by_half_each_message_has_its_own_outcome() -> None:
    """Of a group one row is under way at a time: the first row's messages were sent, the others were not."""

    async def scenario(queue: Queue) -> None:
        client = queue.client("producer")
        hold(client, "work", asyncio.Event())
        before = client.process.start(queue.put(client, message(client, b"before", "grouped")))
        messages = [message(client, b"%d" % number, "grouped") for number in range(600)]
        each = client.process.start(client.producer.put_each(messages, deadline=deadline_in(0.3)))
        outcomes = [type(outcome) for outcome in await each]
        assert [OutcomeUnknown] * 511 + [NotSent] * 89 == outcomes
        assert ("NotSent", 0.3) == await ended(put(client, deadline_in(0.3), *messages))
        assert await before is None

    simulate(scenario)


def test_a_call_of_which_one_message_was_sent_is_unknown() -> None:
    async def scenario(queue: Queue) -> None:
        client = queue.client("producer")
        hold(client, "work", asyncio.Event())
        messages = [message(client, b"%d" % number, "grouped") for number in range(600)]
        assert ("OutcomeUnknown", 0.3) == await ended(put(client, deadline_in(0.3), *messages))

    simulate(scenario)


def test_a_caller_that_waits_for_space_until_its_deadline_sent_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting_calls, "WAITING_BYTES_MAX", 10)

    async def scenario(queue: Queue) -> None:
        client = queue.client("producer")
        answered = asyncio.Event()
        hold(client, "work", answered)
        await asyncio.sleep(0)
        first = [client.process.start(queue.put(client, message(client, b"0123456789"))) for _ in range(2)]
        await asyncio.sleep(0.001)
        second = client.process.start(queue.put(client, message(client, b"fills the buffer")))
        await asyncio.sleep(0.001)
        assert ("NotSent", 0.3) == await ended(put(client, deadline_in(0.3), message(client, b"waits")))
        answered.set()
        assert all([await each for each in (*first, second)])
        assert b"waits" not in sent_payloads(client)

    simulate(scenario)


def test_bytes_of_callers_that_left_the_line_of_a_group_do_not_fill_the_buffer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(waiting_calls, "WAITING_BYTES_MAX", 100)

    async def scenario(queue: Queue) -> None:
        client = queue.client("producer")
        answered = asyncio.Event()
        hold(client, "work", answered)
        in_flight = client.process.start(queue.put(client, message(client, b"in flight", "grouped")))
        await asyncio.sleep(0.001)
        assert ("NotSent", 0.3) == await ended(put(client, deadline_in(0.3), message(client, b"x" * 100, "grouped")))
        answered.set()
        assert await in_flight is not None
        assert "put" == (await ended(put(client, deadline_in(5), message(client, b"next"))))[0]

    simulate(scenario)


def test_a_once_put_that_its_deadline_interrupts_makes_one_message_with_its_next_put() -> None:
    async def scenario(queue: Queue) -> None:
        client = queue.client("producer")
        reader = Reader(queue)
        reader.process.start(reader.run())
        for table in ("once", "work"):
            hold(client, table, asyncio.Event())
            once = client.once.put([NewMessage(b"m", once="key")], deadline=deadline_in(0.3))
            assert ("OutcomeUnknown", 0.3) == await ended(client.process.start(once))
        client.store.gate = None
        assert 1 == len(await client.process.start(client.once.put([NewMessage(b"m", once="key")])))
        await ending(queue, reader)
        assert [b"m"] == reader.payloads()

    simulate(scenario)


def test_a_once_put_that_waits_for_its_group_until_its_deadline_claims_nothing() -> None:
    async def scenario(queue: Queue) -> None:
        client = queue.client("producer")
        answered = asyncio.Event()
        hold(client, "work", answered)
        in_flight = client.process.start(queue.put(client, message(client, b"in flight", "grouped")))
        await asyncio.sleep(0.001)
        once = client.once.put([NewMessage(b"m", group="g", once="key")], deadline=deadline_in(0.3))
        assert ("NotSent", 0.3) == await ended(client.process.start(once))
        assert [] == client.store.sent_to("once")
        answered.set()
        assert await in_flight is not None
        assert await client.process.start(queue.put(client, message(client, b"after it", "grouped"))) is not None

    simulate(scenario)


async def put_in_time(
    queue: Queue, client: Client, name: str, not_sent: set[bytes], unknown: set[bytes], rng: Random
) -> None:
    """One caller, whose deadlines are short."""
    for number in range(25):
        await asyncio.sleep(rng.random() * 0.6)
        payloads = [b"%s-%d-%d" % (name.encode(), number, each) for each in range(rng.choice([1, 1, 1, 5]))]
        messages = [message(client, payload, rng.choice(KINDS)) for payload in payloads]
        deadline = deadline_in(rng.random())
        outcomes: Sequence[object]
        if rng.random() < 0.5:
            outcomes = await client.producer.put_each(messages, deadline=deadline)
        else:
            try:
                outcomes = await client.producer.put(messages, deadline=deadline)
            except HeadgateError as error:
                outcomes = [error] * len(messages)
        for payload, outcome in zip(payloads, outcomes, strict=True):
            if isinstance(outcome, str):
                queue.acknowledged[outcome] = payload
            else:
                (unknown if isinstance(outcome, OutcomeUnknown) else not_sent).add(payload)


@pytest.mark.parametrize("seed", range(8))
def test_what_was_not_sent_is_never_delivered_whatever_the_network_does(seed: int) -> None:
    async def scenario(queue: Queue) -> None:
        rng = queue.world.rng("scenario")
        clients = [queue.client("fast", ahead_us=245_000), queue.client("slow", ahead_us=-245_000)]
        reader = Reader(queue)
        reader.process.start(reader.run())
        not_sent: set[bytes] = set()
        unknown: set[bytes] = set()
        callers = [
            client.process.start(put_in_time(queue, client, f"{client.host.name}{number}", not_sent, unknown, rng))
            for client in clients
            for number in range(8)
        ]
        await harm(queue, clients, rng)
        queue.world.network.calm()
        for caller in callers:
            await caller
        await ending(queue, reader, 30.0)
        assert set() == not_sent & set(reader.payloads())
        assert len(queue.acknowledged) > 100
        assert not_sent
        assert unknown

    simulate(scenario, seed)
