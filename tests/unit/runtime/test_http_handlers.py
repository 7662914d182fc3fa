"""Handlers over HTTP: the request that they get, the meaning of their answers, and the examples in Node and Go."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

import pytest
from aiohttp import web

from headgate.engines.contract import NackDelivery, NewMessage
from headgate.local.processes import server_ports
from headgate.runtime.handler.decide_retry import Backoff
from headgate.runtime.handler.http_runner import HttpPerformer
from headgate.runtime.worker.worker import WorkerTerms
from tests.kit.worker_queue import FaultyQueue
from tests.unit.runtime.workers import Bench, bench_of

EXAMPLES = Path(__file__).parents[3] / "examples" / "http"
AT_ONCE = Backoff(0, 1, 0)
PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


def posting(port: int, *, timeout_s: float = 30.0, **queue: Any) -> Bench:
    """A worker that posts to a port of this machine."""
    performer = HttpPerformer(
        f"http://127.0.0.1:{port}/work",
        queue="test/queue",
        connections=8,
        timeout_s=timeout_s,
        backoff=AT_ONCE,
        rng=Random(1),
    )
    terms = WorkerTerms(concurrency=8, timeout_s=timeout_s, backoff=AT_ONCE, grace_s=10)
    return bench_of(None, queue=FaultyQueue(**queue), performer=performer, terms=terms)


async def until_settled(made: Bench) -> None:
    """Work until nothing is live."""
    running = asyncio.get_running_loop().create_task(made.worker.run())
    async with asyncio.timeout(60):
        while made.queue.live and not running.done():
            await made.queue.next_event()
    made.worker.end()
    await running


async def served(answer: Answer, port: int = 0) -> tuple[web.AppRunner, int]:
    """A server that answers like this."""
    app = web.Application()
    app.router.add_post("/work", answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    return runner, int(runner.addresses[0][1])


def with_server(answer: Answer, scenario: Callable[[int], Awaitable[None]]) -> None:
    """Run a scenario beside a server."""

    async def run() -> None:
        runner, port = await served(answer)
        try:
            await scenario(port)
        finally:
            await runner.cleanup()

    asyncio.run(run())


def test_the_body_is_the_payload_and_the_headers_report_the_rest() -> None:
    observations: list[tuple[bytes, dict[str, str]]] = []
    message_ids: list[str] = []

    async def answer(request: web.Request) -> web.Response:
        observations.append((await request.read(), dict(request.headers)))
        return web.Response(status=202)

    async def scenario(port: int) -> None:
        made = posting(port)
        attributes = {
            "Tenant": "Zoë",
            "raw": b"\x00\xff",
            "content-type": "application/json",
            "traceparent": PARENT,
            "tracestate": "a=b",
        }
        message_ids.append(made.queue.put_now(NewMessage(b'{"a": 1}', attributes=attributes, group="order 7/ä")))
        made.queue.put_now(b"\x00\x01")
        await until_settled(made)
        assert 2 == made.metrics.acked.value

    with_server(answer, scenario)
    (body, report), (other_body, other) = sorted(observations, reverse=True)
    assert (b'{"a": 1}', b"\x00\x01") == (body, other_body)
    assert ("test/queue", *message_ids, "1", "1", "order 7/%C3%A4", PARENT, "a=b", "application/json") == tuple(
        report[name]
        for name in (
            "Headgate-Queue",
            "Headgate-Message-Id",
            "Headgate-Attempt",
            "Headgate-Fencing-Token",
            "Headgate-Group",
            "traceparent",
            "tracestate",
            "Content-Type",
        )
    )
    reported_attributes = json.loads(report["Headgate-Attributes"])
    assert {"Tenant": "Zoë", "raw": {"base64": "AP8="}, "content-type": "application/json"} == reported_attributes
    assert "application/octet-stream" == other["Content-Type"]
    assert not {"traceparent", "Headgate-Group", "Headgate-Attributes"} & set(other)


def test_the_answer_decides() -> None:
    async def answer(request: web.Request) -> web.Response:
        payload = (await request.read()).decode()
        if int(request.headers["Headgate-Attempt"]) > 1:
            return web.Response()
        status, _, header = payload.partition(" ")
        name, _, value = header.partition("=")
        return web.Response(status=int(status), headers={name: value} if name else {}, text="because")

    async def scenario(port: int) -> None:
        made = posting(port)
        payloads = (
            "200",
            "204",
            "429 Retry-After=2",
            "503",
            "500",
            "404",
            "302 Location=/work",
            "422 Headgate-Reject=no",
        )
        ids = {made.queue.put_now(payload.encode()): payload for payload in payloads}
        await until_settled(made)
        nacks = {
            ids[made.queue.message_of(each.receipt)]: (each.delay_us, each.reason)
            for each in made.queue.settles
            if isinstance(each, NackDelivery)
        }
        assert {
            "429 Retry-After=2": (2_000_000, "the handler answered 429\nbecause"),
            "503": (0, "the handler answered 503\nbecause"),
            "500": (0, "the handler answered 500\nbecause"),
            "404": (0, "the handler answered 404\nbecause"),
            "302 Location=/work": (0, "the handler answered 302\nbecause"),
        } == nacks
        assert ["rejected: no\nbecause"] == [dead.reason for dead in made.queue.dead]

    with_server(answer, scenario)


def test_connections_are_kept() -> None:
    peers: set[object] = set()

    async def answer(request: web.Request) -> web.Response:
        assert request.transport is not None
        peers.add(request.transport.get_extra_info("peername"))
        return web.Response()

    async def scenario(port: int) -> None:
        made = posting(port)
        for _ in range(200):
            made.queue.put_now(b"")
        await until_settled(made)

    with_server(answer, scenario)
    assert len(peers) <= 8


def test_a_handler_that_does_not_answer_in_time_or_hangs_up_has_failed() -> None:
    async def answer(request: web.Request) -> web.Response:
        if int(request.headers["Headgate-Attempt"]) > 1:
            return web.Response()
        if await request.read() == b"late":
            await asyncio.sleep(60)
        assert request.transport is not None
        request.transport.abort()
        return web.Response()

    async def scenario(port: int) -> None:
        made = posting(port, timeout_s=1)
        made.queue.put_now(b"late")
        made.queue.put_now(b"gone")
        await until_settled(made)
        reasons = {each.reason.partition(":")[0] for each in made.queue.settles if isinstance(each, NackDelivery)}
        assert {"the handler exceeded its timeout of 1 s", "no answer from the handler"} == reasons

    with_server(answer, scenario)


def test_a_handler_that_is_not_there_yet_costs_no_message_a_receive() -> None:
    async def answer(request: web.Request) -> web.Response:
        return web.Response()

    async def scenario() -> None:
        port = server_ports(1)[0]
        made = posting(port, visibility_us=1_000_000, timeout_s=1)
        for _ in range(20):
            made.queue.put_now(b"")
        running = asyncio.get_running_loop().create_task(made.worker.run())
        async with asyncio.timeout(30):
            while len(made.queue.settles) < 30:  # extensions: it stays hidden
                await made.queue.next_event()
        runner, _ = await served(answer, port)
        async with asyncio.timeout(30):
            while made.queue.live:
                await made.queue.next_event()
        made.worker.end()
        await running
        await runner.cleanup()
        assert {1} == {each.attempt for each in made.queue.deliveries}

    asyncio.run(scenario())


def test_a_worker_that_ends_while_its_handler_is_unavailable_gives_back_without_charge_and_at_once() -> None:
    async def scenario() -> None:
        made = posting(server_ports(1)[0])
        message_id = made.queue.put_now(b"")
        running = asyncio.get_running_loop().create_task(made.worker.run())
        async with asyncio.timeout(30):
            while not made.queue.deliveries:
                await made.queue.next_event()
        made.worker.end()
        async with asyncio.timeout(5):
            await running
        assert (0, False) == (made.queue.attempts_of(message_id), made.queue.is_settled(message_id))

    asyncio.run(scenario())


# ---- the examples


@contextmanager
def program(command: list[str], folder: Path) -> Iterator[tuple[int, subprocess.Popen[str]]]:
    """An example, and the port on which it listens."""
    where = {"HOST": "127.0.0.1", "PORT": "0"}
    with subprocess.Popen(
        command, cwd=folder, env={**os.environ, **where}, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            yield json.loads(process.stdout.readline())["listening"], process
        finally:
            process.kill()


def node() -> list[str]:
    """The example in Node."""
    if shutil.which("node") is None:
        pytest.skip("needs node")
    return ["node", "handler.js"]


def go(built: Path) -> list[str]:
    """The example in Go, compiled."""
    if shutil.which("go") is None:
        pytest.skip("needs go")
    environment = {**os.environ, "GOFLAGS": "-mod=mod", "GOPROXY": "off", "GOTOOLCHAIN": "local"}
    subprocess.run(
        ["go", "build", "-o", str(built), "."], cwd=EXAMPLES / "go", env=environment, check=True, timeout=300
    )
    return [str(built)]


@pytest.mark.parametrize("language", ["node", "go"])
def test_the_example_sends_tries_again_and_rejects(language: str, tmp_path: Path) -> None:
    command = node() if language == "node" else go(tmp_path / "handler")
    message_ids: list[str] = []

    async def scenario(port: int) -> Bench:
        made = posting(port)
        message_ids.append(
            made.queue.put_now(
                NewMessage(b'{"to": "a@example.org"}', attributes={"traceparent": PARENT, "tenant": "Zoë"})
            )
        )
        message_ids.append(made.queue.put_now(b'{"to": "busy@example.org"}'))
        made.queue.put_now(b"not JSON at all")
        await until_settled(made)
        return made

    with program(command, EXAMPLES / language) as (port, process):
        made = asyncio.run(scenario(port))
        process.terminate()
        assert process.stdout is not None
        sent = [json.loads(line) for line in process.stdout]
    assert {
        ("a@example.org", message_ids[0], 1, PARENT, "Zoë"),
        ("busy@example.org", message_ids[1], 2, None, None),
    } == {
        (each["sent"], each["id"], each["attempt"], each.get("trace") or None, each["attributes"].get("tenant"))
        for each in sent
    }
    (nack,) = [each for each in made.queue.settles if isinstance(each, NackDelivery)]
    assert (1_000_000, "the handler answered 503\ngreylisted") == (nack.delay_us, nack.reason.strip())
    (dead,) = made.queue.dead
    assert (b"not JSON at all", 1, True) == (
        dead.payload,
        dead.attempts,
        dead.reason.startswith("rejected: not JSON"),
    )
