"""A simulated world: virtual time, processes that can be paused and killed, a network with faults, and one seed."""

from headgate.testing.virtual_loop import Deadlock, RealWorld, TimeUp
from tests.kit.simulated_world.clock import EPOCH_S, VirtualClock
from tests.kit.simulated_world.history import History
from tests.kit.simulated_world.loop import SimulationLoop
from tests.kit.simulated_world.network import Network, Weather
from tests.kit.simulated_world.process import Process, ProcessState
from tests.kit.simulated_world.world import World

__all__ = [
    "EPOCH_S",
    "Deadlock",
    "History",
    "Network",
    "Process",
    "ProcessState",
    "RealWorld",
    "SimulationLoop",
    "TimeUp",
    "VirtualClock",
    "Weather",
    "World",
]
