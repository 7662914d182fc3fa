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
from collections.abc import Callable
from functools import partial
from types import TracebackType
from typing import Any

from headgate.errors import Bug
from headgate.testing.virtual_loop import OWNER
from headgate.testing.virtual_world import VirtualWorld, stream_of
from tests.kit.simulated_world.clock import EPOCH_S
from tests.kit.simulated_world.history import History
from tests.kit.simulated_world.loop import SimulationLoop
from tests.kit.simulated_world.network import Network, Weather
from tests.kit.simulated_world.process import Process, ProcessState

UNTIL_S = 400 * 24 * 3600.0
"""No scenario is longer; one that is does not terminate."""


class World(VirtualWorld):
    """All that a scenario acts in. Close it, or use it as a context, to give its memory back."""

    loop: SimulationLoop

    def __init__(
        self,
        seed: int = 0,
        *,
        weather: Weather | None = None,
        shuffled: bool = False,
        until_s: float = UNTIL_S,
        epoch_us: int = EPOCH_S * 1_000_000,
    ) -> None:
        make_loop = partial(SimulationLoop, stream_of(seed, "loop"), shuffled=shuffled, until_s=until_s)
        super().__init__(make_loop, seed)
        self.epoch_us = epoch_us
        """The reading of a correct wall clock when the world begins."""
        self.history = History(self.loop.time)
        self.network = Network(self.loop, self.history, self.rng("network"), weather or Weather())
        self.processes: dict[str, Process] = {}

    def process(self, name: str, *, data_centre: str = "dc1") -> Process:
        """Start a process. A dead one may be started again under its name, with nothing left of it."""
        before = self.processes.get(name)
        if before is not None and before.state is not ProcessState.DEAD:
            raise Bug("two processes have the same name", name=name)
        booted_s = round(self.rng(f"boot {name}").uniform(1_000, 1_000_000), 3)
        process = Process(self, name, data_centre, booted_s=booted_s)
        self.processes[name] = process
        return process

    async def sleep(self, seconds: float) -> None:
        """Let time pass."""
        await asyncio.sleep(seconds)

    def outside(self, after_s: float, act: Callable[[], object]) -> None:
        """Do something after a while, belonging to no process, so that no pause or kill holds it."""
        context = contextvars.copy_context()
        context.run(OWNER.set, None)
        self.loop.call_at(self.loop.time() + after_s, act, context=context)

    def __enter__(self) -> World:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _note_unhandled(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        super()._note_unhandled(loop, context)
        error = self._failures[-1]
        self.history.note("world", "unhandled", type(error).__name__, str(error))
