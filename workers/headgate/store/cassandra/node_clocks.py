"""The clocks of a real Cassandra's nodes, one by one, as rule R1 needs them (`clocks.NodeTimes`)."""

from __future__ import annotations

from collections.abc import Mapping

from headgate.errors import Unavailable
from headgate.store.cassandra.store import CassandraStore
from headgate.store.clock.clock_state import READING_RESOLUTION_US
from headgate.store.model.consistency import Consistency


class CassandraTimes:
    """The interface that the clock needs of a store (`NodeTimes`): a query of each node's own time.

    `current_timestamp()` is the node's wall clock. `now()` is not: it creates a uuid above the last one, and so
    continues to count where the clock was set back.
    """

    def __init__(self, store: CassandraStore) -> None:
        self._store = store

    def coordinators(self) -> Mapping[str, bool]:
        """By address."""
        return {node.address: node.up for node in self._store.coordinators()}

    async def ask_time(self, coordinator: str, within_s: float) -> int:
        """Microseconds, cut to milliseconds."""
        node = next((each for each in self._store.coordinators() if each.address == coordinator), None)
        if node is None:
            raise Unavailable("The node no longer exists", node=coordinator)
        rows = await self._store.cql(
            "SELECT to_unix_timestamp(current_timestamp()) AS now FROM system.local",
            consistency=Consistency.ONE,
            at=node,
            within_s=within_s,
        )
        return int(rows[0].now) * READING_RESOLUTION_US

    def exclude(self, coordinators: frozenset[str]) -> None:
        """From now on no request goes to that node."""
        self._store.exclude(coordinators)
