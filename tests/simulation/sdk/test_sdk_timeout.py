"""`timeout` of the SDK's puts: one deadline from the call down to the store, and what its end means."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from headgate.client.put_many import PutManyFailed
from headgate.client.queues import CatalogueUnreadable
from headgate.errors import InvalidRequest
from headgate.store.store import NotSent, OutcomeUnknown
from tests.simulation.sdk.sdk_world import Program, Shop, queue_text
from tests.simulation.sdk.test_sdk import opened, receive_all, simulate


def hold_work(program: Program, until: asyncio.Event) -> None:
    """Hold back what goes to the messages' table."""

    async def gate(statement: Any) -> None:
        parts = getattr(statement, "statements", (statement,))
        if any(part.shape.table.name.endswith("_work") for part in parts):
            await until.wait()

    program.store.gate = gate


async def took_s(work: Any) -> float:
    """The time until it fails with one of the two."""
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    with pytest.raises((NotSent, OutcomeUnknown)):
        await work
    return round(loop.time() - began_s, 2)


def test_a_put_that_is_not_answered_in_time_is_unknown() -> None:
    async def scenario(shop: Shop) -> None:
        await shop.apply(queue_text("{shards: 1}"))
        program = shop.program("producer")
        queue = await opened(program)
        hold_work(program, asyncio.Event())
        with pytest.raises(OutcomeUnknown):
            await program.process.start(queue.put({"to": "you"}, timeout=0.5))
        program.store.gate = program.gate
        assert await program.process.start(queue.put({"to": "you"}, timeout=5))

    simulate(scenario)


def test_while_the_catalogue_cannot_be_read_a_put_with_a_timeout_ends_in_time_and_unsent() -> None:
    async def scenario(shop: Shop) -> None:
        await shop.apply(queue_text("{shards: 1}"))
        program = shop.program("producer")
        queue = await opened(program)
        program.reads_catalogue = False
        await asyncio.sleep(90)
        for seconds in (0.5, 3.0):
            put = program.process.start(queue.put(b"m", timeout=seconds))
            assert await took_s(put) <= seconds
        with pytest.raises(NotSent):
            await program.process.start(queue.put(b"m", timeout=3.0))
        with pytest.raises(NotSent):
            await program.process.start(queue.put_many([b"m", b"n"], timeout=3.0))
        with pytest.raises(CatalogueUnreadable):
            await program.process.start(queue.put(b"m"))
        program.reads_catalogue = True
        assert await program.process.start(queue.put(b"m", timeout=3.0))

    simulate(scenario)


def test_put_many_has_one_deadline_for_all_and_put_each_one_for_each() -> None:
    async def scenario(shop: Shop) -> None:
        await shop.apply(queue_text("{shards: 1}"))
        program = shop.program("producer")
        queue = await opened(program)

        async def slow() -> AsyncIterator[bytes]:
            for number in range(5):
                await asyncio.sleep(0.4)
                for each in range(2_000):
                    yield b"%d-%d" % (number, each)

        async def each_of(results: Any) -> list[str | None]:
            return [result.id async for result in results]

        with pytest.raises(PutManyFailed) as caught:
            await program.process.start(queue.put_many(slow(), timeout=1.0))
        assert {NotSent} == {type(each.error) for each in caught.value.failures}
        late = {each.index // 2_000 for each in caught.value.failures}
        assert {3, 4} <= late <= {2, 3, 4}
        assert None not in await program.process.start(each_of(queue.put_each(slow(), timeout=1.0)))

    simulate(scenario)


def test_a_timeout_is_a_length_of_time() -> None:
    async def scenario(shop: Shop) -> None:
        await shop.apply(queue_text("{shards: 1}"))
        program = shop.program("producer")
        queue = await opened(program)
        with pytest.raises(InvalidRequest, match="timeout must be a duration"):
            await program.process.start(queue.put(b"m", timeout=-1))
        with pytest.raises(NotSent):
            await program.process.start(queue.put(b"m", timeout=0))
        await program.process.start(queue.put(b"is put", timeout=5))
        received: list[Any] = []
        await program.process.start(receive_all(program, queue, received, until=1))
        assert [b"is put"] == [each.payload for each in received]

    simulate(scenario)
