"""Processes in virtual time, and the world that runs them: each can be killed, and all chance has one seed.

A kill is a kill -9: nothing of the process ever runs again, no `finally` and no `except` either, and its sent
messages still land. The tasks of a dead process are held, pending, until the world is closed: asyncio would complain
of their loss, and Python would run their `finally` blocks, as no kill ever does.

Each use of chance has a stream of its own, so that the draws of one part do not change those of another. Python's
collector is off while the world runs: a run depends on nothing but its seed and its code. (Code that reads the
machine's own time or randomness is not blocked.)
"""

from __future__ import annotations

import asyncio
import contextvars
import gc
import warnings
import weakref
from asyncio import events
from collections.abc import Callable, Coroutine, Iterable
from random import Random
from typing import Any, TypeVar
from uuid import UUID

from headgate.errors import Bug
from headgate.testing.virtual_loop import OWNER, VirtualLoop

T = TypeVar("T")

UNWIND_AWAITS_MAX = 100


def stream_of(seed: int, purpose: str) -> Random:
    """A text is hashed by SHA-512, not by the process's hash seed."""
    return Random(f"{seed} {purpose}")


class VirtualProcess:
    """One process of the world. It owns everything that runs in its context."""

    def __init__(self, world: VirtualWorld, name: str) -> None:
        self.name = name
        self.rng = world.next_life(self)
        """A stream of its own in each life: a restarted process must not draw the same uuids again."""
        self.is_dead = False
        self.gate: Callable[[events.Handle], bool] | None = None
        self.context = contextvars.copy_context()
        self.context.run(OWNER.set, self)
        self._world = world
        self._tasks: weakref.WeakSet[asyncio.Task[Any]] = weakref.WeakSet()
        self._killed_tasks: list[asyncio.Task[Any]] = []
        self._on_change: list[Callable[[], None]] = []

    def start(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Run a coroutine in this process. Its task never ends if the process is killed.

        `run` of the world raises its errors, unless the task was awaited by then.
        """
        task = self._world.loop.create_task(work, context=self.context.copy())
        task.add_done_callback(self._world.note_end)
        return task

    def uuid(self) -> UUID:
        return UUID(int=self.rng.getrandbits(128), version=4)

    def keep(self, task: asyncio.Task[Any]) -> None:
        """Called by the loop for each task that begins in this process."""
        self._tasks.add(task)

    def when_state_changes(self, callback: Callable[[], None]) -> None:
        """Have a function called after each change of its state, such as a kill."""
        self._on_change.append(callback)

    def kill(self) -> None:
        """End it, kill -9, now; if it kills itself, the step that runs is its last."""
        if self.is_dead:
            return
        self.is_dead = True
        self.gate = _drop
        self._report_change()
        self._killed_tasks = [task for task in self._tasks if not task.done()]
        self._world.forget_ended(self._tasks)

    def describe_state(self) -> str:
        return "dead" if self.is_dead else "running"

    def unwind(self) -> None:
        """Free the memory of a dead process, once nothing that its `finally` blocks do can matter any more."""
        for task in self._killed_tasks:
            forget_task(task)
        self._killed_tasks = []

    def _report_change(self) -> None:
        for callback in self._on_change:
            callback()


def _drop(handle: events.Handle) -> bool:
    return False


class VirtualWorld:
    """A loop, a seed, and the processes. Close it, or use it as a context, to give its memory back."""

    def __init__(self, make_loop: Callable[..., VirtualLoop], seed: int) -> None:
        self.seed = seed
        self.loop = make_loop(report=self._report)
        self.loop.set_exception_handler(self._note_unhandled)
        self._lives: dict[str, int] = {}
        self._started: list[VirtualProcess] = []
        self._failures: list[BaseException] = []
        self._failed: list[asyncio.Task[Any]] = []

    def rng(self, purpose: str) -> Random:
        """A stream of chance of its own, from the seed and the purpose."""
        return stream_of(self.seed, purpose)

    def next_life(self, process: VirtualProcess) -> Random:
        """The chance of a process that starts. Its remains are kept until the world is closed."""
        self._started.append(process)
        life = self._lives[process.name] = self._lives.get(process.name, 0) + 1
        return self.rng(f"process {process.name}, life {life}")

    def run(self, scenario: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine, outside of all processes, to its end. Raises errors of callbacks that no code handled."""
        collecting = gc.isenabled()
        gc.disable()
        try:
            result = self.loop.run_until_complete(scenario)
        finally:
            if collecting:
                gc.enable()
        failed, self._failed = self._failed, []
        self._failures += [error for task in failed if _is_unheard(task) and (error := task.exception()) is not None]
        if self._failures:
            raise self._failures.pop(0)
        return result

    def note_end(self, task: asyncio.Task[Any]) -> None:
        """Called when a task that was started in a process has ended."""
        if _is_unheard(task):
            self._failed.append(task)

    def forget_ended(self, tasks: Iterable[asyncio.Task[Any]]) -> None:
        """Their process is killed: errors that nobody has heard of by then concern nobody."""
        for task in tasks:
            if task.done() and not task.cancelled() and task not in self._failed:
                task.exception()

    def now_s(self) -> float:
        return self.loop.time()

    def close(self) -> None:
        """Close the world: all waiting tasks are dropped, silently."""
        if self.loop.is_closed():
            return
        for process in self._started:
            process.unwind()
        for task in asyncio.all_tasks(self.loop):
            forget_task(task)
        self.loop.close()

    def _report(self) -> str:
        """For a run that stands still: what each task waits for."""
        waiting = sorted(asyncio.all_tasks(self.loop), key=_order_of)
        lines = [f"  {task.get_name()} waits in {_place(task)}" for task in waiting[:50]]
        latest = {process.name: process for process in self._started}
        states = ", ".join(f"{name} {process.describe_state()}" for name, process in latest.items())
        return "\n".join([f"seed {self.seed}; processes: {states or 'none'}; tasks:", *lines])

    def _note_unhandled(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        where = {"task": _place(context["task"])} if "task" in context else {}
        self._failures.append(context.get("exception") or Bug(context.get("message", "the loop failed"), **where))


def _is_unheard(task: asyncio.Task[Any]) -> bool:
    return not task.cancelled() and bool(task._log_traceback)


def _order_of(task: asyncio.Task[Any]) -> tuple[int, str]:
    number = task.get_name().rpartition("/")[2]  # others have a name of their own
    return int(number) if number.isdecimal() else 0, task.get_name()


def _place(task: asyncio.Task[Any]) -> str:
    stack = task.get_stack(limit=1)
    if not stack:
        return "(finished)"
    code = stack[-1].f_code
    return f"{code.co_qualname if hasattr(code, 'co_qualname') else code.co_name} line {stack[-1].f_lineno}"


def forget_task(task: asyncio.Task[Any]) -> None:
    """Close the coroutine of a task that never runs again."""
    task._log_destroy_pending = False  # type: ignore[attr-defined]
    work = task.get_coro()
    with warnings.catch_warnings():
        # The task that it was about to start is never awaited: the process is dead.
        warnings.simplefilter("ignore", RuntimeWarning)
        for _ in range(UNWIND_AWAITS_MAX):
            try:
                work.close()
                return
            except BaseException:  # noqa: S112 - a `finally` that awaits again is closed again
                continue
