"""Probes and metrics of a worker process, from before it is connected to its end."""

from __future__ import annotations

import asyncio
import re
import signal
import socket
import urllib.error
import urllib.request
from collections.abc import Awaitable, Callable

import pytest

from headgate.errors import EnvironmentProblem, InvalidRequest, Unavailable
from headgate.local.processes import server_ports, wait_until
from headgate.process.http_server import HttpServer, probe_routes, read_address
from headgate.runtime.handler.handlers import understand
from headgate.runtime.startup.worker_process import WorkerOptions, WorkerProcess
from headgate.runtime.worker.worker import WorkerTerms
from headgate.telemetry.graphite import GraphiteSettings
from headgate.telemetry.metrics import Registry
from tests.kit.worker_queue import FaultyQueue
from tests.unit.runtime.test_worker_process import worker


async def asked(port: int, path: str) -> tuple[int, str]:
    """Status and text of an answer."""

    def ask() -> tuple[int, str]:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as refused:
            return refused.code, refused.read().decode()

    return await asyncio.to_thread(ask)


async def until(holds: Callable[[], Awaitable[bool]]) -> None:
    """Ask until it holds."""
    for _ in range(2_000):
        if await holds():
            return
    raise AssertionError("it did not come to hold")


@pytest.fixture(autouse=True)
def _signals_as_before() -> object:
    """A worker process takes the signals of the process that it is."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def test_it_is_ready_once_the_queue_is_open_and_no_more_when_it_ends() -> None:
    async def scenario() -> None:
        allowed = asyncio.Event()
        finish = asyncio.Event()
        queue = FaultyQueue()
        queue.put_now(b"x")

        async def open_queue() -> FaultyQueue:
            if not allowed.is_set():
                raise Unavailable("Cassandra cannot be reached")
            return queue

        async def work(payload: bytes) -> None:
            await finish.wait()

        port = server_ports(1)[0]
        options = WorkerOptions(
            "test/queue", handler="m:f", terms=WorkerTerms(grace_s=20), health=("127.0.0.1", port)
        )
        process = WorkerProcess(options, understand(work, "m:f"), open_queue)
        running = asyncio.get_running_loop().create_task(process.run())
        await until(lambda: _is(port, "/livez", 200))
        assert (503, "the queue is not open yet\n") == await asked(port, "/readyz")
        allowed.set()
        await until(lambda: _is(port, "/readyz", 200))
        await until(lambda: _reported(port, "headgate_worker_in_flight", 1))
        signal.raise_signal(signal.SIGTERM)
        await until(lambda: _is(port, "/readyz", 503))
        assert ((503, "the worker is stopping\n"), (200, "ok\n")) == (
            await asked(port, "/readyz"),
            await asked(port, "/livez"),
        )
        finish.set()
        await running
        assert (True, 0) == (queue.closed, queue.live)

    asyncio.run(scenario())


def test_a_background_loop_that_is_dead_fails_liveness_with_its_reason() -> None:
    async def scenario() -> None:
        queue = FaultyQueue()
        port = server_ports(1)[0]
        options = WorkerOptions("test/queue", handler="m:f", health=("127.0.0.1", port))

        async def open_queue() -> FaultyQueue:
            return queue

        async def work(payload: bytes) -> None:
            return None

        running = asyncio.get_running_loop().create_task(
            WorkerProcess(options, understand(work, "m:f"), open_queue).run()
        )
        await until(lambda: _is(port, "/readyz", 200))
        assert (200, "ok\n") == await asked(port, "/livez")
        queue.dead_loop_reasons = ["the loop of lanes has ended"]
        assert (503, "the loop of lanes has ended\n") == await asked(port, "/livez")
        signal.raise_signal(signal.SIGTERM)
        await running

    asyncio.run(scenario())


async def _is(port: int, path: str, status: int) -> bool:
    try:
        return (await asked(port, path))[0] == status
    except OSError:
        return False


async def _reported(port: int, metric: str, value: float) -> bool:
    _, text = await asked(port, "/metrics")
    result = re.search(rf'^{metric}{{queue="test/queue"}} (\S+)$', text, re.MULTILINE)
    return result is not None and float(result[1]) == value


def test_a_loop_that_hangs_does_not_answer() -> None:
    port = server_ports(1)[0]
    with worker("hang_the_loop", 1, "60", 60, port) as report:
        report.until("event loop is blocked")
        with pytest.raises(OSError, match="timed out"):
            urllib.request.urlopen(f"http://127.0.0.1:{port}/livez", timeout=1)


def test_metrics_reach_graphite_while_it_works() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        listener.settimeout(30)

        async def scenario() -> bytes:
            queue = FaultyQueue()
            queue.put_now(b"x")

            async def open_queue() -> FaultyQueue:
                return queue

            async def work(payload: bytes) -> None:
                return

            settings = GraphiteSettings("127.0.0.1", listener.getsockname()[1], "shop", every_s=0.2)
            options = WorkerOptions("test/queue", handler="m:f", graphite=settings)
            process = WorkerProcess(options, understand(work, "m:f"), open_queue)
            running = asyncio.get_running_loop().create_task(process.run())
            connection, _ = await asyncio.to_thread(listener.accept)
            connection.settimeout(10)
            text = b""
            while b"shop.headgate_worker_acked.test_queue 1 " not in text:
                text += await asyncio.to_thread(connection.recv, 65_536)
            signal.raise_signal(signal.SIGTERM)
            await running
            connection.close()
            return text

        text = asyncio.run(scenario())
    assert re.search(rb"^shop\.headgate_worker_lanes\.test_queue 1 \d+$", text, re.MULTILINE)


def test_a_port_that_is_taken_is_one_clear_line() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with worker("slow", 0, "0", 1, port) as report:
            assert wait_until(lambda: report.process.poll() is not None, timeout_s=30)
            assert 1 == report.process.returncode


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("off", None),
        ("9090", ("0.0.0.0", 9090)),  # noqa: S104  nothing listens here
        (":9090", ("0.0.0.0", 9090)),  # noqa: S104  nothing listens here
        ("127.0.0.1:0", ("127.0.0.1", 0)),
        ("[::1]:80", ("::1", 80)),
    ],
)
def test_an_address_is_host_and_port(text: str, expected: tuple[str, int] | None) -> None:
    assert expected == read_address(text)


@pytest.mark.parametrize("wrong", ["", "x", "h:", "h:70000", "h:-1", "on"])
def test_what_is_no_address_is_refused(wrong: str) -> None:
    with pytest.raises(InvalidRequest, match="--health must be host:port, or off"):
        read_address(wrong)


async def open_ports(port: int, *, may_move: bool) -> HttpServer:
    """Of a worker that nothing ails."""
    server = HttpServer(probe_routes(Registry(), why_not_alive=lambda: None, why_not_ready=lambda: None))
    await server.open("127.0.0.1", port, may_move=may_move)
    return server


def test_a_second_worker_on_a_machine_takes_another_port_unless_one_was_asked_for() -> None:
    async def scenario() -> None:
        port = server_ports(1)[0]
        first = await open_ports(port, may_move=True)
        second = await open_ports(port, may_move=True)
        assert port == first.port != second.port
        assert (200, "ok\n") == await asked(second.port, "/livez")
        with pytest.raises(EnvironmentProblem, match="The port for probes and metrics cannot be opened"):
            await open_ports(port, may_move=False)
        await first.close()
        await second.close()

    asyncio.run(scenario())
