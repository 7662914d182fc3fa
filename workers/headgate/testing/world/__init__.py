"""A simulated world: virtual time, processes that can be paused and killed, a network with faults, and one seed."""

from headgate.testing.world.clock import EPOCH_S, VirtualClock
from headgate.testing.world.history import History
from headgate.testing.world.loop import Deadlock, RealWorld, TimeUp, VirtualLoop
from headgate.testing.world.network import Network, Weather
from headgate.testing.world.process import Process, ProcessState
from headgate.testing.world.world import World

__all__ = [
    "EPOCH_S",
    "Deadlock",
    "History",
    "Network",
    "Process",
    "ProcessState",
    "RealWorld",
    "TimeUp",
    "VirtualClock",
    "VirtualLoop",
    "Weather",
    "World",
]
