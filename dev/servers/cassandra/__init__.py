"""A real Cassandra for tests, demos and benchmarks, from public package registries: Maven's jars and Java.

    from dev.servers.cassandra import Cassandra

    with Cassandra.start() as cassandra:
        cassandra.environment()      # CONTACT_POINTS and the rest, for the program under test

Standard library only, so that it runs before a virtual environment exists.
"""

from dev.servers.cassandra.connection import Connection, ContactPoint, TlsFiles
from dev.servers.cassandra.cql_probe import CqlProbe
from dev.servers.cassandra.node import Node
from dev.servers.cassandra.ring import HostedRing, Ring
from dev.servers.cassandra.security import Credentials, Grant, create_role_statements
from dev.servers.cassandra.settings import NodeSettings, Profile
from dev.servers.cassandra.single import Cassandra
from dev.servers.cassandra.tls import Certificates, certificates
from headgate.local.cassandra.own_cassandra import find_kept, start_kept, stop_kept

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
    "find_kept",
    "start_kept",
    "stop_kept",
]
