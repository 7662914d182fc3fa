"""Handlers in threads, in virtual time: a thread and the loop take turns, so that a run stays reproducible.

The loop stands still while a thread of it runs. When the thread submits work to the loop and waits for it
(`asyncio.run_coroutine_threadsafe`, as `Context.extend_blocking` and the SDK without async do), the loop continues
until that work is done, and then waits for the thread again.
"""

from __future__ import annotations

import asyncio
import contextvars
import queue
import threading
from collections.abc import Callable
from typing import Any

from headgate.errors import OperationRefused
from headgate.testing.world.loop import VirtualLoop

REAL_TIME_MAX_S = 60.0


class ThreadTooSlow(OperationRefused):
    """A handler in a thread blocks; replace what it waits for (`time.sleep`, a server) by a double."""


class _Thread:
    """One call in a thread of its own."""

    def __init__(self, call: Callable[[], Any], ended: asyncio.Future[Any], threads: dict[int, _Thread]) -> None:
        self.ended = ended
        self.requests: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        """Work for the loop; None when the thread has ended."""
        self._call = call
        self._result: Any = None
        self._error: BaseException | None = None
        self._threads = threads
        threading.Thread(target=self._run, name="headgate-test-handler", daemon=True).start()

    def _run(self) -> None:
        self._threads[threading.get_ident()] = self
        try:
            self._result = self._call()
        except BaseException as error:
            self._error = error
        del self._threads[threading.get_ident()]
        self.requests.put(None)

    def fail(self, error: BaseException) -> None:
        """Its result does not matter any more."""
        self._error = error

    def conclude(self) -> None:
        """Give its result to the loop."""
        if self.ended.done():
            return
        if self._error is not None:
            self.ended.set_exception(self._error)
        else:
            self.ended.set_result(self._result)


class ThreadedLoop(VirtualLoop):
    """A virtual loop with threads, for the tests of applications. The simulations of Headgate itself have none."""

    reports_refusals = True

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._threads: dict[int, _Thread] = {}
        self._last_task: asyncio.Task[Any] | None = None

    def in_thread(self) -> bool:
        """Whether the caller is in a thread of this loop."""
        return threading.get_ident() in self._threads

    def skip(self, seconds: float) -> None:
        """Let time pass in which nothing runs; timers that fall due meanwhile run late."""
        self._now_s += seconds
        self._until_s += seconds

    def limit(self, seconds: float) -> None:
        """Stop the run when this much time has passed, except for time that was skipped."""
        self._until_s = self._now_s + seconds

    def run_in_executor(  # type: ignore[override]
        self, executor: object, function: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        """Run it in a thread, at once, whichever the executor."""
        thread = _Thread(lambda: function(*args), self.create_future(), self._threads)
        self._follow(thread)
        return thread.ended

    def call_soon_threadsafe(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        """From a thread: the loop runs it when the thread waits."""
        thread = self._threads.get(threading.get_ident())
        if thread is None:
            return super().call_soon_threadsafe(callback, *args, context=context)
        handle = asyncio.Handle(callback, args, self, context)
        thread.requests.put(handle._run)
        return handle

    def _follow(self, thread: _Thread) -> None:
        """Wait until the thread has ended or waits for the loop."""
        while (request := self._next_request(thread)) is not None:
            self._last_task = None
            request()
            if self._last_task is not None:  # our callback is added after the one that wakes the thread
                self._last_task.add_done_callback(lambda _: self._follow(thread))
                return
        thread.conclude()

    def _next_request(self, thread: _Thread) -> Callable[[], None] | None:
        try:
            return thread.requests.get(timeout=REAL_TIME_MAX_S)
        except queue.Empty:
            error = ThreadTooSlow(seconds=round(REAL_TIME_MAX_S))
            self.call_exception_handler({"exception": error})
            thread.fail(error)
            return None

    def _make_task(self, *args: Any, **options: Any) -> asyncio.Task[Any]:
        task = super()._make_task(*args, **options)
        self._last_task = task
        return task
