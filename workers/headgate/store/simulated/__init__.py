"""Cassandra, simulated: a ring of nodes on a virtual clock and a seeded scheduler, and a Store that connects to
it."""

from headgate.store.simulated.cluster import Cluster
from headgate.store.simulated.settings import Settings
from headgate.store.simulated.store import SimulatedStore, SimulatedTime

__all__ = ["Cluster", "Settings", "SimulatedStore", "SimulatedTime"]
