"""Cassandra in a container, by testcontainers: the official image, given the same settings as a node from jars.

The image is left as it is; its entrypoint is used. The settings travel in an environment variable and become a second
configuration, which JVM_OPTS names. So a server from an image and one from jars differ in nothing that a test can
observe. TLS is not supported (its stores would have to be copied in): use jars for that.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from dev.servers.cassandra import settings
from dev.servers.cassandra.connection import NATIVE_PORT, Connection, ContactPoint
from dev.servers.cassandra.cql_probe import CqlProbe, Row
from dev.servers.cassandra.image import IMAGE
from dev.servers.cassandra.security import DEFAULT, replace_default_superuser
from dev.servers.cassandra.settings import NodeSettings, Profile
from headgate.errors import EnvironmentProblem, HeadgateError, InvalidRequest, OperationRefused, Unavailable
from headgate.local.cassandra.node import FAST_START, START_TIMEOUT_S, NodePlace
from headgate.local.processes import server_ports

if TYPE_CHECKING:
    from testcontainers.community.cassandra import CassandraContainer

IMAGE_VARIABLE = "HEADGATE_CASSANDRA_IMAGE"
_OWN_ADDRESS = "@ADDRESS@"
_DIRECTORY = Path("/var/lib/cassandra")
_COMMAND = (
    'printf %s "$HEADGATE_YAML" | sed "s/@ADDRESS@/$(hostname -i | cut -d " " -f 1)/g" > /tmp/headgate.yaml'
    ' && printf %s "$HEADGATE_RACKDC" > /tmp/headgate-rackdc.properties'
    " && exec docker-entrypoint.sh cassandra -f"
)


def container_environment(wanted: NodeSettings) -> dict[str, str]:
    """The variables that give a container of the official image (or one that behaves like it) our settings."""
    place = NodePlace(_DIRECTORY, _OWN_ADDRESS, NATIVE_PORT, 7000, 7199)
    yaml = settings.cassandra_yaml(settings.for_any_address(wanted, broadcast=_OWN_ADDRESS), place)
    return {
        "HEADGATE_YAML": yaml,
        "HEADGATE_RACKDC": settings.rackdc_properties(wanted),
        "MAX_HEAP_SIZE": f"{wanted.heap}M",
        "HEAP_NEWSIZE": "128M",
        "CASSANDRA_DC": wanted.data_center,
        "JVM_OPTS": " ".join(
            [
                "-Dcassandra.config=file:///tmp/headgate.yaml",
                "-Dcassandra-rackdc.properties=file:///tmp/headgate-rackdc.properties",
                *FAST_START,
                # The collector is the image's to choose: naming a second one ends the JVM.
                *(["-XX:TieredStopAtLevel=1"] if wanted.profile is Profile.FUNCTIONAL else []),
            ]
        ),
    }


class DockerCassandra:
    """A running container; a context manager that removes it. Created by `DockerCassandra.start`."""

    def __init__(self, container: CassandraContainer, wanted: NodeSettings) -> None:
        self._container = container
        self.settings = wanted
        host = container.get_container_host_ip()
        port = int(container.get_exposed_port(NATIVE_PORT))
        # By number: on many machines localhost is ::1 first, where Docker does not publish.
        self._connection = Connection(
            contact_points=(ContactPoint("127.0.0.1" if host == "localhost" else host, port),),
            data_center=wanted.data_center,
            username=wanted.username if wanted.authentication else None,
            password=wanted.password if wanted.authentication else None,
            cluster_name=wanted.cluster_name,
        )

    @classmethod
    def start(
        cls,
        wanted: NodeSettings | None = None,
        *,
        image: str | None = None,
        timeout_s: float = START_TIMEOUT_S,
    ) -> DockerCassandra:
        """Start a container of the official image, and return when it answers."""
        node_settings = wanted or NodeSettings()
        if node_settings.tls is not None:
            raise InvalidRequest("a container does not support TLS", remedy="set HEADGATE_TEST_CASSANDRA=jars")
        container = _container(image or os.environ.get(IMAGE_VARIABLE) or IMAGE, node_settings)
        try:
            container.start()
            started = cls(container, node_settings)
            started._wait_until_ready(timeout_s)
        except HeadgateError:
            container.stop()
            raise
        except Exception as error:
            output = _last_lines(container)
            container.stop()
            raise EnvironmentProblem(
                "Docker did not start Cassandra",
                remedy=f"check Docker's output, or set HEADGATE_TEST_CASSANDRA=jars{output}",
                why=str(error).splitlines()[0][:300] if str(error) else type(error).__name__,
            ) from error
        return started

    @property
    def connection(self) -> Connection:
        """How to reach it as its superuser."""
        return self._connection

    def contact_points(self) -> list[str]:
        """`host:port` as published."""
        return [str(point) for point in self._connection.contact_points]

    def environment(self) -> dict[str, str]:
        """The variables that point a process of Headgate at it."""
        return self._connection.environment()

    def probe(self, connection: Connection | None = None) -> CqlProbe:
        """A CQL connection to it."""
        return CqlProbe(self._connection.contact_points[0], connection or self._connection)

    def cql(self, statement: str, *, consistency: str = "ONE") -> list[Row]:
        """Run one statement as the superuser."""
        with self.probe() as probe:
            return probe.query(statement, consistency=consistency)

    def stop(self) -> None:
        """Remove the container and its data."""
        self._container.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _wait_until_ready(self, timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        while (why := self._not_ready()) is not None:
            if time.monotonic() > deadline:
                raise Unavailable(
                    "the container does not answer", remedy=f"its last lines:{_last_lines(self._container)}", last=why
                )
            time.sleep(0.1)

    def _not_ready(self) -> HeadgateError | None:
        try:
            self.cql("SELECT release_version FROM system.local")
        except OperationRefused as error:
            if self.settings.username != DEFAULT.username:
                try:
                    replace_default_superuser(self.probe, self._connection)
                except HeadgateError as refused:
                    return refused
            return error
        except Unavailable as error:
            return error
        return None


def _container(image: str, wanted: NodeSettings) -> CassandraContainer:
    try:
        from testcontainers.community.cassandra import CassandraContainer
    except ImportError:
        raise EnvironmentProblem(
            "testcontainers is not installed",
            remedy="pip install 'headgate[test]', or set HEADGATE_TEST_CASSANDRA=jars",
        ) from None
    container = CassandraContainer(image)
    for name, value in container_environment(wanted).items():
        container.with_env(name, value)
    container.with_command(["sh", "-c", _COMMAND])
    # A port of our choice stays the same when the container is started again.
    container.with_bind_ports(NATIVE_PORT, server_ports(1)[0])
    return container


def _last_lines(container: CassandraContainer) -> str:
    try:
        out, err = container.get_logs()
    except Exception:
        return ""
    return "\n" + "\n".join((out + err).decode(errors="replace").splitlines()[-5:])
