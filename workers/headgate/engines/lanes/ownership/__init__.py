"""Ownership of lanes: the lease, the set of lanes that a process holds, and the peers it shares them with."""
