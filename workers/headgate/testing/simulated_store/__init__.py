"""Cassandra, simulated: a ring of nodes on a virtual clock and a seeded scheduler, and a Store that connects to
it."""

from headgate.testing.simulated_store.cluster import Cluster
from headgate.testing.simulated_store.settings import Settings
from headgate.testing.simulated_store.store import SimulatedStore, SimulatedTime

__all__ = ["Cluster", "Settings", "SimulatedStore", "SimulatedTime"]
