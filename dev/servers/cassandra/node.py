"""One Cassandra process: started at a given place, awaited until it answers, stopped, killed, paused.

It knows its own place and settings, nothing of a ring, of the creation of namespaces or of roles beyond its
superuser. However it ends, its directory stays; the creator of the directory removes it.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

from dev.servers import namespaces
from dev.servers.cassandra import security, settings
from dev.servers.cassandra.connection import Connection, ContactPoint, TlsFiles
from dev.servers.cassandra.cql_probe import CqlProbe, RefusedTls, Row
from dev.servers.cassandra.settings import NodeSettings
from dev.servers.owned_server import OwnedServer
from headgate.errors import HeadgateError, InvalidRequest, OperationRefused, Unavailable
from headgate.local.cassandra.installation import Installation
from headgate.local.cassandra.node import (
    START_TIMEOUT_S,
    NodePlace,
    module_arguments,
    wait_until_ready,
    write_files,
)

STATEMENT_TIMEOUT_S = 60.0
"""Of one statement of `cql`. The server bounds no change of a schema, and dropping a keyspace writes each of its
tables to disk first: on a busy machine that takes more than ten seconds."""


class Node:
    """A node: a server process and the CQL it answers."""

    def __init__(
        self,
        node_settings: NodeSettings,
        place: NodePlace,
        *,
        installation: Installation,
        namespace: str | None = None,
        client_tls: TlsFiles | None = None,
        extra_arguments: tuple[str, ...] = (),
    ) -> None:
        self.settings = node_settings
        self.place = place
        self.namespace = namespace
        self._installation = installation
        self.connection = Connection(
            contact_points=(ContactPoint(place.address, place.native_port),),
            data_center=node_settings.data_center,
            username=node_settings.username if node_settings.authentication else None,
            password=node_settings.password if node_settings.authentication else None,
            tls=client_tls,
            cluster_name=node_settings.cluster_name,
        )
        self.server = OwnedServer(
            f"cassandra {place.address}:{place.native_port}",
            [
                str(installation.java.program),
                *settings.server_arguments(node_settings, place, archive=installation.archive),
                *extra_arguments,
                *("-cp", installation.class_path, "org.apache.cassandra.service.CassandraDaemon"),
            ],
            log=place.directory / "system.log",
            cwd=place.directory,
            namespace=namespace,
        )

    @property
    def address(self) -> str:
        """Where it listens."""
        return self.place.address

    def launch(self) -> None:
        """Start the process and do not wait for it. From the main thread: its end is tied to the starting thread."""
        wanted = self.settings
        write_files(self.place, settings.build_node_yaml(wanted, self.place), rack=wanted.rack, dc=wanted.data_center)
        self.server.start()

    def start(self, *, timeout_s: float = START_TIMEOUT_S, is_given_up: Callable[[], bool] = lambda: False) -> None:
        """Start it, and return when it answers a query of its superuser."""
        self.launch()
        self.wait_until_ready(timeout_s=timeout_s, is_given_up=is_given_up)

    def stop(self) -> None:
        """Request a flush and an end."""
        self.server.stop(grace_s=60)

    def kill(self) -> None:
        """kill -9: data only in its memory is lost."""
        self.server.kill()

    def pause(self) -> None:
        """SIGSTOP: its connections stay open, and nothing answers on them."""
        self.server.pause()

    def resume(self) -> None:
        """SIGCONT: it resumes as if no time had passed."""
        self.server.resume()

    def restart(self) -> None:
        """Stop it and start it again at the same place, with its data."""
        self.stop()
        self.start()

    def alive(self) -> bool:
        """Whether its process exists (a paused one does)."""
        return self.server.alive()

    def probe(self, connection: Connection | None = None, *, timeout_s: float = 10.0) -> CqlProbe:
        """A CQL connection to this very node, from a place that can reach it."""
        where = namespaces.inside(self.namespace) if self.namespace is not None else nullcontext()
        with where:
            return self.probe_locally(connection, timeout_s=timeout_s)

    def probe_locally(self, connection: Connection | None = None, *, timeout_s: float = 10.0) -> CqlProbe:
        """A CQL connection to this node from the caller's place, such as a client's host."""
        return CqlProbe(self.connection.contact_points[0], connection or self.connection, timeout_s=timeout_s)

    def cql(self, statement: str, *, consistency: str = "ONE") -> list[Row]:
        """Run one statement as the superuser, with this node as coordinator."""
        with self.probe(timeout_s=STATEMENT_TIMEOUT_S) as probe:
            return probe.query(statement, consistency=consistency)

    def wait_until_ready(
        self, *, timeout_s: float = START_TIMEOUT_S, is_given_up: Callable[[], bool] = lambda: False
    ) -> None:
        """Return when it answers a query of its superuser; report its last lines when it ended instead."""
        wait_until_ready(self.server, self.place, self._not_ready, timeout_s=timeout_s, is_given_up=is_given_up)

    def _not_ready(self) -> HeadgateError | None:
        try:
            with self.probe() as probe:
                probe.query("SELECT release_version FROM system.local")
        except Unavailable as error:
            return error
        except RefusedTls:
            raise
        except OperationRefused as error:
            # Either the server has not made its default superuser yet, or that one has not made ours.
            return self._replace_default_superuser() or error
        return None

    def _replace_default_superuser(self) -> HeadgateError | None:
        if self.settings.username == security.DEFAULT.username:
            return None
        try:
            security.replace_default_superuser(self.probe, self.connection)
        except (OperationRefused, Unavailable, InvalidRequest) as error:
            return error
        return None

    def nodetool(self, *arguments: str) -> str:
        """An operator's commands by nodetool: flush, compact, repair, status."""
        tool = "org.apache.cassandra.tools.NodeTool"
        tmp = self.place.directory / "tmp"
        argv = [
            *(
                str(self._installation.java.program),
                *module_arguments(),
                "-XX:TieredStopAtLevel=1",
                "-XX:+UseSerialGC",
            ),
            *(f"-Djava.io.tmpdir={tmp}", f"-Duser.home={tmp}", f"-Dcassandra.storagedir={self.place.directory}"),
            *(f"-Dlogback.configurationFile={self._quiet_logging()}", "-cp", self._installation.class_path, tool),
            *("-h", "127.0.0.1", "-p", str(self.place.jmx_port), *arguments),
        ]
        if self.namespace is not None:
            argv = namespaces.enter(self.namespace, argv)
        done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=300)
        if done.returncode != 0:
            raise Unavailable(
                "Nodetool failed", cause=(done.stderr or done.stdout).strip()[-500:], asked=arguments[0]
            )
        return done.stdout

    def _quiet_logging(self) -> Path:
        """Without a configuration of its own a tool would log each step of its libraries to its output."""
        file = self.place.directory / "quiet.xml"
        file.write_text('<configuration><root level="OFF"/></configuration>\n')
        return file
