"""The shared context of `memory://`: a catalogue, counters and queues in the memory of this process.

Connections to one address (`memory://`, or `memory://orders`) share everything, and everything is gone when the last
of them is closed. Resources are applied as anywhere else. Until the first one is, a queue is created when it is first
opened: with the default values, and with a dead-letter queue of the name `NAME-dead`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from headgate.api.read.parse import parse_resource
from headgate.api.read.versions import document_of
from headgate.client.catalogue.process_context import ProcessContext
from headgate.engines.registry import MEMORY_ENGINES
from headgate.store.catalogue.catalogue import Catalogue
from headgate.store.catalogue.entry import EntryState, Name, StoragePlace
from headgate.store.clock.clock import ClockFigures
from headgate.store.memory.store import DATA_CENTER, MemoryReplica, MemoryStore

KEYSPACE = "headgate"
LAST_EXPIRY_S = 2**62
FIRST_USE = "memory"
"""The owner of queues that were created when they were first opened."""


def machine_us() -> int:
    return time.time_ns() // 1_000


class MachineClock:
    """A clock that can always be trusted: nobody else's is compared with it."""

    def __init__(self, now_us: Callable[[], int]) -> None:
        self._now_us = now_us

    def now_us(self) -> int:
        return self._now_us()

    def require(self, max_skew_us: int | None = None) -> int:
        return self._now_us()

    async def until_trusted(self, within_s: float, max_skew_us: int | None = None) -> int:
        return self._now_us()

    def serve(self, max_skew_us: int) -> None:
        """Any bound holds."""

    def figures(self) -> ClockFigures:
        return ClockFigures(True, {}, {}, (), 0, 0, 0)

    def why_dead(self) -> str | None:
        return None


class NoHints:
    async def read(self) -> Mapping[str, int]:
        return {}


@dataclass
class MemoryAddress:
    replica: MemoryReplica = field(default_factory=lambda: MemoryReplica(machine_us))
    connections: int = 0

    def catalogue(self, owner: str = "") -> Catalogue:
        return Catalogue(MemoryStore(self.replica), now_us=self.replica.now_us, owner=owner)

    def context(self, name: str, close: Callable[[], None]) -> ProcessContext:
        store = MemoryStore(self.replica)

        async def end() -> None:
            close()

        async def create_queue(wanted: Name) -> bool:
            return await _create_at_first_use(self.catalogue(FIRST_USE), wanted)

        return ProcessContext(
            name=name,
            store_in=lambda _keyspace: store,
            keyspace=KEYSPACE,
            data_center=DATA_CENTER,
            clock=MachineClock(self.replica.now_us),
            last_expiry_s=LAST_EXPIRY_S,
            close=end,
            hints=NoHints(),
            engines=MEMORY_ENGINES,
            create_queue=create_queue,
            has_summary=False,
        )


async def _create_at_first_use(catalogue: Catalogue, wanted: Name) -> bool:
    """Whether it was created: not where resources were applied, since then the name is wrong."""
    for namespace in await catalogue.namespaces():
        if any(known.entry.owner != FIRST_USE for known in await catalogue.list(namespace)):
            return False
    dead = f"{wanted.name}-dead"
    specs: dict[str, dict[str, str]] = {dead: {}, wanted.name: {"deadLetter": dead}}
    if wanted.name.endswith("-dead"):
        specs = {wanted.name: {}}
    for name, spec in specs.items():
        resource = parse_resource(
            {
                "apiVersion": "headgate.io/v1beta1",
                "kind": "Queue",
                "metadata": {"name": name, "namespace": wanted.namespace},
                "spec": spec,
            }
        )
        place = StoragePlace(DATA_CENTER, KEYSPACE, "shared")
        declared = await catalogue.declare(
            Name(wanted.kind, wanted.namespace, name), document_of(resource), place=place, shards=1
        )
        await catalogue.set_state(declared.entry, EntryState.ACTIVE)
    return True


_addresses: dict[str, MemoryAddress] = {}
_lock = threading.Lock()


def memory_at(address: str) -> MemoryAddress:
    """The memory of an address, which is kept until the last connection to it is closed."""
    with _lock:
        return _addresses.setdefault(address, MemoryAddress())


def open_memory_context(address: str, *, name: str) -> ProcessContext:
    memory = memory_at(address)
    with _lock:
        memory.connections += 1

    def close() -> None:
        with _lock:
            memory.connections -= 1
            if not memory.connections and _addresses.get(address) is memory:
                del _addresses[address]

    return memory.context(name, close)
