"""`connect("memory://")`: the SDK, a worker, apply and counters without a server."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import pytest

import headgate
from headgate.client.catalogue.memory_context import MemoryAddress
from headgate.client.connection import Headgate
from headgate.engines.memory import server
from headgate.engines.memory import settings as memory_settings
from headgate.runtime.handler.handlers import understand
from headgate.runtime.handler.runner import PythonPerformer
from headgate.runtime.process.sdk_queue import ClientQueue
from headgate.runtime.worker.worker import Worker, WorkerTerms
from headgate.runtime.worker.worker_metrics import WorkerMetrics
from headgate.store.memory.store import MemoryReplica
from headgate.telemetry.metrics import Registry
from tests.unit.runtime.workers import in_virtual_time

MEMORY = {"HEADGATE_CONTACT_POINTS": "memory://"}


def queue_document(name: str = "emails", kind: str = "Queue", **spec: Any) -> dict[str, Any]:
    """A resource."""
    return {
        "apiVersion": "headgate.io/v1beta1",
        "kind": kind,
        "metadata": {"name": name, "namespace": "shop"},
        "spec": spec,
    }


@asynccontextmanager
async def in_loop_time() -> AsyncIterator[Headgate]:
    """A connection whose clock is the event loop's."""
    loop = asyncio.get_running_loop()
    memory = MemoryAddress(MemoryReplica(lambda: 10**15 + round(loop.time() * 1_000_000)))
    async with Headgate(lambda: asyncio.sleep(0, memory.context("test", lambda: None))) as connection:
        yield connection


def test_a_queue_is_created_at_its_first_use_with_a_dead_letter_queue() -> None:
    async def scenario() -> None:
        async with headgate.connect("memory://") as p:
            q = await p.queue("shop/emails")
            assert ["shop/emails", "shop/emails-dead"] == await p.queues()
            first = await q.put({"to": "ann"}, once="ann", group="g", attributes={"a": "b"})
            assert first == await q.put({"to": "ann"}, once="ann")
            (message,) = await q.receive(1)
            assert ({"to": "ann"}, "g", "b", 1) == (
                message.json(),
                message.group,
                message.attributes["a"],
                message.attempt,
            )
            await message.ack()
            assert "settled" == (await q.where(first)).state.value
            with pytest.raises(headgate.StaleReceipt):
                await message.ack()

    asyncio.run(scenario())


def test_connections_share_an_address_until_the_last_is_closed() -> None:
    async def scenario() -> None:
        async with headgate.connect("memory://") as one, headgate.connect(MEMORY) as other:
            await (await one.queue("shop/emails")).put(b"x")
            (message,) = await (await other.queue("shop/emails")).receive(1)
            await message.nack()
            await one.close()
            assert 1 == (await (await other.queue("shop/emails")).stats()).backlog
            async with headgate.connect("memory://orders") as separate:
                assert [] == await separate.queues()
        async with headgate.connect("memory://") as p:
            assert [] == await p.queues()

    asyncio.run(scenario())


def test_of_applied_resources_there_are_exactly_those_with_their_settings() -> None:
    async def scenario() -> None:
        resources = [
            queue_document(maxReceives=1, deadLetter="dead", delay="1h"),
            queue_document("dead", engine="bucket"),
            queue_document("views", "Counter"),
        ]
        report = await headgate.apply(resources, contact_points="memory://")
        assert ["created"] * 3 == [each.outcome.value for each in report.results]
        async with headgate.connect("memory://") as p:
            assert ["shop/dead", "shop/emails"] == await p.queues()
            with pytest.raises(headgate.QueueNotFound, match=r"did you mean shop/emails\?"):
                await p.queue("shop/emial")
            q = await p.queue("shop/emails")
            await q.put(b"x")
            assert 1 == (await q.stats()).delayed
            again = await headgate.apply(queue_document(maxReceives=2, deadLetter="dead"), environment=MEMORY)
            assert ["updated"] == [each.outcome.value for each in again.results]
            await p.refresh()
            await q.put(b"now")
            (message,) = await q.receive(1)
            await message.nack()
            (message,) = await q.receive(1)
            await message.reject("no")
            dead = await p.queue("shop/dead")
            assert ["no"] == [each.attributes["headgate.dead.reason"] for each in await dead.peek()]
            assert {"shop/dead": 1, "shop/emails": 0} == {each.name: each.backlog for each in await p.overview()}
            views = await p.counter("shop/views")
            await views.add("home", 3)
            assert 3 == await views.value("home")

    asyncio.run(scenario())


def test_a_refresh_parses_the_queues_that_have_changed_and_no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    parsed: list[str] = []
    parse = memory_settings.resource_of

    def counted(document: Any) -> Any:
        parsed.append(document["metadata"]["name"])
        return parse(document)

    async def scenario() -> None:
        resources = [queue_document(deadLetter="dead"), queue_document("dead"), queue_document("orders")]
        await headgate.apply(resources, contact_points="memory://")
        async with headgate.connect("memory://") as p:
            await p.queue("shop/emails")
            await p.queue("shop/orders")
            assert ["dead", "emails", "orders"] == sorted(parsed)
            parsed.clear()
            for _ in range(3):
                await p.refresh()
            assert [] == parsed
            await headgate.apply(queue_document("orders", maxReceives=2), contact_points="memory://")
            parsed.clear()
            await p.refresh()
            await p.refresh()
            assert ["orders"] == parsed

    monkeypatch.setattr(memory_settings, "resource_of", counted)
    asyncio.run(scenario())


def test_a_batch_and_an_unknown_counter_are_refused_in_one_line() -> None:
    async def scenario() -> None:
        async with headgate.connect("memory://") as p:
            q = await p.queue("shop/emails")
            with pytest.raises(headgate.OperationRefused, match="no Cassandra"):
                await q.add_to_batch(object(), b"x")
            with pytest.raises(headgate.CounterNotFound):
                await p.counter("shop/views")

    asyncio.run(scenario())


def test_dead_letters_return_once_to_the_queue_they_came_from() -> None:
    async def scenario() -> None:
        async with in_loop_time() as p:
            q = await p.queue("shop/emails")
            await q.put_many([b"a", b"b"])
            for message in await q.receive(10):
                await message.reject("broken")
            dead = await p.queue("shop/emails-dead")
            assert 2 == (await dead.redrive()).moved
            assert 0 == (await dead.redrive()).moved
            assert [b"a", b"b"] == sorted(each.payload for each in await q.receive(10))

    in_virtual_time(scenario)


def test_a_worker_handles_retries_and_dead_letters() -> None:
    attempts: list[tuple[str, int]] = []

    async def send(mail: dict[str, Any], context: headgate.Context) -> None:
        attempts.append((mail["to"], context.attempt))
        if mail["to"] == "nobody":
            raise headgate.Reject("no such person")
        if mail["to"] == "never" or (mail["to"] == "busy" and context.attempt < 3):
            raise ConnectionError("the mail server is unavailable")

    async def scenario() -> None:
        async with in_loop_time() as p:
            q = await p.queue("shop/emails")
            await q.put_many([{"to": each} for each in ("ann", "busy", "nobody", "never")])
            later = await q.put({"to": "later"}, delay=3_600)
            performer = PythonPerformer(understand(send, "tests:send"), threads=1, rng=Random(1))
            worker = Worker(ClientQueue(p, q), performer, WorkerTerms(), WorkerMetrics(Registry(), q.name))
            running = asyncio.create_task(worker.run())
            while (await q.where(later)).state.value != "settled":  # noqa: ASYNC110  virtual time
                await asyncio.sleep(1)
            worker.end()
            await running
            dead = await (await p.queue("shop/emails-dead")).peek()
            stats = await q.stats()
            assert (0, 0, 0) == (stats.backlog, stats.in_flight, stats.delayed)
            assert {b'{"to":"nobody"}': ("1", True), b'{"to":"never"}': ("5", True)} == {
                each.payload: (
                    each.attributes["headgate.dead.attempts"],
                    each.attributes["headgate.dead.reason"] != "",
                )
                for each in dead
            }

    in_virtual_time(scenario)
    assert [1, 2, 3] == [attempt for to, attempt in attempts if to == "busy"]
    assert [1, 2, 3, 4, 5] == [attempt for to, attempt in attempts if to == "never"]
    assert ("later", 1) == attempts[-1]


def test_connections_of_several_threads_share_an_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "WAIT_S_MAX", 600.0)  # a receiver that nobody wakes does not check by itself
    with headgate.connect_sync("memory://") as one, headgate.connect_sync("memory://") as other:
        q = one.queue("shop/emails")
        putting = threading.Timer(0.05, lambda: other.queue("shop/emails").put(b"from a thread"))
        putting.start()
        began_s = time.monotonic()
        (message,) = q.receive(1, wait=20)
        assert time.monotonic() - began_s < 10
        putting.join()
        assert b"from a thread" == message.payload
        message.ack()
        assert 0 == other.queue("shop/emails").stats().in_flight


def test_many_threads_put_and_receive_each_message_once() -> None:
    async def scenario() -> None:
        async with headgate.connect("memory://") as p:
            q = await p.queue("shop/emails")

            def put(number: int) -> None:
                with headgate.connect_sync("memory://") as connection:
                    for each in range(100):
                        connection.queue("shop/emails").put(b"%d" % (number * 100 + each))

            putting = [asyncio.create_task(asyncio.to_thread(put, number)) for number in range(3)]
            payloads: list[int] = []
            async with asyncio.timeout(60):
                while len(payloads) < 300:
                    messages = await q.receive(10)
                    payloads += [int(each.payload) for each in messages]
                    await q.ack(messages)
            await asyncio.gather(*putting)
            assert list(range(300)) == sorted(payloads)

    asyncio.run(scenario())
