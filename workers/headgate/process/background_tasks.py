"""Every task of Headgate starts here, with a name, so that a dump of a process's tasks shows what each of them does.

What happens when work fails is part of how it is started:

- `SupervisedLoop`: the error is logged once, and the work starts again after a pause.
- `BackgroundTasks`: nobody waits for the work. `failed` gets the error, or the event loop reports a bug.
- `SharedWork`: the error is raised to all waiting callers.
- `run_together`: the error ends the other works too, and is raised.
- `start_task`: the caller waits for the task itself.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Hashable, Iterator, Mapping
from contextvars import Context
from typing import Any, Generic, TypeVar

from headgate.errors import HeadgateError
from headgate.process.pacing import ExponentialPause

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")

Work = Coroutine[Any, Any, T]

PAUSE_S_MIN, PAUSE_S_MAX = 0.5, 2.0
"""The pause doubles with each failure. It stays short, so that a stalled queue works again within seconds after the
cause is gone."""
CALM_S = 30.0
"""Work that ran for this long without an error has recovered."""
FAILING_S_MAX = 60.0
"""A loop that has had only unexpected errors for this long is dead; a new process may recover."""


def start_task(name: str, work: Work[T], *, context: Context | None = None) -> asyncio.Task[T]:
    """Run it from now on. The caller keeps the task, and awaits or cancels it."""
    return asyncio.get_running_loop().create_task(work, name=f"headgate: {name}", context=context)


async def end_task(*tasks: asyncio.Task[Any]) -> None:
    """Cancel them and wait until they have ended, whatever their results. No task is started for that: a framework
    that ends waits for every younger task, as kopf does, and such a task would wait for the framework."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def run_together(works: Mapping[str, Work[Any]]) -> None:
    """Run all of them until each has ended. The first that fails ends the others, and an ExceptionGroup is raised."""
    async with asyncio.TaskGroup() as group:
        for name, work in works.items():
            group.create_task(work, name=f"headgate: {name}")


def is_being_cancelled() -> bool:
    """Whether the current task is being cancelled, and not only something that it waits for."""
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0


class BackgroundTasks:
    """Tasks of one owner that nobody awaits. It keeps them alive, and ends them when its owner closes."""

    def __init__(self, name: str, *, failed: Callable[[BaseException], None] | None = None) -> None:
        self._name = name
        self._failed = failed
        self._tasks: set[asyncio.Task[Any]] = set()

    def __len__(self) -> int:
        return len(self._tasks)

    def start(self, work: Work[T], *, context: Context | None = None) -> asyncio.Task[T]:
        task = start_task(self._name, work, context=context)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    async def wait(self) -> None:
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def stop(self, within_s: float | None = None) -> None:
        """Cancel all and wait until they have ended, or for this long."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=within_s)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is None:
            return
        if self._failed is not None:
            self._failed(error)
        else:
            fault = {"message": f"bug in a background task: {self._name}", "exception": error, "task": task}
            task.get_loop().call_exception_handler(fault)


class SharedWork(Generic[K, T]):
    """Work by key that runs once at a time: callers that come meanwhile wait for the same result. A caller that is
    cancelled leaves the work to the others."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._tasks: dict[K, asyncio.Task[T]] = {}

    def __iter__(self) -> Iterator[K]:
        return iter(self._tasks)

    def run(self, key: K, work: Callable[[], Work[T]]) -> asyncio.Future[T]:
        """Its result, to be awaited. If nobody does, the event loop reports its error."""
        task = self._tasks.get(key)
        if task is None:
            task = self._tasks[key] = start_task(self._name, work())
            task.add_done_callback(lambda done: self._ended(key, done))
        return asyncio.shield(task)

    def is_current(self, key: K) -> bool:
        """For the work itself: whether later callers still wait for it, and it was not forgotten."""
        return self._tasks.get(key) is asyncio.current_task()

    def forget(self, key: K) -> None:
        """The work under way may be from before a change: later callers start another."""
        self._tasks.pop(key, None)

    async def stop(self) -> None:
        await end_task(*self._tasks.values())

    def _ended(self, key: K, task: asyncio.Task[T]) -> None:
        if self._tasks.get(key) is task:
            del self._tasks[key]
        if not task.cancelled():
            task.exception()  # retrieved: where all callers were cancelled, it matters to none


class SupervisedLoop:
    """A background loop that outlives the errors it meets: started again after each, and stopped by its owner.

    Nothing awaits the tasks that maintain leases, the membership list or the clock. An error would end such a task
    silently, and the process would run on without it. A fault of one check, list or sweep may cost that check. It may
    not end the process, which would restart, meet the same fault and end again. So the loop logs the error, pauses,
    and restarts its work. The liveness check asks it whether it is dead nevertheless.

    Invariant: it ends only when its work returns or when it is stopped.
    """

    def __init__(
        self,
        name: str,
        work: Callable[[], Coroutine[Any, Any, None]],
        *,
        log: logging.Logger,
        pause_s_max: float = PAUSE_S_MAX,
        **fields: object,
    ) -> None:
        self.name = name
        self._work = work
        self._log = log
        self._pause = ExponentialPause(PAUSE_S_MIN, pause_s_max)
        self._fields = fields
        self._task: asyncio.Task[None] | None = None
        self._logged: set[str] = set()
        self._failing_since_s: float | None = None
        self._unexpected: BaseException | None = None

    def start(self) -> None:
        """Run the work from now on, unless it runs already."""
        if self._task is None or self._task.done():
            self._task = start_task(self.name, self.run())

    async def stop(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            await end_task(task)

    def cancel(self) -> None:
        """End it without waiting."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()

    @property
    def is_running(self) -> bool:
        return self._task is not None and not self._task.done()

    def why_dead(self) -> str | None:
        """Why only a new process can bring this loop back; None while it runs or is not wanted."""
        task = self._task
        if task is not None and task.done() and (task.cancelled() or task.exception() is not None):
            return f"the loop of {self.name} has ended"
        since_s = self._failing_since_s
        if since_s is None or self._unexpected is None:
            return None
        failing_s = asyncio.get_running_loop().time() - since_s
        if failing_s < FAILING_S_MAX:
            return None
        return f"the loop of {self.name} has failed for {failing_s:.0f} s: {self._unexpected!r}"

    async def run(self) -> None:
        """The loop itself, for an owner that runs it in a task of its own."""
        loop = asyncio.get_running_loop()
        while True:
            began_s = loop.time()
            calm = loop.call_later(CALM_S, self._recover)
            try:
                await self._work()
                return
            except (Exception, asyncio.CancelledError) as error:
                if isinstance(error, asyncio.CancelledError) and is_being_cancelled():
                    raise
                if loop.time() - began_s >= CALM_S:
                    self._pause.reset()
                self._note(error, loop.time())
            finally:
                calm.cancel()
            await asyncio.sleep(self._pause.next_s())

    def _recover(self) -> None:
        if self._failing_since_s is not None:
            self._log.info("background loop recovered", extra={**self._fields, "loop": self.name})
        self._failing_since_s = self._unexpected = None
        self._logged.clear()

    def _note(self, error: BaseException, now_s: float) -> None:
        if self._failing_since_s is None:
            self._failing_since_s = now_s
        expected = isinstance(error, HeadgateError)
        self._unexpected = None if expected else error
        if repr(error) in self._logged:
            return
        self._logged.add(repr(error))
        fields = {**self._fields, "loop": self.name, "error": str(error) or repr(error)}
        self._log.error("background loop failed; restarting", extra=fields, exc_info=None if expected else error)
