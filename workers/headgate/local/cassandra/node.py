"""One Cassandra process: started at a given place, awaited until it answers, stopped, killed, paused.

It knows its own place and settings, nothing of a ring, of the creation of namespaces or of roles beyond its
superuser. However it ends, its directory stays; the creator of the directory removes it.
"""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

from headgate.errors import EnvironmentProblem, HeadgateError, InvalidRequest, OperationRefused, Unavailable
from headgate.local import namespaces
from headgate.local.cassandra import security, settings
from headgate.local.cassandra.connection import Connection, ContactPoint, TlsFiles
from headgate.local.cassandra.cql_probe import CqlProbe, RefusedTls, Row
from headgate.local.cassandra.installation import Installation
from headgate.local.cassandra.settings import NodePlace, NodeSettings
from headgate.local.processes import Server

START_TIMEOUT_S = 240.0
STATEMENT_TIMEOUT_S = 60.0
"""Of one statement of `cql`. The server bounds no change of a schema, and dropping a keyspace writes each of its
tables to disk first: on a busy machine that takes more than ten seconds."""


class GivenUp(Unavailable):
    """Cassandra was stopped before it answered."""


def never() -> bool:
    """A start that nobody aborts."""
    return False


_BETWEEN_TRIES_S = 0.1


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
        pid_file: Path | None = None,
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
        self.server = Server(
            f"cassandra {place.address}:{place.native_port}",
            [
                str(installation.java.program),
                *settings.server_arguments(node_settings, place, archive=installation.archive_for(node_settings)),
                *extra_arguments,
                *("-cp", installation.class_path, "org.apache.cassandra.service.CassandraDaemon"),
            ],
            log=place.directory / "system.log",
            cwd=place.directory,
            namespace=namespace,
            pid_file=pid_file,
            # A node with a pid file outlives the command that started it; any other must not outlive its tests.
            ends_with_us=pid_file is None,
        )

    @property
    def address(self) -> str:
        """Where it listens."""
        return self.place.address

    def launch(self) -> None:
        """Start the process and do not wait for it. From the main thread: its end is tied to the starting thread."""
        for name in ("data", "commitlog", "saved_caches", "hints", "cdc_raw", "tmp"):
            (self.place.directory / name).mkdir(parents=True, exist_ok=True)
        for name, text in (
            ("cassandra.yaml", settings.cassandra_yaml(self.settings, self.place)),
            ("rackdc.properties", settings.rackdc_properties(self.settings)),
            ("logback.xml", settings.logback_xml(self.place.directory / "system.log")),
        ):
            (self.place.directory / name).write_text(text)
        self.server.start()

    def start(self, *, timeout_s: float = START_TIMEOUT_S, is_given_up: Callable[[], bool] = never) -> None:
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
        self, *, timeout_s: float = START_TIMEOUT_S, is_given_up: Callable[[], bool] = never
    ) -> None:
        """Return when it answers a query of its superuser; report its last lines when it ended instead."""
        deadline = time.monotonic() + timeout_s
        while (why := self._not_ready()) is not None:
            if is_given_up():
                raise GivenUp(at=self.connection.contact_points[0])
            if not self.server.alive():
                raise start_failure(self.server.log, self.server.last_error_lines(), self.place)
            if time.monotonic() > deadline:
                raise Unavailable(
                    "Cassandra does not answer",
                    remedy=f"its last lines:\n{self.server.last_error_lines()}",
                    at=self.connection.contact_points[0],
                    waited_s=round(timeout_s),
                    last=why,
                )
            time.sleep(_BETWEEN_TRIES_S)

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
                *settings.module_arguments(),
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


_REASONS = (
    (
        re.compile(r"Address already in use|Port already in use|already in use by another process"),
        "a Cassandra port is taken",
        "stop the program that listens on it, or do not set the ports",
    ),
    (
        re.compile(r"Cannot assign requested address|Unable to bind to address"),
        "Cassandra cannot listen at this address",
        "name an address of this machine",
    ),
    (
        re.compile(r"No space left on device"),
        "The disk is full",
        "free 500 MB, or set TMPDIR to a directory on another disk",
    ),
    (
        re.compile(r"Could not reserve enough space|insufficient memory|Cannot allocate memory|OutOfMemoryError"),
        "Too little memory for Cassandra",
        "stop other programs, or set a smaller heap",
    ),
)


def start_failure(log: Path, lines: str, place: NodePlace) -> EnvironmentProblem:
    """Why it ended before it answered: one line with the remedy, then its own last lines."""
    text = log.read_text(errors="replace")[-200_000:] if log.exists() else ""
    for pattern, message, remedy in _REASONS:
        if pattern.search(text):
            ports = f"{place.native_port}, {place.storage_port}, {place.jmx_port}"
            return EnvironmentProblem(message, remedy=f"{remedy}\n{lines}", address=place.address, ports=ports)
    return EnvironmentProblem("Cassandra did not start", remedy=f"its last lines:\n{lines}", log=log)
