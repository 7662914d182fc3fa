"""The replicas of partitions, and the number of answers that a consistency needs. Pure.

Each data center is a ring of its nodes; a partition is on `replication` of them, starting at its token.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property
from math import prod
from typing import NamedTuple

from headgate.errors import Bug
from headgate.store.model.consistency import Consistency


class ReplicaGroup(NamedTuple):
    """The number of these that have to answer."""

    names: frozenset[str]
    needed: int


class Topology:
    """Data centres with their nodes, and how often each partition is kept in each."""

    def __init__(self, data_centres: Mapping[str, Iterable[str]], replication: Mapping[str, int]) -> None:
        self.nodes = {name: tuple(nodes) for name, nodes in data_centres.items()}
        self.replication = {name: min(replication.get(name, 0), len(nodes)) for name, nodes in self.nodes.items()}
        self.data_centre_of = {node: name for name, nodes in self.nodes.items() for node in nodes}
        self._placements: dict[int, tuple[str, ...]] = {}
        self._groups: dict[tuple[int, Consistency, str], tuple[ReplicaGroup, ...]] = {}

    @cached_property
    def _turns(self) -> int:
        return prod(len(nodes) for nodes in self.nodes.values() if nodes)

    def replicas(self, token: int) -> tuple[str, ...]:
        """The nodes of a partition, in ring order, data centre after data centre."""
        turn = token % self._turns
        known = self._placements.get(turn)
        if known is None:
            names = []
            for data_centre, nodes in self.nodes.items():
                start = turn % len(nodes)
                names += [nodes[(start + step) % len(nodes)] for step in range(self.replication[data_centre])]
            known = self._placements[turn] = tuple(names)
        return known

    def groups(self, token: int, consistency: Consistency, local: str) -> tuple[ReplicaGroup, ...]:
        """The replicas that have to answer for a partition, from a coordinator in the data center `local`."""
        place = (token % self._turns, consistency, local)
        known = self._groups.get(place)
        if known is None:
            known = self._groups[place] = self._groups_of(self.replicas(token), consistency, local)
        return known

    def all_groups(self, consistency: Consistency, local: str) -> list[tuple[ReplicaGroup, ...]]:
        """As `groups`, for each place of the ring: the nodes that a scan needs."""
        return [self.groups(turn, consistency, local) for turn in range(self._turns)]

    def _groups_of(self, replicas: tuple[str, ...], consistency: Consistency, local: str) -> tuple[ReplicaGroup, ...]:
        everybody = frozenset(replicas)
        local_replicas = frozenset(name for name in replicas if self.data_centre_of[name] == local)
        if consistency is Consistency.ONE:
            return (ReplicaGroup(everybody, 1),)
        if consistency is Consistency.ALL:
            return (ReplicaGroup(everybody, len(everybody)),)
        if consistency is Consistency.QUORUM:
            return (ReplicaGroup(everybody, majority(len(everybody))),)
        if consistency is Consistency.LOCAL_QUORUM:
            if not local_replicas:
                raise Bug("LOCAL_QUORUM where the keyspace has no replicas", data_centre=local)
            return (ReplicaGroup(local_replicas, majority(len(local_replicas))),)
        if consistency is Consistency.EACH_QUORUM:
            centres = [frozenset(name for name in replicas if self.data_centre_of[name] == dc) for dc in self.nodes]
            return tuple(ReplicaGroup(names, majority(len(names))) for names in centres if names)
        raise Bug("Not a consistency level of plain reads and writes", consistency=consistency.value)


def majority(count: int) -> int:
    """More than half."""
    return count // 2 + 1
