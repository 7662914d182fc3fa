"""One simulated world: a seed, a loop, a history, a network, and the processes in it.

    world = World(seed=7)
    store = SimulatedStore(Cluster(world), world.process("producer"))
    world.run(scenario(world, store))
    print(world.history.text())

All randomness comes from the seed, each use from a stream of its own, so that the draws of one part do not change
those of another. Python's collector is off while the world runs: a run depends on nothing but its seed and its code.
(Code that reads the machine's own time or randomness is not blocked; two runs of the same seed then differ, which a
test detects.)
"""

from __future__ import annotations

import asyncio
import contextvars
import gc
from collections.abc import Callable, Coroutine
from random import Random
from types import TracebackType
from typing import Any, TypeVar

from headgate.errors import Bug
from headgate.testing.world.clock import EPOCH_S
from headgate.testing.world.history import HISTORY_MAX, History
from headgate.testing.world.loop import OWNER, VirtualLoop
from headgate.testing.world.network import Network, Weather
from headgate.testing.world.process import Process, ProcessState, _forget

T = TypeVar("T")

UNTIL_S = 400 * 24 * 3600.0
"""No scenario is longer; one that is does not terminate."""


class World:
    """All that a scenario acts in. Close it, or use it as a context, to give its memory back."""

    def __init__(
        self,
        seed: int = 0,
        *,
        weather: Weather | None = None,
        shuffled: bool = False,
        until_s: float = UNTIL_S,
        epoch_us: int = EPOCH_S * 1_000_000,
        loop: Callable[..., VirtualLoop] = VirtualLoop,
        history_max: int = HISTORY_MAX,
    ) -> None:
        self.seed = seed
        self.epoch_us = epoch_us
        """The reading of a correct wall clock when the world begins."""
        self.loop = loop(self.rng("loop"), shuffled=shuffled, until_s=until_s, report=self._report)
        self.loop.set_exception_handler(self._unhandled)
        self.history = History(self.loop.time, entries_max=history_max)
        self.network = Network(self.loop, self.history, self.rng("network"), weather or Weather())
        self.processes: dict[str, Process] = {}
        self._lives: dict[str, int] = {}
        self._dead: list[Process] = []
        self._failures: list[BaseException] = []
        self._failed: list[asyncio.Task[Any]] = []

    def rng(self, purpose: str) -> Random:
        """A stream of chance of its own, from the seed and the purpose."""
        return Random(f"{self.seed} {purpose}")  # a text is hashed by SHA-512, not by the process's hash seed

    def process(self, name: str, *, data_centre: str = "dc1") -> Process:
        """Start a process. A dead one may be started again under its name, with nothing left of it."""
        before = self.processes.get(name)
        if before is not None and before.state is not ProcessState.DEAD:
            raise Bug("two processes have the same name", name=name)
        life = self._lives[name] = self._lives.get(name, 0) + 1
        booted_s = round(self.rng(f"boot {name}").uniform(1_000, 1_000_000), 3)
        process = Process(self, name, data_centre, booted_s=booted_s, life=life)
        self.processes[name] = process
        return process

    def run(self, scenario: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine, outside of all processes, to its end. Raises errors of callbacks that no code handled."""
        collecting = gc.isenabled()
        gc.disable()
        try:
            result = self.loop.run_until_complete(scenario)
        finally:
            if collecting:
                gc.enable()
        self._raise_what_nobody_took()
        return result

    def ended(self, task: asyncio.Task[Any]) -> None:
        """Called when a task that was started in a process has ended."""
        if _is_unheard(task):
            self._failed.append(task)

    def _raise_what_nobody_took(self) -> None:
        failed, self._failed = self._failed, []
        for task in failed:
            if _is_unheard(task):
                error = task.exception()
                if error is not None:
                    self._failures.append(error)
        if self._failures:
            raise self._failures.pop(0)

    def now_s(self) -> float:
        """True time since the world began."""
        return self.loop.time()

    async def sleep(self, seconds: float) -> None:
        """Let time pass."""
        await asyncio.sleep(seconds)

    def outside(self, after_s: float, act: Callable[[], object]) -> None:
        """Do something after a while, belonging to no process, so that no pause or kill holds it."""
        context = contextvars.copy_context()
        context.run(OWNER.set, None)
        self.loop.call_at(self.loop.time() + after_s, act, context=context)

    def unwind(self, process: Process) -> None:
        """Keep the remains of a dead process until the world is closed."""
        self._dead.append(process)

    def close(self) -> None:
        """Close the world: all waiting tasks are dropped, silently."""
        if self.loop.is_closed():
            return
        for process in [*self._dead, *self.processes.values()]:
            process.unwind()
        for task in asyncio.all_tasks(self.loop):
            _forget(task)
        self.loop._ready.clear()  # type: ignore[attr-defined]
        self.loop._timers.clear()
        self.loop.close()

    def __enter__(self) -> World:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _unhandled(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception") or Bug(context.get("message", "the loop failed"))
        self.history.note("world", "unhandled", type(error).__name__, str(error))
        self._failures.append(error)

    def _report(self) -> str:
        waiting = sorted(asyncio.all_tasks(self.loop), key=_order_of)
        lines = [f"  {task.get_name()} waits in {_place(task)}" for task in waiting[:50]]
        states = ", ".join(f"{name} {process.state.value}" for name, process in self.processes.items())
        return "\n".join([f"seed {self.seed}; processes: {states or 'none'}; tasks:", *lines])


def _order_of(task: asyncio.Task[Any]) -> tuple[int, str]:
    number = task.get_name().rpartition("/")[2]  # others have a name of their own
    return int(number) if number.isdecimal() else 0, task.get_name()


def _is_unheard(task: asyncio.Task[Any]) -> bool:
    return not task.cancelled() and bool(task._log_traceback)


def _place(task: asyncio.Task[Any]) -> str:
    stack = task.get_stack(limit=1)
    if not stack:
        return "(finished)"
    code = stack[-1].f_code
    return f"{code.co_qualname if hasattr(code, 'co_qualname') else code.co_name} line {stack[-1].f_lineno}"
