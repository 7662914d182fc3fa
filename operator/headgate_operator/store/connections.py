"""The connection of each resource to Cassandra, by its Secret: `StoreConnection`, or a failure with the reason.

A resource that names no Secret takes its namespace's own `headgate-connection`, if a person has created one there.
Else it takes the chart's at once, even before its copy exists, so that the store need not wait for the namespace. The
reconcile notes the last connection of a resource, since a deleted resource names none.

Only the namespaces that the chart's selector admits use the chart's connection. It is checked here, before anything
is read or opened for them, and once more before a copy of its Secret is made (decide/namespace.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from headgate.api.read.parse import Resource
from headgate.api.resources.reasons import Reason
from headgate.errors import HeadgateError
from headgate_operator.cluster.port import Denied
from headgate_operator.model.kinds import Document
from headgate_operator.model.names import CONNECTION_COPY, MANAGED_BY, MANAGER, Key
from headgate_operator.model.world import UNKNOWN, OperatorSettings, ResourceFailure, StoreConnection, Unread
from headgate_operator.store.secret_cache import SecretRead, Secrets
from headgate_operator.store.sessions import (
    OPEN_WITHIN_S,
    PATIENCE_S,
    ConnectionOpening,
    OpenSession,
    Sessions,
    failure_of,
)

SecretPlace = tuple[str, str]
"""Namespace and name of a Secret."""


class Connections:
    def __init__(
        self,
        secrets: Secrets,
        sessions: Sessions,
        settings: OperatorSettings,
        *,
        now_us: Callable[[], int],
        labels_of: Callable[[str], Mapping[str, str] | None],
    ) -> None:
        """`labels_of`: the labels of a namespace, None where it was not seen."""
        self._secrets = secrets
        self._sessions = sessions
        self._settings = settings
        self._now_us = now_us
        self._labels_of = labels_of
        self._last: dict[Key, tuple[SecretPlace, StoreConnection]] = {}
        self._failures: dict[SecretPlace, ResourceFailure] = {}
        self._waiting: dict[str, set[Key]] = {}

    async def of(self, key: Key, resource: Resource | None) -> StoreConnection | ResourceFailure | Unread:
        """The connection of a resource; of one that cannot be read, or is gone, its last one."""
        if resource is None:
            known = self._last.get(key)
            place = self._default() if known is None else known[0]
            named = known is not None and not known[1].is_copy
        else:
            secret_name = resource.spec.storage.connection_secret
            if secret_name:
                place, named = (key.namespace, secret_name), True
            else:
                own = await self.has_own(key.namespace)
                if own is UNKNOWN:
                    return UNKNOWN
                place, named = ((key.namespace, CONNECTION_COPY), True) if own else (self._default(), False)
            if not named:
                is_admitted = self.admits(key.namespace)
                if is_admitted is None:
                    return UNKNOWN
                if not is_admitted:
                    return self._note_failure((key.namespace, CONNECTION_COPY), _not_admitted(key.namespace))
        connection = await self._reach(place, named=named, key=key)
        if named or not isinstance(connection, StoreConnection):
            return connection
        return await self._with_pods_secret(key.namespace, connection)

    def note(self, key: Key, connection: StoreConnection) -> None:
        """A resource uses it: where the resource is gone one day, it is found by this one."""
        place = self._default() if connection.is_copy else (key.namespace, connection.secret)
        self._last[key] = (place, connection)

    def fork(self, secrets: Secrets, sessions: Sessions) -> Connections:
        """With what is known so far, and from here on apart."""
        made = Connections(secrets, sessions, self._settings, now_us=self._now_us, labels_of=self._labels_of)
        made._last, made._failures = dict(self._last), dict(self._failures)
        return made

    def admits(self, namespace: str) -> bool | None:
        """Whether a namespace may use the chart's connection; None: its labels are not known yet."""
        selector = self._settings.connection_namespaces
        if selector.is_empty or namespace == self._settings.namespace:
            return True
        labels = self._labels_of(namespace)
        return None if labels is None else selector.matches(labels)

    async def has_own(self, namespace: str) -> bool | Unread:
        """Whether somebody has made a Secret there under the name that our copy would have."""
        if self.is_source((namespace, CONNECTION_COPY)):
            return False
        read = await self._secrets.read_cached(namespace, CONNECTION_COPY)
        if isinstance(read, Denied):
            return UNKNOWN
        if read.document is None:
            return False
        labels = read.document["metadata"].get("labels") or {}
        return labels.get(MANAGED_BY) != MANAGER

    async def reach_default(self) -> None:
        """Have a session by the chart's Secret, if there can be one."""
        await self._reach(self._default(), named=False, patience_s=OPEN_WITHIN_S)

    async def source(self) -> Document | Unread | None:
        """The Secret that namespaces get a copy of."""
        read = await self._secrets.read_cached(*self._copied())
        return UNKNOWN if isinstance(read, Denied) else read.document

    def forget(self, key: Key) -> None:
        self._last.pop(key, None)

    def take_waiting(self, digest: str) -> list[Key]:
        """The resources that continued without their session while it was opened."""
        return sorted(self._waiting.pop(digest, ()))

    def is_source(self, place: SecretPlace) -> bool:
        """Whether it is one of the chart's own Secrets."""
        return place in (self._default(), self._copied())

    def users_of(self, place: SecretPlace) -> list[Key]:
        used_as = self._default() if self.is_source(place) else place
        return [key for key, (used, _) in self._last.items() if used == used_as]

    def _default(self) -> SecretPlace:
        return (self._settings.namespace, self._settings.connection_secret)

    def _copied(self) -> SecretPlace:
        return (self._settings.namespace, self._settings.copied_secret)

    async def _reach(
        self, place: SecretPlace, *, named: bool, key: Key | None = None, patience_s: float = PATIENCE_S
    ) -> StoreConnection | ResourceFailure | Unread:
        read = await self._secrets.read_cached(*place)
        if isinstance(read, Denied):
            return UNKNOWN
        if read.document is None:
            return self._note_failure(place, _missing(place))
        try:
            owner = "" if self.is_source(place) else place[0]
            reached = await self._sessions.reach(read.digest, read.values, owner=owner, patience_s=patience_s)
        except ConnectionOpening as opening:
            if key is not None:
                self._waiting.setdefault(read.digest, set()).add(key)
            return UNKNOWN if opening.previous is None else self._note_error(place, opening.previous)
        except HeadgateError as error:
            return self._note_error(place, error)
        self._failures.pop(place, None)
        return _connection(reached, read, named=named)

    async def _with_pods_secret(
        self, namespace: str, connection: StoreConnection
    ) -> StoreConnection | ResourceFailure | Unread:
        """The chart's connection for a namespace whose pods have credentials of their own."""
        if self._settings.workers_secret is None:
            return connection
        place = self._copied()
        read = await self._secrets.read_cached(*place)
        if isinstance(read, Denied):
            return UNKNOWN
        if read.document is None:
            return self._note_failure(place, _missing(place))
        self._failures.pop(place, None)
        return replace(connection, secret=self._settings.pods_secret(namespace), pods_digest=read.digest)

    def _note_error(self, place: SecretPlace, error: HeadgateError) -> ResourceFailure:
        failure = failure_of(error)
        message = f"Secret {place[0]}/{place[1]}: {failure.message}"
        return self._note_failure(place, replace(failure, message=message))

    def _note_failure(self, place: SecretPlace, failure: ResourceFailure) -> ResourceFailure:
        """The same trouble began when it was first met."""
        known = self._failures.get(place)
        since_us = known.since_us if known is not None and known.reason is failure.reason else self._now_us()
        self._failures[place] = replace(failure, since_us=since_us)
        return self._failures[place]


def _missing(place: SecretPlace) -> ResourceFailure:
    return ResourceFailure(Reason.CONNECTION_MISSING, f"Secret {place[1]} is not in namespace {place[0]}")


def _not_admitted(namespace: str) -> ResourceFailure:
    remedy = "ask an administrator to label it, or set storage.connectionSecret"
    message = f"namespace {namespace} may not use the chart's connection (connection.namespaces): {remedy}"
    return ResourceFailure(Reason.CONNECTION_MISSING, message)


def _connection(reached: OpenSession, read: SecretRead, *, named: bool) -> StoreConnection:
    return StoreConnection(
        secret=read.name if named else CONNECTION_COPY,
        digest=read.digest,
        keyspace=reached.process_context.keyspace,
        data_center=reached.process_context.data_center,
        nodes=reached.nodes,
        is_copy=not named,
    )
