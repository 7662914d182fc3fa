"""One node that serves alone: for a test session in a directory that goes with it, or kept by name."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Self

from dev.servers.cassandra.connection import Connection
from dev.servers.cassandra.cql_probe import Row
from dev.servers.cassandra.learning import find_installation
from dev.servers.cassandra.node import Node
from dev.servers.cassandra.settings import NodeSettings
from dev.servers.cassandra.tls import Certificates
from dev.servers.ownership import temporary_directory
from headgate.local.cache import require_disk_space
from headgate.local.cassandra.installation import require_memory
from headgate.local.cassandra.node import START_TIMEOUT_S, NodePlace
from headgate.local.processes import server_ports

_DISK_MB = 500


@dataclass
class Cassandra:
    """A running single node; a context manager that ends it. Created by `Cassandra.start`."""

    node: Node
    _owned_directory: Path | None

    @classmethod
    def start(
        cls,
        settings: NodeSettings | None = None,
        *,
        address: str = "127.0.0.1",
        tls: Certificates | None = None,
        require_client_auth: bool = False,
        timeout_s: float = START_TIMEOUT_S,
    ) -> Cassandra:
        """Start a node whose data is deleted with it, and return when it answers. It ends no later than its
        creator."""
        wanted = settings or NodeSettings()
        if tls is not None:
            wanted = replace(wanted, tls=tls.server(require_client_auth=require_client_auth))
        parts = find_installation()
        require_memory(wanted.memory_mb)
        directory = temporary_directory("headgate-cassandra-")
        require_disk_space(directory, _DISK_MB)
        native, storage, jmx = server_ports(3, sorted({address, "127.0.0.1"}))
        node = Node(
            wanted,
            NodePlace(directory, address, native, storage, jmx),
            installation=parts,
            client_tls=None if tls is None else tls.client(),
        )
        started = cls(node, directory)
        try:
            node.start(timeout_s=timeout_s)
        except BaseException:
            started.stop()
            raise
        return started

    @property
    def connection(self) -> Connection:
        """How to reach it as its superuser."""
        return self.node.connection

    def contact_points(self) -> list[str]:
        """`host:port`, as CONTACT_POINTS holds them."""
        return [str(point) for point in self.connection.contact_points]

    def environment(self) -> dict[str, str]:
        """The variables that point a process of Headgate at it."""
        return self.connection.environment()

    def cql(self, statement: str, *, consistency: str = "ONE") -> list[Row]:
        """Run one statement as the superuser."""
        return self.node.cql(statement, consistency=consistency)

    def stop(self) -> None:
        """End it. Its data go with it, so it is given no time to flush them."""
        self.node.kill()
        if self._owned_directory is not None:
            shutil.rmtree(self._owned_directory, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
