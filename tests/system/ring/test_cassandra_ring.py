"""A ring of three on loopback: what a quorum still does when nodes die or fall silent, and what it refuses."""

from __future__ import annotations

import pytest

from dev.servers.cassandra import Ring
from headgate.errors import Unavailable
from headgate.local.processes import wait_until


@pytest.fixture(scope="module")
def table(_session_ring: Ring) -> str:
    """A table of which every node holds every row."""
    _session_ring.cql(
        "CREATE KEYSPACE IF NOT EXISTS ring_test"
        " WITH replication = {'class': 'NetworkTopologyStrategy', 'datacenter1': 3}"
    )
    _session_ring.cql("CREATE TABLE IF NOT EXISTS ring_test.t (k int PRIMARY KEY, v int)")
    return "ring_test.t"


def write(ring: Ring, table: str, key: int, value: int, *, via: int = 0, consistency: str = "QUORUM") -> None:
    ring.cql(
        f"INSERT INTO {table} (k, v) VALUES ({key}, {value})",  # noqa: S608
        via=via,
        consistency=consistency,
    )


def read(ring: Ring, table: str, key: int, *, via: int = 0, consistency: str = "QUORUM") -> list[object]:
    rows = ring.cql(f"SELECT v FROM {table} WHERE k = {key}", via=via, consistency=consistency)  # noqa: S608
    return [row["v"] for row in rows]


def down_nodes_by(ring: Ring, node: int) -> set[str]:
    """The nodes that this one's failure detector has given up on."""
    lines = ring.nodes[node].nodetool("status").splitlines()
    return {line.split()[1] for line in lines if line.startswith("DN")}


def test_each_node_coordinates_for_all(cassandra_ring: Ring, table: str) -> None:
    for via in range(3):
        write(cassandra_ring, table, 1, via, via=via, consistency="ALL")
        assert [[via]] * 3 == [read(cassandra_ring, table, 1, via=other) for other in range(3)]


def test_every_node_owns_a_third_of_the_ring_and_logins_need_no_single_one(cassandra_ring: Ring) -> None:
    tokens = [node.cql("SELECT tokens FROM system.local")[0]["tokens"] for node in cassandra_ring.nodes]
    assert [1, 1, 1] == [len(owned) for owned in tokens if isinstance(owned, list)]
    report = cassandra_ring.cql("SELECT replication FROM system_schema.keyspaces WHERE keyspace_name = 'system_auth'")
    assert "3" == dict(report[0]["replication"])["replication_factor"]  # type: ignore[call-overload]  # a CQL map


def test_contact_points_share_one_port_so_that_a_driver_finds_the_peers(cassandra_ring: Ring) -> None:
    ports = {point.port for point in cassandra_ring.connection.contact_points}
    hosts = [point.host for point in cassandra_ring.connection.contact_points]
    assert (1, ["127.0.0.1", "127.0.0.2", "127.0.0.3"]) == (len(ports), hosts)
    assert ",".join(cassandra_ring.contact_points()) == cassandra_ring.environment()["CONTACT_POINTS"]


def test_a_quorum_continues_without_a_dead_node_and_it_catches_up(cassandra_ring: Ring, table: str) -> None:
    cassandra_ring.nodes[2].kill()
    write(cassandra_ring, table, 2, 22)
    assert [22] == read(cassandra_ring, table, 2, via=1)
    with pytest.raises(Unavailable):
        write(cassandra_ring, table, 2, 23, consistency="ALL")
    cassandra_ring.nodes[2].start()
    cassandra_ring.wait_until_whole()
    assert wait_until(lambda: read(cassandra_ring, table, 2, via=2, consistency="ALL") == [23], timeout_s=30)


def test_a_minority_refuses_what_needs_a_quorum(cassandra_ring: Ring, table: str) -> None:
    cassandra_ring.nodes[1].pause()
    cassandra_ring.nodes[2].pause()
    write(cassandra_ring, table, 3, 33, consistency="ONE")
    with pytest.raises(Unavailable):
        write(cassandra_ring, table, 3, 34)
    cassandra_ring.nodes[1].resume()
    write(cassandra_ring, table, 3, 35)
    assert [35] == read(cassandra_ring, table, 3, via=1)


def test_a_ring_is_whole_again_for_the_next_test(cassandra_ring: Ring, table: str) -> None:
    cassandra_ring.nodes[0].kill()
    cassandra_ring.nodes[1].pause()
    cassandra_ring.restore()
    write(cassandra_ring, table, 4, 44, consistency="ALL")
    assert [set()] * 3 == [down_nodes_by(cassandra_ring, node) for node in range(3)]
