"""The driver's sockets as the store opens them, shown by a real connection to a local listener."""

from __future__ import annotations

import socket

from cassandra.connection import DefaultEndPoint

from headgate.store.cassandra.driver import HeadgateConnection
from headgate.store.cassandra.routing import HomePolicy
from headgate.store.cassandra.session import build_cluster
from headgate.store.cassandra.settings import Address, ConnectionSettings


def test_the_end_of_a_large_request_does_not_wait_for_an_acknowledgement() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        cluster = build_cluster(ConnectionSettings((Address("127.0.0.1", port),)), HomePolicy(None), None)
        HeadgateConnection.initialize_reactor()
        options = cluster._make_connection_kwargs(DefaultEndPoint("127.0.0.1", port), {})
        connection = cluster.connection_class(**options)
        try:
            assert 0 != connection._socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        finally:
            connection.close()
            cluster.shutdown()
