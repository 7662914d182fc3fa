"""People and programs in the simulated world: some apply queues and counters, some use the SDK, each a process."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import yaml

from headgate.api.read.parse import parse_resource
from headgate.applying.apply import Applied, Applier
from headgate.applying.desired_state import PlacementDefaults
from headgate.client.catalogue.process_context import ProcessContext
from headgate.client.connection import Headgate
from headgate.engines.registry import ENGINE_MODULES, tables_in
from headgate.errors import Unavailable
from headgate.store.catalogue.catalogue import Catalogue
from headgate.store.catalogue.tables import CATALOGUE_TABLES, ENTRIES
from headgate.store.clock.clock import Clock
from headgate.store.model.cql import table_options
from headgate.store.model.drift import ActualTable, columns_of
from headgate.store.model.statements import Select
from headgate.store.model.table import Table
from headgate.store.schema import ActualKeyspace
from headgate.store.store import OutcomeUnknown
from tests.kit.process import context_on, simulated_host
from tests.kit.simulated_store import Cluster
from tests.kit.simulated_store.store import SimulatedTime
from tests.kit.simulated_world import Process, World
from tests.simulation.timeline.timeline_puts import GatedStore

KEYSPACE = "headgate"
RESOURCE = """
apiVersion: headgate.io/v1beta1
kind: {kind}
metadata: {{name: {name}, namespace: shop}}
spec: {spec}
"""


@dataclass
class Schema:
    """A server's report of its schema, as far as `headgate apply` asks. Common to all processes."""

    keyspaces: set[str] = field(default_factory=set)
    tables: dict[str, dict[str, Table]] = field(default_factory=dict)
    data_centers: tuple[str, ...] = ("dc1",)

    async def read_keyspace(self, name: str) -> ActualKeyspace | None:
        """Three replicas in each data center."""
        replicas = dict.fromkeys(self.data_centers, 3)
        return ActualKeyspace(name, "NetworkTopologyStrategy", replicas) if name in self.keyspaces else None

    async def read_tables(self, keyspace: str) -> Mapping[str, ActualTable]:
        """Each as it was declared."""
        return {name: _matches(table) for name, table in self.tables.get(keyspace, {}).items()}

    async def count_tables(self) -> int:
        """Of all keyspaces."""
        return sum(map(len, self.tables.values()))

    async def nodes_in(self, data_center: str) -> int:
        """A ring of three."""
        return 3

    async def change(self, cql: str) -> None:
        """Distinguished by their first words."""
        words = cql.replace("(", " ").split()
        if words[0] == "DROP":
            keyspace, _, name = words[4].partition(".")
            self.tables[keyspace].pop(name, None)
            return
        if words[1] == "KEYSPACE":
            self.keyspaces.add(words[5])
            return
        keyspace, _, name = words[5].partition(".")
        self.tables.setdefault(keyspace, {})[name] = _declared(name)

    async def agree(self, keyspace: str, tables: Collection[str]) -> None:
        """At once."""


def _declared(name: str) -> Table:
    creation = UUID(name[2:34]) if name.startswith(("q_", "c_")) else None
    of_engines = (table for module in ENGINE_MODULES.values() for table in tables_in(module, creation))
    return next(table for table in (*CATALOGUE_TABLES, *of_engines) if table.name == name)


def _matches(table: Table) -> ActualTable:
    assert table_options(table)
    return ActualTable(
        table.name,
        UUID(int=1),
        tuple(columns_of(table).values()),
        table.gc_grace_s,
        table.default_ttl_s,
        table.purpose,
        dict(table.compaction),
        dict(table.compression),
    )


@dataclass
class Hints:
    """The hint windows that the nodes report."""

    window_us: int = 3 * 3_600_000_000
    is_down: bool = False

    async def read(self) -> Mapping[str, int]:
        """One for all."""
        if self.is_down:
            raise Unavailable("the node is down", node="10.0.0.1")
        return {"10.0.0.1": self.window_us}


@dataclass
class Program:
    """A process that uses the SDK, and what can be done to it."""

    process: Process
    store: GatedStore
    connection: Headgate
    reads_catalogue: bool = True
    hints: Hints = field(default_factory=Hints)

    async def gate(self, statement: Any) -> None:
        """Reads of the catalogue fail while they are to."""
        if not self.reads_catalogue and isinstance(statement, Select) and statement.shape.table is ENTRIES:
            raise OutcomeUnknown("the catalogue is unavailable in this test")


@dataclass
class Shop:
    """A ring, its schema, and the people around it."""

    world: World
    cluster: Cluster
    schema: Schema = field(default_factory=Schema)

    def program(self, name: str, *, home: str = "dc1") -> Program:
        """A process of its own with a connection that is not opened yet."""
        process = self.world.process(name, data_centre=home)
        store = GatedStore(self.cluster, process)
        hints = Hints()

        async def process_context() -> ProcessContext:
            clock = Clock(store, source=SimulatedTime(process))
            await clock.__aenter__()

            async def close() -> None:
                await clock.__aexit__(None, None, None)
                await store.close()

            host = simulated_host(process, store)
            return context_on(host, KEYSPACE, clock, close, data_center=home, hints=hints)

        program = Program(process, store, Headgate(process_context), hints=hints)
        store.gate = program.gate
        return program

    @asynccontextmanager
    async def applier(self, process: Process, owner: str = "cli/test") -> AsyncIterator[Applier]:
        """The applier of `headgate apply`, to be used in a process."""
        store = GatedStore(self.cluster, process)
        async with Clock(store, source=SimulatedTime(process)) as clock:
            catalogue = Catalogue(
                store,
                now_us=clock.require,
                owner=owner,
                new_uuid=process.uuid,
                new_key=lambda: process.rng.randbytes(32),
            )
            yield Applier(self.schema, catalogue, lambda _: store, PlacementDefaults(KEYSPACE, store.data_center, 3))

    async def applied(self, process: Process, *texts: str) -> list[Applied]:
        """`headgate apply`, to be run in a process."""
        async with self.applier(process) as applier:
            await applier.prepare()
            return await applier.apply([parse_resource(yaml.safe_load(text)) for text in texts])

    async def apply(self, *texts: str, home: str = "dc1") -> list[Applied]:
        """The same, by a person of its own."""
        process = self.world.process(f"person-{home}-{self.world.now_s()}", data_centre=home)
        done = await process.start(self.applied(process, *texts))
        assert [] == [each.notes for each in done if each.refused]
        return done


def queue_text(spec: str = "{shards: 3}", name: str = "emails") -> str:
    """A resource as a person writes it."""
    return RESOURCE.format(kind="Queue", name=name, spec=spec)


def counter_text(spec: str = "{}", name: str = "page-views") -> str:
    """The same of a counter."""
    return RESOURCE.format(kind="Counter", name=name, spec=spec)
