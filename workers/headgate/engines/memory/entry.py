"""The record of the engine in memory (engines/registry.py). It takes the place of every engine on `memory://`."""

from __future__ import annotations

from uuid import UUID
from weakref import WeakKeyDictionary

from headgate.engines.context import Opening
from headgate.engines.contract import Capability, NotSupported
from headgate.engines.memory.engine import MemoryQueue
from headgate.engines.memory.server import MemoryServer
from headgate.engines.memory.settings import settings_of
from headgate.engines.registry import EngineRecord
from headgate.store.memory.store import MemoryReplica, MemoryStore
from headgate.store.model.table import Table
from headgate.store.store import Store

_servers: WeakKeyDictionary[MemoryReplica, MemoryServer] = WeakKeyDictionary()


def server_of(store: Store) -> MemoryServer:
    """The messages live as long as the catalogue of their queues, which all connections to one address share."""
    if not isinstance(store, MemoryStore):
        raise NotSupported("The engine in memory needs a store in memory", remedy="connect to memory://")
    return _servers.setdefault(store.replica, MemoryServer(store.replica.now_us))


def open_queue(opening: Opening) -> MemoryQueue:
    """A queue of the address."""
    known, dead = opening.queue, opening.dead_letters
    return MemoryQueue(
        server_of(known.host.store),
        known.settings,
        name=known.host.name,
        dead_letters=None if dead is None else dead.settings,
    )


def _no_tables(_creation: UUID | None = None) -> tuple[Table, ...]:
    return ()


RECORD = EngineRecord(
    capabilities=frozenset({Capability.GROUPS, Capability.DELAYS, Capability.ONCE, Capability.CANCEL}),
    shared_tables=_no_tables,
    dedicated_tables=_no_tables,
    settings_of=settings_of,
    open=open_queue,
)
