"""A simulated process: it owns everything that runs in its context, has clocks of its own, and can be paused and
killed.

A pause is a SIGSTOP: nothing of it runs. Timers that fall due and messages that arrive are kept, and all run at once,
late, when it resumes. A kill is a kill -9: nothing of it ever runs again, no `finally` and no `except` either, and
its sent messages still land. Both can be set to strike before the n-th step of the process, a step being the code
between two awaits. A scenario that strikes before each one has tried every place where a process can die.

The tasks of a dead process are held, pending, until the world is closed: asyncio would complain of their loss, and
Python would run their `finally` blocks, as no kill ever does.
"""

from __future__ import annotations

import asyncio
import contextvars
import warnings
import weakref
from asyncio import events
from collections.abc import Callable, Coroutine
from enum import Enum
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import UUID

from headgate.errors import Bug
from headgate.testing.world.clock import VirtualClock
from headgate.testing.world.loop import OWNER

if TYPE_CHECKING:
    from headgate.testing.world.world import World

T = TypeVar("T")


class ProcessState(Enum):
    """The machine's description of it."""

    RUNNING = "running"
    PAUSED = "paused"
    DEAD = "dead"


class Process:
    """One process of the world. Created by `World.process`."""

    def __init__(self, world: World, name: str, data_centre: str, *, booted_s: float, life: int) -> None:
        self.world = world
        self.name = name
        self.data_centre = data_centre
        self.state = ProcessState.RUNNING
        self.clock = VirtualClock(world.loop.time, booted_s=booted_s, epoch_us=world.epoch_us)
        self.rng = world.rng(f"process {name}, life {life}")
        """A stream of its own in each life: a restarted process must not draw the same uuids again."""
        self.gate: Callable[[events.Handle], bool] | None = None
        self.steps = 0
        self.context = contextvars.copy_context()
        self.context.run(OWNER.set, self)
        self._tasks: weakref.WeakSet[asyncio.Task[Any]] = weakref.WeakSet()
        self._held: list[events.Handle] = []
        self._killed_tasks: list[asyncio.Task[Any]] = []
        self._strike: tuple[int, Callable[[], None]] | None = None
        self._on_change: list[Callable[[], None]] = []

    def start(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Run a coroutine in this process. Its task never ends if the process is killed.

        `World.run` raises its errors, unless the task was awaited by then.
        """
        task = self.world.loop.create_task(work, context=self.context.copy())
        task.add_done_callback(self.world.ended)
        return task

    def uuid(self) -> UUID:
        """A random uuid (version 4) from the seed."""
        return UUID(int=self.rng.getrandbits(128), version=4)

    def note(self, what: str, *details: Any) -> None:
        """Write an entry into the history."""
        self.world.history.note(self.name, what, *details)

    def keep(self, task: asyncio.Task[Any]) -> None:
        """Called by the loop for each task that begins in this process."""
        self._tasks.add(task)

    def when_state_changes(self, callback: Callable[[], None]) -> None:
        """Have a function called after each pause, resumption or kill."""
        self._on_change.append(callback)

    # ---- faults

    def pause(self, *, for_s: float | None = None, machine: bool = False) -> None:
        """SIGSTOP; with `machine`, its virtual machine is paused, so that its monotonic clock stands still too."""
        if self.state is not ProcessState.RUNNING:
            return
        self.note("paused", ("for_s", for_s), ("machine", machine))
        self._enter(ProcessState.PAUSED)
        if machine:
            self.clock.freeze()
        if for_s is not None:
            self.world.outside(for_s, self.resume)

    def resume(self) -> None:
        """SIGCONT: everything that came due meanwhile runs now, in the order in which it came due."""
        if self.state is not ProcessState.PAUSED:
            return
        self.note("resumed", ("held", len(self._held)))
        self.clock.thaw()
        self._enter(ProcessState.RUNNING)
        held, self._held = self._held, []
        self.world.loop._ready.extend(held)  # type: ignore[attr-defined]

    def kill(self) -> None:
        """End it, kill -9, now; if it kills itself, the step that runs is its last."""
        if self.state is ProcessState.DEAD:
            return
        self.note("killed")
        self._enter(ProcessState.DEAD)
        self._killed_tasks = [task for task in self._tasks if not task.done()]
        self.world.unwind(self)

    def count_steps(self) -> None:
        """From now on count the code between two awaits, in `steps`."""
        self.steps = 0
        self._set_gate()

    def kill_before_step(self, step: int) -> None:
        """Kill it just before the n-th step from now (the first is 1)."""
        self._strike_before(step, self.kill)

    def pause_before_step(self, step: int, *, for_s: float, machine: bool = False) -> None:
        """Pause it just before the n-th step from now (the first is 1)."""
        self._strike_before(step, lambda: self.pause(for_s=for_s, machine=machine))

    # ---- within

    def _strike_before(self, step: int, strike: Callable[[], None]) -> None:
        if step < 1:
            raise Bug("steps are counted from 1", step=step)
        self.steps = 0
        self._strike = (step, strike)
        self._set_gate()

    def _enter(self, state: ProcessState) -> None:
        self.state = state
        self._set_gate()
        for callback in self._on_change:
            callback()

    def _set_gate(self) -> None:
        gates = {ProcessState.RUNNING: self._count, ProcessState.PAUSED: self._hold, ProcessState.DEAD: self._drop}
        self.gate = gates[self.state]

    def _count(self, handle: events.Handle) -> bool:
        self.steps += 1
        if self._strike is not None and self.steps >= self._strike[0]:
            strike = self._strike[1]
            self._strike = None
            strike()
            return self.gate is None or self.gate(handle)
        return True

    def _hold(self, handle: events.Handle) -> bool:
        self._held.append(handle)
        return False

    def _drop(self, handle: events.Handle) -> bool:
        return False

    def unwind(self) -> None:
        """Free the memory of dead processes, once nothing that their `finally` blocks do can matter any more."""
        for task in self._killed_tasks:
            _forget(task)
        self._killed_tasks = []
        self._held = []

    def __repr__(self) -> str:
        return f"Process({self.name}, {self.state.value})"


UNWIND_AWAITS_MAX = 100


def _forget(task: asyncio.Task[Any]) -> None:
    task._log_destroy_pending = False  # type: ignore[attr-defined]
    work = task.get_coro()
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore", RuntimeWarning
        )  # the task that it was about to start is never awaited: the process is dead
        for _ in range(UNWIND_AWAITS_MAX):
            try:
                work.close()
                return
            except BaseException:  # noqa: S112 - a `finally` that awaits again is closed again
                continue
