"""Many messages from any source: what is read ahead, the outcome of each, and the order of groups."""

from __future__ import annotations

import asyncio
import tracemalloc
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from headgate import InvalidRequest, Put, PutManyFailed, PutResult, Unavailable
from headgate.client.model.payloads import PayloadUnfit
from headgate.client.put_many import CHUNK_BYTES, CHUNK_MESSAGES, CHUNKS_IN_FLIGHT, READ_AHEAD_MAX, TOGETHER
from headgate.client.queue import Queue
from headgate.client.sync.background import BackgroundLoop
from headgate.client.sync.blocking import SyncQueue
from headgate.engines.contract import NewMessage
from headgate.errors import HeadgateError
from headgate.store.clock.clock import ClockNotTrusted
from headgate.store.model.deadline import Deadline
from headgate.store.store import OutcomeUnknown
from tests.kit.worker_queue import FaultyQueue

MILLION = 1_000_000


class Engine(FaultyQueue):
    """Keeps the payloads that were put, fails what a test names, and counts what is put at the same time."""

    def __init__(self) -> None:
        super().__init__("shop/emails")
        self.payloads: list[bytes] = []
        self.fails: dict[bytes, HeadgateError] = {}
        self.doubts = 0
        self.in_flight = 0
        self.in_flight_max = 0
        self.sizes: list[int] = []

    async def put_each(
        self, messages: Sequence[NewMessage], *, deadline: Deadline | None = None
    ) -> list[str | HeadgateError]:
        self.sizes.append(len(messages))
        self.in_flight += 1
        self.in_flight_max = max(self.in_flight, self.in_flight_max)
        for _ in range(5):
            await asyncio.sleep(0)
        self.in_flight -= 1
        if self.doubts:
            self.doubts -= 1
            return [ClockNotTrusted() for _ in messages]
        outcomes: list[str | HeadgateError] = []
        for message in messages:
            failure = self.fails.get(message.payload)
            outcomes.append(failure if failure is not None else f"id-{message.payload.decode()}")
            if failure is None:
                self.payloads.append(message.payload)
        return outcomes


class Forgetful(Engine):
    """Keeps nothing."""

    async def put_each(
        self, messages: Sequence[NewMessage], *, deadline: Deadline | None = None
    ) -> list[str | HeadgateError]:
        await asyncio.sleep(0)
        return ["id"] * len(messages)


async def nothing(queue: object, within_s: float) -> None:
    """The clock and the catalogue are fit."""


def queue_on(engine: FaultyQueue) -> Queue:
    """The SDK's queue on an engine in memory."""
    upkeep: Any = SimpleNamespace(require_usable=lambda: None, now_us=lambda: 0, batches=None, freshen=nothing)
    entry: Any = SimpleNamespace(settings=SimpleNamespace(name=engine.name))
    memory: Any = engine
    return Queue(entry, memory, upkeep, entry)


class Source:
    """Numbers as messages, and how many of them were read."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.read = 0

    def __iter__(self) -> Iterator[bytes]:
        for number in range(self.count):
            self.read += 1
            yield b"%d" % number

    async def numbers(self) -> AsyncIterator[bytes]:
        for each in self:
            yield each


PutMany = Callable[[Queue, Iterable[Any]], list[str]]


def put_async(queue: Queue, messages: Iterable[Any]) -> list[str]:
    """By the async SDK, from an iterable."""
    return asyncio.run(queue.put_many(messages))


def put_from_async(queue: Queue, messages: Iterable[Any]) -> list[str]:
    """By the async SDK, from an async iterable."""

    async def read() -> AsyncIterator[Any]:
        for each in messages:
            yield each

    return asyncio.run(queue.put_many(read()))


def put_waiting(queue: Queue, messages: Iterable[Any]) -> list[str]:
    """By the blocking SDK."""
    return on_background(lambda waiting: waiting.put_many(messages), queue)


def on_background(work: Callable[[SyncQueue], Any], queue: Queue) -> Any:
    """Use a queue from a thread without a loop."""
    background = BackgroundLoop("test: put_many")
    connection: Any = SimpleNamespace(_background=background)
    try:
        return work(SyncQueue(queue, connection))
    finally:
        background.stop()


@pytest.fixture(params=[put_async, put_from_async, put_waiting])
def put_many(request: pytest.FixtureRequest) -> PutMany:
    """Each way to put many."""
    way: PutMany = request.param
    return way


# ---- from any source


def test_ids_are_in_the_order_of_the_source(put_many: PutMany) -> None:
    engine = Engine()
    count = 3 * CHUNK_MESSAGES + 7
    ids = put_many(queue_on(engine), (b"%d" % number for number in range(count)))
    assert [f"id-{number}" for number in range(count)] == ids
    assert [CHUNK_MESSAGES] * 3 + [7] == engine.sizes
    assert engine.in_flight_max <= CHUNKS_IN_FLIGHT


def test_chunks_are_put_side_by_side() -> None:
    engine = Engine()
    asyncio.run(queue_on(engine).put_many(Source(6 * CHUNK_MESSAGES)))
    assert CHUNKS_IN_FLIGHT == engine.in_flight_max


def test_nothing_is_put_from_an_empty_source(put_many: PutMany) -> None:
    engine = Engine()
    assert [] == put_many(queue_on(engine), [])
    assert [] == engine.sizes


def test_a_chunk_ends_where_it_has_enough_bytes() -> None:
    engine = Engine()
    asyncio.run(queue_on(engine).put_many([b"x" * (CHUNK_BYTES // TOGETHER + 1)] * (2 * TOGETHER + 1)))
    assert [TOGETHER, TOGETHER, 1] == engine.sizes
    assert 0 == CHUNK_MESSAGES % TOGETHER


@pytest.mark.parametrize("wrong", [b"bytes", "text", Put(b""), 7])
def test_one_message_is_no_iterable_of_messages(wrong: Any) -> None:
    with pytest.raises(InvalidRequest, match="The messages of put_many must be an iterable"):
        asyncio.run(queue_on(Engine()).put_many(wrong))


def test_a_source_is_read_no_further_ahead_than_the_chunks_in_flight() -> None:
    source = Source(20 * CHUNK_MESSAGES)
    ahead: list[int] = []

    async def work() -> None:
        async for result in queue_on(Engine()).put_each(source):
            ahead.append(source.read - result.index)

    asyncio.run(work())
    assert (20 * CHUNK_MESSAGES, True) == (len(ahead), max(ahead) <= READ_AHEAD_MAX)


def test_the_page_names_how_far_a_source_is_read_ahead() -> None:
    page = (Path(__file__).parents[3] / "docs" / "python.md").read_text(encoding="utf-8")
    assert f"at most {READ_AHEAD_MAX:,} messages or {CHUNKS_IN_FLIGHT * CHUNK_BYTES // 1024**2} MiB ahead" in page


def test_a_source_is_read_no_further_when_the_results_are_not_read_to_the_end() -> None:
    source = Source(MILLION)

    async def work() -> PutResult:
        async for result in queue_on(Engine()).put_each(source.numbers()):
            return result
        raise AssertionError

    assert PutResult(0, "id-0") == asyncio.run(work())
    assert source.read <= READ_AHEAD_MAX


def test_memory_does_not_grow_with_the_source() -> None:
    async def work(count: int) -> int:
        done = 0
        async for result in queue_on(Forgetful()).put_each(b"%1000d" % number for number in range(count)):
            done += result.error is None
        return done

    tracemalloc.start()
    try:
        assert 50_000 == asyncio.run(work(50_000))  # 50 MB of payloads
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 3 * CHUNKS_IN_FLIGHT * CHUNK_BYTES


def test_the_blocking_sdk_reads_its_source_in_the_callers_thread() -> None:
    import threading

    threads: set[str] = set()

    def numbers() -> Iterator[bytes]:
        for number in range(CHUNK_MESSAGES + 1):
            threads.add(threading.current_thread().name)
            yield b"%d" % number

    results = on_background(lambda queue: list(queue.put_each(numbers())), queue_on(Engine()))
    assert [f"id-{number}" for number in range(CHUNK_MESSAGES + 1)] == [each.id for each in results]
    assert {threading.current_thread().name} == threads


# ---- the outcome of each


def test_a_message_that_fails_does_not_stop_the_others(put_many: PutMany) -> None:
    engine = Engine()
    engine.fails = {b"1": OutcomeUnknown("no answer")}
    messages = [b"0", b"1", object(), b"3"]
    with pytest.raises(PutManyFailed) as caught:
        put_many(queue_on(engine), messages)
    failed = caught.value
    assert ["id-0", None, None, "id-3"] == failed.ids
    assert [(1, b"1", OutcomeUnknown), (2, messages[2], PayloadUnfit)] == [
        (each.index, each.message, type(each.error)) for each in failed.failures
    ]
    assert [b"0", b"3"] == engine.payloads
    assert str(failed).startswith(
        "Some messages of put_many are not put (put=2, failed=2, first=message 1: no answer"
    )
    assert 1 == len(str(failed).splitlines())
    assert isinstance(failed, Unavailable)


def test_if_all_messages_fail_the_first_error_is_raised(put_many: PutMany) -> None:
    engine = Engine()
    engine.fails = {b"0": OutcomeUnknown("no answer"), b"1": OutcomeUnknown("another")}
    with pytest.raises(OutcomeUnknown, match="no answer"):
        put_many(queue_on(engine), [b"0", b"1"])


def test_the_results_of_put_each_are_ids_and_errors_in_the_order_of_the_source() -> None:
    engine = Engine()
    engine.fails = {b"1": OutcomeUnknown("no answer")}

    async def work() -> list[PutResult]:
        return [each async for each in queue_on(engine).put_each([b"0", b"1", Put(b"2", group="g")])]

    assert [(0, "id-0", None), (1, None, engine.fails[b"1"]), (2, "id-2", None)] == [
        (each.index, each.id, each.error) for each in asyncio.run(work())
    ]


def test_what_was_not_sent_since_the_clock_was_in_doubt_is_put_again() -> None:
    engine = Engine()
    engine.doubts = 2
    assert ["id-0", "id-1"] == asyncio.run(queue_on(engine).put_many([b"0", b"1"]))
    assert [2, 2, 2] == engine.sizes


def test_where_the_source_raises_what_it_gave_before_is_put(put_many: PutMany) -> None:
    engine = Engine()

    def numbers() -> Iterator[bytes]:
        yield b"0"
        yield b"1"
        raise KeyError("the source has an error")

    with pytest.raises(KeyError, match="the source has an error") as caught:
        put_many(queue_on(engine), numbers())
    assert [b"0", b"1"] == engine.payloads
    assert ["put_many has put 2 of the 2 messages before the error."] == caught.value.__notes__


# ---- order


def test_a_chunk_with_a_group_is_put_alone() -> None:
    engine = Engine()
    numbers = [Put(b"%d" % number, group="g") for number in range(3 * CHUNK_MESSAGES)]
    asyncio.run(queue_on(engine).put_many(numbers))
    assert (1, [each.payload for each in numbers]) == (engine.in_flight_max, engine.payloads)


def test_a_put_that_is_cancelled_leaves_no_task_behind() -> None:
    class Slow(Engine):
        async def put_each(
            self, messages: Sequence[NewMessage], *, deadline: Deadline | None = None
        ) -> list[str | HeadgateError]:
            await asyncio.sleep(3600)
            raise AssertionError

    async def work() -> int:
        putting: Coroutine[Any, Any, list[str]] = queue_on(Slow()).put_many(Source(3 * CHUNK_MESSAGES))
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(putting, 0.1)
        await asyncio.sleep(0)
        return len(asyncio.all_tasks())

    assert 1 == asyncio.run(work())
