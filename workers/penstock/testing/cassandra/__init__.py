"""A real Cassandra for tests, demos and benchmarks, from the package registries everybody has: Maven's jars and Java.

    from penstock.testing.cassandra import Cassandra

    with Cassandra.start() as cassandra:
        cassandra.environment()      # CONTACT_POINTS and the rest, for whatever is under test

Standard library only, so that it runs before a virtual environment exists.
"""

from penstock.testing.cassandra.connection import Connection, ContactPoint, TlsFiles
from penstock.testing.cassandra.cql_probe import CqlProbe
from penstock.testing.cassandra.kept import default_state_directory, find_kept, start_kept, stop_kept
from penstock.testing.cassandra.node import Node
from penstock.testing.cassandra.ring import HostedRing, Ring
from penstock.testing.cassandra.security import Credentials, Grant, create_role_statements
from penstock.testing.cassandra.settings import NodeSettings, Profile
from penstock.testing.cassandra.single import Cassandra
from penstock.testing.cassandra.tls import Certificates, certificates

__all__ = [
    "Cassandra",
    "Certificates",
    "Connection",
    "ContactPoint",
    "CqlProbe",
    "Credentials",
    "Grant",
    "HostedRing",
    "Node",
    "NodeSettings",
    "Profile",
    "Ring",
    "TlsFiles",
    "certificates",
    "create_role_statements",
    "default_state_directory",
    "find_kept",
    "start_kept",
    "stop_kept",
]
