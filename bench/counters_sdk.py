"""bench-counters: a counter as an application has it, on the store and clock of a process of the benchmark.

Each window counts in a counter that nobody has used, so it is opened by hand and not found in a catalogue; from there
on an update goes the way of any application's.
"""

from __future__ import annotations

from bench.store_work import KEYSPACE
from bench.timeline_process import TimelineProcess
from penstock.client.connection import Penstock
from penstock.client.counter import Counter
from penstock.client.ground import Bound, Ground
from penstock.counters.counter import CounterHandle
from penstock.store.catalogue_entry import Entry, Name, Place, State
from penstock.store.decide_generation import first


async def connected(process: TimelineProcess) -> Penstock:
    """A connection of the SDK on what this process has; the process closes that itself."""

    async def ground() -> Ground:
        host = process.host
        return Ground(host.name, lambda _: host.store, KEYSPACE, "", process.clock, host.last_expiry_s, _nothing)

    return await Penstock(ground).open()


async def _nothing() -> None:
    """In place of closing."""


def opened(connection: Penstock, handle: CounterHandle) -> Counter:
    """That counter, on this connection."""
    settings = handle.settings
    namespace, _, name = settings.name.partition("/")
    entry = Entry(
        Name("Counter", namespace, name),
        settings.counter,
        "bench",
        State.ACTIVE,
        1,
        {},
        Place("", KEYSPACE, "shared"),
        first(1),
        0,
    )
    return Counter(entry, handle, connection.ground, Bound(settings.skew_us), connection.require_usable)
