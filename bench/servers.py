"""Cassandra for benchmarks: one node of each kind, in the throughput profile, started on first use.

Kinds differ in the sync of the commit log and in the variant of Paxos, nothing else. They run concurrently, so that
kinds can be compared within one round; an idle one uses next to nothing, and its use counts as others' use.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType

from bench.client_process import ClientProcess
from dev.servers.cassandra import Cassandra, NodeSettings, Profile
from headgate.local import progress
from headgate.store.model.cql import create_keyspace_cql, create_table_cql
from headgate.store.model.table import Keyspace, Table

HEAP_MB = 1024


@dataclass(frozen=True)
class ServerKind:
    """The work on one server."""

    commitlog_sync: str = "periodic"
    paxos_variant: str = "v1"

    def __str__(self) -> str:
        return f"commitlog {self.commitlog_sync}, paxos {self.paxos_variant}"


@dataclass(frozen=True)
class Running:
    """A server that answers, and how processes reach it."""

    pid: int
    environment: Mapping[str, str]
    cassandra: Cassandra


class Servers:
    """Servers by kind, and the client processes that work on them; all end with it."""

    def __init__(self, keyspace: str, tables: Sequence[Table], *, profile: Profile = Profile.THROUGHPUT) -> None:
        self._keyspace = keyspace
        self._profile = profile
        self._tables = tables
        self._running: dict[ServerKind, Running] = {}
        self._clients: dict[tuple[ServerKind, str, str], ClientProcess] = {}
        self._stack = ExitStack()
        self._logs = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="headgate-bench-")))

    def at(self, kind: ServerKind) -> Running:
        """The server of that kind, with keyspace and tables."""
        if kind not in self._running:
            with progress.step(f"starting Cassandra ({kind})", expect_s=25):
                self._running[kind] = self._start(kind)
        return self._running[kind]

    def client(self, kind: ServerKind, module: str, role: str = "") -> ClientProcess:
        """The process that runs the contender of that module against the server of that kind; one for each role."""
        known = (kind, module, role)
        if known not in self._clients:
            name = f"{module.rpartition('.')[2]} {role}".strip() + f" ({kind})"
            log = self._logs / f"client-{len(self._clients)}.log"
            client = ClientProcess(name, module, self.at(kind).environment, log)
            self._clients[known] = self._stack.enter_context(client)
        return self._clients[known]

    def _start(self, kind: ServerKind) -> Running:
        settings = NodeSettings(
            profile=self._profile,
            heap_mb=HEAP_MB if self._profile is Profile.THROUGHPUT else None,
            commitlog_sync=kind.commitlog_sync,
            paxos_variant=kind.paxos_variant,
        )
        cassandra = self._stack.enter_context(Cassandra.start(settings))
        connection = replace(cassandra.connection, keyspace=self._keyspace)
        cassandra.cql(create_keyspace_cql(Keyspace(self._keyspace, ((connection.data_center, 1),))))
        for table in self._tables:
            cassandra.cql(create_table_cql(self._keyspace, table))
        return Running(cassandra.node.server.pid, connection.environment(), cassandra)

    def __enter__(self) -> Servers:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()
