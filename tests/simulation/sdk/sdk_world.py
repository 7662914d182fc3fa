"""People and programs in the simulated world: some apply queues and counters, some use the SDK, each a process."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import yaml

from headgate.api.parse import parse_resource
from headgate.applying.apply import Applied, Applier
from headgate.applying.wanted import PlacementDefaults
from headgate.client.catalogue.process_context import ProcessContext
from headgate.client.connection import Headgate
from headgate.engines.timeline.model.layout import CASSANDRA_4_LAST_EXPIRY_S
from headgate.errors import Unavailable
from headgate.store.catalogue.catalogue import Catalogue
from headgate.store.catalogue.tables import ENTRIES
from headgate.store.clock.clock import Clock
from headgate.store.model.positions import Positions
from headgate.store.model.statements import Select
from headgate.store.store import OutcomeUnknown
from headgate.testing.simulated_store import Cluster
from headgate.testing.simulated_store.schema import SimulatedSchema
from headgate.testing.simulated_store.store import SimulatedTime
from headgate.testing.world import Process, World
from tests.simulation.timeline.timeline_puts import GatedStore

KEYSPACE = "headgate"
RESOURCE = """
apiVersion: headgate.io/v1beta1
kind: {kind}
metadata: {{name: {name}, namespace: shop}}
spec: {spec}
"""


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
    schema: SimulatedSchema = field(default_factory=SimulatedSchema)

    def program(self, name: str) -> Program:
        """A process of its own with a connection that is not opened yet."""
        process = self.world.process(name)
        store = GatedStore(self.cluster, process)
        hints = Hints()

        async def process_context() -> ProcessContext:
            clock = Clock(store, source=SimulatedTime(process))
            await clock.__aenter__()

            async def close() -> None:
                await clock.__aexit__(None, None, None)
                await store.close()

            return ProcessContext(
                name=name,
                store_in=lambda keyspace: store,
                keyspace=KEYSPACE,
                data_center="dc1",
                clock=clock,
                last_expiry_s=CASSANDRA_4_LAST_EXPIRY_S,
                close=close,
                new_uuid=process.uuid,
                rng=process.rng,
                positions=Positions(lambda: process.rng.getrandbits(56)),
                hints=hints,
            )

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
            yield Applier(self.schema, catalogue, lambda _: store, PlacementDefaults(KEYSPACE, "dc1", 3))

    async def applied(self, process: Process, *texts: str) -> list[Applied]:
        """`headgate apply`, to be run in a process."""
        async with self.applier(process) as applier:
            await applier.prepare()
            return await applier.apply([parse_resource(yaml.safe_load(text)) for text in texts])

    async def apply(self, *texts: str) -> list[Applied]:
        """The same, by a person of its own."""
        process = self.world.process(f"person-{self.world.now_s()}")
        done = await process.start(self.applied(process, *texts))
        assert [] == [each.notes for each in done if each.refused]
        return done


def queue_text(spec: str = "{shards: 3}", name: str = "emails") -> str:
    """A resource as a person writes it."""
    return RESOURCE.format(kind="Queue", name=name, spec=spec)


def counter_text(spec: str = "{}", name: str = "page-views") -> str:
    """The same of a counter."""
    return RESOURCE.format(kind="Counter", name=name, spec=spec)
