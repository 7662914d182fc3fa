"""The permissions on a server under test: its superuser, and roles with exactly the grants of a test."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from dev.servers.cassandra.connection import Connection
from dev.servers.cassandra.cql_probe import CqlProbe
from headgate.errors import OperationRefused

Probe = Callable[[Connection], CqlProbe]


@dataclass(frozen=True)
class Credentials:
    """A name and a password."""

    username: str
    password: str


DEFAULT = Credentials("cassandra", "cassandra")
"""The superuser that a new server creates by itself, as its documentation states."""


@dataclass(frozen=True)
class Grant:
    """A permission on a resource, in CQL: Grant("SELECT", "KEYSPACE shop")."""

    permission: str
    resource: str

    def cql(self, role: str) -> str:
        """The statement that gives it."""
        return f"GRANT {self.permission} ON {self.resource} TO {quoted_name(role)}"


def create_role_statements(role: Credentials, grants: Iterable[Grant] = (), *, superuser: bool = False) -> list[str]:
    """A role that can log in and has the given permissions, nothing else."""
    create = (
        f"CREATE ROLE IF NOT EXISTS {quoted_name(role.username)} WITH PASSWORD = {quoted_text(role.password)}"
        f" AND LOGIN = true AND SUPERUSER = {'true' if superuser else 'false'}"
    )
    return [create, *(grant.cql(role.username) for grant in grants)]


def replace_default_superuser(probe: Probe, ours: Connection) -> None:
    """Create the superuser of the settings, and take login and permissions from the default one."""
    assert ours.username is not None and ours.password is not None, "a server without authentication has no superuser"
    try:
        with probe(ours.as_role(DEFAULT.username, DEFAULT.password)) as default:
            for statement in create_role_statements(Credentials(ours.username, ours.password), superuser=True):
                default.query(statement, consistency="ALL")
    except OperationRefused:
        return  # It does not exist yet, or is disarmed already.
    with probe(ours) as own:
        own.query(f"ALTER ROLE {quoted_name(DEFAULT.username)} WITH SUPERUSER = false AND LOGIN = false")


def quoted_name(name: str) -> str:
    """An identifier in CQL, whatever its content."""
    return '"' + name.replace('"', '""') + '"'


def quoted_text(text: str) -> str:
    """A text literal."""
    return "'" + text.replace("'", "''") + "'"
