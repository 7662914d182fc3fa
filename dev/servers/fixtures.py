"""Fixtures for tests against real servers; loaded by pytest where headgate[test] is installed.

    cassandra         one node, for the whole session, from the source for this machine
    cassandra_ring    three nodes on 127.0.0.1 to 127.0.0.3 that can be killed, paused and started again
    cassandra_hosts   three nodes on hosts of their own, whose links can be cut and delayed; needs root

Modules that start servers are imported only by a test that wants one, so that all other tests start as fast as
without.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from dev.servers.cassandra import HostedRing, NodeSettings, Ring
    from dev.servers.cassandra.serving import Serving

HINT_WINDOW = "1s"
"""A single node keeps hints for no other; so tests of counters need not wait hours for a collection."""
RING_SUPERUSER = ("headgate", "headgate")
NEEDS_ROOT = "needs root: hosts in network namespaces"


@pytest.fixture(scope="session")
def cassandra() -> Iterator[Serving]:
    """A Cassandra that answers, with password authentication; ended with the session."""
    from dev.servers.cassandra import NodeSettings
    from dev.servers.cassandra.choose import serve

    server = serve(NodeSettings(overrides={"max_hint_window": HINT_WINDOW}))
    try:
        yield server
    finally:
        server.stop()


def ring_settings() -> NodeSettings:
    """A server reads roles at LOCAL_QUORUM, and those of its default superuser at QUORUM: a minority could not even
    log in, nor stay authorised. Rings are for tests of minorities, so these read roles at ONE.
    """
    from dev.servers.cassandra import NodeSettings

    username, password = RING_SUPERUSER
    return NodeSettings(username=username, password=password, overrides={"auth_read_consistency_level": "ONE"})


@pytest.fixture(scope="session")
def _session_ring() -> Iterator[Ring]:
    from dev.servers.cassandra import Ring

    with Ring.start(ring_settings()) as ring:
        yield ring


@pytest.fixture
def cassandra_ring(_session_ring: Ring) -> Iterator[Ring]:
    """Three nodes; nodes that a test has killed or paused run again before the next."""
    yield _session_ring
    _session_ring.restore()


@pytest.fixture(scope="session")
def _session_hosts() -> Iterator[HostedRing]:
    if os.geteuid() != 0:
        pytest.skip(NEEDS_ROOT)
    from dev.servers.cassandra import HostedRing

    with HostedRing.start_on_hosts(ring_settings()) as ring:
        yield ring


@pytest.fixture
def cassandra_hosts(_session_hosts: HostedRing) -> Iterator[HostedRing]:
    """Three nodes on hosts; links are whole and all nodes run before the next test."""
    yield _session_hosts
    _session_hosts.restore()
