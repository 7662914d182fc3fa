"""Redriving by the SDK in the simulated world: by ids, by a filter, up to a limit; what stays, and why."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, NoReturn

import pytest

from headgate.client.model.outgoing import Put
from headgate.client.queue import Queue
from headgate.client.redriving import DEATH_REASON, SOURCE_QUEUE, RedriveResult, SkipReason
from headgate.errors import InvalidRequest, Unavailable
from headgate.store.model.statements import BatchIf
from tests.kit.simulated_store import Cluster
from tests.kit.simulated_world import World
from tests.simulation.sdk.sdk_world import Shop, queue_text

Scenario = Callable[[Queue, Queue], Coroutine[Any, Any, None]]


def dead(payload: str, *, source: str | None = "shop/emails", reason: str = "ValueError: no address") -> Put:
    """A message as the engine puts it into a dead-letter queue."""
    attributes = {DEATH_REASON: reason} | ({} if source is None else {SOURCE_QUEUE: source})
    return Put(payload, attributes=attributes)


def simulate(scenario: Scenario, *, sent: list[Any] | None = None) -> None:
    """Run a scenario in a process with a queue and its dead-letter queue, whose statements are collected."""

    async def run(shop: Shop) -> None:
        await shop.apply(
            queue_text("{shards: 1, deadLetter: emails-dead}"), queue_text("{shards: 1}", name="emails-dead")
        )
        program = shop.program("program")
        program.store.sent = [] if sent is None else sent

        async def work() -> None:
            await program.connection.open()
            queue = await program.connection.queue("shop/emails")
            await scenario(queue, await program.connection.queue("shop/emails-dead"))
            await program.connection.close()

        await program.process.start(work())

    with World(1) as world:
        world.run(run(Shop(world, Cluster(world))))


async def payloads(queue: Queue) -> list[str]:
    return sorted(each.payload.decode() for each in await queue.peek(100))


def test_each_message_returns_to_its_source_and_the_others_stay_with_a_reason() -> None:
    async def scenario(emails: Queue, dead_letters: Queue) -> None:
        lost = dead("lost", source=None)
        ids = await dead_letters.put_many([dead("a"), dead("b"), lost, dead("gone", source="shop/gone")])
        steps: list[int] = []
        result = await dead_letters.redrive(on_moved=steps.append)
        reasons = {each.message_id: each.reason for each in result.skipped}
        assert (2, 2, True) == (result.moved, sum(steps), result.complete)
        assert {ids[2]: SkipReason.NO_SOURCE, ids[3]: SkipReason.SOURCE_NOT_FOUND} == reasons
        assert ["a", "b"] == await payloads(emails)
        assert ["gone", "lost"] == await payloads(dead_letters)
        (message, _) = await emails.peek(2)
        assert {} == {name: value for name, value in message.attributes.items() if "dead" in name}

    simulate(scenario)


def test_messages_that_died_within_ten_seconds_claim_their_keys_together() -> None:
    sent: list[Any] = []

    async def scenario(emails: Queue, dead_letters: Queue) -> None:
        await dead_letters.put_many([dead(str(number)) for number in range(100)])
        sent.clear()
        assert 100 == (await dead_letters.redrive()).moved
        batches = [each for each in sent if isinstance(each, BatchIf)]
        claims = [each for each in batches if each.statements[0].shape.table.name.endswith("_once")]
        assert 100 == sum(len(each.statements) for each in claims)
        assert len(claims) <= 4  # two receives, and a border of ten seconds

    simulate(scenario, sent=sent)


def test_only_the_ids_that_are_named_are_moved() -> None:
    async def scenario(emails: Queue, dead_letters: Queue) -> None:
        first, second, _ = await dead_letters.put_many([dead("a"), dead("b"), dead("c")])
        (absent,) = await emails.put_many(["elsewhere"])
        result = await dead_letters.redrive(ids=[second, absent])
        assert (1, [(absent, SkipReason.NOT_FOUND)]) == (
            result.moved,
            [(each.message_id, each.reason) for each in result.skipped],
        )
        assert ["a", "c"] == await payloads(dead_letters)
        again = await dead_letters.redrive(ids=[second])
        assert (0, SkipReason.NOT_FOUND) == (again.moved, again.skipped[0].reason)
        assert RedriveResult(1) == await dead_letters.redrive(ids=[first])
        assert ["a", "b", "elsewhere"] == await payloads(emails)

    simulate(scenario)


def test_a_filter_and_a_limit_select_messages() -> None:
    async def scenario(emails: Queue, dead_letters: Queue) -> None:
        timeouts = [dead(f"slow {number}", reason="TimeoutError") for number in range(5)]
        await dead_letters.put_many([dead("broken"), *timeouts])
        slow = await dead_letters.redrive(
            matching=lambda message: "Timeout" in str(message.attributes[DEATH_REASON]), limit=3
        )
        assert RedriveResult(3) == slow
        assert ["slow", "slow", "slow"] == [each.split()[0] for each in await payloads(emails)]
        rest = await dead_letters.redrive(matching=lambda message: "Timeout" in str(message.attributes[DEATH_REASON]))
        assert (RedriveResult(2), ["broken"]) == (rest, await payloads(dead_letters))
        await dead_letters.put_many([dead("x"), dead("y")])
        assert RedriveResult(2) == await dead_letters.redrive(limit=2)
        assert 1 == len(await payloads(dead_letters))

    simulate(scenario)


def test_messages_that_stay_are_not_charged_and_can_be_redriven_at_once() -> None:
    async def scenario(emails: Queue, dead_letters: Queue) -> None:
        kept, wanted = await dead_letters.put_many([dead("kept"), dead("wanted")])
        assert 1 == (await dead_letters.redrive(ids=[wanted])).moved
        (message,) = await dead_letters.receive(1)
        assert (kept, 1) == (message.id, message.attempt)
        await message.nack()

    simulate(scenario)


def test_another_target_is_given_by_name_and_is_not_the_queue_itself() -> None:
    async def scenario(emails: Queue, dead_letters: Queue) -> None:
        await dead_letters.put_many([dead("lost", source=None)])
        with pytest.raises(InvalidRequest, match="A dead-letter queue is not its own target"):
            await dead_letters.redrive(to="shop/emails-dead")
        assert RedriveResult(1) == await dead_letters.redrive(to="shop/emails")
        assert ["lost"] == await payloads(emails)
        with pytest.raises(InvalidRequest, match="from 1 to 10000 ids"):
            await dead_letters.redrive(ids=[])

    simulate(scenario)


def test_a_redrive_that_fails_after_its_put_puts_no_message_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(emails: Queue, dead_letters: Queue) -> None:
        await dead_letters.put_many([dead("a")])

        async def failing(settles: object) -> NoReturn:
            raise Unavailable("no answer")

        with monkeypatch.context() as patch, pytest.raises(Unavailable, match="no answer"):
            patch.setattr(dead_letters, "settle", failing)
            await dead_letters.redrive()
        await asyncio.sleep(90)  # it is received again
        assert RedriveResult(1) == await dead_letters.redrive()
        assert (["a"], []) == (await payloads(emails), await payloads(dead_letters))

    simulate(scenario)


def test_a_redrive_that_is_cancelled_returns_what_it_holds() -> None:
    async def scenario(emails: Queue, dead_letters: Queue) -> None:
        (kept,) = await dead_letters.put_many([dead("kept", source=None)])
        running = asyncio.ensure_future(dead_letters.redrive())
        await asyncio.sleep(1)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        (message,) = await dead_letters.receive(1, wait=5)
        assert kept == message.id
        await message.ack()

    simulate(scenario)
