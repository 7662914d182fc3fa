"""A driver session of the application, used together with the application, which keeps all its settings.

The session stays as it is: its row factory, profiles, timestamps and protocol handler are the application's. A view
of it sends our requests through the same pools of connections, with an unregistered execution profile of ours. The
requirements on the session are checked when it is passed in, in one line each. This module never closes it.
"""

from __future__ import annotations

from typing import Any

from cassandra.encoder import Encoder
from cassandra.io.libevreactor import LibevConnection
from cassandra.policies import FallthroughRetryPolicy

from headgate.errors import EnvironmentProblem, InvalidRequest
from headgate.store.cassandra.binding import HeadgateProtocol
from headgate.store.cassandra.diagnostics import check_cluster
from headgate.store.cassandra.driver import driver
from headgate.store.cassandra.routing import HomePolicy
from headgate.store.cassandra.settings import ConnectionSettings

PROTOCOL_VERSION = 5
FETCH_SIZE = 5000


class _View:
    """An object of the application, with attributes of our own before its own."""

    def __init__(self, viewed: Any) -> None:
        self._viewed = viewed

    def __getattr__(self, name: str) -> Any:
        return getattr(self._viewed, name)


class ClusterView(_View):
    """The application's cluster, by execution profiles, in any configuration of its own sessions."""

    _config_mode = driver._ConfigMode.PROFILES


class SessionView(_View):
    """The application's session with settings of our own. It has no state but these."""

    use_client_timestamp = False
    client_protocol_handler = HeadgateProtocol
    default_fetch_size = FETCH_SIZE
    encoder = Encoder()
    _create_response_future = driver.Session._create_response_future

    def __init__(self, session: Any, profile: Any) -> None:
        super().__init__(session)
        self._profile = profile
        self.cluster = ClusterView(session.cluster)

    def execute_async(self, *args: Any, **options: Any) -> Any:
        return driver.Session.execute_async(self, *args, execution_profile=self._profile, **options)


def check_session(session: Any) -> None:
    """Refuse a session that cannot carry our requests."""
    if not isinstance(session, driver.Session):
        raise InvalidRequest(
            "The session is no session of the DataStax driver for Python.",
            remedy="pass what cassandra.cluster.Cluster.connect() returns",
            given=type(session).__name__,
        )
    if session.is_shutdown or session.cluster.is_shutdown:
        raise InvalidRequest(
            "The session is closed.", remedy="pass an open session, and close it after the connection"
        )
    version = session.cluster.protocol_version
    if version != PROTOCOL_VERSION:
        raise EnvironmentProblem(
            "The session does not use version 5 of the native protocol.",
            remedy="set Cluster(protocol_version=5)",
            uses=version,
        )
    used = session.cluster.connection_class
    if not (isinstance(used, type) and issubclass(used, LibevConnection)):
        raise EnvironmentProblem(
            "The session does not use the driver's libev reactor.",
            remedy="set Cluster(connection_class=cassandra.io.libevreactor.LibevConnection)",
            uses=getattr(used, "__name__", used),
        )


def reserve(session: Any, settings: ConnectionSettings, keyspace: str | None, row_factory: Any) -> tuple[Any, Any]:
    """A view of the session, and the policy that routes our requests. `release` ends it."""
    check_session(session)
    cluster = session.cluster
    check_cluster(cluster.metadata, settings, keyspace if cluster.schema_metadata_enabled else None)
    hosts = cluster.metadata.all_hosts()
    policy = HomePolicy(settings.data_center or next(host.datacenter for host in hosts))
    connected = {host.datacenter for host in tuple(session._pools)}
    if policy.data_center not in connected:
        raise EnvironmentProblem(
            "The session has no connection to a node of the home data center.",
            remedy="give its execution profile a load balancing policy for that data center",
            data_center=policy.data_center,
            connected=", ".join(sorted(filter(None, connected))) or "none",
        )
    policy.populate(cluster, hosts)
    cluster.register_listener(policy)
    profile = driver.ExecutionProfile(
        load_balancing_policy=policy,
        retry_policy=FallthroughRetryPolicy(),
        serial_consistency_level=None,
        row_factory=row_factory,
    )
    return SessionView(session, profile), policy


def release(session: Any, policy: HomePolicy) -> None:
    """Let go of the session, which stays open."""
    session.cluster.unregister_listener(policy)
