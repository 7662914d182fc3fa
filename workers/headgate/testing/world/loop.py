"""An event loop with virtual time: when nothing is ready it jumps to the next timer.

It knows asyncio and the gate of a process (whether a callback may run now), and nothing else. Invariants:
- time never goes back, and never moves while a callback is ready;
- timers of one time run in the order in which they were set; with `shuffled`, callbacks that are ready together run
  in an order that the seed chooses (asyncio promises theirs, so code that relies on that promise needs it off);
- no socket, thread, signal or child process is ever touched: an attempt raises an error.
It survives everything that its callbacks do, except to stand still: `Deadlock` when nothing can ever happen again,
`TimeUp` when a run exceeds its limit or spins without letting time pass.
"""

from __future__ import annotations

import asyncio
import contextvars
import gc
import heapq
from asyncio import events
from collections.abc import Callable, Container, Coroutine
from random import Random
from typing import Any, NoReturn, Protocol

from headgate.errors import Bug

TURNS_AT_ONCE = 256
SPINS_AT_ONE_TIME_MAX = 400
COLLECT_EVERY_ROUNDS = 4_000
_CANCELLED_TIMERS_MIN = 256


class Deadlock(Bug):
    """Nothing is ready and no timer is set: every waiting task waits forever."""


class TimeUp(Bug):
    """The run exceeded its limit."""


class RealWorld(Bug):
    """Code inside a simulation used the real world."""


class Owner(Protocol):
    """A process, as far as the loop needs it."""

    name: str
    gate: Callable[[events.Handle], bool] | None

    def keep(self, task: asyncio.Task[Any]) -> None:
        """Remember a task that runs in it."""


OWNER: contextvars.ContextVar[Owner | None] = contextvars.ContextVar("headgate_process", default=None)
"""The process in whose context a callback or a task runs; the loop checks its gate before it runs anything."""


class LoopDelivery:
    """A message on its way: the parts of a handle that the loop needs, and no more. It is never cancelled.

    `cuts` are the links that do not carry anything when it arrives.
    """

    __slots__ = ("_context", "_scheduled", "args", "cuts", "link", "receive")
    _cancelled = False

    def __init__(
        self,
        context: contextvars.Context,
        receive: Callable[..., object],
        args: tuple[Any, ...],
        link: tuple[str, str],
        cuts: Container[tuple[str, str]],
    ) -> None:
        self._context = context
        self.receive = receive
        self.args = args
        self.link = link
        self.cuts = cuts

    def _run(self) -> None:
        if self.cuts and self.link in self.cuts:
            return
        self._context.run(self.receive, *self.args)


class VirtualLoop(asyncio.BaseEventLoop):
    """Runs callbacks in virtual time, in an order that only the seed decides."""

    reports_refusals = False
    """Whether a use of the real world fails the run, even if the code that tried it handles the error."""

    def __init__(
        self,
        rng: Random,
        *,
        shuffled: bool = False,
        until_s: float = float("inf"),
        report: Callable[[], str] = lambda: "",
    ) -> None:
        super().__init__()
        self.set_debug(False)
        self._now_s = 0.0
        self._until_s = until_s
        self._rng = rng
        self._shuffled = shuffled
        self._timers: list[tuple[float, int, Any]] = []
        self._timers_set = 0
        self._cancelled = 0
        self._tasks_made = 0
        self._spins = 0
        self._rounds = 0
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

    def _timer_handle_cancelled(self, handle: events.TimerHandle) -> None:
        self._cancelled += 1

    def post(self, when: float, delivery: LoopDelivery) -> None:
        """Set a timer for a message: as call_at, at a third of its cost."""
        self._timers_set += 1
        heapq.heappush(self._timers, (when, self._timers_set, delivery))

    def _run_once(self) -> None:
        """Many turns at once: asyncio's own loop around this one costs as much as a turn."""
        ready = self._ready  # type: ignore[attr-defined]
        timers = self._timers
        for _ in range(TURNS_AT_ONCE):
            if not ready and not self._stopping:  # type: ignore[attr-defined]
                self._jump()
            if timers and timers[0][0] <= self._now_s:
                self._wake_timers(ready)
            if self._shuffled and len(ready) > 1:
                self._shuffle(ready)
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

    def _shuffle(self, ready: Any) -> None:
        waiting = list(ready)
        self._rng.shuffle(waiting)
        ready.clear()
        ready.extend(waiting)

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
