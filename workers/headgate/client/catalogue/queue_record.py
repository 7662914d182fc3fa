"""A queue as a read of the catalogue returned it, and the errors of one that cannot be used."""

from __future__ import annotations

from dataclasses import dataclass

from headgate.client.catalogue.process_context import ProcessContext
from headgate.engines.context import KnownQueue
from headgate.engines.contract import QueueSettings
from headgate.errors import Conflict, NotFound, OperationRefused, Unavailable
from headgate.process.live import Live
from headgate.store.catalogue.entry import Entry

KIND = "Queue"


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
    entry: Entry
    settings: QueueSettings
    """Its engine's."""
    read_us: int
    """The start of the read, which determines its age (rule R6)."""

    def known_to(self, process_context: ProcessContext, bound: Live[int]) -> KnownQueue:
        return KnownQueue(self.settings, self.read_us, process_context.host_of(self.entry.place.keyspace, bound))
