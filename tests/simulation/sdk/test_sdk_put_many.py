"""put_many on the timeline engine: which messages were written, and which were not and why."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from headgate.client.catalogue.opened import ConnectionClosed
from headgate.client.model.outgoing import Put
from headgate.client.put_many import PutManyFailed
from headgate.engines.timeline.model.row import ROW_MESSAGES_MAX
from headgate.errors import InvalidRequest, Unavailable
from headgate.store.store import OutcomeUnknown
from tests.simulation.sdk.sdk_world import Shop, queue_text
from tests.simulation.sdk.test_sdk import opened, receive_all, simulate

YEAR_S = 366 * 86_400


def holds(value: Any, mark: bytes) -> bool:
    """Whether a statement has these bytes anywhere in its values."""
    if isinstance(value, bytes):
        return mark in value
    if isinstance(value, dict):
        return any(holds(each, mark) for each in value.values())
    if isinstance(value, list | tuple):
        return any(holds(each, mark) for each in value)
    parts = [getattr(value, name, None) for name in ("statements", "values", "tails")]
    return any(holds(each, mark) for each in parts if isinstance(each, list | tuple | dict))


def test_the_messages_of_a_row_that_is_not_written_fail_and_the_others_are_put() -> None:
    async def scenario(shop: Shop) -> None:
        await shop.apply(queue_text("{shards: 1}"))
        program = shop.program("producer")
        queue = await opened(program)

        async def gate(statement: Any) -> None:
            if holds(statement, b"refused"):
                await asyncio.sleep(0.1)
                raise OutcomeUnknown("no answer in this test")

        payloads = [b"%d" % number for number in range(3 * ROW_MESSAGES_MAX)]
        payloads[ROW_MESSAGES_MAX + 5] = b"refused"
        program.store.gate = gate
        with pytest.raises(PutManyFailed) as caught:
            await program.process.start(queue.put_many(payloads))
        program.store.gate = program.gate
        failed = caught.value
        row = range(ROW_MESSAGES_MAX, 2 * ROW_MESSAGES_MAX)
        assert list(row) == [each.index for each in failed.failures]
        assert [payloads[at] for at in row] == [each.message for each in failed.failures]
        assert all(isinstance(each.error, Unavailable) for each in failed.failures)
        received: list[Any] = []
        await program.process.start(receive_all(program, queue, received, until=2 * ROW_MESSAGES_MAX))
        put = {message_id: payload for message_id, payload in zip(failed.ids, payloads, strict=True) if message_id}
        assert put == {each.id: each.payload for each in received}

    simulate(scenario)


def test_a_message_that_cannot_be_kept_fails_by_itself_whatever_stands_beside_it() -> None:
    async def scenario(shop: Shop) -> None:
        await shop.apply(queue_text("{shards: 1, maxMessageSize: 1Ki}"))
        program = shop.program("producer")
        queue = await opened(program)
        messages = [
            b"plain",
            b"x" * 1025,
            Put(b"later", delay=60),
            Put(b"too late", delay=90 * YEAR_S),
            Put(b"once", once="key"),
            Put(b"y" * 1025, once="other"),
            Put(b"once again", once="key"),
            Put(b"grouped", group="g"),
        ]
        with pytest.raises(PutManyFailed) as caught:
            await program.process.start(queue.put_many(messages))
        failed = caught.value
        assert [1, 3, 5] == [each.index for each in failed.failures]
        assert all(isinstance(each.error, InvalidRequest) for each in failed.failures)
        assert failed.ids[4] == failed.ids[6]
        assert 4 == len({*failed.ids} - {None})
        received: list[Any] = []
        await program.process.start(receive_all(program, queue, received, until=3))
        assert {failed.ids[0], failed.ids[4], failed.ids[7]} == {each.id for each in received}

    simulate(scenario)


def test_a_connection_that_is_closed_puts_nothing() -> None:
    async def scenario(shop: Shop) -> None:
        await shop.apply(queue_text("{shards: 1}"))
        program = shop.program("producer")
        queue = await opened(program)
        await program.process.start(program.connection.close())
        with pytest.raises(ConnectionClosed):
            await program.process.start(queue.put_many([b"0"]))

    simulate(scenario)


def test_messages_of_groups_are_delivered_in_the_order_of_their_source() -> None:
    async def scenario(shop: Shop) -> None:
        await shop.apply(queue_text("{shards: 3}"))
        program = shop.program("producer")
        queue = await opened(program)

        async def numbers() -> Any:
            for number in range(5_000):
                yield Put(b"%d" % number, group=str(number % 3)) if number % 2 else b"%d" % number

        ids = await program.process.start(queue.put_many(numbers()))
        assert 5_000 == len(set(ids))
        received: list[Any] = []
        await program.process.start(receive_all(program, queue, received, until=5_000))
        for group in ("0", "1", "2"):
            delivered = [int(each.payload) for each in received if each.group == group]
            assert sorted(delivered) == delivered

    simulate(scenario)
