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

from headgate.errors import InvalidRequest
from headgate.local.cassandra.node import FAST_JVM, NodePlace, build_arguments, build_yaml


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
class RingPlace(NodePlace):
    """The place of one node of a ring: its seeds, its token, and the number of nodes."""

    seeds: tuple[str, ...]
    token: int
    nodes: int


_AUTHENTICATION = (
    *("authenticator", "authorizer", "role_manager"),
    *("roles_validity", "permissions_validity", "credentials_validity"),
)


def _one_of(name: str, got: str, known: tuple[str, ...]) -> None:
    if got not in known:
        raise InvalidRequest("Unknown setting", remedy=f"one of {', '.join(known)}", name=name, got=got)


def evenly_spaced_tokens(nodes: int) -> list[int]:
    """A token a node, so that each owns the same share of the ring."""
    return [-(2**63) + (2**64 // nodes) * index for index in range(nodes)]


def build_node_yaml(settings: NodeSettings, place: NodePlace) -> dict[str, object]:
    """The node's configuration."""
    own = {name: entry for name, entry in _own(settings, place).items() if not name.startswith("commitlog_sync")}
    return own | _commit_log(settings) | _security(settings) | dict(settings.overrides)


def cassandra_yaml(settings: NodeSettings, place: NodePlace) -> str:
    """The same as JSON, which every YAML reader reads."""
    return json.dumps(build_node_yaml(settings, place), indent=2) + "\n"


def for_any_address(settings: NodeSettings, *, broadcast: str) -> NodeSettings:
    """The same settings for a node whose clients use another address than its own, as with a container."""
    wildcard = {"rpc_address": "0.0.0.0", "broadcast_rpc_address": broadcast}  # noqa: S104 - inside a container
    return replace(settings, overrides={**wildcard, **settings.overrides})


def _own(settings: NodeSettings, place: NodePlace) -> dict[str, object]:
    own: dict[str, object] = {
        **build_yaml(place),
        "cluster_name": settings.cluster_name,
        "paxos_variant": settings.paxos_variant,
        "storage_compatibility_mode": settings.storage_compatibility_mode,
    }
    if isinstance(place, RingPlace):
        seeds = ",".join(f"{seed}:{place.storage_port}" for seed in place.seeds)
        provider = "org.apache.cassandra.locator.SimpleSeedProvider"
        own |= {
            "initial_token": str(place.token),
            "seed_provider": [{"class_name": provider, "parameters": [{"seeds": seeds}]}],
        }
    if not settings.authentication:
        own = {name: entry for name, entry in own.items() if name not in _AUTHENTICATION}
    return own


def _commit_log(settings: NodeSettings) -> dict[str, object]:
    period = {"periodic": {"commitlog_sync_period": "10000ms"}, "group": {"commitlog_sync_group_window": "10ms"}}
    return {"commitlog_sync": settings.commitlog_sync, **period.get(settings.commitlog_sync, {})}


def _security(settings: NodeSettings) -> dict[str, object]:
    settings_yaml: dict[str, object] = {}
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


def memory_arguments(settings: NodeSettings) -> list[str]:
    """The compiler, the collector and the heap of a profile."""
    if settings.profile is Profile.FUNCTIONAL:
        return [*FAST_JVM[:-1], f"-Xmx{settings.heap}M"]
    return ["-XX:+UseG1GC", "-XX:MaxGCPauseMillis=100", f"-Xms{settings.heap}M", f"-Xmx{settings.heap}M"]


def server_arguments(settings: NodeSettings, place: NodePlace, *, archive: Path | None) -> list[str]:
    """All arguments between `java` and the class path. Benchmarks run as production does, without an archive."""
    used = archive if settings.profile is Profile.FUNCTIONAL else None
    nodes = place.nodes if isinstance(place, RingPlace) else 1
    return [
        *build_arguments(place, archive=used, jvm=tuple(memory_arguments(settings))),
        f"-Dcassandra.system_auth.default_rf={nodes}",
    ]
