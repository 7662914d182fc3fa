"""A message in the application's own logged batch, in the simulated world: whatever dies, its write and its message
happen together or not at all, and a batch that lands late brings a message that comes late, once.

The prose is "A message in the application's own batch" in docs/internals/protocols/timeline.md.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import pytest

from headgate.client.model.outgoing import Put
from headgate.client.queue import Queue as SdkQueue
from headgate.engines.contract import BatchTooLate, CatalogueStale, NewMessage, StampedPut
from headgate.engines.timeline.model.settings import GenerationSettings
from headgate.engines.timeline.put.application_batch import stamp_put
from headgate.errors import InvalidRequest, OperationRefused, Unavailable
from headgate.store.cassandra.batches import BatchUnfit
from headgate.store.model.consistency import Consistency
from headgate.store.model.statements import Batch, Insert, Select
from headgate.store.model.table import DAY_S, Column, Table
from headgate.store.model.types import Type
from tests.simulation.sdk.sdk_world import Program, queue_text
from tests.simulation.sdk.sdk_world import Shop as SdkShop
from tests.simulation.sdk.test_sdk import opened as sdk_opened
from tests.simulation.sdk.test_sdk import simulate as sdk_simulate
from tests.simulation.timeline.timeline_puts import SECOND, Client, Queue, simulate
from tests.simulation.timeline.timeline_repairs import HOUR_S, MINUTE_S, REPAIRED, Ward, opened

ORDERS = Table(
    "orders",
    "what the application writes",
    (Column("id", Type.TEXT),),
    (),
    (Column("item", Type.TEXT),),
    gc_grace_s=DAY_S,
)
OTHER_SHARDS = (
    replace(REPAIRED.generations[0], until_us=1, sure_us=2),
    GenerationSettings(2, 2, from_us=1),
)


@dataclass
class Shop:
    """An application with a queue beside its table."""

    ward: Ward
    client: Client

    def order(self, name: str, *, within_s: float = 2.0, **how: object) -> tuple[StampedPut, Batch]:
        """A message, and the batch with it."""
        message = NewMessage(name.encode(), **how)  # type: ignore[arg-type]
        batched = stamp_put(self.client.producer, message, within_us=round(within_s * SECOND))
        now_us = self.client.process.clock.wall_us()
        own = Insert(ORDERS, {"id": name, "item": "tea"}, timestamp_us=now_us)
        return batched, Batch([own, *batched.statements], logged=True)

    async def send(self, batch: Batch, *, tries: int = 1) -> bool:
        """Whether it was acknowledged."""
        for _ in range(tries):
            try:
                await self.client.store.attempt(batch, 10)
            except Unavailable:
                continue
            return True
        return False

    async def orders(self, names: Sequence[str]) -> list[bytes]:
        """Which of them were written."""
        store = self.ward.queue.client(f"reader-{self.ward.queue.world.now_s()}").store
        entries = [await store.read(Select(ORDERS, {"id": name}, consistency=Consistency.ALL)) for name in names]
        return [name.encode() for name, rows in zip(names, entries, strict=True) if rows]


async def shop_of(queue: Queue) -> Shop:
    """Ready to order."""
    ward = await opened(queue)
    client = queue.client("application")
    return Shop(ward, client)


def test_a_batch_that_is_answered_in_time_brings_its_message_when_it_is_due() -> None:
    async def scenario(queue: Queue) -> None:
        shop = await shop_of(queue)
        soon, batch = shop.order("soon")
        later, later_batch = shop.order("later", due_us=shop.client.process.clock.wall_us() + 40 * SECOND)
        soon.check()
        assert await shop.send(batch)
        assert await shop.send(later_batch)
        later.check()
        consumer = shop.ward.worker()
        await asyncio.sleep(30)
        assert [b"soon"] == shop.ward.payloads()
        assert [soon.message_id] == [each.message_id for _, each in shop.ward.delivery_log.deliveries]
        await asyncio.sleep(30)
        assert [b"later", b"soon"] == shop.ward.payloads()
        assert [] == shop.ward.delivery_log.early
        consumer.process.kill()
        await asyncio.sleep(12)
        await shop.ward.repair_to_the_end()
        assert [b"later", b"soon"] == shop.ward.payloads()

    simulate(scenario, settings=REPAIRED)


def test_the_same_batch_sent_again_and_again_is_one_order_and_one_message() -> None:
    async def scenario(queue: Queue) -> None:
        shop = await shop_of(queue)
        _, batch = shop.order("tea")
        consumer = shop.ward.worker()
        for wait_s in (0.5, 10, 60):
            assert await shop.send(batch)
            await asyncio.sleep(wait_s)
        consumer.process.kill()
        await asyncio.sleep(12)
        await shop.ward.repair_to_the_end()
        assert [b"tea"] == shop.ward.payloads()

    simulate(scenario, settings=REPAIRED)


def test_a_batch_that_is_never_sent_leaves_nothing() -> None:
    async def scenario(queue: Queue) -> None:
        shop = await shop_of(queue)
        shop.order("tea")
        await shop.ward.work(20)
        await shop.ward.repair_to_the_end()
        assert ([], []) == (shop.ward.payloads(), await shop.orders(["tea"]))

    simulate(scenario, settings=REPAIRED)


def test_a_batch_that_is_sent_too_late_is_answered_so_and_if_sent_all_the_same_its_message_comes_by_repair_once() -> (
    None
):
    async def scenario(queue: Queue) -> None:
        shop = await shop_of(queue)
        batched, batch = shop.order("tea")
        consumer = shop.ward.worker()
        await asyncio.sleep(10)
        with pytest.raises(BatchTooLate, match="build the batch again"):
            batched.check()
        assert await shop.send(batch)
        await asyncio.sleep(10)
        consumer.process.kill()
        assert [] == shop.ward.payloads()
        await asyncio.sleep(2 * MINUTE_S)
        assert 1 == (await shop.ward.repair()).put_again
        await shop.ward.work(20)
        await shop.ward.repair_to_the_end()
        assert [b"tea"] == shop.ward.payloads()

    simulate(scenario, settings=REPAIRED)


def test_a_batch_whose_shards_have_changed_or_whose_knowledge_is_old_is_answered_so() -> None:
    async def scenario(queue: Queue) -> None:
        shop = await shop_of(queue)
        far_us = shop.client.process.clock.wall_us() + 3600 * SECOND
        batched, _ = shop.order("tea", due_us=far_us)
        await asyncio.sleep(70)
        with pytest.raises(CatalogueStale):
            batched.check()
        changed = replace(queue.settings, generations=OTHER_SHARDS)
        shop.client.producer.settings_changed(changed, read_us=shop.client.process.clock.wall_us())
        with pytest.raises(BatchTooLate, match="shards have changed"):
            batched.check()

    simulate(scenario, settings=REPAIRED)


def test_a_once_key_and_a_time_that_is_none_are_refused_with_the_reason() -> None:
    async def scenario(queue: Queue) -> None:
        shop = await shop_of(queue)
        with pytest.raises(InvalidRequest, match="cannot have a once key"):
            shop.order("tea", once="7")
        with pytest.raises(InvalidRequest, match="until the batch is answered"):
            shop.order("tea", within_s=0)

    simulate(scenario, settings=REPAIRED)


def test_attack_a4_a_batch_that_is_replayed_after_hours_brings_its_order_and_its_message_once() -> None:
    async def scenario(queue: Queue) -> None:
        shop = await shop_of(queue)
        _, batch = shop.order("tea")
        queue.cluster.hold_batchlog()
        queue.world.network.lose("write", count=12)
        shop.client.store.exclude(frozenset({"n2", "n3"}))
        sending = shop.client.process.start(shop.send(batch))
        await asyncio.sleep(0.5)
        queue.cluster.kill("n1")  # it would keep hints
        assert not await sending
        queue.world.network.calm()
        queue.cluster.restart("n1")
        await shop.ward.work(20)
        assert ([], []) == (shop.ward.payloads(), await shop.orders(["tea"]))
        await asyncio.sleep(2 * HOUR_S)
        queue.cluster.release_batchlog()
        await asyncio.sleep(3 * HOUR_S)
        await shop.ward.repair_to_the_end()
        assert ([b"tea"], [b"tea"]) == (shop.ward.payloads(), await shop.orders(["tea"]))

    simulate(scenario, settings=REPAIRED)


@pytest.mark.parametrize("comes_back", [True, False])
def test_the_coordinator_killed_at_every_step_of_a_batch_leaves_both_or_neither(comes_back: bool) -> None:
    """One batch after the other; each time its coordinator is killed a little later after it was sent."""

    async def scenario(queue: Queue) -> list[int]:
        shop = await shop_of(queue)
        shop.client.process.start(queue.keep_fresh(shop.client))
        shop.client.store.exclude(frozenset({"n2", "n3"}))
        names = [f"order-{step:03}" for step in range(40)]
        acknowledged = []
        for step, name in enumerate(names):
            _, batch = shop.order(name)
            sending = shop.client.process.start(shop.send(batch))
            await asyncio.sleep(step * 0.000_25)
            queue.cluster.kill("n1")
            acknowledged += [name.encode()] * await sending
            if comes_back or step < len(names) - 1:
                queue.cluster.restart("n1")
                await asyncio.sleep(1)
        await asyncio.sleep(60)
        if not comes_back:
            queue.cluster.restart("n1")
        await asyncio.sleep(120)
        await shop.ward.work(30)
        await shop.ward.repair_to_the_end()
        written = await shop.orders(names)
        assert written == sorted(shop.ward.payloads())
        assert set() == set(acknowledged) - set(written)
        return [len(acknowledged), len(written), len(names)]

    acknowledged, written, tried = simulate(scenario, settings=REPAIRED)
    assert 0 < acknowledged < written < tried, "steps before the log, between log and answer, and after the answer"


class Outbox:
    """A batch, and what is known of it, where there is no driver: statements are kept as they are."""

    def __init__(self) -> None:
        self.statements: list[Insert] = []
        self.learned: list[str] = []

    async def learn(self, batch: object, tables: Iterable[str] = ()) -> None:
        """Takes some time, as a server does."""
        await asyncio.sleep(0.1)
        self.learned += tables

    def add(self, batch: object, keyspace: str, statements: Sequence[Insert]) -> None:
        """All are sent by one store here."""
        self.statements += statements

    def check(self, batch: object) -> None:
        """Whatever there is."""
        if not self.statements:
            raise BatchUnfit("nothing was added")


async def queue_with(program: Program, outbox: Outbox) -> SdkQueue:
    """The queue as a process has it whose connection knows of batches."""
    queue = await sdk_opened(program)
    known = program.connection._known()
    program.connection._now = replace(known, process_context=replace(known.process_context, batches=outbox))
    return queue


def test_through_the_sdk_a_message_is_added_waits_for_trust_as_any_put_and_is_received() -> None:
    async def scenario(shop: SdkShop) -> None:
        await shop.apply(queue_text())
        program, outbox = shop.program("application"), Outbox()
        queue = await queue_with(program, outbox)
        program.process.clock.step(0.05)
        adding = queue.add_to_batch(outbox, {"order": 1}, attributes={"a": "b"}, tables=["shop.orders"])
        put = await program.process.start(adding)
        put.check()
        assert ["shop.orders"] == outbox.learned
        assert 1.0 < put.until.timestamp() - program.process.clock.wall_us() / SECOND < 3.5
        await program.process.start(program.store.write(Batch(outbox.statements, logged=True)))
        (message,) = await program.process.start(queue.receive(10, wait=20))
        assert (put.id, {"order": 1}, "b") == (message.id, message.json(), message.attributes["a"])
        await program.process.start(message.ack())
        with pytest.raises(InvalidRequest, match="cannot have a once key"):
            await program.process.start(queue.add_to_batch(outbox, Put({"order": 2}, once="2")))
        with pytest.raises(BatchTooLate):
            put.check()

    sdk_simulate(scenario)


def test_a_connection_that_is_to_no_cassandra_refuses_batches() -> None:
    async def scenario(shop: SdkShop) -> None:
        await shop.apply(queue_text())
        program = shop.program("application")
        queue = await sdk_opened(program)
        with pytest.raises(OperationRefused, match="no Cassandra"):
            await program.process.start(queue.add_to_batch(Outbox(), {"order": 1}))

    sdk_simulate(scenario)
