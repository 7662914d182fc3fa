"""A world: a store and what can be done to its surroundings. The cases see nothing else of where they run."""

from __future__ import annotations

import asyncio
import itertools
import time
from abc import ABC, abstractmethod
from collections.abc import Coroutine, Mapping
from typing import Any, TypeVar
from uuid import UUID, uuid4

from headgate.store.memory.store import MemoryReplica, MemoryStore
from headgate.store.model.consistency import Consistency
from headgate.store.model.statements import (
    CellCondition,
    Delete,
    Insert,
    InsertIfAbsent,
    Select,
    Slice,
    Update,
    UpdateIf,
)
from headgate.store.model.table import Table
from headgate.store.model.types import Value
from headgate.store.store import Outcome, Store
from tests.kit.simulated_store import Cluster, SimulatedStore
from tests.kit.simulated_world import World as Simulation

T = TypeVar("T")

REPLICAS = 3
ALL = Consistency.ALL
QUORUM = Consistency.LOCAL_QUORUM


class World(ABC):
    """The store of a case, and the faults that can happen to it."""

    kind: str
    store: Store

    def __init__(self) -> None:
        self._numbers = itertools.count()
        self.case = "case"

    @abstractmethod
    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a case to its end."""

    @abstractmethod
    async def advance(self, seconds: float) -> None:
        """Let time pass."""

    @abstractmethod
    def now_us(self) -> int:
        """The time of day, as servers report it."""

    @abstractmethod
    def only_these_are_down(self, replicas: frozenset[int]) -> None:
        """Stop these replicas, start all others, and return when everybody knows."""

    def key(self) -> str:
        """A partition that nobody else uses."""
        return f"{self.case}-{next(self._numbers)}-{uuid4().hex[:8]}"

    # Short forms of what every case needs.

    async def insert(
        self, table: Table, values: Mapping[str, Value], at: int, *, ttl_s: int | None = None, to: Consistency = ALL
    ) -> None:
        """A plain insert, at a consistency that leaves no replica behind."""
        await self.store.write(Insert(table, values, timestamp_us=at, ttl_s=ttl_s, consistency=to))

    async def update(
        self,
        table: Table,
        key: Mapping[str, Value],
        to: Mapping[str, Value],
        at: int,
        *,
        ttl_s: int | None = None,
    ) -> None:
        """A plain update of some cells."""
        await self.store.write(Update(table, key, to, timestamp_us=at, ttl_s=ttl_s, consistency=ALL))

    async def delete(
        self,
        table: Table,
        key: Mapping[str, Value],
        at: int,
        *,
        within: Slice | None = None,
        above: int | None = None,
    ) -> None:
        """A plain delete of a row, a range or a partition."""
        await self.store.write(
            Delete(table, key, timestamp_us=at, within=within, above_lwt_us=above, consistency=ALL)
        )

    async def rows(self, table: Table, partition: str, *columns: str, **options: Any) -> list[tuple[Value, ...]]:
        """Columns of all rows of a partition, as plain tuples."""
        result = await self.store.read(Select(table, {"p": partition}, columns, **options))
        return [tuple(row) for row in result]

    async def serial(self, table: Table, partition: str, *columns: str) -> list[tuple[Value, ...]]:
        """The same, by a read at the table's serial level."""
        return await self.rows(table, partition, *columns, consistency=Consistency.SERIAL)

    async def create_by_lwt(self, table: Table, values: Mapping[str, Value], *, ttl_s: int | None = None) -> Outcome:
        """Make a row if there is none."""
        return await self.store.decide(InsertIfAbsent(table, values, attempt=uuid4(), ttl_s=ttl_s))

    async def change_by_lwt(
        self,
        table: Table,
        key: Mapping[str, Value],
        to: Mapping[str, Value],
        *conditions: CellCondition,
        attempt: UUID | None = None,
        ttl_s: int | None = None,
    ) -> Outcome:
        """Change a row if the conditions hold."""
        return await self.store.decide(UpdateIf(table, key, to, *conditions, attempt=attempt or uuid4(), ttl_s=ttl_s))


class SimulatedWorld(World):
    """Three simulated nodes, in virtual time; a world of its own for each case."""

    kind = "simulated"

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.simulation = Simulation(seed)
        self.cluster = Cluster(self.simulation)
        self.client = self.simulation.process("client")
        self.store = SimulatedStore(self.cluster, self.client)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """To its end, or until nothing can happen any more."""
        return self.simulation.run(work)

    async def advance(self, seconds: float) -> None:
        """As long as in the real world, and at once."""
        await self.simulation.sleep(seconds)

    def now_us(self) -> int:
        """The client's clock, which is right."""
        return self.client.clock.wall_us()

    def only_these_are_down(self, replicas: frozenset[int]) -> None:
        """Down in good order, so that the others know at once."""
        for number in replicas:
            self.cluster.shut_down(f"n{number + 1}")


class MemoryWorld(World):
    """One replica in memory, in virtual time. Nothing of it is ever down."""

    kind = "memory"

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.simulation = Simulation(seed)
        self.client = self.simulation.process("client")
        self.store = MemoryStore(MemoryReplica(self.client.clock.wall_us))

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """To its end."""
        return self.simulation.run(work)

    async def advance(self, seconds: float) -> None:
        """At once."""
        await self.simulation.sleep(seconds)

    def now_us(self) -> int:
        """The client's clock, which is right."""
        return self.client.clock.wall_us()

    def only_these_are_down(self, replicas: frozenset[int]) -> None:
        """None."""
        assert not replicas


class RealWorld(World):
    """The ring of three on loopback, in real time."""

    kind = "real"

    def __init__(self, ring: Any, runner: asyncio.Runner, store: Store) -> None:
        super().__init__()
        self.store = store
        self._ring = ring
        self._runner = runner
        self._down: frozenset[int] = frozenset()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """On the loop that opened the store."""
        return self._runner.run(work)

    async def advance(self, seconds: float) -> None:
        """Wait; expiry counts whole seconds, so a little more."""
        await asyncio.sleep(seconds + 0.1)

    def now_us(self) -> int:
        """The machine's clock, which is the servers' too."""
        return time.time_ns() // 1000

    def only_these_are_down(self, replicas: frozenset[int]) -> None:
        """Stopped cleanly, so that the others know at once."""
        if replicas == self._down:
            return
        for number in replicas - self._down:
            self._ring.nodes[number].stop()
        back = self._down - replicas
        for number in back:
            self._ring.nodes[number].launch()
        for number in back:
            self._ring.nodes[number].wait_until_ready()
        if back and not replicas:
            self._ring.wait_until_whole()
        self._down = replicas
