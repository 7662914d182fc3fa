"""What every Cassandra under test offers, whichever way it came to be: a connection, a statement, an end."""

from __future__ import annotations

from typing import Protocol

from headgate.testing.cassandra.connection import Connection
from headgate.testing.cassandra.cql_probe import CqlProbe, Row


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
        """The variables that tell a process of Headgate where it is."""
        ...

    def cql(self, statement: str, *, consistency: str = "ONE") -> list[Row]:
        """Run one statement as the superuser."""
        ...

    def stop(self) -> None:
        """End what was started for it, and nothing else."""
        ...


class Existing:
    """A cluster that somebody else runs: used, never ended."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.cql("SELECT release_version FROM system.local")

    @property
    def connection(self) -> Connection:
        """As the environment tells."""
        return self._connection

    def contact_points(self) -> list[str]:
        """As the environment tells."""
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
