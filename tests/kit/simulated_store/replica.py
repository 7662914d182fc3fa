"""The state of one node on disk: partitions, Paxos state, hints and logged batches. Pure: no time, no messages.

This state outlives the node's process, as a synced commit log would ensure.
"""

from __future__ import annotations

from typing import NamedTuple

from headgate.store.memory.mutations import Mutation
from headgate.store.memory.selections import StoredCommand
from headgate.store.model.types import Value
from tests.kit.simulated_store.images import EMPTY, ReplicaImage, SimulatedPartition
from tests.kit.simulated_store.paxos import Acceptor


class Hint(NamedTuple):
    """A write that its target still lacks. It is valid until `gc_grace_s` after its creation."""

    made_s: float
    gc_grace_s: int
    mutation: Mutation


class LoggedBatch(NamedTuple):
    """A logged batch, stored by two nodes until its coordinator reports its end."""

    written_s: float
    gc_grace_s: int
    mutations: tuple[Mutation, ...]


class HeldPartition(NamedTuple):
    """A partition with its key, for scans."""

    token: int
    values: tuple[Value, ...]
    partition: SimulatedPartition


class Replica:
    """The storage of one node."""

    def __init__(self) -> None:
        self.tables: dict[str, dict[bytes, HeldPartition]] = {}
        self.gc_grace_s: dict[str, int] = {}
        self.acceptors: dict[tuple[str, bytes], Acceptor] = {}
        self.hints: dict[str, list[Hint]] = {}
        self.batches: dict[int, LoggedBatch] = {}

    def apply(self, mutation: Mutation) -> None:
        """Write all parts of a mutation."""
        for table, values, update in mutation.parts:
            held = self.tables.get(table.name)
            if held is None:
                held = self.tables[table.name] = {}
                self.gc_grace_s[table.name] = table.gc_grace_s
            entry = held.get(mutation.key)
            if entry is None:
                entry = held[mutation.key] = HeldPartition(mutation.token, values, SimulatedPartition())
            entry.partition.apply(update)

    def read(self, command: StoredCommand, gc_before_s: int) -> ReplicaImage:
        """Answer a read."""
        entry = self.tables.get(command.table.name, {}).get(command.key)
        return entry.partition.replica_image(command.cut, gc_before_s) if entry is not None else EMPTY

    def acceptor(self, table: str, key: bytes) -> Acceptor:
        """The Paxos state of a partition."""
        acceptor = self.acceptors.get((table, key))
        if acceptor is None:
            acceptor = self.acceptors[table, key] = Acceptor()
        return acceptor

    def held_between(self, table: str, above: int, up_to: int) -> list[tuple[bytes, HeldPartition]]:
        """Partitions of a token range, in the order of tokens."""
        partitions = [(key, held) for key, held in self.tables.get(table, {}).items() if above < held.token <= up_to]
        return sorted(partitions, key=lambda entry: (entry[1].token, entry[0]))

    def purge(self, table: str, now_s: int, gc_before_s: int) -> None:
        """Compact one table: drop older tombstones, and cells that expired before."""
        held = self.tables.get(table, {})
        for key in list(held):
            held[key].partition.purge(now_s, gc_before_s)
            if held[key].partition.is_empty:
                del held[key]
