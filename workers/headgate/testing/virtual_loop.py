"""An event loop with virtual time: when nothing is ready it jumps to the next timer.

It knows asyncio and the gate of a process (whether a callback may run now), and nothing else. Invariants:
- time never goes back, and never moves while a callback is ready;
- timers of one time run in the order in which they were set;
- no socket, thread, signal or child process is ever touched: an attempt raises an error.
It survives everything that its callbacks do, except to stand still: `Deadlock` when nothing can ever happen again,
`TimeUp` when a run exceeds its limit or spins without letting time pass.

`ThreadedLoop` adds handlers in threads: a thread and the loop take turns, so that a run stays reproducible. The loop
stands still while a thread of it runs. When the thread submits work to the loop and waits for it
(`asyncio.run_coroutine_threadsafe`, as `Context.extend_blocking` and the SDK without async do), the loop continues
until that work is done, and then waits for the thread again.
"""

from __future__ import annotations

import asyncio
import contextvars
import gc
import heapq
import queue
import threading
from asyncio import events
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, NoReturn

from headgate.errors import Bug, OperationRefused

if TYPE_CHECKING:
    from headgate.testing.virtual_world import VirtualProcess

TURNS_AT_ONCE = 256
SPINS_AT_ONE_TIME_MAX = 400
COLLECT_EVERY_ROUNDS = 4_000
_CANCELLED_TIMERS_MIN = 256
REAL_TIME_MAX_S = 60.0
"""Of a thread between two waits for the loop."""


class Deadlock(Bug):
    """Nothing is ready and no timer is set: every waiting task waits forever."""


class TimeUp(Bug):
    """The run exceeded its limit."""


class RealWorld(Bug):
    """Code inside a simulation used the real world."""


OWNER: contextvars.ContextVar[VirtualProcess | None] = contextvars.ContextVar("headgate_process", default=None)
"""The process in whose context a callback or a task runs; the loop checks its gate before it runs anything."""


class VirtualLoop(asyncio.BaseEventLoop):
    """Runs callbacks in virtual time."""

    reports_refusals = False
    """Whether a use of the real world fails the run, even if the code that tried it handles the error."""

    def __init__(self, *, until_s: float = float("inf"), report: Callable[[], str] = lambda: "") -> None:
        super().__init__()
        self.set_debug(False)
        self._now_s = 0.0
        self._until_s = until_s
        self._timers: list[tuple[float, int, Any]] = []
        self._timers_set = 0
        self._cancelled = 0
        self._tasks_made = 0
        self._spins = 0
        self._rounds = 0
        self._arrange: Callable[[Any], None] | None = None
        """Puts callbacks that are ready together into another order."""
        self.report = report
        self.set_task_factory(self._make_task)  # type: ignore[arg-type]

    def time(self) -> float:
        """Virtual seconds since the world began."""
        return self._now_s

    def call_at(  # type: ignore[override]
        self,
        when: float,
        callback: Callable[..., object],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> events.TimerHandle:
        """Set a timer, ordered by its time and then by when it was set."""
        timer = events.TimerHandle(when, callback, args, self, context)
        timer._scheduled = True  # type: ignore[attr-defined]
        self._timers_set += 1
        heapq.heappush(self._timers, (when, self._timers_set, timer))
        return timer

    def close(self) -> None:
        """Drop everything that still waits."""
        self._timers.clear()
        super().close()

    def _timer_handle_cancelled(self, handle: events.TimerHandle) -> None:
        self._cancelled += 1

    def _run_once(self) -> None:
        """Many turns at once: asyncio's own loop around this one costs as much as a turn."""
        ready = self._ready  # type: ignore[attr-defined]
        timers = self._timers
        for _ in range(TURNS_AT_ONCE):
            if not ready and not self._stopping:  # type: ignore[attr-defined]
                self._jump()
            if timers and timers[0][0] <= self._now_s:
                self._wake_timers(ready)
            if self._arrange is not None:
                self._arrange(ready)
            for _ in range(len(ready)):
                handle = ready.popleft()
                if handle._cancelled:
                    continue
                owner = handle._context.get(OWNER)
                if owner is not None and owner.gate is not None and not owner.gate(handle):
                    continue
                handle._run()
            if self._stopping:  # type: ignore[attr-defined]
                break
        self._count_turns()

    def _jump(self) -> None:
        """Nothing is ready: time advances to the next timer."""
        timers = self._timers
        if self._cancelled > _CANCELLED_TIMERS_MIN and self._cancelled * 2 > len(timers):
            timers[:] = [entry for entry in timers if not entry[2]._cancelled]
            heapq.heapify(timers)
            self._cancelled = 0
        while timers and timers[0][2]._cancelled:
            heapq.heappop(timers)
            self._cancelled -= 1
        if not timers:
            raise Deadlock(remedy=self.report() or None, at_s=round(self._now_s, 6))
        if timers[0][0] > self._now_s:
            self._now_s = timers[0][0]
            self._spins = 0
            if self._now_s > self._until_s:
                raise TimeUp(remedy=self.report() or None, limit_s=self._until_s)

    def _wake_timers(self, ready: Any) -> None:
        timers = self._timers
        now_s = self._now_s
        while timers and timers[0][0] <= now_s:
            timer = heapq.heappop(timers)[2]
            if timer._cancelled:
                self._cancelled -= 1
            else:
                timer._scheduled = False
                ready.append(timer)

    def _count_turns(self) -> None:
        self._spins += 1
        self._rounds += 1
        if self._spins > SPINS_AT_ONE_TIME_MAX:
            raise TimeUp("callbacks run forever without letting time pass", remedy=self.report() or None)
        if self._rounds % COLLECT_EVERY_ROUNDS == 0:
            gc.collect()  # the world runs with the collector off: its runs must not depend on earlier work

    def _make_task(
        self, _loop: object, work: Coroutine[Any, Any, Any], context: contextvars.Context | None = None
    ) -> asyncio.Task[Any]:
        owner = OWNER.get() if context is None else context.get(OWNER)
        self._tasks_made += 1
        name = f"{owner.name if owner is not None else 'world'}/{self._tasks_made}"
        task: asyncio.Task[Any] = asyncio.Task(work, loop=self, name=name, context=context)
        if owner is not None:
            owner.keep(task)
        return task

    def _process_events(self, event_list: object) -> None:
        """There are none: nothing outside the world can happen to it."""

    def _write_to_self(self) -> None:
        """Nothing sleeps in a selector of this loop."""

    def call_soon_threadsafe(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> events.Handle:
        """As call_soon: there is one thread. (asyncio itself calls this when it finalises generators.)"""
        return self.call_soon(callback, *args, context=context)


_REFUSED = {
    "run_in_executor": "a thread",
    "getaddrinfo": "the address of a name",
    "getnameinfo": "the name of an address",
    "create_connection": "a connection",
    "create_unix_connection": "a connection",
    "create_server": "a server",
    "create_unix_server": "a server",
    "create_datagram_endpoint": "a socket",
    "connect_accepted_socket": "a socket",
    "sock_recv": "a socket",
    "sock_sendall": "a socket",
    "sock_connect": "a socket",
    "sock_accept": "a socket",
    "connect_read_pipe": "a pipe",
    "connect_write_pipe": "a pipe",
    "subprocess_exec": "a child process",
    "subprocess_shell": "a child process",
    "add_reader": "a file descriptor",
    "add_writer": "a file descriptor",
    "add_signal_handler": "a signal",
}
"""The interface of a loop that no simulated process may use."""


def _refusal(name: str, what: str) -> Callable[..., NoReturn]:
    def refused(loop: VirtualLoop, *_: object, **__: object) -> NoReturn:
        error = RealWorld(f"{what} was requested inside a simulation", by=name)
        if loop.reports_refusals:
            loop.call_exception_handler({"exception": error})
        raise error

    return refused


for _name, _what in _REFUSED.items():
    setattr(VirtualLoop, _name, _refusal(_name, _what))


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
        self._error = error

    def conclude(self) -> None:
        if self.ended.done():
            return
        if self._error is not None:
            self.ended.set_exception(self._error)
        else:
            self.ended.set_result(self._result)


class ThreadedLoop(VirtualLoop):
    """A virtual loop with threads, for the tests of applications. Headgate's own simulations have none."""

    reports_refusals = True

    def __init__(self, *, report: Callable[[], str]) -> None:
        super().__init__(report=report)
        self._threads: dict[int, _Thread] = {}
        self._last_task: asyncio.Task[Any] | None = None

    def in_thread(self) -> bool:
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
