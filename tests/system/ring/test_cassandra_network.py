"""Hosts whose links are cut and delayed: shown with plain sockets, then with a real ring and clients on its sides."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dev.servers import namespaces
from dev.servers.cassandra import HostedRing
from dev.servers.network import NamespaceNetwork, NetworkHost
from headgate.errors import InvalidRequest, Unavailable
from headgate.local.processes import wait_until

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: hosts in network namespaces")
PORT = 7777
READ_ROLES = "SELECT role AS v FROM system_auth.roles"


@pytest.fixture
def network(tmp_path: Path) -> Iterator[NamespaceNetwork]:
    """Two hosts a and b, and nothing else."""
    with NamespaceNetwork(tmp_path) as made:
        made.add_host("a")
        made.add_host("b")
        yield made


def bound(host: NetworkHost, kind: socket.SocketKind) -> socket.socket:
    with host.inside():
        made = socket.socket(socket.AF_INET, kind)
    made.settimeout(0.5)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    made.bind((host.address, PORT))
    return made


def arrives(source: socket.socket, target: socket.socket) -> bool:
    """Whether a datagram that is sent now arrives."""
    mark = os.urandom(8)
    source.sendto(mark, target.getsockname())
    try:
        while target.recv(100) != mark:
            pass
    except TimeoutError:
        return False
    return True


def open_stream(source: NetworkHost, target: NetworkHost) -> tuple[socket.socket, socket.socket]:
    with bound(target, socket.SOCK_STREAM) as listener:
        listener.listen()
        with source.inside():
            near = socket.create_connection((target.address, PORT), timeout=5)
        far, _ = listener.accept()
    far.settimeout(5)
    return near, far


def seconds(act: Callable[[], object]) -> float:
    started = time.monotonic()
    act()
    return time.monotonic() - started


def echo(near: socket.socket, far: socket.socket) -> None:
    near.sendall(b"x")
    far.sendall(far.recv(1))
    assert b"x" == near.recv(1)


@needs_root
def test_a_one_way_cut_loses_one_direction_alone(network: NamespaceNetwork) -> None:
    a, b = (bound(network.host(name), socket.SOCK_DGRAM) for name in "ab")
    with a, b:
        assert (True, True) == (arrives(a, b), arrives(b, a))
        network.cut("a", "b", one_way=True)
        assert (False, True) == (arrives(a, b), arrives(b, a))
        network.cut("a", "b")
        assert (False, False) == (arrives(a, b), arrives(b, a))
        network.heal()
        assert (True, True) == (arrives(a, b), arrives(b, a))


@needs_root
def test_a_cut_is_silent_within_a_connection_and_healed_it_continues(network: NamespaceNetwork) -> None:
    near, far = open_stream(network.host("a"), network.host("b"))
    with near, far:
        echo(near, far)
        network.cut("a", "b", one_way=True)
        near.sendall(b"lost")
        far.settimeout(0.5)
        with pytest.raises(TimeoutError):
            far.recv(4)
        network.heal()
        far.settimeout(20)
        assert b"lost" == far.recv(4)


@needs_root
def test_a_cut_link_refuses_nothing_it_only_does_not_answer(network: NamespaceNetwork) -> None:
    network.cut("a", "b")
    with network.host("a").inside(), pytest.raises(TimeoutError):
        socket.create_connection((network.host("b").address, PORT), timeout=0.5)


@needs_root
def test_a_delay_lasts_a_round_trip_twice_and_ends_with_heal(network: NamespaceNetwork) -> None:
    near, far = open_stream(network.host("a"), network.host("b"))
    with near, far:
        network.delay("a", "b", 60)
        delayed = min(seconds(lambda: echo(near, far)) for _ in range(3))
        network.delay("a", "b", 0)
        network.delay("b", "a", 60, one_way=True)
        one_way = min(seconds(lambda: echo(near, far)) for _ in range(3))
        network.heal()
        healed = min(seconds(lambda: echo(near, far)) for _ in range(5))
    assert 0.12 <= delayed
    assert 0.06 <= one_way < 0.12
    assert healed < 0.06


@needs_root
def test_a_delayed_link_carries_bulk_whole_and_in_order(network: NamespaceNetwork) -> None:
    near, far = open_stream(network.host("a"), network.host("b"))
    sent = os.urandom(3_000_000)
    received = bytearray()
    with near, far:
        network.delay("a", "b", 10)
        near.settimeout(60)
        far.settimeout(60)
        sender = threading.Thread(target=near.sendall, args=(sent,))
        sender.start()
        while len(received) < len(sent):
            received += far.recv(1 << 20)
        sender.join()
    assert sent == bytes(received)


@needs_root
def test_a_client_shares_the_fate_of_its_side_also_when_it_comes_later(network: NamespaceNetwork) -> None:
    network.add_host("beside-a", near="a")
    network.cut("a", "b")
    late = network.add_host("late", near="a")
    hosts = [network.host("beside-a"), late, network.host("a"), network.host("b")]
    early, later, a, b = (bound(host, socket.SOCK_DGRAM) for host in hosts)
    with early, later, a, b:
        assert [False, False] == [arrives(client, b) for client in (early, later)]
        assert [True, True] == [arrives(client, a) for client in (early, later)]


@needs_root
def test_a_host_has_no_way_out_of_the_machine(network: NamespaceNetwork) -> None:
    assert "default" not in namespaces.ip("route", "show", "table", "all", namespace=network.router)
    outside = ("198.51.100.7", PORT)
    with network.host("a").inside(), pytest.raises(OSError, match="unreachable"):
        socket.create_connection(outside, timeout=5)
    assert ["lo"] == [link for link in links(network.router) if link not in {"to-a", "to-b"}]


def links(namespace: str) -> list[str]:
    lines = namespaces.ip("-brief", "link", namespace=namespace).splitlines()
    return [line.split()[0].split("@")[0] for line in lines]


@needs_root
def test_what_runs_on_a_host_runs_there_and_a_thread_comes_back(network: NamespaceNetwork) -> None:
    host = network.host("a")
    home = os.readlink("/proc/thread-self/ns/net")  # noqa: PTH115 - the content of the link is no path
    there = host.call(lambda: os.readlink("/proc/thread-self/ns/net"))  # noqa: PTH115
    assert there != home
    assert there == host.run(["readlink", "/proc/self/ns/net"]).stdout.strip()
    assert home == os.readlink("/proc/thread-self/ns/net")  # noqa: PTH115
    with pytest.raises(ZeroDivisionError):
        host.call(lambda: 1 // 0)


@needs_root
def test_an_unknown_host_is_named_with_those_there_are(network: NamespaceNetwork) -> None:
    with pytest.raises(InvalidRequest, match="one of a, b"):
        network.cut("a", "c")


@needs_root
def test_a_network_leaves_no_namespace(tmp_path: Path) -> None:
    with NamespaceNetwork(tmp_path) as network:
        names = [network.router, network.add_host("a").namespace]
        network.add_host("b")
        network.delay("a", "b", 5)
        assert [True, True] == [namespaces.exists(name) for name in names]
    assert [False, False] == [namespaces.exists(name) for name in names]


def ask(ring: HostedRing, side: str, of: str, *, consistency: str, statement: str) -> list[object]:
    """Rows that a client on the side of one node reads from another."""
    node = ring.nodes[[host.name for host in ring.hosts].index(of)]

    def on_that_side() -> list[object]:
        with node.probe_locally(timeout_s=4.0) as probe:
            return [row["v"] for row in probe.query(statement, consistency=consistency)]

    return ring.client(side).call(on_that_side)


def test_a_majority_continues_a_minority_does_not_and_healed_they_agree(cassandra_hosts: HostedRing) -> None:
    ring = cassandra_hosts
    ring.cql(
        "CREATE KEYSPACE IF NOT EXISTS cut_test"
        " WITH replication = {'class': 'NetworkTopologyStrategy', 'datacenter1': 3}"
    )
    ring.cql("CREATE TABLE IF NOT EXISTS cut_test.t (k int PRIMARY KEY, v int)")
    read = "SELECT v FROM cut_test.t WHERE k = 1"
    ring.cql("INSERT INTO cut_test.t (k, v) VALUES (1, 1)", consistency="ALL")
    ring.cut("n1", "n2")
    ring.cut("n1", "n3")
    write = "INSERT INTO cut_test.t (k, v) VALUES (1, 2)"
    assert [] == ask(ring, "n2", "n2", consistency="QUORUM", statement=write)
    assert [2] == ask(ring, "n2", "n3", consistency="QUORUM", statement=read)
    assert [1] == ask(ring, "n1", "n1", consistency="ONE", statement=read)
    with pytest.raises(Unavailable):
        ask(ring, "n1", "n1", consistency="QUORUM", statement=read)
    with pytest.raises(Unavailable, match="No server answers"):
        ask(ring, "n1", "n2", consistency="ONE", statement=read)
    ring.heal()
    ring.wait_until_whole()
    assert wait_until(lambda: [2] == ask(ring, "n1", "n1", consistency="ALL", statement=read), timeout_s=30)


def test_a_node_that_hears_and_is_not_heard_leaves_a_quorum_to_the_others(cassandra_hosts: HostedRing) -> None:
    ring = cassandra_hosts

    def serves(name: str) -> bool:
        try:
            return bool(ask(ring, name, name, consistency="QUORUM", statement=READ_ROLES))
        except Unavailable:
            return False

    ring.cut("n3", "n1", one_way=True)
    ring.cut("n3", "n2", one_way=True)
    # Until they give n3 up, the others may wait for its answer in vain.
    assert wait_until(lambda: serves("n1") and serves("n2"), timeout_s=60)
    assert not serves("n3")
    ring.heal()
    assert wait_until(lambda: serves("n3"), timeout_s=60)


def test_a_delay_between_two_nodes_is_felt_by_what_needs_both(cassandra_hosts: HostedRing) -> None:
    ring = cassandra_hosts
    plain = min(seconds(lambda: ask(ring, "n1", "n1", consistency="ALL", statement=READ_ROLES)) for _ in range(3))
    ring.delay("n1", "n2", 500)
    delayed = min(seconds(lambda: ask(ring, "n1", "n1", consistency="ALL", statement=READ_ROLES)) for _ in range(2))
    assert plain < 1.0 <= delayed
