"""A simulated world: virtual time, processes that can be paused and killed, a network with faults, and one seed."""

from headgate.testing.world.clock import EPOCH_S, Clock
from headgate.testing.world.history import History
from headgate.testing.world.loop import Deadlock, RealWorld, TimeUp, VirtualLoop
from headgate.testing.world.network import Network, Weather
from headgate.testing.world.process import Process, State
from headgate.testing.world.world import World

__all__ = [
    "EPOCH_S",
    "Clock",
    "Deadlock",
    "History",
    "Network",
    "Process",
    "RealWorld",
    "State",
    "TimeUp",
    "VirtualLoop",
    "Weather",
    "World",
]
