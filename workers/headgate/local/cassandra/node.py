"""The Cassandra of `headgate dev`: its configuration, its arguments, and whether it answers.

Limits of a production server (sizes of batches and mutations, tombstone thresholds) are left at the server's own
defaults. The settings for a fast start (no waiting for gossip, one token) do not change the effect of a statement.
"""

from __future__ import annotations

import json
import re
import socket
import struct
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import escape

from headgate.errors import EnvironmentProblem, HeadgateError, OperationRefused, Unavailable
from headgate.local.processes import Server
from headgate.store.connection_variables import VARIABLES, prefixed

START_TIMEOUT_S = 240.0
ANSWER_TIMEOUT_S = 10.0
BETWEEN_TRIES_S = 0.1
DATA_CENTER = "datacenter1"
CLUSTER_NAME = "headgate-test"
SUPERUSER = ("cassandra", "cassandra")
"""Name and password of the role that a new server creates by itself, as its documentation states."""
MEMORY_MB = 912
"""The heap, and the rest of the process."""
FAST_JVM = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xms128M", "-Xmx512M")
"""C1 only and the serial collector: it starts in seconds."""
FAST_START = (
    *("-Dcassandra.ring_delay_ms=0", "-Dcassandra.skip_wait_for_gossip_to_settle=0"),
    *("-Dcassandra.superuser_setup_delay_ms=0", "-Dcassandra.shutdown_announce_in_ms=0"),
)
_EXPORTS = (
    *("java.base/jdk.internal.misc", "java.base/jdk.internal.ref", "java.base/java.lang.ref"),
    *("java.management.rmi/com.sun.jmx.remote.internal.rmi", "java.rmi/sun.rmi.registry", "java.rmi/sun.rmi.server"),
    *("java.sql/java.sql", "jdk.unsupported/sun.misc", "jdk.attach/sun.tools.attach"),
)
_OPENS = (
    *("java.lang.module", "jdk.internal.loader", "jdk.internal.ref", "jdk.internal.reflect", "jdk.internal.math"),
    *("jdk.internal.module", "jdk.internal.util.jar", "sun.nio.ch", "java.io", "java.nio", "java.lang"),
    *("java.lang.reflect", "java.util", "java.util.concurrent", "java.util.concurrent.atomic"),
)


class GivenUp(Unavailable):
    """Cassandra was stopped before it answered."""


@dataclass(frozen=True)
class NodePlace:
    """Where one node lives: its directory, its address and its ports."""

    directory: Path
    address: str
    native_port: int
    storage_port: int
    jmx_port: int


def build_environment(place: NodePlace) -> dict[str, str]:
    """The variables by which a process of Headgate finds this Cassandra. Those with the prefix are set and empty, so
    that these variables override any other environment."""
    return {
        **prefixed(dict.fromkeys(VARIABLES, "")),
        "CONTACT_POINTS": f"{place.address}:{place.native_port}",
        "DATA_CENTER": DATA_CENTER,
        "KEYSPACE": "headgate",
        "CLUSTER_NAME": CLUSTER_NAME,
        "USE_SSL": "false",
        "USERNAME": SUPERUSER[0],
        "PASSWORD": SUPERUSER[1],
    }


# ---- its files


def write_files(place: NodePlace, yaml: Mapping[str, object], *, rack: str = "rack1", dc: str = DATA_CENTER) -> None:
    """Its directories, its configuration and that of its log."""
    for name in ("data", "commitlog", "saved_caches", "hints", "cdc_raw", "tmp"):
        (place.directory / name).mkdir(parents=True, exist_ok=True)
    # JSON, which every YAML reader reads.
    (place.directory / "cassandra.yaml").write_text(json.dumps(yaml, indent=2) + "\n")
    (place.directory / "rackdc.properties").write_text(f"dc={dc}\nrack={rack}\n")
    (place.directory / "logback.xml").write_text(logback_xml(place.directory / "system.log"))


def build_yaml(place: NodePlace) -> dict[str, object]:
    """The configuration of a single node with password authentication."""
    seeds = [{"seeds": f"{place.address}:{place.storage_port}"}]
    return {
        "cluster_name": CLUSTER_NAME,
        "num_tokens": 1,
        "auto_bootstrap": False,
        "auto_snapshot": False,
        "partitioner": "org.apache.cassandra.dht.Murmur3Partitioner",
        "endpoint_snitch": "GossipingPropertyFileSnitch",
        "seed_provider": [{"class_name": "org.apache.cassandra.locator.SimpleSeedProvider", "parameters": seeds}],
        "listen_address": place.address,
        "rpc_address": place.address,
        "storage_port": place.storage_port,
        # Unused (no encryption among nodes), and still one port to a node on a shared address.
        "ssl_storage_port": place.storage_port,
        "native_transport_port": place.native_port,
        "data_file_directories": [str(place.directory / "data")],
        "commitlog_directory": str(place.directory / "commitlog"),
        "saved_caches_directory": str(place.directory / "saved_caches"),
        "hints_directory": str(place.directory / "hints"),
        "cdc_raw_directory": str(place.directory / "cdc_raw"),
        "paxos_variant": "v1",
        "storage_compatibility_mode": "CASSANDRA_4",
        "commitlog_sync": "periodic",
        "commitlog_sync_period": "10000ms",
        "authenticator": "PasswordAuthenticator",
        "authorizer": "CassandraAuthorizer",
        "role_manager": "CassandraRoleManager",
        # A role or a grant that was changed is in force before the next check.
        "roles_validity": "500ms",
        "permissions_validity": "500ms",
        "credentials_validity": "500ms",
    }


def logback_xml(log: Path) -> str:
    """Its log: one file of bounded size, and the one before it."""
    name = escape(str(log))
    return f"""\
<configuration>
  <appender name="file" class="ch.qos.logback.core.rolling.RollingFileAppender">
    <file>{name}</file>
    <rollingPolicy class="ch.qos.logback.core.rolling.FixedWindowRollingPolicy">
      <fileNamePattern>{name}.%i</fileNamePattern><minIndex>1</minIndex><maxIndex>1</maxIndex>
    </rollingPolicy>
    <triggeringPolicy class="ch.qos.logback.core.rolling.SizeBasedTriggeringPolicy">
      <maxFileSize>20MB</maxFileSize>
    </triggeringPolicy>
    <encoder><pattern>%-5level %date [%thread] %logger{{20}} - %msg%n</pattern></encoder>
  </appender>
  <root level="INFO"><appender-ref ref="file"/></root>
</configuration>
"""


# ---- its process


def module_arguments() -> list[str]:
    """The JVM internals that Cassandra needs to access; its tools need the same."""
    return [
        "-Djdk.attach.allowAttachSelf=true",
        "-Dio.netty.tryReflectionSetAccessible=true",
        *(f"--add-exports={package}=ALL-UNNAMED" for package in _EXPORTS),
        *(f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in _OPENS),
        "--add-opens=jdk.management/com.sun.management.internal=ALL-UNNAMED",
    ]


def build_arguments(place: NodePlace, *, archive: Path | None, jvm: tuple[str, ...] = FAST_JVM) -> list[str]:
    """All arguments between `java` and the class path."""
    home = place.directory
    return [
        "-ea",
        *module_arguments(),
        *jvm,
        *(["-Xshare:auto", f"-XX:SharedArchiveFile={archive}"] if archive is not None else []),
        "-XX:+ExitOnOutOfMemoryError",
        "-XX:+PerfDisableSharedMem",
        "-Xss512k",
        f"-Djava.io.tmpdir={home / 'tmp'}",
        f"-Dcassandra.config=file://{home / 'cassandra.yaml'}",
        f"-Dcassandra-rackdc.properties=file://{home / 'rackdc.properties'}",
        f"-Dlogback.configurationFile={home / 'logback.xml'}",
        f"-Dcassandra.storagedir={home}",
        f"-Dcassandra.logdir={home}",
        f"-Dcassandra.jmx.local.port={place.jmx_port}",
        "-Dcassandra-foreground=yes",
        "-Dcassandra.system_auth.default_rf=1",
        *FAST_START,
    ]


def wait_until_ready(
    server: Server,
    place: NodePlace,
    why_not_ready: Callable[[], HeadgateError | None],
    *,
    timeout_s: float = START_TIMEOUT_S,
    is_given_up: Callable[[], bool] = lambda: False,
) -> None:
    """Return when it answers a query of its superuser; report its last lines when it ended instead."""
    at = f"{place.address}:{place.native_port}"
    deadline = time.monotonic() + timeout_s
    while (why := why_not_ready()) is not None:
        if is_given_up():
            raise GivenUp(at=at)
        if not server.alive():
            raise start_failure(server.log, server.last_error_lines(), place)
        if time.monotonic() > deadline:
            raise Unavailable(
                "Cassandra does not answer",
                remedy=f"its last lines:\n{server.last_error_lines()}",
                at=at,
                waited_s=round(timeout_s),
                last=why,
            )
        time.sleep(BETWEEN_TRIES_S)


_ERROR, _STARTUP, _READY, _AUTHENTICATE, _QUERY, _RESULT, _AUTH_RESPONSE, _AUTH_SUCCESS = 0, 1, 2, 3, 7, 8, 15, 16


def query_superuser(place: NodePlace) -> HeadgateError | None:
    """Ask it one query as its superuser; what is wrong, if anything. By sockets, since no driver may be installed."""
    try:
        with socket.create_connection((place.address, place.native_port), timeout=ANSWER_TIMEOUT_S) as connection:
            opcode = _ask(connection, _STARTUP, struct.pack(">H", 1) + _text("CQL_VERSION") + _text("3.0.0"))
            if opcode == _AUTHENTICATE:
                credentials = ("\0" + "\0".join(SUPERUSER)).encode()
                opcode = _ask(connection, _AUTH_RESPONSE, struct.pack(">i", len(credentials)) + credentials)
            if opcode not in (_READY, _AUTH_SUCCESS):
                return OperationRefused("The server has not created its superuser yet")
            cql = b"SELECT release_version FROM system.local"
            opcode = _ask(connection, _QUERY, struct.pack(">i", len(cql)) + cql + struct.pack(">HB", 1, 0))
            return None if opcode == _RESULT else OperationRefused("The server refused a query")
    except (OSError, EOFError) as error:
        return Unavailable("No server answers", remedy="check that it is started", why=error)


def _ask(connection: socket.socket, opcode: int, body: bytes) -> int:
    connection.sendall(struct.pack(">BBhBi", 4, 0, 0, opcode, len(body)) + body)
    head = _read(connection, 9)
    _read(connection, struct.unpack(">i", head[5:])[0])
    return head[4]


def _read(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        part = connection.recv(size - len(data))
        if not part:
            raise EOFError("the server closed the connection")
        data += part
    return data


def _text(text: str) -> bytes:
    return struct.pack(">H", len(text)) + text.encode()


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
