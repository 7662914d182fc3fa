"""A handler that returns an awaitable is done when the awaitable is, in a thread, on the loop and in a child."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any

import pytest

from headgate.engines.contract import Ack, NackDelivery, NewMessage
from headgate.runtime import Backoff, Context, RetryPolicy, handler
from headgate.runtime.handler.handlers import load_handler
from headgate.runtime.handler.runner import PythonPerformer
from headgate.runtime.isolation.child import Child, ChildTerms
from headgate.runtime.isolation.child_pool import ChildPool, PoolTerms
from headgate.runtime.worker.worker import WorkerTerms
from headgate.telemetry.logs import log_fields
from headgate.telemetry.tracing import current_trace
from tests.kit.worker_queue import FaultyQueue
from tests.unit.runtime.awaiting_handlers import REQUEST, decorated
from tests.unit.runtime.workers import Bench, bench_of

MODULE = "tests.unit.runtime.awaiting_handlers"
KINDS = ["one", "batch", "answering", "async_and_more", "async_batch_and_more"]
AT_ONCE = RetryPolicy(Backoff(0, 1, 0))


async def until(bench: Bench, holds: Callable[[], bool]) -> None:
    """Wait until something holds of the queue."""
    async with asyncio.timeout(60):
        while not holds():
            await bench.queue.next_event()


async def worked(bench: Bench) -> None:
    """Run the worker until all is settled, then end it."""
    running = asyncio.get_running_loop().create_task(bench.worker.run())
    await until(bench, lambda: bench.queue.live == 0 or running.done())
    bench.worker.end()
    await running


def reasons_of_dead(bench: Bench) -> dict[bytes, str]:
    """The first line of each reason, by payload."""
    return {each.payload: each.reason.partition("\n")[0] for each in bench.queue.dead}


@pytest.mark.parametrize("kind", KINDS)
def test_a_returned_awaitable_is_awaited_before_its_message_is_settled(kind: str) -> None:
    async def scenario() -> None:
        performer = PythonPerformer(load_handler(f"{MODULE}:{kind}"), threads=4, rng=Random(1))
        bench = bench_of(None, performer=performer, terms=WorkerTerms(concurrency=4))
        for payload in (b"fine", b"reject", b"fine"):
            bench.queue.put_now(payload)
        await worked(bench)
        assert {b"reject": "rejected: refused"} == reasons_of_dead(bench)
        assert 2 == bench.metrics.acked.value

    asyncio.run(scenario())


@pytest.mark.parametrize("kind", KINDS)
def test_a_returned_awaitable_is_awaited_in_the_child_that_runs_suspects_too(kind: str) -> None:
    async def scenario() -> None:
        entry_point = f"{MODULE}:{kind}"
        terms = ChildTerms(entry_point, "test/queue", "text", "error")
        bench = bench_of(
            None,
            performer=PythonPerformer(load_handler(entry_point), threads=4, rng=Random(1)),
            suspects=ChildPool(lambda: Child(terms), PoolTerms(backoff=Backoff(0, 1, 0)), rng=Random(1)),
        )
        for payload in (b"fine", b"reject"):
            bench.queue.put_now(payload, suspect=True)
        await worked(bench)
        assert {b"reject": "rejected: refused"} == reasons_of_dead(bench)
        assert (1, 2) == (bench.metrics.acked.value, bench.metrics.suspects.value)

    asyncio.run(scenario())


@pytest.mark.parametrize("kind", ["one", "answering"])
def test_sys_exit_in_a_returned_awaitable_fails_its_message_and_the_worker_continues(kind: str) -> None:
    async def scenario() -> None:
        performer = PythonPerformer(load_handler(f"{MODULE}:{kind}"), threads=2, rng=Random(1))
        bench = bench_of(None, queue=FaultyQueue(max_receives=1), performer=performer)
        for payload in (b"exit", b"fine"):
            bench.queue.put_now(payload)
        await worked(bench)
        (reason,) = reasons_of_dead(bench).values()
        assert reason.endswith("HandlerExited: the handler called sys.exit(3)")
        assert 1 == bench.metrics.acked.value

    asyncio.run(scenario())


def test_the_list_of_an_awaited_batch_has_to_fit_the_batch() -> None:
    async def scenario() -> None:
        @handler(batch=True, retries=AT_ONCE)
        @decorated
        async def index(payloads: list[bytes]) -> object:
            return [None] * (len(payloads) + 1)

        bench = bench_of(index, queue=FaultyQueue(max_receives=1))
        bench.queue.put_now(b"")
        await worked(bench)
        (dead,) = bench.queue.dead
        assert "a list of 1 entries" in dead.reason

    asyncio.run(scenario())


def test_other_values_that_a_handler_of_single_messages_returns_are_ignored() -> None:
    async def scenario() -> None:
        def store(payload: bytes) -> object:
            return [ValueError("not raised")]

        bench = bench_of(store)
        bench.queue.put_now(b"")
        await worked(bench)
        assert [Ack] == [type(each) for each in bench.queue.settles]

    asyncio.run(scenario())


def test_the_awaited_part_runs_on_the_loop_and_sees_the_context_variables_of_the_part_before_it() -> None:
    async def scenario() -> None:
        observations: list[object] = []
        parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

        @decorated
        async def work(payload: bytes, context: Context) -> None:
            observations.append(threading.current_thread() is threading.main_thread())
            observations.append(log_fields.get().get("message_id") == context.message_id)
            observations.append(current_trace.get() is context.trace is not None)
            observations.append(REQUEST.get())

        bench = bench_of(work)
        bench.queue.put_now(NewMessage(b"", attributes={"traceparent": parent}))
        await worked(bench)
        assert [True, True, True, "set by the decorator"] == observations

    asyncio.run(scenario())


def test_context_variables_set_in_an_awaited_part_do_not_reach_the_next_message() -> None:
    async def scenario() -> None:
        observations: list[str] = []

        def work(payload: bytes) -> Awaitable[None]:
            observations.append(REQUEST.get())
            return after()

        async def after() -> None:
            REQUEST.set("left behind")

        bench = bench_of(work, terms=WorkerTerms(concurrency=1))
        for _ in range(4):
            bench.queue.put_now(b"")
        await worked(bench)
        assert ["none"] * 4 == observations

    asyncio.run(scenario())


# ---- stopped: it takes too long, its message is lost, the worker ends


class Awaited:
    """A handler whose awaited part waits at the first attempt until it is cancelled."""

    def __init__(self, in_thread: Callable[[Context], None] = lambda context: None) -> None:
        self.begun = asyncio.Event()
        self.cancelled = asyncio.Event()
        self._in_thread = in_thread

    def __call__(self, payload: bytes, context: Context) -> Any:
        if context.attempt > 1:
            return None
        self._in_thread(context)
        return self._wait()

    async def _wait(self) -> None:
        self.begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise


def nacks_of(bench: Bench) -> list[tuple[str, bool]]:
    """The reasons, and whether each counted as a try."""
    return [(each.reason, each.charged) for each in bench.queue.settles if isinstance(each, NackDelivery)]


def test_an_awaited_part_that_takes_too_long_is_cancelled_and_its_slot_is_free_again() -> None:
    async def scenario() -> None:
        work = Awaited()
        bench = bench_of(
            work,
            queue=FaultyQueue(visibility_us=400_000),
            terms=WorkerTerms(concurrency=1, timeout_s=0.3, backoff=Backoff(0, 1, 0)),
        )
        bench.queue.put_now(b"")
        await worked(bench)
        assert [("the handler exceeded its timeout of 0.3 s", True)] == nacks_of(bench)
        assert (True, True, 1) == (work.begun.is_set(), work.cancelled.is_set(), bench.metrics.acked.value)
        assert 0 == bench.worker.stuck

    asyncio.run(scenario())


def test_an_awaited_part_does_not_begin_when_the_time_was_over_in_the_thread() -> None:
    async def scenario() -> None:
        def until_overdue(context: Context) -> None:
            end_s = time.monotonic() + 30
            while not context.lost and time.monotonic() < end_s:
                time.sleep(0.01)

        work = Awaited(until_overdue)
        bench = bench_of(
            work,
            queue=FaultyQueue(visibility_us=400_000),
            terms=WorkerTerms(concurrency=1, timeout_s=0.3, backoff=Backoff(0, 1, 0)),
        )
        bench.queue.put_now(b"")
        await worked(bench)
        assert [("the handler exceeded its timeout of 0.3 s", True)] == nacks_of(bench)
        assert (False, 1) == (work.begun.is_set(), bench.metrics.acked.value)
        assert 0 == bench.worker.stuck

    asyncio.run(scenario())


def test_an_awaited_part_whose_message_is_lost_is_cancelled_and_nothing_is_settled() -> None:
    async def scenario() -> None:
        work = Awaited()
        bench = bench_of(work, queue=FaultyQueue(visibility_us=400_000))
        message_id = bench.queue.put_now(b"")
        running = asyncio.get_running_loop().create_task(bench.worker.run())
        async with asyncio.timeout(30):
            await work.begun.wait()
            bench.queue.lose(message_id)
            await work.cancelled.wait()
        bench.worker.end()
        await running
        assert 1 == bench.metrics.lost.value
        assert [] == [each for each in bench.queue.settles if isinstance(each, Ack | NackDelivery)]

    asyncio.run(scenario())


def test_an_awaited_part_that_outlives_the_grace_is_cancelled_and_its_message_comes_again() -> None:
    async def scenario() -> None:
        work = Awaited()
        bench = bench_of(work, terms=WorkerTerms(grace_s=0.2))
        bench.queue.put_now(b"")
        running = asyncio.get_running_loop().create_task(bench.worker.run())
        async with asyncio.timeout(30):
            await work.begun.wait()
            bench.worker.end()
            await running
        assert work.cancelled.is_set()
        assert [("the worker stopped before the handler finished", True)] == nacks_of(bench)

    asyncio.run(scenario())
