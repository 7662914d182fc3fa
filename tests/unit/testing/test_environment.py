"""`headgate.testing.Environment`: the real SDK and worker in virtual time, as an application's tests use them."""

from __future__ import annotations

import asyncio
import threading
import time
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Literal

import pytest

import headgate
from headgate.errors import InvalidRequest, OperationRefused
from headgate.testing import AttemptOutcome, Environment, NotDrained
from headgate.testing.virtual_loop import Deadlock, RealWorld, ThreadTooSlow, TimeUp

EMAILS = "shop/emails"


async def fail(mail: dict[str, str]) -> None:
    raise ConnectionError("the mail server is unavailable")


async def put(env: Environment, *payloads: object, queue: str = EMAILS, delay: timedelta | int = 0) -> None:
    async with env.connect() as connection:
        opened = await connection.queue(queue)
        for payload in payloads:
            await opened.put(payload, delay=delay)


def outcomes(env: Environment) -> list[str]:
    return [each.outcome.value for each in env.attempts(EMAILS)]


@pytest.mark.parametrize("engine", [None, "memory"])
def test_a_delay_of_a_week_passes_at_once(engine: Literal["memory"] | None) -> None:
    async def scenario() -> None:
        await env.declare_queue(EMAILS)
        handled: list[timedelta] = []

        async def send(mail: dict[str, str]) -> None:
            handled.append(env.now() - began)

        env.worker(EMAILS, send)
        began = env.now()
        await put(env, {"to": "ann"}, delay=timedelta(days=7))
        await env.drain()
        assert timedelta(days=7) <= handled[0] < timedelta(days=7, seconds=10)

    with Environment(engine=engine) as env:
        began_s = time.perf_counter()
        env.run(scenario())
        assert time.perf_counter() - began_s < 20


def test_a_standstill_names_the_task_that_waits() -> None:
    with Environment() as env, pytest.raises(Deadlock, match="world/1 waits in"):
        env.run(asyncio.Event().wait())


def test_advance_handles_what_falls_due_and_nothing_else() -> None:
    async def scenario() -> None:
        await env.declare_queue(EMAILS)
        worker = env.worker(EMAILS, fail_never)
        await put(env, "in an hour", delay=timedelta(hours=1))
        await put(env, "in three hours", delay=timedelta(hours=3))
        await env.advance(timedelta(minutes=59))
        assert handled == []
        await env.advance(timedelta(minutes=1))
        assert handled == ["in an hour"]
        assert worker.is_running
        assert [each.text() for each in await env.messages(EMAILS)] == ["in three hours"]

    handled: list[str] = []

    async def fail_never(text: str) -> None:
        handled.append(text)

    with Environment(start=datetime(2030, 1, 1, tzinfo=UTC)) as env:
        assert env.now() == datetime(2030, 1, 1, tzinfo=UTC)
        env.run(scenario())
        assert env.now() - datetime(2030, 1, 1, 1, tzinfo=UTC) < timedelta(minutes=1)


@pytest.mark.parametrize("engine", [None, "memory"])
def test_a_message_that_fails_too_often_is_a_dead_letter_with_its_reason(
    engine: Literal["memory"] | None,
) -> None:
    async def scenario() -> None:
        await env.declare_queue(EMAILS, maxReceives=4)
        env.worker(EMAILS, fail)
        await put(env, {"to": "ann"})
        await env.drain()
        (dead,) = await env.dead_letters(EMAILS)
        assert dead.json() == {"to": "ann"}
        assert dead.reason.startswith("ConnectionError: the mail server is unavailable")

    with Environment(engine=engine) as env:
        env.run(scenario())
        assert outcomes(env) == ["failed"] * 4
        assert [each.number for each in env.attempts()] == [1, 2, 3, 4]


def test_a_crash_ends_the_worker_and_only_the_guilty_message_becomes_a_dead_letter() -> None:
    async def scenario() -> None:
        async def send(mail: dict[str, str]) -> None:
            try:
                if mail["to"] == "poison":
                    await env.crash()
            finally:
                finished.append(mail["to"])

        await env.declare_queue(EMAILS, maxReceives=3)
        worker = env.worker(EMAILS, send, concurrency=1)
        await put(env, {"to": "poison"}, {"to": "ann"})
        await env.drain()
        assert not worker.is_running
        assert finished == []
        env.restart(worker)
        await env.drain()
        assert finished == ["ann"]
        (dead,) = await env.dead_letters(EMAILS)
        assert (dead.json(), dead.reason) == ({"to": "poison"}, "its process was killed by SIGKILL")

    finished: list[str] = []
    with Environment() as env:
        env.run(scenario())


def test_suspects_of_a_crash_run_in_groups_and_only_the_guilty_one_is_charged() -> None:
    async def scenario() -> None:
        async def send(mail: dict[str, str]) -> None:
            await asyncio.sleep(1)
            if mail["to"] == "poison":
                await env.crash()
            await asyncio.sleep(1)

        await env.declare_queue(EMAILS, maxReceives=3)
        worker = env.worker(EMAILS, send)
        await put(env, *({"to": "poison" if number == 5 else f"ann{number}"} for number in range(12)))
        await env.drain()
        assert not worker.is_running
        env.restart(worker)
        await env.drain()
        (dead,) = await env.dead_letters(EMAILS)
        assert (dead.json(), dead.reason) == ({"to": "poison"}, "its process was killed by SIGKILL")

    with Environment() as env:
        env.run(scenario())
        innocent = [each for each in env.attempts() if each.json() != {"to": "poison"}]
        done = [each.json()["to"] for each in innocent if each.outcome is AttemptOutcome.DONE]
        assert sorted(done) == sorted(f"ann{number}" for number in range(12) if number != 5)
        assert {each.number for each in innocent} <= {1, 2}, "charged for the death of the worker at most"
        assert {"crashed", "done"} == {each.outcome.value for each in innocent}


@pytest.mark.parametrize("engine", [None, "memory"])
def test_a_crash_from_outside_leaves_a_running_attempt_crashed_and_the_message_comes_again(
    engine: Literal["memory"] | None,
) -> None:
    async def scenario() -> None:
        started = asyncio.Event()

        async def send(mail: str) -> None:
            started.set()
            await asyncio.sleep(5)

        await env.declare_queue(EMAILS)
        worker = env.worker(EMAILS, send)
        await put(env, "x")
        await started.wait()
        await env.crash(worker)
        env.restart(worker)
        await env.drain()

    with Environment(engine=engine) as env:
        env.run(scenario())
        assert outcomes(env) == ["crashed", "done"]


def test_a_handler_in_a_thread_uses_the_sdk_and_its_context() -> None:
    def send(mail: dict[str, str], context: headgate.Context) -> None:
        context.extend_blocking(300)
        threads.add(threading.current_thread().name)
        audit.put({"sent": mail["to"]})
        if context.attempt < 2:
            raise ConnectionError

    threads: set[str] = set()
    with Environment() as env:
        env.run(env.declare_queue(EMAILS))
        env.run(env.declare_queue("shop/audit"))
        with env.connect_sync() as connection:
            audit = connection.queue("shop/audit")
            env.worker(EMAILS, send)
            connection.queue(EMAILS).put_many([{"to": "ann"}, {"to": "ben"}])
            env.run(env.drain())
        assert len(env.run(env.messages("shop/audit"))) == 4
        assert outcomes(env).count("done") == 2
        assert threads == {"headgate-test-handler"}


def test_a_sync_call_within_the_loop_is_refused() -> None:
    async def scenario() -> None:
        with pytest.raises(headgate.WouldDeadlock):
            env.run(env.drain())

    with Environment() as env:
        env.run(scenario())


def test_a_handler_that_blocks_its_thread_for_too_long_fails_the_test(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headgate.testing.virtual_loop.REAL_TIME_MAX_S", 0.1)
    release = threading.Event()

    def send(mail: str) -> None:
        release.wait(10)

    with Environment() as env:
        env.run(env.declare_queue(EMAILS, maxReceives=1))
        env.worker(EMAILS, send)
        env.run(put(env, "x"))
        with pytest.raises(ThreadTooSlow):
            env.run(env.drain())
        release.set()


def test_a_handler_that_opens_a_connection_fails_the_test_even_if_it_handles_the_error() -> None:
    async def send(mail: str) -> None:
        try:
            await asyncio.open_connection("127.0.0.1", 9)
        except Exception:
            return

    with Environment() as env:
        env.run(env.declare_queue(EMAILS))
        env.worker(EMAILS, send)
        env.run(put(env, "x"))
        with pytest.raises(RealWorld):
            env.run(env.drain())


def test_drain_names_what_is_left_when_its_limit_is_over() -> None:
    async def scenario() -> None:
        await env.declare_queue(EMAILS)
        env.worker(EMAILS, fail)
        await put(env, {"to": "ann"})
        with pytest.raises(NotDrained, match=r"messages=shop/emails 1"):
            await env.drain(within=timedelta(hours=1))

    with Environment() as env:
        env.run(scenario())


def test_messages_of_a_queue_without_a_worker_are_not_waited_for() -> None:
    with Environment() as env:
        env.run(env.declare_queue(EMAILS))
        env.run(put(env, "x"))
        env.run(env.drain())
        assert [each.text() for each in env.run(env.messages(EMAILS))] == ["x"]


def test_time_is_not_set_forwards_over_a_task_of_the_test() -> None:
    async def scenario() -> None:
        async def tick() -> None:
            while True:
                await asyncio.sleep(20)
                ticks.append(env.now())

        ticking = asyncio.create_task(tick())
        await env.advance(timedelta(minutes=2))
        ticking.cancel()

    ticks: list[datetime] = []
    with Environment() as env:
        env.run(env.declare_queue(EMAILS))
        env.worker(EMAILS, fail)
        env.run(scenario())
    gaps = {round((later - earlier).total_seconds()) for earlier, later in pairwise(ticks)}
    assert gaps == {20}


def test_a_test_that_waits_for_ever_ends_with_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        async with env.connect():
            await asyncio.Event().wait()

    monkeypatch.setattr("headgate.testing.environment.RUN_WITHIN_S", 30.0)
    with Environment() as env:
        env.run(env.declare_queue(EMAILS))
        with pytest.raises(TimeUp):
            env.run(scenario())


def test_an_environment_is_not_used_on_another_loop() -> None:
    async def scenario() -> None:
        async with Environment():
            pass

    async def marked_for_another_plugin() -> None:
        with Environment() as env:
            await env.declare_queue(EMAILS)

    for attempt in (scenario(), marked_for_another_plugin()):
        with pytest.raises(InvalidRequest, match="event loop of its own"):
            asyncio.run(attempt)


def test_a_refused_resource_is_an_error() -> None:
    with Environment() as env:
        env.run(env.declare_queue(EMAILS, shards=2))
        with pytest.raises(OperationRefused):
            env.run(env.declare_queue(EMAILS, engine="extent"))


def test_an_error_of_a_worker_is_raised_by_the_run() -> None:
    with Environment() as env:
        env.worker("shop/none", fail)
        with pytest.raises(headgate.QueueNotFound):
            env.run(env.advance(5))


def test_a_worker_that_is_stopped_returns_its_message() -> None:
    async def scenario() -> None:
        async def send(mail: str) -> None:
            await asyncio.sleep(3600)

        await env.declare_queue(EMAILS)
        worker = env.worker(EMAILS, send)
        await put(env, "x")
        await env.advance(5)
        await worker.stop()
        assert len(await env.messages(EMAILS)) == 1

    with Environment() as env:
        env.run(scenario())
        assert [each.outcome for each in env.attempts()] == [AttemptOutcome.STOPPED]


def test_an_invalid_payload_without_a_dead_letter_queue_is_retried_with_growing_delays() -> None:
    with Environment() as env:
        env.run(env.declare_queue(EMAILS))
        env.worker(EMAILS, fail)
        env.run(put(env, "not a mail"))
        env.run(env.advance(timedelta(minutes=1)))
        assert 3 < len(env.attempts(EMAILS)) < 40
        assert {each.outcome for each in env.attempts()} == {AttemptOutcome.REJECTED}


def test_drain_gives_up_on_a_message_that_fails_for_ever() -> None:
    with Environment() as env:
        env.run(env.declare_queue(EMAILS))
        env.worker(EMAILS, fail)
        env.run(put(env, {"to": "ann"}))
        with pytest.raises(NotDrained, match="maxReceives"):
            env.run(env.drain())


def test_a_handler_in_a_thread_can_crash_its_process() -> None:
    def send(mail: dict[str, str]) -> None:
        if mail["to"] == "poison":
            env.run(env.crash())
        sent.append(mail["to"])

    sent: list[str] = []
    with Environment() as env:
        env.run(env.declare_queue(EMAILS, maxReceives=2))
        worker = env.worker(EMAILS, send)
        env.run(put(env, {"to": "poison"}, {"to": "ann"}))
        env.run(env.drain())
        env.restart(worker)
        env.run(env.drain())
        assert sent == ["ann"]
        assert [each.json() for each in env.run(env.dead_letters(EMAILS))] == [{"to": "poison"}]


def test_a_handlers_deadline_is_in_the_time_of_the_environment() -> None:
    async def scenario() -> None:
        await env.declare_queue(EMAILS)
        left: list[timedelta] = []

        async def send(mail: dict[str, str], context: headgate.Context) -> None:
            assert context.deadline is not None
            left.append(context.deadline - env.now())

        env.worker(EMAILS, send, timeout=20)
        await put(env, {"to": "ann"}, delay=timedelta(days=7))
        await env.drain()
        assert [20] == [round(each.total_seconds()) for each in left]

    with Environment() as env:
        env.run(scenario())
