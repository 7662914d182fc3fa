"""Cassandra, simulated: a ring of nodes on a virtual clock and a seeded scheduler, and a Store that connects to
it."""

from tests.kit.simulated_store.cluster import Cluster
from tests.kit.simulated_store.settings import Settings
from tests.kit.simulated_store.store import SimulatedStore, SimulatedTime

__all__ = ["Cluster", "Settings", "SimulatedStore", "SimulatedTime"]
