"""Cassandra, simulated: a ring of nodes on a virtual clock and a seeded scheduler, and a Store that speaks to it."""

from penstock.store.simulated.cluster import Cluster
from penstock.store.simulated.settings import Settings
from penstock.store.simulated.store import SimulatedStore, SimulatedTime

__all__ = ["Cluster", "Settings", "SimulatedStore", "SimulatedTime"]
