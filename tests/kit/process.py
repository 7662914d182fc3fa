"""The one place where tests and benchmarks build a process as engines see it: simulated, or real.

The context of an engine changes here alone. A simulated process has virtual time and randomness of its seed, and its
clock may be wrong; a real one has the machine's. The contexts of the SDK stand on the same two.
"""

from __future__ import annotations

import random
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass

from headgate.client.catalogue.process_context import ProcessContext, ReliableClock
from headgate.counters.model.decide_hints import HintWindows
from headgate.engines.context import Host
from headgate.store.cassandra.node_queries import CassandraTimes
from headgate.store.cassandra.settings import read_settings
from headgate.store.cassandra.store import CassandraStore
from headgate.store.clock.clock import Clock
from headgate.store.model.positions import LOW_BITS, Positions
from headgate.store.model.table import CASSANDRA_4_LAST_EXPIRY_S
from headgate.store.process_positions import process_positions
from headgate.store.store import Store
from headgate.testing.world import Process

NowUs = Callable[[], int]


def simulated_host(process: Process, store: Store, *, name: str = "", now_us: NowUs | None = None) -> Host:
    """A simulated process, with the time of its own clock, right or wrong, unless `now_us` is another."""
    return Host(
        name or process.name,
        store,
        now_us or process.clock.wall_us,
        process.uuid,
        process.rng,
        Positions(lambda: process.rng.getrandbits(LOW_BITS)),
        CASSANDRA_4_LAST_EXPIRY_S,
    )


def real_host(store: Store, now_us: NowUs, name: str = "test") -> Host:
    """This process, or one that shares it."""
    return Host(name, store, now_us, uuid.uuid4, random.Random(), process_positions(), CASSANDRA_4_LAST_EXPIRY_S)


@dataclass(frozen=True)
class RealProcess:
    """This process, connected to a server, with a clock that is compared with the server's."""

    store: CassandraStore
    clock: Clock
    host: Host


@asynccontextmanager
async def connected(
    environment: Mapping[str, str], *, ago_us: int = 0, name: str = "test"
) -> AsyncIterator[RealProcess]:
    """Connect. With `ago_us` everything that the process does happened that long ago."""
    store = await CassandraStore.connect(read_settings(environment))
    try:
        async with Clock(CassandraTimes(store)) as clock:
            now_us = (lambda: clock.require() - ago_us) if ago_us else clock.require
            yield RealProcess(store, clock, real_host(store, now_us, name))
    finally:
        await store.close()


def context_on(
    host: Host,
    keyspace: str,
    clock: ReliableClock,
    close: Callable[[], Awaitable[None]],
    *,
    data_center: str = "dc1",
    hints: HintWindows | None = None,
) -> ProcessContext:
    """The same process as the SDK sees it."""
    return ProcessContext(
        name=host.name,
        store_in=lambda _: host.store,
        keyspace=keyspace,
        data_center=data_center,
        clock=clock,
        last_expiry_s=host.last_expiry_s,
        close=close,
        new_uuid=host.uuid,
        rng=host.rng,
        positions=host.positions,
        hints=hints,
    )
