"""bench-counters: a counter as an application has it, on the store and clock of a process of the benchmark.

Each window counts in a fresh counter, so it is opened directly and not looked up in a catalogue; from then on an
update goes the way of any application's.
"""

from __future__ import annotations

from bench.store_work import KEYSPACE
from bench.timeline_process import TimelineProcess
from headgate.client.catalogue.process_context import ProcessContext
from headgate.client.connection import Headgate
from headgate.client.counter import Counter
from headgate.counters.counter import CounterHandle
from headgate.process.live import Live
from headgate.store.catalogue.decide_generation import first
from headgate.store.catalogue.entry import Entry, EntryState, Name, StoragePlace
from tests.kit.process import context_on


async def connected(process: TimelineProcess) -> Headgate:
    """A connection of the SDK on this process's resources, which the process closes itself."""

    async def process_context() -> ProcessContext:
        return context_on(process.host, KEYSPACE, process.clock, _nothing, data_center="")

    return await Headgate(process_context).open()


async def _nothing() -> None:
    """In place of closing."""


def opened(connection: Headgate, handle: CounterHandle) -> Counter:
    """That counter, on this connection."""
    settings = handle.settings
    namespace, _, name = settings.name.partition("/")
    entry = Entry(
        Name("Counter", namespace, name),
        settings.counter,
        "bench",
        EntryState.ACTIVE,
        1,
        {},
        StoragePlace("", KEYSPACE, "shared"),
        first(1),
        0,
    )
    return Counter(entry, handle, connection.process_context, Live(settings.skew_us), connection.require_usable)
