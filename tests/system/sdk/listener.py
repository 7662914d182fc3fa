"""The place where handlers in pods report: a port of this machine that pods reach, and the time of each report."""

from __future__ import annotations

import socketserver
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, cast

HANDLER = """
import asyncio, os

async def handle(text: str) -> None:
    for _ in range(1 if text != "slow" else 2):
        _, writer = await asyncio.open_connection("{host}", {port})
        writer.write((os.environ["POD_NAME"] + " " + text).encode())
        await writer.drain()
        writer.close()
        await asyncio.sleep(1 if text == "slow" else 0)
"""


@dataclass(frozen=True)
class Word:
    """A handler's report, with its time and its pod."""

    at_s: float
    pod: str
    text: str


@dataclass
class Listener:
    """All words, in order."""

    host: str
    port: int
    words: list[Word] = field(default_factory=list)
    more: threading.Condition = field(default_factory=threading.Condition)

    @property
    def handler(self) -> str:
        """A module whose `handle` reports each message to us."""
        return HANDLER.format(host=self.host, port=self.port)

    def first(self, text: str, *, timeout_s: float = 60) -> float:
        """When a message was first handled."""

        def output() -> bool:
            return any(word.text == text for word in self.words)

        with self.more:
            assert self.more.wait_for(output, timeout_s), f"{text}: not handled within {timeout_s:g} s"
            return next(word.at_s for word in self.words if word.text == text)

    def wait(self, holds: Callable[[list[Word]], bool], *, timeout_s: float = 60) -> bool:
        """Whether something became true of all words in time."""
        with self.more:
            return self.more.wait_for(lambda: holds(self.words), timeout_s)


@contextmanager
def listening(host: str) -> Iterator[Listener]:
    """At a free port of that address."""

    class Hearing(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            pod, _, text = self.rfile.read(1000).decode().partition(" ")
            with listener.more:
                listener.words.append(Word(time.monotonic(), pod, text))
                listener.more.notify_all()

    class Server(socketserver.ThreadingTCPServer):
        daemon_threads = True
        request_queue_size = 256

    with Server((host, 0), Hearing) as server:
        address = cast("tuple[str, Any]", server.server_address)
        listener = Listener(host, address[1])
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield listener
        finally:
            server.shutdown()
