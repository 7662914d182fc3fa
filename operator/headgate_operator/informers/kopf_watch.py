"""kopf watches every kind: `on.event` puts objects into `ObjectCache` and keys onto the work queue, and no more.
The only file that names kopf. The prose is docs/internals/protocols/operator.md, "Watching".

- `on.event` gets each state of an object. It is level-triggered and keeps nothing on the object.
- A refused or unanswered request is repeated for ever (`_Retries`). What kopf does not survive (an error within a
  watch other than 410) ends the process: at its end kopf cancels every task of the loop that is younger than itself.

No peering, no timers, no daemons, no indexes, no finalizers, no progress annotations: none of kopf's state is used,
so nothing of it can be lost or be stale.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterator
from typing import Any, Final

import kopf

from headgate.errors import Unavailable
from headgate.process.event_loop import call_on_sigterm
from headgate_operator.cluster.port import Access
from headgate_operator.informers.event_ingest import EventIngest
from headgate_operator.informers.watched_kinds import WATCHED, WatchedKind

IDLE_S: Final = 1.0
"""How long kopf's worker of an object waits for its next event. It holds the last document of its object meanwhile:
with a minute two thousand objects took 47 MB more at the start."""
PAGE: Final = 100
"""Objects per page of a list: a page is parsed at once, and holds the event loop meanwhile."""
RETRY_S: Final = 0.5
RETRY_S_MAX: Final = 15.0
REQUEST_S: Final = 30.0
CONNECT_S: Final = 10.0
IDENTITY: Final[Any] = "headgate-operator"
"""Used by peering alone, which is off. By default kopf reads the name of the user, and a pod's may have none."""


class KopfWatch:
    def __init__(
        self,
        intake: EventIngest,
        access: Callable[[], Awaitable[Access]],
        stopping: asyncio.Event,
        *,
        watched: Collection[WatchedKind] = WATCHED,
    ) -> None:
        self._intake = intake
        self._access = access
        self._stopping = stopping
        self._watched = watched
        self._stop = asyncio.Event()
        self.ending = asyncio.Event()
        """Set when kopf begins to end, for whatever reason; `run` returns or raises later."""

    async def run(self) -> None:
        """Watch until `stop`; Unavailable if kopf ends by a fault."""
        quiet()
        try:
            await kopf.operator(
                registry=self._registry(),
                settings=self._settings(),
                identity=IDENTITY,
                standalone=True,
                clusterwide=True,
                stop_flag=self._stop,
            )
        except Exception as error:
            raise Unavailable("The kopf framework has ended", cause=repr(error)) from None
        self._stopping.set()  # kopf ends without a fault by our stop, or by a signal that came before `_started`

    def stop(self) -> None:
        self._stop.set()

    def _registry(self) -> kopf.OperatorRegistry:
        registry = kopf.OperatorRegistry()
        for kind in (watched.kind for watched in self._watched):
            kopf.on.event(kind.group, kind.version, kind.plural, id=kind.plural, registry=registry)(self._on_event)
        kopf.on.startup(id="started", registry=registry)(self._started)
        kopf.on.cleanup(id="ending", registry=registry)(self._ending)
        kopf.on.login(id="login", registry=registry)(self._log_in)
        return registry

    def _settings(self) -> kopf.OperatorSettings:
        settings = kopf.OperatorSettings()
        settings.posting.enabled = False
        settings.queueing.idle_timeout = IDLE_S
        settings.watching.chunk_size = PAGE
        settings.watching.connect_timeout = CONNECT_S
        settings.networking.request_timeout = REQUEST_S
        settings.networking.connect_timeout = CONNECT_S
        settings.networking.error_backoffs = _Retries()
        settings.persistence.finalizer = "headgate.io/never-set"
        for watched in self._watched:
            at = (watched.kind.group, watched.kind.version, watched.kind.plural)
            if watched.labels:
                settings.watching.label_selectors[at] = watched.labels
            if watched.fields:
                settings.watching.field_selectors[at] = watched.fields
        return settings

    async def _on_event(self, type: str | None, event: Any, **_: Any) -> None:  # noqa: A002 - kopf's word
        """The state of one object; no type: it was listed."""
        document = event["object"]
        if type == "DELETED":
            self._intake.deleted(document)
        else:
            self._intake.changed(document, listed=type is None)

    async def _started(self, **_: Any) -> None:
        """kopf has put its own handlers of signals in the place of ours."""
        call_on_sigterm(self._stopping.set)

    async def _ending(self, **_: Any) -> None:
        """kopf ends, by a signal that it took after all or by a fault. It waits for seconds; nobody else has to."""
        self.ending.set()

    async def _log_in(self, **_: Any) -> kopf.ConnectionInfo:
        """The same way in as our own client's; asked again when the server does not take it any more."""
        access = await self._access()
        return kopf.ConnectionInfo(
            server=access.server,
            ca_path=access.authority,
            insecure=access.is_insecure or None,
            scheme="Bearer" if access.token else None,
            token=access.token,
            certificate_path=access.certificate,
            private_key_path=access.private_key,
            proxy_url=access.proxy,
        )


class _Retries:
    """The pauses between kopf's attempts at a request, without an end: after the last one kopf itself would end."""

    def __iter__(self) -> Iterator[float]:
        pause_s = RETRY_S
        while True:
            yield pause_s
            pause_s = min(2 * pause_s, RETRY_S_MAX)


def quiet() -> None:
    """kopf logs at info each event that it handled."""
    logging.getLogger("kopf").setLevel(logging.WARNING)
