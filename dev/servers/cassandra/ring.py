"""A ring: several nodes that hold each row together, on loopback addresses or each on a host of its own.

All nodes are seeds with fixed tokens and no bootstrap, so that they start at once, in nine seconds instead of
minutes. A ring on loopback can lose nodes; one on hosts (`HostedRing`) can lose the links between them too.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Self

from dev.servers.cassandra.connection import Connection
from dev.servers.cassandra.cql_probe import Row
from dev.servers.cassandra.learning import find_installation
from dev.servers.cassandra.node import Node
from dev.servers.cassandra.settings import NodeSettings, RingPlace, evenly_spaced_tokens
from dev.servers.cassandra.tls import Certificates
from dev.servers.network import NamespaceNetwork, NetworkHost
from dev.servers.ownership import temporary_directory
from headgate.errors import HeadgateError, OperationRefused, Unavailable
from headgate.local.cache import require_disk_space
from headgate.local.cassandra.installation import Installation, require_memory
from headgate.local.cassandra.node import START_TIMEOUT_S, NodePlace
from headgate.local.processes import server_ports, wait_until

_DISK_MB_PER_NODE = 400
_ROLES_ARRIVE_S = 20.0
_ASK_ROLES = "SELECT * FROM system_auth.roles"
_ASK_HISTORY = "SELECT * FROM system_distributed.parent_repair_history"
_SCHEMA_VERBS = ("CREATE", "ALTER", "DROP")
_NATIVE, _STORAGE, _JMX = 9042, 7000, 7199


class Ring:
    """Running nodes; a context manager that ends them. Created by `Ring.start`."""

    def __init__(self, nodes: list[Node], directory: Path) -> None:
        self.nodes = nodes
        self._directory = directory

    @classmethod
    def start(
        cls,
        settings: NodeSettings | None = None,
        *,
        nodes: int = 3,
        tls: Certificates | None = None,
        require_client_auth: bool = False,
        data_centers: Sequence[str] = (),
        timeout_s: float = START_TIMEOUT_S,
    ) -> Ring:
        """Nodes on 127.0.0.1, 127.0.0.2 and so on, and return when each can reach all. With `data_centers`, each node
        is in the one of its place."""
        wanted = _with_tls(settings, tls, require_client_auth=require_client_auth)
        parts = find_installation()
        require_memory(wanted.memory_mb * nodes)
        addresses = [f"127.0.0.{number + 1}" for number in range(nodes)]
        native, storage, *jmx = server_ports(2 + nodes, addresses)
        directory = _directory(nodes)
        places = [
            NodePlace(directory / f"n{number + 1}", address, native, storage, jmx[number])
            for number, address in enumerate(addresses)
        ]
        homes = data_centers or [wanted.data_center] * nodes
        made = [
            _node(replace(wanted, data_center=home), place, parts, tls, None)
            for home, place in zip(homes, _as_ring(places), strict=True)
        ]
        ring = cls(made, directory)
        ring._launch(timeout_s)
        return ring

    @property
    def connection(self) -> Connection:
        """How to reach it as its superuser, by any node."""
        points = tuple(point for node in self.nodes for point in node.connection.contact_points)
        return replace(self.nodes[0].connection, contact_points=points)

    def contact_points(self) -> list[str]:
        """`host:port` of every node."""
        return [str(point) for point in self.connection.contact_points]

    def environment(self) -> dict[str, str]:
        """The variables that point a process of Headgate at it."""
        return self.connection.environment()

    def cql(self, statement: str, *, consistency: str = "QUORUM", via: int = 0) -> list[Row]:
        """Run one statement as the superuser, with node `via` as coordinator; wait until all know a new schema."""
        rows = self.nodes[via].cql(statement, consistency=consistency)
        if statement.split(maxsplit=1)[0].upper() in _SCHEMA_VERBS:
            self._wait_until_schema_agrees()
        return rows

    def wait_until_whole(self, *, timeout_s: float = START_TIMEOUT_S) -> None:
        """Return when every node runs and, as a coordinator, gets an answer from all of them."""
        deadline = time.monotonic() + timeout_s
        for node in self.nodes:
            self._wait_until_ready(node, deadline)
        for node in self.nodes:
            while (why := _cannot_reach_all(node)) is not None:
                if time.monotonic() > deadline:
                    raise Unavailable(
                        "the ring is not complete",
                        remedy=f"the node's last lines:\n{node.server.last_error_lines()}",
                        observer=node.address,
                        last=why,
                    )
                time.sleep(0.1)

    def _wait_until_ready(self, node: Node, deadline: float) -> None:
        """Roles are read at ONE in this ring, and created while the nodes still find each other: a node that missed
        our superuser would reject us forever. So where a node stays unready, others read the roles at ALL, which
        repairs it."""
        while True:
            left_s = deadline - time.monotonic()
            try:
                node.wait_until_ready(timeout_s=max(1.0, min(_ROLES_ARRIVE_S, left_s)))
            except Unavailable:
                if left_s <= _ROLES_ARRIVE_S:
                    raise
                self._spread_roles()
            else:
                return

    def _spread_roles(self) -> None:
        for node in self.nodes:
            with suppress(Unavailable, OperationRefused):
                node.cql(_ASK_ROLES, consistency="ALL")

    def restore(self, *, timeout_s: float = START_TIMEOUT_S) -> None:
        """Resume paused nodes, start dead ones, and return when the ring is complete."""
        for node in self.nodes:
            node.resume()
            if not node.alive():
                node.launch()
        self.wait_until_whole(timeout_s=timeout_s)

    def _wait_until_schema_agrees(self) -> None:
        if not wait_until(lambda: len(self._schema_versions()) <= 1, timeout_s=30):
            raise Unavailable("the nodes do not agree on the schema", versions=sorted(self._schema_versions()))

    def _schema_versions(self) -> set[str]:
        """The schema version of the nodes that answer; a dead, paused or partitioned one learns it later."""
        versions = set()
        for node in self.nodes:
            with suppress(Unavailable), node.probe(timeout_s=2.0) as probe:
                versions.add(str(probe.query("SELECT schema_version FROM system.local")[0]["schema_version"]))
        return versions

    def stop(self) -> None:
        """End all nodes; their data go with them."""
        for node in self.nodes:
            node.kill()
        shutil.rmtree(self._directory, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _launch(self, timeout_s: float) -> None:
        try:
            for node in self.nodes:
                node.launch()
            self.wait_until_whole(timeout_s=timeout_s)
        except BaseException:
            self.stop()
            raise


class HostedRing(Ring):
    """A ring whose nodes `n1`, `n2`, `n3` are on hosts of their own. Created by `HostedRing.start_on_hosts`."""

    def __init__(
        self, nodes: list[Node], directory: Path, network: NamespaceNetwork, hosts: list[NetworkHost]
    ) -> None:
        super().__init__(nodes, directory)
        self.network = network
        self.hosts = hosts
        self._clients: dict[str, NetworkHost] = {}

    @classmethod
    def start_on_hosts(
        cls, settings: NodeSettings | None = None, *, nodes: int = 3, timeout_s: float = START_TIMEOUT_S
    ) -> HostedRing:
        """A node a network namespace, and return when each can reach all. Needs root."""
        wanted = settings or NodeSettings()
        parts = find_installation()
        require_memory(wanted.memory_mb * nodes)
        directory = _directory(nodes)
        network = NamespaceNetwork(directory)
        try:
            hosts = [network.add_host(f"n{number + 1}") for number in range(nodes)]
            places = [NodePlace(directory / host.name, host.address, _NATIVE, _STORAGE, _JMX) for host in hosts]
            made = [
                _node(wanted, place, parts, None, host.namespace)
                for place, host in zip(_as_ring(places), hosts, strict=True)
            ]
        except BaseException:
            network.close()
            shutil.rmtree(directory, ignore_errors=True)
            raise
        ring = cls(made, directory, network, hosts)
        ring._launch(timeout_s)
        return ring

    def cut(self, source: str, target: str, *, one_way: bool = False) -> None:
        """Drop packets from the side of `source` to that of `target`, and unless one_way the replies."""
        self.network.cut(source, target, one_way=one_way)

    def heal(self) -> None:
        """No cut and no delay any more."""
        self.network.heal()

    def delay(self, source: str, target: str, ms: float, *, one_way: bool = False) -> None:
        """Hold each packet between the two sides for `ms`, in each direction."""
        self.network.delay(source, target, ms, one_way=one_way)

    def client(self, near: str) -> NetworkHost:
        """The host of clients on the side of a node: partitioned from the same hosts as that node."""
        if near not in self._clients:
            self._clients[near] = self.network.add_host(f"client-{near}", near=near)
        return self._clients[near]

    def restore(self, *, timeout_s: float = START_TIMEOUT_S) -> None:
        """Heal all links first; then as any ring."""
        self.heal()
        super().restore(timeout_s=timeout_s)

    def stop(self) -> None:
        """End all nodes and remove their hosts."""
        super().stop()
        self.network.close()


def _with_tls(settings: NodeSettings | None, tls: Certificates | None, *, require_client_auth: bool) -> NodeSettings:
    wanted = settings or NodeSettings()
    return wanted if tls is None else replace(wanted, tls=tls.server(require_client_auth=require_client_auth))


def _directory(nodes: int) -> Path:
    directory = temporary_directory("headgate-cassandra-")
    require_disk_space(directory, _DISK_MB_PER_NODE * nodes)
    return directory


def _as_ring(places: list[NodePlace]) -> list[RingPlace]:
    """The same places as parts of one ring: all of them seeds, each with its share of the tokens."""
    seeds = tuple(place.address for place in places)
    tokens = evenly_spaced_tokens(len(places))
    return [
        RingPlace(**vars(place), seeds=seeds, token=token, nodes=len(places))
        for place, token in zip(places, tokens, strict=True)
    ]


def _node(
    settings: NodeSettings, place: NodePlace, parts: Installation, tls: Certificates | None, namespace: str | None
) -> Node:
    return Node(
        settings,
        place,
        installation=parts,
        namespace=namespace,
        client_tls=None if tls is None else tls.client(),
    )


def _cannot_reach_all(node: Node) -> HeadgateError | None:
    """Why a read of every node's data does not get all answers; None when it does."""
    asked = _ASK_ROLES if node.settings.authentication else _ASK_HISTORY
    try:
        node.cql(asked, consistency="ALL")
        peers = node.cql("SELECT peer FROM system.peers")
    except (Unavailable, OperationRefused) as error:
        return error
    assert isinstance(node.place, RingPlace), "a node of a ring"
    return None if len(peers) == node.place.nodes - 1 else Unavailable("some peers are missing", known=len(peers))
