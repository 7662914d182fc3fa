"""kopf, at the door: an `on.event` handler for each kind that comes in by it, which puts the object into `Seen` and a
key onto the work queue, and nothing more. The only file that names kopf.

No peering, no timers, no daemons, no finalizers, no progress annotations: none of kopf's state is used, so nothing
of it can be lost or be stale. Handlers are level-triggered: they get the present state of an object.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import kopf

from headgate.errors import Unavailable
from headgate_operator.cluster.port import Access
from headgate_operator.informers.event_ingest import EventIngest
from headgate_operator.model.kinds import ResourceKind

IDLE_S = 1.0
"""How long a worker of kopf keeps its slot after the last event of an object."""
IDENTITY: Any = "headgate-operator"
"""Used by peering alone, which is off. By default kopf reads the name of the user, and a pod's may have none."""


class KopfWatch:
    def __init__(self, intake: EventIngest, access: Callable[[], Awaitable[Access]]) -> None:
        self._intake = intake
        self._access = access
        self._stop = asyncio.Event()
        self.is_ready = asyncio.Event()

    async def run(self, kinds: tuple[ResourceKind, ...]) -> None:
        """Watch these kinds until `stop`; raises if kopf ends by itself."""
        quiet()
        await kopf.operator(
            registry=self._registry(kinds),
            settings=_settings(),
            identity=IDENTITY,
            standalone=True,
            clusterwide=True,
            ready_flag=self.is_ready,
            stop_flag=self._stop,
        )
        if not self._stop.is_set():
            raise Unavailable("The kopf framework has ended by itself")

    def stop(self) -> None:
        self._stop.set()

    def _registry(self, kinds: tuple[ResourceKind, ...]) -> kopf.OperatorRegistry:
        registry = kopf.OperatorRegistry()
        for kind in kinds:
            kopf.on.event(kind.group, kind.version, kind.plural, id=kind.plural, registry=registry)(self._on_event)
        kopf.on.login(id="login", registry=registry)(self._log_in)
        return registry

    async def _on_event(self, type: str | None, event: Any, **_: Any) -> None:  # noqa: A002 - kopf's word
        """The state of one object; no type: it was listed."""
        document = event["object"]
        if type == "DELETED":
            self._intake.deleted(document)
        else:
            self._intake.changed(document, listed=type is None)

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


def _settings() -> kopf.OperatorSettings:
    settings = kopf.OperatorSettings()
    settings.posting.enabled = False
    settings.queueing.idle_timeout = IDLE_S
    settings.persistence.finalizer = "headgate.io/never-set"
    settings.persistence.progress_storage = kopf.AnnotationsProgressStorage(prefix="kopf.headgate.io")
    settings.persistence.diffbase_storage = kopf.AnnotationsDiffBaseStorage(prefix="kopf.headgate.io")
    return settings


def quiet() -> None:
    """kopf logs at info each event that it handled."""
    logging.getLogger("kopf").setLevel(logging.WARNING)
