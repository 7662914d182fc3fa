"""The environment of an engine in a process: a store, a trusted clock, and randomness.

Everything that depends on time or randomness comes from it, so that an engine runs in the simulated world as it does
on a machine. Sleeping is the event loop's, which is virtual in a simulation too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any
from uuid import UUID

from headgate.engines.lanes.delivery.read_budget import ReadBudget
from headgate.engines.lanes.delivery.read_gate import ReadGate
from headgate.errors import Unavailable
from headgate.store.model.consistency import Consistency
from headgate.store.model.positions import Positions
from headgate.store.model.rows import Row
from headgate.store.model.statements import Select
from headgate.store.store import NotEnoughReplicas, Store

ALL_WITHIN_S = 5.0
ALL_AGAIN_S = 60.0


class AllReplicas:
    """Reads at ALL. Each is tried once: a node that is down stays so for longer than a caller waits. After one that
    failed, a process tries none for a while, whatever its queues."""

    def __init__(self) -> None:
        self._failed_s: float | None = None

    async def read(self, store: Store, select: Select) -> Sequence[Row]:
        """The rows of one partition, as all its replicas have them."""
        if self._failed_s is not None and store.monotonic_s() - self._failed_s < ALL_AGAIN_S:
            raise NotEnoughReplicas("Not all replicas answered an earlier read", retry_s=ALL_AGAIN_S)
        try:
            return (await store.attempt(select, ALL_WITHIN_S)).rows
        except Unavailable:
            self._failed_s = store.monotonic_s()
            raise


@dataclass(frozen=True)
class Host:
    """One process, as engines see it."""

    name: str
    store: Store
    now_us: Callable[[], int]
    """Microseconds since 1970, never backwards; raises when the clock is out of its bound (rule R1)."""
    uuid: Callable[[], UUID]
    rng: Random
    positions: Positions
    last_expiry_s: int
    """The last second at which the server can let a cell expire (store/model/table.py)."""
    read_budget: ReadBudget = field(default_factory=ReadBudget)
    """Shared by all lanes of the process, whatever their queue."""
    read_gate: ReadGate = field(default_factory=ReadGate)
    """Shared likewise: the reads of lanes that are under way."""
    all_replicas: AllReplicas = field(default_factory=AllReplicas)
    """Shared likewise."""

    async def read(self, select: Select) -> Sequence[Row]:
        """The rows of one partition; at ALL by one try."""
        if select.consistency is Consistency.ALL:
            return await self.all_replicas.read(self.store, select)
        return await self.store.read(select)


@dataclass(frozen=True)
class KnownQueue:
    """A queue as a read of the catalogue returned it."""

    settings: Any
    """Its engine's own, from the record's `settings_of`."""
    read_us: int
    """The start of the read, which determines its age (rule R6)."""
    host: Host
    """This process, with the store of the queue's keyspace."""


@dataclass(frozen=True)
class Opening:
    """What an engine gets to open a queue in this process."""

    queue: KnownQueue
    dead_letters: KnownQueue | None
    catalogue: Host
    """This process, with the store of the catalogue's keyspace, which has the members of all queues and the
    summary."""
