"""The shared context of the SDK in one process: stores, a clock, the catalogue, randomness. On Cassandra, or
simulated.

It is the only file of the SDK that opens anything; the driver is imported when a connection is opened, not before.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING
from uuid import UUID, uuid4

from headgate.counters.model.decide_passes import HintWindows
from headgate.engines.context import AllReplicas, Host
from headgate.engines.lanes.delivery.read_budget import ReadBudget
from headgate.engines.lanes.delivery.read_gate import ReadGate
from headgate.engines.registry import ENGINE_MODULES
from headgate.process.live import Live
from headgate.store.cassandra.settings import ConnectionSettings
from headgate.store.catalogue.catalogue import Catalogue
from headgate.store.catalogue.entry import Name
from headgate.store.model.positions import Positions
from headgate.store.model.table import CASSANDRA_4_LAST_EXPIRY_S, LAST_EXPIRY_S
from headgate.store.process_positions import process_positions
from headgate.store.store import Store

if TYPE_CHECKING:  # the driver is imported when a connection is opened
    from headgate.client.catalogue.memory_context import MachineClock
    from headgate.store.cassandra.batches import CassandraBatches
    from headgate.store.clock.clock import Clock


@dataclass(frozen=True)
class ProcessContext:
    name: str
    """The name of the process for display, in logs and in the list of members."""
    store_in: Callable[[str], Store]
    """The store of a keyspace, on the connections that all share."""
    keyspace: str
    """The catalogue's."""
    data_center: str
    clock: Clock | MachineClock
    """Promises are made by what it reports (rule R1)."""
    last_expiry_s: int
    close: Callable[[], Awaitable[None]]
    new_uuid: Callable[[], UUID] = uuid4
    rng: Random = field(default_factory=Random)
    positions: Positions = field(default_factory=process_positions)
    batches: CassandraBatches | None = None
    """The facts about batches that the application builds and sends itself."""
    hints: HintWindows | None = None
    """For how long nodes keep hints: without it nothing of a counter is collected."""
    read_budget: ReadBudget = field(default_factory=ReadBudget)
    """Of all lanes that this process holds."""
    read_gate: ReadGate = field(default_factory=ReadGate)
    all_replicas: AllReplicas = field(default_factory=AllReplicas)
    """Of all queues: while a node is down, one of them finds out for all."""
    engines: Mapping[str, str] = field(default_factory=lambda: ENGINE_MODULES)
    """The modules of the engines (engines/registry.py)."""
    create_queue: Callable[[Name], Awaitable[bool]] | None = None
    """Creates a queue that does not exist, if that is wanted here; whether it has."""
    has_summary: bool = True
    """Whether engines report their figures to the summary; else each queue is asked for its own."""

    def catalogue(self) -> Catalogue:
        return Catalogue(self.store_in(self.keyspace), now_us=self.clock.require, new_uuid=self.new_uuid)

    def host_of(self, keyspace: str, bound: Live[int]) -> Host:
        """This process as an engine sees it, with its tables in that keyspace; clocks differ by that bound, in
        microseconds, at most."""
        clock = self.clock
        return Host(
            self.name,
            self.store_in(keyspace),
            lambda: clock.require(bound.now),
            self.new_uuid,
            self.rng,
            self.positions,
            self.last_expiry_s,
            self.read_budget,
            self.read_gate,
            self.all_replicas,
        )


def process_name() -> str:
    return f"{socket.gethostname()}/{os.getpid()}"


async def open_process_context(
    settings: ConnectionSettings,
    *,
    name: str,
    max_skew_us: int,
    must_exist: bool = True,
    driver_session: object = None,
) -> ProcessContext:
    """Connect to Cassandra, and compare clocks with it. Not `must_exist`: its keyspace may be made later. With a
    driver session of the application that one is used, and stays open."""
    if settings.memory is not None:
        from headgate.client.catalogue.memory_context import open_memory_context

        return open_memory_context(settings.memory, name=name)
    from headgate.store.cassandra.batches import CassandraBatches
    from headgate.store.cassandra.node_queries import CassandraHintWindows, CassandraTimes, keeps_past_2038
    from headgate.store.cassandra.store import CassandraStore
    from headgate.store.clock.clock import Clock
    from headgate.store.clock.clock_state import Bounds

    store = await CassandraStore.connect(settings, must_exist=must_exist, driver_session=driver_session)
    clock = Clock(CassandraTimes(store), bounds=Bounds(max_skew_us=max_skew_us))
    stores: dict[str, Store] = {settings.keyspace: store}

    def store_in(keyspace: str) -> Store:
        if keyspace not in stores:
            stores[keyspace] = store.in_keyspace(keyspace)
        return stores[keyspace]

    async def close() -> None:
        try:
            await clock.__aexit__(None, None, None)
        finally:
            await store.close()

    try:
        await clock.__aenter__()
        last_expiry_s = LAST_EXPIRY_S if await keeps_past_2038(store) else CASSANDRA_4_LAST_EXPIRY_S
    except BaseException:
        await close()
        raise
    return ProcessContext(
        name=name,
        store_in=store_in,
        keyspace=settings.keyspace,
        data_center=store.data_center,
        clock=clock,
        last_expiry_s=last_expiry_s,
        close=close,
        batches=CassandraBatches(store),
        hints=CassandraHintWindows(store),
    )
