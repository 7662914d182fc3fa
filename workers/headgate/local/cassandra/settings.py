"""The settings of a node, as values and pure functions: its cassandra.yaml, its logging, its JVM's arguments.

Invariant: default limits of a production server (sizes of batches and mutations, tombstone thresholds) are not set,
so the server's own defaults apply; a test that needs other ones sets them in `overrides`. The settings for a fast
start (no waiting for gossip, one token) do not change the effect of a statement.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType
from xml.sax.saxutils import escape

from headgate.errors import InvalidRequest


class Profile(StrEnum):
    """The purpose of the node."""

    FUNCTIONAL = "functional"
    """Starts in seconds: C1 only, serial collector, small heap, class-data archive."""
    THROUGHPUT = "throughput"
    """For benchmarks: C2, G1, more heap."""


@dataclass(frozen=True)
class ServerTls:
    """Stores in PKCS12 that a node presents to its clients."""

    key_store: Path
    trust_store: Path
    password: str
    require_client_auth: bool = False


@dataclass(frozen=True)
class NodeSettings:
    """The settings that may differ between nodes of tests; the defaults are the server's own where it has one."""

    profile: Profile = Profile.FUNCTIONAL
    cluster_name: str = "headgate-test"
    data_center: str = "datacenter1"
    rack: str = "rack1"
    authentication: bool = True
    username: str = "cassandra"
    password: str = "cassandra"  # noqa: S105 - the server's documented default, changed by naming another
    tls: ServerTls | None = None
    commitlog_sync: str = "periodic"
    paxos_variant: str = "v1"
    storage_compatibility_mode: str = "CASSANDRA_4"
    heap_mb: int | None = None
    overrides: Mapping[str, object] = field(default_factory=lambda: MappingProxyType({}))

    def __post_init__(self) -> None:
        _one_of("commitlog_sync", self.commitlog_sync, ("periodic", "batch", "group"))
        _one_of("paxos_variant", self.paxos_variant, ("v1", "v2"))
        _one_of("storage_compatibility_mode", self.storage_compatibility_mode, ("CASSANDRA_4", "UPGRADING", "NONE"))

    @property
    def heap(self) -> int:
        """The heap in MB."""
        return self.heap_mb or {Profile.FUNCTIONAL: 512, Profile.THROUGHPUT: 2048}[self.profile]

    @property
    def memory_mb(self) -> int:
        """The approximate memory of the process: the heap, and the rest."""
        return self.heap + 400


@dataclass(frozen=True)
class NodePlace:
    """Where one node lives: its address and ports, its directory, its part of the ring."""

    directory: Path
    address: str
    native_port: int
    storage_port: int
    jmx_port: int
    seeds: tuple[str, ...] = ()
    token: int | None = None
    nodes: int = 1


def _one_of(name: str, got: str, known: tuple[str, ...]) -> None:
    if got not in known:
        raise InvalidRequest("Unknown setting", remedy=f"one of {', '.join(known)}", name=name, got=got)


def evenly_spaced_tokens(nodes: int) -> list[int]:
    """A token a node, so that each owns the same share of the ring."""
    return [-(2**63) + (2**64 // nodes) * index for index in range(nodes)]


def cassandra_yaml(settings: NodeSettings, place: NodePlace) -> str:
    """The node's configuration; written as JSON, which every YAML reader reads."""
    settings_yaml = _own(settings, place) | _commit_log(settings) | _security(settings)
    return json.dumps(settings_yaml | dict(settings.overrides), indent=2) + "\n"


def for_any_address(settings: NodeSettings, *, broadcast: str) -> NodeSettings:
    """The same settings for a node whose clients use another address than its own, as with a container."""
    wildcard = {"rpc_address": "0.0.0.0", "broadcast_rpc_address": broadcast}  # noqa: S104 - inside a container
    return replace(settings, overrides={**wildcard, **settings.overrides})


def _own(settings: NodeSettings, place: NodePlace) -> dict[str, object]:
    seeds = ",".join(f"{seed}:{place.storage_port}" for seed in place.seeds or (place.address,))
    return {
        "cluster_name": settings.cluster_name,
        "num_tokens": 1,
        **({} if place.token is None else {"initial_token": str(place.token)}),
        "auto_bootstrap": False,
        "auto_snapshot": False,
        "partitioner": "org.apache.cassandra.dht.Murmur3Partitioner",
        "endpoint_snitch": "GossipingPropertyFileSnitch",
        "seed_provider": [
            {"class_name": "org.apache.cassandra.locator.SimpleSeedProvider", "parameters": [{"seeds": seeds}]}
        ],
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
        "paxos_variant": settings.paxos_variant,
        "storage_compatibility_mode": settings.storage_compatibility_mode,
    }


def _commit_log(settings: NodeSettings) -> dict[str, object]:
    period = {"periodic": {"commitlog_sync_period": "10000ms"}, "group": {"commitlog_sync_group_window": "10ms"}}
    return {"commitlog_sync": settings.commitlog_sync, **period.get(settings.commitlog_sync, {})}


def _security(settings: NodeSettings) -> dict[str, object]:
    settings_yaml: dict[str, object] = {}
    if settings.authentication:
        # Half a second of cache: a role or a grant that a test changes is in force before the next check.
        settings_yaml |= {
            "authenticator": "PasswordAuthenticator",
            "authorizer": "CassandraAuthorizer",
            "role_manager": "CassandraRoleManager",
            "roles_validity": "500ms",
            "permissions_validity": "500ms",
            "credentials_validity": "500ms",
        }
    if settings.tls is not None:
        settings_yaml["client_encryption_options"] = {
            "enabled": True,
            "optional": False,
            "keystore": str(settings.tls.key_store),
            "keystore_password": settings.tls.password,
            "truststore": str(settings.tls.trust_store),
            "truststore_password": settings.tls.password,
            "store_type": "PKCS12",
            "require_client_auth": settings.tls.require_client_auth,
        }
    return settings_yaml


def rackdc_properties(settings: NodeSettings) -> str:
    """The node's own rack and data center."""
    return f"dc={settings.data_center}\nrack={settings.rack}\n"


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


def module_arguments() -> list[str]:
    """The JVM internals that Cassandra needs to access; its tools need the same."""
    return [
        "-Djdk.attach.allowAttachSelf=true",
        "-Dio.netty.tryReflectionSetAccessible=true",
        *(f"--add-exports={package}=ALL-UNNAMED" for package in _EXPORTS),
        *(f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in _OPENS),
        "--add-opens=jdk.management/com.sun.management.internal=ALL-UNNAMED",
    ]


def memory_arguments(settings: NodeSettings) -> list[str]:
    """The compiler, the collector and the heap of a profile."""
    if settings.profile is Profile.FUNCTIONAL:
        return ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xms128M", f"-Xmx{settings.heap}M"]
    return ["-XX:+UseG1GC", "-XX:MaxGCPauseMillis=100", f"-Xms{settings.heap}M", f"-Xmx{settings.heap}M"]


FAST_START = (
    *("-Dcassandra.ring_delay_ms=0", "-Dcassandra.skip_wait_for_gossip_to_settle=0"),
    *("-Dcassandra.superuser_setup_delay_ms=0", "-Dcassandra.shutdown_announce_in_ms=0"),
)


def server_arguments(settings: NodeSettings, place: NodePlace, *, archive: Path | None) -> list[str]:
    """All arguments between `java` and the class path."""
    home = place.directory
    return [
        "-ea",
        *module_arguments(),
        *memory_arguments(settings),
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
        f"-Dcassandra.system_auth.default_rf={place.nodes}",
        *FAST_START,
    ]
