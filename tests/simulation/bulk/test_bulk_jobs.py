"""The driver of a bulk job dies before any of its calls, and another run resumes: each message goes one way, once."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

import pytest

from headgate import Put
from headgate.client.message import Message
from headgate.client.queue import Queue
from tests.kit.simulated_store import Cluster
from tests.kit.simulated_world import World
from tests.simulation.bulk.bulk_world import (
    Driver,
    Killed,
    MemoryFiles,
    Messages,
    driver,
    files_work,
    handler_work,
    job_of,
    queue_work,
)
from tests.simulation.sdk.sdk_world import Program, Shop, queue_text

MESSAGES = 60
STEPS = (pytest.param(13, id="some"), pytest.param(1, id="all", marks=pytest.mark.slow))
"""Every so manieth call is died before."""
QUEUES = (
    queue_text("{shards: 2, deadLetter: dead}"),
    queue_text("{shards: 1}", name="dead"),
    queue_text("{shards: 2}", name="heir"),
)


@dataclass
class Scene:
    """A backlog, and a consumer beside the job."""

    shop: Shop
    ids: list[str] = field(default_factory=list)
    taken: list[str] = field(default_factory=list)
    """By consumers of the queue."""
    over: bool = False
    """The consumer beside the job is to end."""

    def emptied(self, name: str) -> list[Message]:
        """The messages of a queue, received and settled until none comes."""
        program = self.shop.program(f"reader of {name} {self.shop.world.now_s()}")
        return self.shop.world.run(_emptied(program, name))


@contextmanager
def scene(seed: int, *, consumer: bool = False) -> Iterator[Scene]:
    """With all messages due."""
    with World(seed) as world:
        one = Scene(Shop(world, Cluster(world)))
        world.run(one.shop.apply(*QUEUES))
        one.ids = world.run(_put(one.shop.program("producer")))
        if consumer:
            program = one.shop.program("consumer")
            world.run(_begin(program, one))
        yield one


async def _put(program: Program) -> list[str]:
    await program.process.start(program.connection.open())
    queue = await program.process.start(program.connection.queue("shop/emails"))
    ids: list[str] = []
    for first in range(0, MESSAGES, 6):
        puts = [Put(b"%d" % number) for number in range(first, first + 6)]
        ids += await program.process.start(queue.put_many(puts))
        await asyncio.sleep(0.2)
    await asyncio.sleep(2)
    return ids


async def _begin(program: Program, one: Scene) -> None:
    await program.process.start(program.connection.open())
    queue = await program.process.start(program.connection.queue("shop/emails"))
    program.process.start(_consume(queue, one))
    await asyncio.sleep(2.5)


async def _consume(queue: Queue, one: Scene) -> None:
    """Slowly, until it is asked to end; then its lanes go back."""
    while not one.over:
        for message in await queue.receive(1, wait=2):
            await asyncio.sleep(1.5)
            await message.ack()
            one.taken.append(message.id)
    await queue.close()


async def _emptied(program: Program, name: str) -> list[Message]:
    await program.process.start(program.connection.open())
    queue = await program.process.start(program.connection.queue(name))
    matches: list[Message] = []
    while given := await program.process.start(queue.receive(100, wait=15)):
        matches += given
        await program.process.start(queue.ack(given))
    return matches


def twice(values: list[str]) -> list[str]:
    """Those that are there more than once."""
    return [value for value, count in Counter(values).items() if count > 1]


def calls_of_a_whole_run(seed: int, work: str, monkeypatch: pytest.MonkeyPatch) -> int:
    """How many calls a driver makes that nobody kills."""
    with scene(seed) as one:
        local = driver(one.shop, "driver")
        before = local.calls
        made = files_work(MemoryFiles()) if work == "files" else queue_work("shop/heir")
        if work == "handler":
            made = handler_work(all_done)  # type: ignore[assignment]
        job, counts = job_of(local, made, monkeypatch)
        job.run()
        assert MESSAGES == sum(done for done, _, _ in counts.batches)
        assert 2 <= len(counts.batches)
        assert [] == one.emptied("shop/emails")
        return local.calls - before


def all_done(messages: Messages) -> list[tuple[str, str, str]]:
    """Everything succeeds."""
    return [(row["id"], "done", "") for row in messages]


def dying(one: Scene, call: int) -> Driver:
    """A driver that dies before this call of its job."""
    return driver(one.shop, "driver", dies_before=call)


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("consumer", [False, True])
def test_into_files_whatever_call_the_driver_dies_before(
    step: int, consumer: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = calls_of_a_whole_run(1, "files", monkeypatch)
    for call in range(2 + consumer, calls + 1, step):
        with scene(call, consumer=consumer) as one:
            files = MemoryFiles()
            with suppress(Killed):  # with a consumer beside it a run may end before this call
                job_of(dying(one, call), files_work(files), monkeypatch)[0].run()
            job_of(driver(one.shop, "heir"), files_work(files), monkeypatch)[0].run()
            settle_rest(one)
            assert ([], []) == (twice(files.ids), twice(one.taken)), call
            assert set() == set(files.ids) & set(one.taken), call
            assert set(one.ids) == set(files.ids) | set(one.taken), call


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("consumer", [False, True])
def test_into_a_queue_whatever_call_the_driver_dies_before(
    step: int, consumer: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = calls_of_a_whole_run(1, "queue", monkeypatch)
    for call in range(2 + consumer, calls + 1, step):
        with scene(call, consumer=consumer) as one:
            with suppress(Killed):  # with a consumer beside it a run may end before this call
                job_of(dying(one, call), queue_work("shop/heir"), monkeypatch)[0].run()
            job_of(driver(one.shop, "heir"), queue_work("shop/heir"), monkeypatch)[0].run()
            settle_rest(one)
            moved = [message.payload.decode() for message in one.emptied("shop/heir")]
            taken = [str(one.ids.index(id_)) for id_ in one.taken]
            assert ([], []) == (twice(moved), twice(taken)), call
            assert set() == set(moved) & set(taken), call
            assert {str(number) for number in range(MESSAGES)} == set(moved) | set(taken), call


def settle_rest(one: Scene) -> None:
    """The consumers settle everything that the job left."""
    one.over = True
    one.shop.world.run(one.shop.world.sleep(8))
    one.taken += [message.id for message in one.emptied("shop/emails")]


@pytest.mark.parametrize("step", STEPS)
def test_a_killed_handler_s_batch_rests_for_its_loan_and_what_was_committed_is_not_handled_again(
    step: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls = calls_of_a_whole_run(1, "handler", monkeypatch)
    for call in range(2, calls + 1, step):
        with scene(call) as one:
            handled: list[tuple[float, str]] = []

            def handler(messages: Messages, one: Scene = one, handled: list[tuple[float, str]] = handled) -> object:
                now_s = one.shop.world.now_s()
                handled += [(now_s, row["id"]) for row in messages]
                return all_done(messages)

            work = handler_work(handler)  # type: ignore[arg-type]
            with suppress(Killed):  # with a consumer beside it a run may end before this call
                job_of(dying(one, call), work, monkeypatch, reservation_s=40.0)[0].run()
            job_of(driver(one.shop, "heir"), work, monkeypatch, reservation_s=40.0)[0].run()
            assert set(one.ids) == {id_ for _, id_ in handled}, call
            again = twice([id_ for _, id_ in handled])
            for id_ in again:
                first, second = [at_s for at_s, other in handled if other == id_]
                assert 35 < second - first, call
            assert len(again) <= 50, "what was committed is not handled again"
            assert [] == one.emptied("shop/emails"), call


@pytest.mark.parametrize("step", STEPS)
def test_dead_letters_are_buried_once_whatever_call_the_driver_dies_before(
    step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def half_dies(messages: Messages) -> list[tuple[str, str, str]]:
        return [
            (row["id"], "dead" if int(row["payload"]) % 2 else "return", f"because of {row['payload'].decode()}")
            for row in messages
        ]

    work = handler_work(half_dies)
    for call in range(3, 60, step):
        with scene(call) as one:
            try:
                job_of(dying(one, call), work, monkeypatch, resume_at_once=True)[0].run()
            except Killed:
                job_of(driver(one.shop, "heir"), work, monkeypatch, resume_at_once=True)[0].run()
            dead = one.emptied("shop/dead")
            odd = [str(number) for number in range(1, MESSAGES, 2)]
            assert sorted(odd) == sorted(message.payload.decode() for message in dead), call
            assert {f"because of {message.payload.decode()}" for message in dead} == {
                message.attributes["headgate.dead.reason"] for message in dead
            }
            left = [message.payload.decode() for message in one.emptied("shop/emails")]
            assert sorted(str(number) for number in range(0, MESSAGES, 2)) == sorted(left), call


def test_a_drain_of_lanes_that_nobody_works_moves_their_positions_over_what_it_settled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with scene(4) as one:
        local = driver(one.shop, "driver")
        before = positions(local)
        job, counts = job_of(local, files_work(MemoryFiles()), monkeypatch)
        job.run()
        assert MESSAGES == sum(done for done, _, _ in counts.batches)
        stats = local.run(local.run(local.headgate.queue("shop/emails")).read_stats())
        assert (0, 0) == (stats.backlog, sum(lane.settled_above for lane in stats.lanes))
        assert all(new > old for new, old in zip(positions(local), before, strict=True))


def positions(job_driver: Driver) -> list[int]:
    """Of the lanes."""
    stats = job_driver.run(job_driver.run(job_driver.headgate.queue("shop/emails")).read_stats())
    return [lane.last_us for lane in stats.lanes]


def test_a_handler_that_raises_gives_all_back_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def breaks(messages: Messages) -> list[tuple[str, str, str]]:
        return [(row["id"], "fine", "") for row in messages]

    with scene(3) as one:
        job, counts = job_of(driver(one.shop, "driver"), handler_work(breaks), monkeypatch)
        began_s = one.shop.world.now_s()
        with pytest.raises(Exception, match="done, return, dead"):
            job.run()
        assert [] == counts.batches
        left = one.emptied("shop/emails")
        assert sorted(one.ids) == sorted(message.id for message in left)
        assert one.shop.world.now_s() - began_s < 60


def test_a_driver_that_stood_still_waits_for_its_clock_and_continues(monkeypatch: pytest.MonkeyPatch) -> None:
    with scene(5) as one:
        local = driver(one.shop, "driver")

        def stands_still(messages: Messages) -> list[tuple[str, str, str]]:
            local.program.process.pause(for_s=2.0)
            return all_done(messages)

        job, counts = job_of(local, handler_work(stands_still), monkeypatch)
        job.run()
        assert MESSAGES == sum(done for done, _, _ in counts.batches)
        assert [] == one.emptied("shop/emails")
