"""The common interface of every Cassandra under test, of any source: a connection, a statement, an end."""

from __future__ import annotations

from typing import Protocol

from dev.servers.cassandra.connection import Connection
from dev.servers.cassandra.cql_probe import CqlProbe, Row


class Serving(Protocol):
    """A Cassandra that answers."""

    @property
    def connection(self) -> Connection:
        """How to reach it as its superuser."""
        ...

    def contact_points(self) -> list[str]:
        """`host:port`, as CONTACT_POINTS holds them."""
        ...

    def environment(self) -> dict[str, str]:
        """The variables that point a process of Headgate at it."""
        ...

    def cql(self, statement: str, *, consistency: str = "ONE") -> list[Row]:
        """Run one statement as the superuser."""
        ...

    def stop(self) -> None:
        """Stop the servers that were started for it, and nothing else."""
        ...


class Existing:
    """A cluster of another owner: used, never stopped."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.cql("SELECT release_version FROM system.local")

    @property
    def connection(self) -> Connection:
        """From the environment."""
        return self._connection

    def contact_points(self) -> list[str]:
        """From the environment."""
        return [str(point) for point in self._connection.contact_points]

    def environment(self) -> dict[str, str]:
        """As it was read."""
        return self._connection.environment()

    def cql(self, statement: str, *, consistency: str = "ONE") -> list[Row]:
        """Run one statement by the first contact point."""
        with CqlProbe(self._connection.contact_points[0], self._connection) as probe:
            return probe.query(statement, consistency=consistency)

    def stop(self) -> None:
        """It is not ours to end."""
