"""A simulated world: virtual time, processes that can be paused and killed, a network with faults, and one seed."""

from penstock.testing.world.clock import EPOCH_S, Clock
from penstock.testing.world.history import History
from penstock.testing.world.loop import Deadlock, RealWorld, TimeUp, VirtualLoop
from penstock.testing.world.network import Network, Weather
from penstock.testing.world.process import Process, State
from penstock.testing.world.world import World

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
