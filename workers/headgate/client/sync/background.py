"""One event loop on a thread of its own, for callers without one. Any thread may call; each waits for its own work.

A process that ends without closing is detected, and its connections are closed then, so that lanes are released at
once. A forked child has none of these threads; it gets an error instead of waiting forever.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from concurrent.futures import Future
from typing import Any, TypeVar

from headgate.client.catalogue.opened import require_process
from headgate.errors import Bug, OperationRefused

T = TypeVar("T")

ENDING_WITHIN_S = 20.0
PAGE = 500
"""The number of elements that one call fetches from an async iterator."""


class WouldDeadlock(OperationRefused):
    """A call from the connection's own thread would wait for itself forever."""


class BackgroundLoop:
    def __init__(self, name: str) -> None:
        self._pid = os.getpid()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Its result. An interrupted caller cancels its work."""
        future = self.begin(work)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def begin(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        try:
            require_process(self._pid)
            if threading.current_thread() is self._thread:
                raise WouldDeadlock
            if self._loop.is_closed():
                raise Bug("Work was submitted to an event loop that has ended")
        except BaseException:
            work.close()
            raise
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def call(self, function: Callable[..., T], *arguments: Any) -> T:
        async def called() -> T:
            return function(*arguments)

        return self.run(called())

    def iterate(self, iterator: AsyncIterator[T]) -> Iterator[T]:
        while page := self.run(_next_page(iterator)):
            yield from page

    def stop(self) -> None:
        if os.getpid() != self._pid or self._loop.is_closed():
            return
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(ENDING_WITHIN_S)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
            self._loop.run_until_complete(self._end_tasks())
        finally:
            self._loop.close()

    async def _end_tasks(self) -> None:
        """Cancelled tasks get their turn to end, as at the end of `asyncio.run`."""
        left = asyncio.all_tasks() - {asyncio.current_task()}
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
        await self._loop.shutdown_asyncgens()


async def _next_page(iterator: AsyncIterator[T]) -> list[T]:
    page: list[T] = []
    async for each in iterator:
        page.append(each)
        if len(page) == PAGE:
            break
    return page


class _Ending:
    """Closes the open objects when the main thread has ended.

    The interpreter waits for a non-daemon thread before it dismantles anything. A function of `atexit` would run when
    executors and, since Python 3.12, threads can no longer be started.
    """

    def __init__(self) -> None:
        self.open: set[Callable[[], None]] = set()
        self._lock = threading.Lock()
        self._watching = False

    def keep(self, close: Callable[[], None]) -> None:
        with self._lock:
            self.open.add(close)
            if not self._watching:
                self._watching = True
                threading.Thread(target=self._watch, name="headgate: end").start()

    def _watch(self) -> None:
        threading.main_thread().join()
        for close in tuple(self.open):
            close()


_ending = _Ending()


def close_at_end(close: Callable[[], None]) -> None:
    """Call it when the main thread has ended, unless it `was_closed` by then."""
    _ending.keep(close)


def was_closed(close: Callable[[], None]) -> None:
    _ending.open.discard(close)


def _restart_loop() -> None:
    global _ending  # noqa: PLW0603 - a child has none of its parent's threads
    _ending = _Ending()


os.register_at_fork(after_in_child=_restart_loop)
