"""The environment of an engine in a process: a store, a trusted clock, and randomness.

Everything that depends on time or randomness comes from it, so that an engine runs in the simulated world as it does
on a machine. Sleeping is the event loop's, which is virtual in a simulation too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any
from uuid import UUID

from headgate.engines.lanes.read_budget import ReadBudget
from headgate.store.model.positions import Positions
from headgate.store.store import Store


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
