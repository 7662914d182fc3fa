"""Suspects run in a child process: one that kills it reaches the dead letter queue, and its neighbours do not."""

from __future__ import annotations

import asyncio
import os
import signal
from random import Random

import pytest

from headgate.engines.contract import NackDelivery
from headgate.runtime.handler.decide_retry import Backoff
from headgate.runtime.handler.handlers import load_handler
from headgate.runtime.handler.runner import PythonPerformer
from headgate.runtime.isolation.child import Child, ChildTerms
from headgate.runtime.isolation.child_pool import ChildPool, PoolTerms
from headgate.runtime.worker.worker import WorkerTerms
from tests.kit.worker_queue import FaultyQueue
from tests.unit.runtime.workers import Bench, bench_of

AT_ONCE = Backoff(0, 1, 0)


def bench(entry_point: str, child: str | None = None, **queue: object) -> Bench:
    """A worker whose suspects run in a child, with another handler there if the test needs it."""
    child_terms = ChildTerms(child or entry_point, "test/queue", "text", "error")
    terms = PoolTerms(timeout_s=30, backoff=AT_ONCE, idle_s=0.5)
    pool = ChildPool(lambda: Child(child_terms), terms, lambda: made.metrics.child_deaths.add(1), rng=Random(1))
    made = bench_of(
        None,
        queue=FaultyQueue(**queue),  # type: ignore[arg-type]
        performer=PythonPerformer(load_handler(entry_point), threads=4, rng=Random(1)),
        suspects=pool,
        terms=WorkerTerms(backoff=AT_ONCE, timeout_s=30, grace_s=5),
    )
    return made


async def until_settled(made: Bench) -> None:
    """Work until nothing is live."""
    running = asyncio.get_running_loop().create_task(made.worker.run())
    async with asyncio.timeout(60):
        while made.queue.live and not running.done():
            await made.queue.next_event()
    made.worker.end()
    await running


@pytest.mark.parametrize("kind", ["fragile", "fragile_in_thread"])
def test_a_message_that_kills_its_process_is_a_dead_letter_and_its_neighbours_are_not(kind: str) -> None:
    async def scenario() -> None:
        made = bench(f"tests.unit.runtime.killers:{kind}", max_receives=3)
        for payload in (b"fine", b"kill", b"fine", b"fine"):
            made.queue.put_now(payload, suspect=True)
        for _ in range(20):
            made.queue.put_now(b"fine")
        await until_settled(made)
        (dead,) = made.queue.dead
        assert (b"kill", 3, "its process was killed by SIGKILL") == (dead.payload, dead.attempts, dead.reason)
        # A group of four halves twice at most, and a process that had run another message before is not charged.
        assert 23 == made.metrics.acked.value
        assert 3 + 1 <= made.metrics.child_deaths.value <= 3 + 3
        assert 3 == sum(isinstance(each, NackDelivery) and each.killed for each in made.queue.settles)
        assert {1} == {each.attempt for each in made.queue.deliveries if each.payload != b"kill"}
        assert 6 == made.metrics.suspects.value

    asyncio.run(scenario())


def test_how_a_child_ended_replaces_the_reason_and_what_it_raised_goes_by_the_policy() -> None:
    async def scenario() -> None:
        made = bench("tests.unit.runtime.killers:fragile", max_receives=1)
        for payload in (b"exit", b"fail", b"reject", b"extend", b"\xff"):
            made.queue.put_now(payload, suspect=True)
        await until_settled(made)
        reasons = {each.payload: each.reason.partition("\n")[0] for each in made.queue.dead}
        assert {
            b"exit": "its process ended with exit code 7",
            b"fail": "ValueError: no such person",
            b"reject": "rejected: never",
            b"\xff": "The payload is not UTF-8: at byte 0",
        } == reasons
        assert 1 == made.metrics.acked.value

    asyncio.run(scenario())


def test_a_suspect_in_a_thread_may_ask_for_time_and_sys_exit_is_a_failure() -> None:
    async def scenario() -> None:
        made = bench("tests.unit.runtime.killers:fragile_in_thread", max_receives=1)
        made.queue.put_now(b"extend", suspect=True)
        made.queue.put_now(b"exit", suspect=True)
        await until_settled(made)
        assert [True] == ["the handler called sys.exit(3)" in each.reason for each in made.queue.dead]
        assert (1, 0) == (made.metrics.acked.value, made.metrics.child_deaths.value)

    asyncio.run(scenario())


def test_a_child_that_died_while_it_had_nothing_costs_nobody_a_receive() -> None:
    async def scenario() -> None:
        made = bench("tests.unit.runtime.killers:fragile")
        made.queue.put_now(b"fine", suspect=True)
        running = asyncio.get_running_loop().create_task(made.worker.run())
        performer = made.worker.suspects
        assert isinstance(performer, ChildPool)
        for _ in range(3):
            async with asyncio.timeout(30):
                while made.queue.live:
                    await made.queue.next_event()
            (pid,) = performer.pids
            os.kill(pid, signal.SIGKILL)
            made.queue.put_now(b"fine", suspect=True)
        async with asyncio.timeout(30):
            while made.queue.live:
                await made.queue.next_event()
        made.worker.end()
        await running
        assert {1} == {each.attempt for each in made.queue.deliveries}
        assert (4, 0) == (made.metrics.acked.value, made.metrics.child_deaths.value)

    asyncio.run(scenario())


def test_a_child_that_cannot_be_started_costs_nobody_a_receive() -> None:
    async def scenario() -> None:
        made = bench("tests.unit.runtime.killers:fragile", child="tests.unit.runtime.broken_module:send")
        message_id = made.queue.put_now(b"fine", suspect=True)
        running = asyncio.get_running_loop().create_task(made.worker.run())
        async with asyncio.timeout(60):
            while len(made.queue.deliveries) < 2:
                await made.queue.next_event()
        made.worker.end()
        await running
        assert {1} == {each.attempt for each in made.queue.deliveries}
        assert not made.queue.is_settled(message_id)

    asyncio.run(scenario())


def test_a_suspect_that_hangs_is_ended_with_its_process_when_the_worker_ends() -> None:
    async def scenario() -> None:
        made = bench("tests.unit.runtime.killers:fragile_in_thread")
        made.queue.put_now(b"fine", suspect=True)
        made.queue.put_now(b"hang", suspect=True)
        running = asyncio.get_running_loop().create_task(made.worker.run())
        async with asyncio.timeout(30):
            while len(made.queue.deliveries) < 2:
                await made.queue.next_event()
        performer = made.worker.suspects
        assert isinstance(performer, ChildPool)
        async with asyncio.timeout(30):
            while not performer.pids:
                await made.queue.next_event()
        (pid,) = performer.pids
        made.worker.end()
        await running
        assert ["the worker stopped before the handler finished"] == [
            each.reason for each in made.queue.settles if isinstance(each, NackDelivery)
        ]
        for _ in range(200):
            await asyncio.sleep(0.05 if _is_there(pid) else 0)
        assert not _is_there(pid)

    asyncio.run(scenario())


def _is_there(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_children_are_ended_when_there_was_no_suspect_for_a_while() -> None:
    async def scenario() -> None:
        made = bench("tests.unit.runtime.killers:fragile")
        made.queue.put_now(b"fine", suspect=True)
        running = asyncio.get_running_loop().create_task(made.worker.run())
        performer = made.worker.suspects
        assert isinstance(performer, ChildPool)
        async with asyncio.timeout(30):
            while made.queue.live or performer.pids:
                await made.queue.next_event()
        made.worker.end()
        await running
        assert 1 == made.metrics.acked.value

    asyncio.run(scenario())
