"""Every task of Headgate starts here, with a name, so that a dump of a process's tasks shows what each of them does.

What happens when work fails is part of how it is started:

- `SupervisedLoop` (supervised_loop.py): the error is logged once, and the work starts again after a pause.
- `BackgroundTasks`: nobody waits for the work. `failed` gets the error, or the event loop reports a bug.
- `SharedWork`: the error is raised to all waiting callers.
- `run_together`: the error ends the other works too, and is raised.
- `start_task`: the caller waits for the task itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Hashable, Iterator, Mapping
from contextvars import Context
from typing import Any, Generic, TypeVar

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")

Work = Coroutine[Any, Any, T]


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
