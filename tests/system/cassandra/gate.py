"""A way to a server that can be cut: what is sent then is neither delivered nor refused, as with no network."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

CHUNK = 64 * 1024


class Gate:
    """One server behind a port of this machine's own."""

    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self._loop = asyncio.new_event_loop()
        self._open = asyncio.Event()
        self._open.set()
        self._let = asyncio.Event()
        self._let.set()
        self._callers: set[asyncio.StreamWriter] = set()
        self.port = 0

    def cut(self) -> None:
        """Nothing passes from now on."""
        self._loop.call_soon_threadsafe(self._open.clear)

    def hang(self) -> None:
        """The present connections carry no byte more, and get no notice; new callers are let through."""
        self._loop.call_soon_threadsafe(self._hang)

    def _hang(self) -> None:
        self._let.clear()
        self._let = asyncio.Event()
        self._let.set()

    def heal(self) -> None:
        """New callers are let through; the present ones learn that their connection is gone."""
        self._loop.call_soon_threadsafe(self._heal)

    def _heal(self) -> None:
        for caller in self._callers:
            caller.transport.abort()
        self._open.set()

    async def _called(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._callers.add(writer)
        try:
            let = self._let
            await self._open.wait()
            target_reader, target_writer = await asyncio.open_connection(*self._target)
            self._callers.add(target_writer)
            try:
                await asyncio.gather(self._pump(reader, target_writer, let), self._pump(target_reader, writer, let))
            finally:
                self._callers.discard(target_writer)
                target_writer.close()
        except OSError:
            pass  # one side is gone: so is the other
        finally:
            self._callers.discard(writer)
            writer.close()

    async def _pump(self, source: asyncio.StreamReader, target: asyncio.StreamWriter, let: asyncio.Event) -> None:
        while chunk := await source.read(CHUNK):
            await self._open.wait()
            await let.wait()
            target.write(chunk)
            await target.drain()
        target.close()

    async def _listen(self, ready: threading.Event) -> None:
        server = await asyncio.start_server(self._called, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        ready.set()
        async with server:
            await server.serve_forever()

    def _run(self, ready: threading.Event) -> None:
        self._task = self._loop.create_task(self._listen(ready))
        with suppress(asyncio.CancelledError):
            self._loop.run_until_complete(self._task)

    @contextmanager
    def listening(self) -> Iterator[Gate]:
        """In a thread of its own."""
        ready = threading.Event()
        thread = threading.Thread(target=self._run, args=(ready,), daemon=True)
        thread.start()
        assert ready.wait(10)
        try:
            yield self
        finally:
            self.heal()
            self._loop.call_soon_threadsafe(self._task.cancel)
            thread.join(timeout=10)
