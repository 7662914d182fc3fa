"""One process of the test of many: an HTTP door before two counters, and a collector that never rests.

    python -m tests.system.counters.counter_process PORT

All processes listen on one port, among which the kernel shares out the connections. The environment names the
Cassandra. Its mutators live for three seconds and keep few states in memory, so that births, deaths, culls
and collections all happen while a test runs; the rules that hold for a day are the same.

    POST /sum/KEY?argument=5          204 when it is counted, 503 when that is not known
    POST /sum/KEY?argument=5&token=T  the same, once
    GET  /sum/KEY                     its value, as JSON
    GET  /collected                   how many shards this process has collected
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import sys
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

import headgate
from headgate.counters.collect.collector import Collector
from headgate.counters.counter import CounterHandle
from headgate.counters.model.decide_life import LifeTerms
from headgate.counters.model.decide_tokens import Token
from headgate.counters.types.contract import plain
from headgate.errors import HeadgateError, Unavailable
from headgate.process.live import Live

COUNTERS = {"sum": "shop/hits", "distinct": "shop/visitors"}
LIFE = LifeTerms(lifetime_us=3_000_000, refuse_within_us=1_500_000)
GC_AFTER_US = 2_000_000
MEMORY_BYTES_MAX = 8_000
COLLECT_EVERY_S = 0.5


class HttpServer:
    """The calls that the process serves."""

    def __init__(self, handles: dict[str, CounterHandle], collectors: list[Collector]) -> None:
        self._handles = handles
        self._collectors = collectors
        self.collected = 0

    async def collect_always(self) -> None:
        """One pass after the other."""
        while True:
            for collector in self._collectors:
                try:
                    report = await collector.run()
                except Unavailable:
                    continue
                assert report.refused is None, report.refused
                self.collected += report.collected
            await asyncio.sleep(COLLECT_EVERY_S)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Requests of one connection, one after the other."""
        try:
            while line := await reader.readline():
                method, target, _ = line.decode().split()
                while (await reader.readline()).strip():
                    pass
                status, body = await self._answer(method, target)
                head = f"HTTP/1.1 {status} so\r\nContent-Length: {len(body)}\r\n\r\n"
                writer.write(head.encode() + body)
                await writer.drain()
        except ConnectionError:
            pass
        finally:
            writer.close()

    async def _answer(self, method: str, target: str) -> tuple[int, bytes]:
        url = urlsplit(target)
        kind, _, key = unquote(url.path).lstrip("/").partition("/")
        try:
            if kind == "collected":
                return 200, json.dumps(self.collected).encode()
            handle = self._handles[kind]
            if method == "GET":
                return 200, json.dumps(plain(handle.kind.value(await handle.read(key), {}))).encode()
            asked = dict(parse_qsl(url.query))
            token = Token.parse(asked["token"]) if "token" in asked else None
            (argument,) = handle.kind.read_words([asked["argument"]])
            await handle.add(key, handle.kind.parse("add", [argument], 0), token)
            return 204, b""
        except Unavailable as error:
            return 503, str(error).encode()
        except HeadgateError as error:
            return 400, str(error).encode()


async def run(port: int) -> None:
    """Until the process is asked to end."""
    async with headgate.connect(os.environ) as connection:
        hints = connection.process_context.hints
        assert hints is not None
        handles, collectors = {}, []
        for kind, name in COUNTERS.items():
            counter = await connection.counter(name)
            settings = replace(
                counter.handle.settings, life=LIFE, gc_after_us=GC_AFTER_US, memory_bytes_max=MEMORY_BYTES_MAX
            )
            handles[kind] = CounterHandle(counter.handle.host, settings, hints=hints)
            collectors.append(Collector(counter.handle.host, Live(settings), counter.kind, hints))
        port_opened = HttpServer(handles, collectors)
        shared = socket.create_server(("127.0.0.1", port), reuse_port=True)
        server = await asyncio.start_server(port_opened.serve, sock=shared)
        collecting = asyncio.create_task(port_opened.collect_always())
        print("ready", flush=True)  # noqa: T201  its log is what the test waits for
        ended = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
        await _first(ended.wait, lambda: collecting)
        server.close()
        collecting.cancel()
        await asyncio.gather(collecting, return_exceptions=True)
        for handle in handles.values():
            await handle.close()


async def _first(*works: Callable[[], Awaitable[Any]]) -> None:
    """Until one of them ends; a collector that broke ends the process, and prints the reason."""
    tasks = [asyncio.ensure_future(work()) for work in works]
    done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for each in done:
        each.result()


if __name__ == "__main__":
    asyncio.run(run(int(sys.argv[1])))
