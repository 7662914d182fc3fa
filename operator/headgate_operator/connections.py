"""The connection of each resource to Cassandra, by its Secret: `Connection`, or a Trouble with the reason.

A resource that names no Secret takes its namespace's own `headgate-connection`, if a person has created one there.
Else it takes the chart's at once, even before its copy exists, so that the store need not wait for the namespace. The
reconcile notes the last connection of a resource, since a deleted resource names none.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from headgate.api.parse import Resource
from headgate.api.status import Reason
from headgate.errors import HeadgateError
from headgate_operator.names import CONNECTION_COPY, MANAGED_BY, MANAGER, Key
from headgate_operator.port import Denied
from headgate_operator.secrets_read import SecretRead, Secrets
from headgate_operator.sessions import Reached, SessionPool
from headgate_operator.troubles import trouble_of
from headgate_operator.world import UNKNOWN, Connection, Document, Settings, Trouble, Unread

Told = tuple[str, str]
"""Namespace and name of a Secret."""


class Connections:
    """The ways to Cassandra of all resources."""

    def __init__(
        self, secrets: Secrets, sessions: SessionPool, settings: Settings, *, now_us: Callable[[], int]
    ) -> None:
        self._secrets = secrets
        self._sessions = sessions
        self._settings = settings
        self._now_us = now_us
        self._last: dict[Key, tuple[Told, Connection]] = {}
        self._trouble: dict[Told, Trouble] = {}

    async def of(self, key: Key, resource: Resource | None) -> Connection | Trouble | Unread:
        """The connection of a resource; of one that cannot be read, or is gone, its last one."""
        if resource is None:
            known = self._last.get(key)
            place = self._default() if known is None else known[0]
            named = known is not None and not known[1].is_copy
        else:
            told = resource.spec.storage.connection_secret
            if told:
                place, named = (key.namespace, told), True
            else:
                own = await self.has_own(key.namespace)
                if own is UNKNOWN:
                    return UNKNOWN
                place, named = ((key.namespace, CONNECTION_COPY), True) if own else (self._default(), False)
        return await self._reach(place, named=named)

    def note(self, key: Key, connection: Connection) -> None:
        """A resource uses it: where the resource is gone one day, it is found by this one."""
        place = self._default() if connection.is_copy else (key.namespace, connection.secret)
        self._last[key] = (place, connection)

    def fork(self, secrets: Secrets, sessions: SessionPool) -> Connections:
        """With what is known so far, and from here on apart."""
        made = Connections(secrets, sessions, self._settings, now_us=self._now_us)
        made._last, made._trouble = dict(self._last), dict(self._trouble)
        return made

    async def has_own(self, namespace: str) -> bool | Unread:
        """Whether somebody has made a Secret there under the name that our copy would have."""
        if (namespace, CONNECTION_COPY) == self._default():
            return False
        read = await self._secrets.look(namespace, CONNECTION_COPY)
        if isinstance(read, Denied):
            return UNKNOWN
        if read.document is None:
            return False
        labels = read.document["metadata"].get("labels") or {}
        return labels.get(MANAGED_BY) != MANAGER

    async def reach_default(self) -> None:
        """Have a session by the chart's Secret, if there can be one."""
        await self._reach(self._default(), named=False)

    async def source(self) -> Document | Unread | None:
        """The chart's Secret."""
        read = await self._secrets.look(*self._default())
        return UNKNOWN if isinstance(read, Denied) else read.document

    def forget(self, key: Key) -> None:
        """It is gone, and all that it had to leave is done."""
        self._last.pop(key, None)

    def places_of(self, key: Key) -> Told | None:
        """The Secret that a resource uses."""
        known = self._last.get(key)
        return None if known is None else known[0]

    def users_of(self, place: Told) -> list[Key]:
        """The users of a Secret."""
        return [key for key, (used, _) in self._last.items() if used == place]

    def _default(self) -> Told:
        return (self._settings.namespace, self._settings.connection_secret)

    async def _reach(self, place: Told, *, named: bool) -> Connection | Trouble | Unread:
        read = await self._secrets.look(*place)
        if isinstance(read, Denied):
            return UNKNOWN
        if read.document is None:
            where = f"namespace {place[0]}"
            return self._told(place, Trouble(Reason.CONNECTION_MISSING, f"Secret {place[1]} is not in {where}"))
        try:
            reached = await self._sessions.reach(read.digest, read.values)
        except HeadgateError as error:
            return self._told(place, self._in_words(read, error))
        self._trouble.pop(place, None)
        return _connection(reached, read, named=named)

    def _in_words(self, read: SecretRead, error: HeadgateError) -> Trouble:
        trouble = trouble_of(error)
        return replace(trouble, says=f"Secret {read.namespace}/{read.name}: {trouble.says}")

    def _told(self, place: Told, trouble: Trouble) -> Trouble:
        """The same trouble began when it was first met."""
        known = self._trouble.get(place)
        since_us = known.since_us if known is not None and known.reason is trouble.reason else self._now_us()
        self._trouble[place] = replace(trouble, since_us=since_us)
        return self._trouble[place]


def _connection(reached: Reached, read: SecretRead, *, named: bool) -> Connection:
    return Connection(
        secret=read.name if named else CONNECTION_COPY,
        digest=read.digest,
        keyspace=reached.ground.keyspace,
        data_center=reached.ground.data_center,
        nodes=reached.nodes,
        is_copy=not named,
    )
