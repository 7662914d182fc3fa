"""The worker on a queue in memory: handled and settled, retried, extended, lost, drained. Time is virtual."""

from __future__ import annotations

import asyncio
import gc
from collections import Counter
from contextvars import ContextVar

import pytest
from pydantic import BaseModel

from headgate.engines.contract import Ack, ExtendDelivery, NackDelivery, NewMessage, Settled, StaleReceipt
from headgate.errors import OperationRefused, Unavailable
from headgate.runtime import REJECT, Backoff, Context, Reject, Retry, RetryPolicy, handler
from headgate.runtime.handler.context import Attempt
from headgate.runtime.worker.worker import Worker, WorkerTerms
from headgate.telemetry.tracing import current_trace
from tests.kit.worker_queue import FaultyQueue
from tests.unit.runtime.workers import Bench, bench_of, in_virtual_time, until, worked

SECOND = 1_000_000


class Mail(BaseModel):
    """The payload of a mailer's message."""

    to: str
    size: int = 0


def test_what_is_received_is_handled_and_acknowledged() -> None:
    async def scenario() -> None:
        observations: list[bytes] = []

        async def note(payload: bytes) -> None:
            observations.append(payload)

        bench = bench_of(note)
        for number in range(100):
            bench.queue.put_now(b"%d" % number)
        await worked(bench)
        assert [b"%d" % number for number in range(100)] == sorted(observations, key=int)
        assert {Ack} == {type(each) for each in bench.queue.settles}
        assert (100, 100) == (bench.metrics.received.value, bench.metrics.acked.value)

    in_virtual_time(scenario)


def test_no_more_run_than_are_allowed_and_none_waits_while_there_is_room() -> None:
    async def scenario() -> None:
        running = 0
        most: list[int] = []

        async def work(payload: bytes) -> None:
            nonlocal running
            running += 1
            most.append(running)
            await asyncio.sleep(1)
            running -= 1

        bench = bench_of(work, terms=WorkerTerms(concurrency=7, prefetch=3))
        for _ in range(70):
            bench.queue.put_now(b"")
        began_s = asyncio.get_running_loop().time()
        await worked(bench)
        assert 7 == max(most)
        assert asyncio.get_running_loop().time() - began_s < 11.5
        assert 70 == len(bench.queue.deliveries)

    in_virtual_time(scenario)


def test_a_payload_is_what_the_annotation_states() -> None:
    async def scenario() -> None:
        observations: list[object] = []

        async def send(mail: Mail, context: Context) -> None:
            observations.append(
                (mail.to, context.attempt, context.fencing_token, context.attributes["kind"], context.queue)
            )

        bench = bench_of(send)
        bench.queue.put_now(NewMessage(b'{"to": "a@b", "size": 3}', attributes={"kind": "news"}))
        await worked(bench)
        assert [("a@b", 1, 1, "news", "test/queue")] == observations

    in_virtual_time(scenario)


def test_a_payload_that_does_not_fit_goes_to_the_dead_letters_at_once_with_the_reason() -> None:
    async def scenario() -> None:
        async def send(mail: Mail) -> None:
            raise AssertionError("it was called")

        bench = bench_of(send)
        bench.queue.put_now(b'{"size": "many", "secret": "hunter2"}')
        await worked(bench)
        (dead,) = bench.queue.dead
        assert 1 == dead.attempts
        assert "The payload is not a valid Mail\nto: Field required" in dead.reason
        assert "size: " in dead.reason and "hunter2" not in dead.reason
        assert 1 == bench.metrics.dead.value

    in_virtual_time(scenario)


def test_a_payload_that_does_not_fit_is_tried_again_where_the_handler_reports_it() -> None:
    async def scenario() -> None:
        @handler(retry_invalid=True)
        async def send(mail: Mail) -> None:
            raise AssertionError("it was called")

        bench = bench_of(send)
        bench.queue.put_now(b"{}")
        await worked(bench)
        assert [5] == [dead.attempts for dead in bench.queue.dead]

    in_virtual_time(scenario)


def test_a_failure_comes_again_later_each_time_and_then_as_a_dead_letter_with_its_traceback() -> None:
    async def scenario() -> None:
        async def fail(payload: bytes) -> None:
            raise ValueError("no such person")

        bench = bench_of(fail)
        bench.queue.put_now(b"x")
        await worked(bench)
        nacks = [each for each in bench.queue.settles if isinstance(each, NackDelivery)]
        assert all(each.delay_us <= 2**place * SECOND for place, each in enumerate(nacks))
        (dead,) = bench.queue.dead
        first, _, trace = dead.reason.partition("\n")
        assert "ValueError: no such person" == first
        assert 'raise ValueError("no such person")' in trace
        assert "performing.py" not in trace
        assert (4, 1) == (bench.metrics.nacked.value, bench.metrics.dead.value)

    in_virtual_time(scenario)


def test_what_a_handler_raises_decides() -> None:
    async def scenario() -> None:
        @handler(
            retries=RetryPolicy(
                Backoff(first_s=0, cap_s=0), {KeyError: REJECT, LookupError: Backoff(first_s=50, cap_s=50)}
            )
        )
        async def fail(payload: str, context: Context) -> None:
            if context.attempt > 1:
                return
            raise {
                "retry": Retry("busy", after=7),
                "reject": Reject("no such person"),
                "key": KeyError("x"),
                "index": IndexError("x"),
                "value": ValueError("x"),
            }[payload]

        bench = bench_of(fail)
        ids = {bench.queue.put_now(kind.encode()): kind for kind in ("retry", "reject", "key", "index", "value")}
        await worked(bench)
        delays = {
            ids[bench.queue.message_of(each.receipt)]: each.delay_us
            for each in bench.queue.settles
            if isinstance(each, NackDelivery)
        }
        assert {"retry", "index", "value"} == set(delays)
        assert (7 * SECOND, 0) == (delays["retry"], delays["value"])
        assert 0 < delays["index"] <= 50 * SECOND
        assert {"rejected: no such person"} == {each.reason for each in bench.queue.dead if each.payload == b"reject"}
        assert {b"reject", b"key"} == {each.payload for each in bench.queue.dead}

    in_virtual_time(scenario)


def test_a_batch_is_handled_at_once_and_each_of_it_settled_for_itself() -> None:
    async def scenario() -> None:
        sizes: list[int] = []

        async def index(mails: list[Mail], contexts: list[Context]) -> list[Exception | None]:
            sizes.append(len(mails))
            assert [each.attempt for each in contexts] == [1] * len(mails)
            return [Reject("odd") if mail.size % 2 else None for mail in mails]

        bench = bench_of(index, terms=WorkerTerms(concurrency=1, prefetch=0, batch_size=4))
        for number in range(8):
            bench.queue.put_now(b'{"to": "x", "size": %d}' % number)
        bench.queue.put_now(b"broken")
        await worked(bench)
        assert [4, 4] == sizes[:2]
        assert 5 == len(bench.queue.dead)
        assert 4 == bench.metrics.acked.value

    in_virtual_time(scenario)


def test_a_batch_that_raises_fails_as_a_whole_and_a_wrong_answer_is_a_failure() -> None:
    async def scenario() -> None:
        calls = 0

        @handler(batch=True, retries=RetryPolicy(Backoff(0, 1, 0)))
        async def index(payloads: list[bytes]) -> object:
            nonlocal calls
            calls += 1
            if calls == 1:
                raise OSError("unreachable")
            return [None] if calls == 2 else None

        bench = bench_of(index, terms=WorkerTerms(concurrency=1, prefetch=0, batch_size=4))
        for _ in range(4):
            bench.queue.put_now(b"")
        await worked(bench)
        reasons = Counter(
            each.reason.partition("\n")[0] for each in bench.queue.settles if isinstance(each, NackDelivery)
        )
        assert 4 == reasons["OSError: unreachable"]
        assert any("a list of 4 entries" in reason for reason in reasons)

    in_virtual_time(scenario)


def test_a_message_stays_hidden_while_its_handler_lives() -> None:
    async def scenario() -> None:
        async def work(payload: bytes) -> None:
            await asyncio.sleep(100)

        bench = bench_of(work, queue=FaultyQueue(visibility_us=8 * SECOND))
        bench.queue.put_now(b"")
        await worked(bench)
        assert 1 == len(bench.queue.deliveries)
        extends = [each for each in bench.queue.settles if isinstance(each, ExtendDelivery)]
        assert 20 <= len(extends) <= 30

    in_virtual_time(scenario)


def test_a_handler_whose_message_is_lost_is_cancelled_and_nothing_is_settled() -> None:
    async def scenario() -> None:
        ended: list[str] = []

        async def work(payload: bytes, context: Context) -> None:
            try:
                await asyncio.sleep(1_000)
            except asyncio.CancelledError:
                ended.append(f"cancelled, lost={context.lost}")
                raise

        bench = bench_of(work, queue=FaultyQueue(visibility_us=8 * SECOND))
        message_id = bench.queue.put_now(b"")
        other = asyncio.get_running_loop().create_task(bench.worker.run())
        await until(bench, lambda: bool(bench.queue.deliveries))
        bench.queue.lose(message_id)
        await until(bench, lambda: bool(ended))
        bench.worker.end()
        await other
        assert (["cancelled, lost=True"], 1) == (ended, bench.metrics.lost.value)
        assert 0 == bench.metrics.settle_stale.value
        assert [] == [each for each in bench.queue.settles if not isinstance(each, ExtendDelivery)]

    in_virtual_time(scenario)


def test_extensions_that_are_not_known_to_be_durable_lose_the_message_only_at_its_end() -> None:
    async def scenario() -> None:
        times: list[float] = []

        async def work(payload: bytes) -> None:
            began_s = asyncio.get_running_loop().time()
            try:
                await asyncio.sleep(1_000)
            finally:
                times.append(asyncio.get_running_loop().time() - began_s)

        queue = FaultyQueue(visibility_us=8 * SECOND, settle_as=[Settled.UNKNOWN] * 1_000)
        bench = bench_of(work, queue=queue)
        bench.queue.put_now(b"")
        running = asyncio.get_running_loop().create_task(bench.worker.run())
        await until(bench, lambda: bool(times))
        bench.worker.end()
        await running
        assert 8 <= times[0] <= 9.5

    in_virtual_time(scenario)


def test_a_handler_that_takes_too_long_is_stopped_and_its_message_comes_again() -> None:
    async def scenario() -> None:
        async def work(payload: bytes, context: Context) -> None:
            if context.attempt == 1:
                await asyncio.sleep(1_000)

        bench = bench_of(work, terms=WorkerTerms(timeout_s=10))
        bench.queue.put_now(b"")
        await worked(bench)
        assert ["the handler exceeded its timeout of 10 s"] == [
            each.reason for each in bench.queue.settles if isinstance(each, NackDelivery)
        ]
        assert 1 == bench.metrics.acked.value

    in_virtual_time(scenario)


def test_a_handler_that_asks_for_more_time_gets_it() -> None:
    async def scenario() -> None:
        async def work(payload: bytes, context: Context) -> None:
            assert context.deadline is not None
            for _ in range(5):
                await context.extend(12)
                await asyncio.sleep(9)

        bench = bench_of(work, terms=WorkerTerms(timeout_s=10))
        bench.queue.put_now(b"")
        await worked(bench)
        assert (1, 1) == (len(bench.queue.deliveries), bench.metrics.acked.value)

    in_virtual_time(scenario)


def test_asking_for_more_time_reports_that_the_message_is_lost() -> None:
    async def scenario() -> None:
        reports: list[str] = []

        async def work(payload: bytes, context: Context) -> None:
            bench.queue.lose(context.message_id)
            try:
                await context.extend(12)
            except StaleReceipt:
                reports.append("stale")
                raise

        bench = bench_of(work)
        bench.queue.put_now(b"")
        await worked(bench)
        assert ["stale"] == reports

    in_virtual_time(scenario)


def test_a_rate_bounds_what_is_taken() -> None:
    async def scenario() -> None:
        async def work(payload: bytes) -> None:
            return

        bench = bench_of(work, terms=WorkerTerms(rate_per_s=5))
        for _ in range(50):
            bench.queue.put_now(b"")
        began_s = asyncio.get_running_loop().time()
        await worked(bench)
        assert 8.5 <= asyncio.get_running_loop().time() - began_s <= 11

    in_virtual_time(scenario)


def test_a_shared_rate_is_divided_among_those_that_share_the_lanes_as_they_come_and_go() -> None:
    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        taken_s: list[float] = []

        async def work(payload: bytes) -> None:
            taken_s.append(loop.time() - began_s)
            bench.queue.sharers = 4 if len(taken_s) < 100 else 1

        bench = bench_of(work, terms=WorkerTerms(rate_per_s=20, rate_is_shared=True))
        bench.queue.sharers = 4
        for _ in range(200):
            bench.queue.put_now(b"")
        began_s = loop.time()
        await worked(bench)
        assert 17 <= taken_s[99] <= 21, "5 per second, while there are four"
        assert 3.5 <= taken_s[-1] - taken_s[99] <= 6.5, "20 per second, alone"

    in_virtual_time(scenario)


def test_receives_that_fail_are_tried_again_and_what_makes_it_impossible_ends_the_worker() -> None:
    async def scenario() -> None:
        async def work(payload: bytes) -> None:
            return

        bench = bench_of(work, queue=FaultyQueue(break_receive=[Unavailable(), Unavailable()]))
        bench.queue.put_now(b"")
        await worked(bench)
        assert 2 == bench.metrics.receive_failures.value
        gone = bench_of(work, queue=FaultyQueue(break_receive=[OperationRefused("the queue was deleted")]))
        with pytest.raises(OperationRefused, match="the queue was deleted"):
            await gone.worker.run()

    in_virtual_time(scenario)


def test_a_settle_that_was_not_tried_is_tried_again_and_others_are_counted() -> None:
    async def scenario() -> None:
        async def work(payload: bytes) -> None:
            return

        bench = bench_of(work, queue=FaultyQueue(settle_as=[Unavailable(), Unavailable()]))
        bench.queue.put_now(b"")
        await worked(bench)
        assert (1, 1) == (len(bench.queue.deliveries), bench.metrics.acked.value)
        other = bench_of(work, queue=FaultyQueue(settle_as=[Settled.UNKNOWN, Settled.STALE], visibility_us=SECOND))
        other.queue.put_now(b"")
        await worked(other)
        assert (1, 1) == (other.metrics.settle_unknown.value, other.metrics.settle_stale.value)

    in_virtual_time(scenario)


# ---- ending


def drained(bench: Bench, *, after_s: float) -> asyncio.Task[float]:
    """Run a worker and end it after a while; how long the end took."""

    async def run(worker: Worker) -> float:
        loop = asyncio.get_running_loop()
        running = loop.create_task(worker.run())
        await asyncio.sleep(after_s)
        reported_s = loop.time()
        worker.end()
        await running
        return loop.time() - reported_s

    return asyncio.get_running_loop().create_task(run(bench.worker))


def test_a_drain_finishes_what_runs_and_gives_back_the_rest_without_charge() -> None:
    async def scenario() -> None:
        async def work(payload: bytes) -> None:
            await asyncio.sleep(10)

        bench = bench_of(work, terms=WorkerTerms(concurrency=4, prefetch=6, grace_s=30))
        ids = [bench.queue.put_now(b"") for _ in range(20)]
        took_s = await drained(bench, after_s=3)
        assert 6.5 <= took_s <= 8.5
        done = [each for each in ids if bench.queue.is_settled(each)]
        assert (4, 4.0, 6.0) == (len(done), bench.metrics.acked.value, bench.metrics.returned.value)
        assert {0} == {bench.queue.attempts_of(each) for each in ids if each not in done}
        assert 10 == len(bench.queue.deliveries)
        assert bench.queue.left

    in_virtual_time(scenario)


def test_what_does_not_end_within_the_grace_is_cancelled_and_comes_again() -> None:
    async def scenario() -> None:
        async def work(payload: bytes) -> None:
            await asyncio.sleep(1_000)

        bench = bench_of(work, terms=WorkerTerms(concurrency=2, grace_s=5))
        for _ in range(2):
            bench.queue.put_now(b"")
        took_s = await drained(bench, after_s=3)
        assert 5 <= took_s <= 7
        nacks = [each for each in bench.queue.settles if isinstance(each, NackDelivery)]
        assert [("the worker stopped before the handler finished", 0, True)] * 2 == [
            (each.reason, each.delay_us, each.charged) for each in nacks
        ]

    in_virtual_time(scenario)


def test_a_handler_that_will_not_be_cancelled_keeps_nobody_and_its_message_stays_hidden() -> None:
    async def scenario() -> None:
        released = asyncio.Event()

        async def work(payload: bytes) -> None:
            while not released.is_set():
                try:
                    await released.wait()
                except asyncio.CancelledError:
                    continue

        bench = bench_of(work, terms=WorkerTerms(grace_s=5))
        bench.queue.put_now(b"")
        took_s = await drained(bench, after_s=3)
        assert took_s <= 5 + 2 + 1 + 1
        assert [] == [each for each in bench.queue.settles if isinstance(each, NackDelivery | Ack)]
        released.set()
        await asyncio.sleep(1)
        assert [] == [each for each in asyncio.all_tasks() if each.get_name() == "headgate: worker slot"]

    in_virtual_time(scenario)


def test_an_idle_worker_ends_within_two_seconds() -> None:
    async def scenario() -> None:
        async def work(payload: bytes) -> None:
            return

        assert await drained(bench_of(work), after_s=10) <= 2

    in_virtual_time(scenario)


def test_a_second_word_is_for_the_process() -> None:
    async def scenario() -> None:
        async def work(payload: bytes) -> None:
            return

        bench = bench_of(work)
        assert bench.worker.end()
        assert not bench.worker.end()

    in_virtual_time(scenario)


# ---- traces


def test_the_trace_of_a_message_is_there_while_it_is_handled() -> None:
    async def scenario() -> None:
        observations: list[object] = []
        parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

        async def work(payload: bytes, context: Context) -> None:
            assert context.trace is not None and current_trace.get() is context.trace
            observations.append((context.trace.traceparent, context.trace.tracestate))

        bench = bench_of(work)
        bench.queue.put_now(NewMessage(b"", attributes={"traceparent": parent, "tracestate": "a=b"}))
        await worked(bench)
        assert [(parent, "a=b")] == observations
        assert current_trace.get() is None

    in_virtual_time(scenario)


def test_messages_see_nothing_of_each_others_context_variables() -> None:
    async def scenario() -> None:
        observations: list[object] = []

        async def work(payload: bytes) -> None:
            observations.append(_LEFT_BEHIND.get(None))
            _LEFT_BEHIND.set(payload)

        bench = bench_of(work, terms=WorkerTerms(concurrency=2))
        for number in range(20):
            bench.queue.put_now(b"%d" % number)
        await worked(bench)
        assert [None] * 20 == observations

    in_virtual_time(scenario)


_LEFT_BEHIND: ContextVar[bytes] = ContextVar("left_behind")


def test_while_everything_fails_few_messages_spend_their_receives_and_once_it_works_all_are_done() -> None:
    async def scenario() -> None:
        is_gone = True
        begun: Counter[bytes] = Counter()

        @handler(retries=RetryPolicy(Backoff(first_s=1, cap_s=2)))
        async def work(payload: bytes) -> None:
            begun[payload] += 1
            if is_gone:
                raise ConnectionError("unreachable")

        bench = bench_of(work, terms=WorkerTerms(concurrency=4, prefetch=4))
        for number in range(500):
            bench.queue.put_now(b"%d" % number)
        running = asyncio.get_running_loop().create_task(bench.worker.run())
        await asyncio.sleep(300)
        tries = sum(begun.values())
        assert 28 <= tries <= 70, "20 at once, then one after each pause"
        assert len(bench.queue.dead) <= tries / 5
        assert bench.worker.is_slow
        is_gone = False
        await until(bench, lambda: bench.queue.live == 0)
        assert not bench.worker.is_slow
        bench.worker.end()
        await running
        assert 500 == bench.metrics.acked.value + len(bench.queue.dead)

    in_virtual_time(scenario)


def attempts_in_memory() -> int:
    """How many there are, also such as nothing but the collector could find."""
    return sum(type(each) is Attempt for each in gc.get_objects())


@pytest.mark.parametrize("kind", ["async", "with context", "batch", "failing batch", "in a thread"])
def test_the_memory_of_a_message_is_free_without_the_collector(kind: str) -> None:
    """A worker's collector comes seldom, and a hundred messages may be a hundred megabytes."""

    async def plain(payload: bytes) -> None:
        await asyncio.sleep(0.001)

    async def with_context(payload: bytes, context: Context) -> None:
        context.logger.debug("handled")

    async def batch(payloads: list[bytes]) -> None:
        await asyncio.sleep(0.001)

    async def failing(payloads: list[bytes], contexts: list[Context]) -> None:
        if contexts[0].attempt == 1:
            raise ValueError("not now")

    def in_thread(payload: bytes, context: Context) -> None:
        context.logger.debug("handled")

    handlers = {"async": plain, "with context": with_context, "batch": batch, "failing batch": failing}
    function = handlers.get(kind, in_thread)

    async def scenario() -> None:
        bench = bench_of(function, terms=WorkerTerms(concurrency=4, backoff=Backoff(first_s=0.01)))
        gc.collect()
        gc.disable()
        try:
            before = attempts_in_memory()
            for number in range(200):
                bench.queue.put_now(b"%d" % number)
            await worked(bench)
            left = attempts_in_memory() - before
        finally:
            gc.enable()
        assert left <= 4, "a slot may still name its last"

    if kind == "in a thread":
        asyncio.run(scenario())
    else:
        in_virtual_time(scenario)
