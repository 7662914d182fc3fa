"""A simulated process: a process in virtual time with clocks of its own, which can be paused as well as killed.

A pause is a SIGSTOP: nothing of it runs. Timers that fall due and messages that arrive are kept, and all run at once,
late, when it resumes. A pause or a kill can be set to strike before the n-th step of the process, a step being the
code between two awaits. A scenario that strikes before each one has tried every place where a process can die.
"""

from __future__ import annotations

from asyncio import events
from collections.abc import Callable
from enum import Enum
from typing import TYPE_CHECKING, Any

from headgate.errors import Bug
from headgate.testing.virtual_world import VirtualProcess
from tests.kit.simulated_world.clock import VirtualClock

if TYPE_CHECKING:
    from tests.kit.simulated_world.world import World


class ProcessState(Enum):
    """The machine's description of it."""

    RUNNING = "running"
    PAUSED = "paused"
    DEAD = "dead"


class Process(VirtualProcess):
    """One process of the world. Created by `World.process`."""

    def __init__(self, world: World, name: str, data_centre: str, *, booted_s: float) -> None:
        super().__init__(world, name)
        self.world = world
        self.data_centre = data_centre
        self.state = ProcessState.RUNNING
        self.clock = VirtualClock(world.loop.time, booted_s=booted_s, epoch_us=world.epoch_us)
        self.steps = 0
        self._held: list[events.Handle] = []
        self._strike: tuple[int, Callable[[], None]] | None = None

    def note(self, what: str, *details: Any) -> None:
        """Write an entry into the history."""
        self.world.history.note(self.name, what, *details)

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
        if not self.is_dead:
            self.note("killed")
            self.state = ProcessState.DEAD
            super().kill()

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
        self._report_change()

    def _set_gate(self) -> None:
        if not self.is_dead:
            self.gate = self._hold if self.state is ProcessState.PAUSED else self._count

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

    def describe_state(self) -> str:
        return self.state.value

    def unwind(self) -> None:
        """Also drop what it held."""
        super().unwind()
        self._held = []

    def __repr__(self) -> str:
        return f"Process({self.name}, {self.state.value})"
