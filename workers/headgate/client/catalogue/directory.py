"""Queues from the catalogue: looked up by name, with a suggestion where there is no match, and with their age.

It opens no queue and keeps nothing; every answer is a read.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from uuid import UUID

from headgate.client.catalogue.process_context import ProcessContext
from headgate.engines.context import KnownQueue
from headgate.engines.contract import QueueSettings
from headgate.engines.registry import engine_record
from headgate.errors import Conflict, InvalidRequest, NotFound, OperationRefused, Unavailable
from headgate.process.live import Live
from headgate.store.catalogue.entry import Entry, EntryState, KnownEntry, Name

KIND = "Queue"
ADOPT = "apply its resource again, with the annotation headgate.io/adopt: by-name, or by `headgate apply --adopt`"


class QueueNotFound(NotFound):
    """There is no such queue."""


class QueueNotReady(Unavailable):
    """Its tables do not all exist yet."""


class QueueDeleted(OperationRefused):
    """The queue was deleted."""


class QueueRetained(QueueDeleted):
    """The queue was kept when its resource was deleted, and takes nothing."""


class QueueRecreated(Conflict):
    """The queue was deleted, and another was created under its name."""


@dataclass(frozen=True)
class QueueRecord:
    """A queue, as a read of the catalogue returned it."""

    entry: Entry
    settings: QueueSettings
    """Its engine's."""
    read_us: int
    """The start of the read, which determines its age (rule R6)."""

    def known_to(self, process_context: ProcessContext, bound: Live[int]) -> KnownQueue:
        """The same for its engine in this process."""
        return KnownQueue(self.settings, self.read_us, process_context.host_of(self.entry.place.keyspace, bound))


class Directory:
    """Finds queues for one process."""

    def __init__(self, process_context: ProcessContext, *, namespace: str) -> None:
        self._catalogue = process_context.catalogue()
        self._data_center = process_context.data_center
        self._engines = process_context.engines
        self._create = process_context.create_queue
        self._namespace = namespace

    def name_of(self, text: str) -> Name:
        """`namespace/name`, or a name in the connection's namespace."""
        parts = text.split("/")
        if len(parts) > 2 or not all(parts):
            raise InvalidRequest("A queue is named NAMESPACE/NAME", remedy="write shop/emails", given=text)
        return Name(KIND, parts[0] if len(parts) == 2 else self._namespace, parts[-1])

    async def find(self, name: Name) -> QueueRecord:
        """The queue, ready to use; else the reason and the remedy."""
        known = await self._catalogue.find(name)
        if known is None and self._create is not None and await self._create(name):
            known = await self._catalogue.find(name)
        if known is None:
            raise await self._unknown(name)
        return self._usable(known)

    async def find_again(self, entry: Entry) -> QueueRecord:
        """The same creation that was looked up before, as it is now."""
        known = await self._catalogue.find(entry.name)
        if known is None:
            raise QueueDeleted(queue=_shown(entry.name))
        if known.entry.id != entry.id:
            raise QueueRecreated(queue=_shown(entry.name), remedy="open the queue again to use the new one")
        return self._usable(known)

    async def names(self, namespace: str | None = None) -> list[str]:
        """Every queue but those that were deleted, or those of one namespace, as `namespace/name`."""
        namespaces = [namespace] if namespace is not None else sorted(await self._catalogue.namespaces())
        return [
            _shown(known.entry.name)
            for each in namespaces
            for known in await self._catalogue.list(each, KIND)
            if known.entry.state not in (EntryState.DELETING, EntryState.RETAINED)
        ]

    async def ids(self) -> dict[UUID, str]:
        """Every queue by its id, as `namespace/name`."""
        namespaces = sorted(await self._catalogue.namespaces())
        return {
            known.entry.id: _shown(known.entry.name)
            for each in namespaces
            for known in await self._catalogue.list(each, KIND)
        }

    def _usable(self, known: KnownEntry) -> QueueRecord:
        entry = known.entry
        if entry.state is EntryState.DELETING:
            raise QueueDeleted("The queue is being deleted", queue=_shown(entry.name))
        if entry.state is EntryState.RETAINED:
            raise QueueRetained(queue=_shown(entry.name), remedy=ADOPT)
        record = engine_record(entry, engines=self._engines)
        if entry.state is EntryState.MAKING:
            raise QueueNotReady(queue=_shown(entry.name), remedy="apply it again, or wait for the operator")
        return QueueRecord(entry, record.settings_of(entry, self._data_center), known.read_started_us)

    async def _unknown(self, name: Name) -> QueueNotFound:
        """With the queues that could have been meant: those of the namespace first, then of all others."""
        in_namespace = await self.names(name.namespace)
        everywhere = await self.names()
        wanted = _shown(name)
        near = difflib.get_close_matches(name.name, [each.rpartition("/")[2] for each in in_namespace], n=1)
        close = [f"{name.namespace}/{each}" for each in near] or [
            each for each in everywhere if each.rpartition("/")[2] == name.name
        ]
        elsewhere = [each for each in everywhere if each not in in_namespace]
        close = close or difflib.get_close_matches(wanted, elsewhere, n=1)
        if close:
            return QueueNotFound(queue=wanted, remedy=f"did you mean {close[0]}?")
        names = ", ".join((in_namespace or everywhere)[:5])
        return QueueNotFound(
            queue=wanted, remedy=f"available: {names}" if names else "create one: headgate apply FILE"
        )


def _shown(name: Name) -> str:
    return f"{name.namespace}/{name.name}"
