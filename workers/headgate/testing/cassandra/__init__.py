"""A real Cassandra for tests, demos and benchmarks, from public package registries: Maven's jars and Java.

    from headgate.testing.cassandra import Cassandra

    with Cassandra.start() as cassandra:
        cassandra.environment()      # CONTACT_POINTS and the rest, for the program under test

Standard library only, so that it runs before a virtual environment exists.
"""

from headgate.testing.cassandra.connection import Connection, ContactPoint, TlsFiles
from headgate.testing.cassandra.cql_probe import CqlProbe
from headgate.testing.cassandra.kept import default_state_directory, find_kept, start_kept, stop_kept
from headgate.testing.cassandra.node import Node
from headgate.testing.cassandra.ring import HostedRing, Ring
from headgate.testing.cassandra.security import Credentials, Grant, create_role_statements
from headgate.testing.cassandra.settings import NodeSettings, Profile
from headgate.testing.cassandra.single import Cassandra
from headgate.testing.cassandra.tls import Certificates, certificates

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
