"""The connection of a process: its shared context, its queues and counters, and the refresh of both.

    async with headgate.connect() as p:
        q = await p.queue("shop/emails")
        await q.put({"to": "you"})
        views = await p.counter("shop/page-views")
        await views.add("home", 1)

Each is opened once per process, and belongs to the event loop and the process that opened it. Closing writes pending
messages and releases the lanes, so that other processes take them at once. If a process ends without closing, its
lanes stay locked until their leases expire.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Unpack

from headgate.client.catalogue.opened import ConnectionClosed, Home, WrongEventLoop, require_process
from headgate.client.catalogue.overview import Overview, QueueOverview
from headgate.client.catalogue.process_context import ProcessContext, open_process_context, process_name
from headgate.client.counter import Counter
from headgate.client.counters import Counters
from headgate.client.model.times import Span, span_us
from headgate.client.model.values import QueueSummary, build_summary
from headgate.client.open_and_refresh import keep_current
from headgate.client.queue import Queue
from headgate.client.queues import Queues
from headgate.engines.contract import Stats
from headgate.errors import HeadgateError, OperationRefused
from headgate.process.background_tasks import SupervisedLoop
from headgate.store.cassandra.settings import ConnectionOptions, read_session_settings, read_settings
from headgate.store.catalogue.catalogue import Catalogue
from headgate.store.catalogue.entry import Entry

if TYPE_CHECKING:  # the driver is imported when a connection is opened
    from headgate.store.cassandra.batches import CassandraBatches

log = logging.getLogger("headgate.client")

NAMESPACE = "default"
SKEW_S = 0.5


class NotConnected(OperationRefused):
    """The connection was not opened: use it as `async with headgate.connect() as p`."""


class CatalogueGenerations:
    """Repair's access to the generations of one queue in the catalogue. `GenerationKeeper` of an engine.

    Any process may advance and delete them (docs/internals/protocols/repair.md): the step follows from the stored
    state, and each step is an LWT on the read state."""

    def __init__(self, catalogue: Catalogue, entry: Entry, skew_us: Callable[[], int]) -> None:
        self._catalogue = catalogue
        self._entry = entry
        self._skew_us = skew_us

    async def make_sure(self) -> None:
        await self._catalogue.turn(self._entry, skew_us=self._skew_us())

    async def retire(self, number: int) -> None:
        await self._catalogue.retire(self._entry, number)


@dataclass(frozen=True)
class _Open:
    process_context: ProcessContext
    queues: Queues
    overview: Overview
    counters: Counters
    home: Home
    keeper: SupervisedLoop
    """Refreshes the knowledge of the catalogue: without it, puts end within a minute."""


class Headgate:
    """A connection to Headgate. `connect()` creates it."""

    def __init__(
        self, open_process_context: Callable[[], Awaitable[ProcessContext]], *, namespace: str = NAMESPACE
    ) -> None:
        self._open_process_context = open_process_context
        self._namespace = namespace
        self._pid = os.getpid()
        self._now: _Open | None = None
        self._opening = asyncio.Lock()
        self._closed = False

    # ---- its life

    async def open(self) -> Headgate:
        """Connect. `async with` does it."""
        require_process(self._pid)
        async with self._opening:
            if self._closed:
                raise ConnectionClosed
            if self._now is None:
                self._now = self._begin(await self._open_process_context())
        return self

    def _begin(self, process_context: ProcessContext) -> _Open:
        queues = Queues(process_context, self, namespace=self._namespace)
        counters = Counters(process_context, self, namespace=self._namespace)
        keeper = SupervisedLoop("catalogue", partial(keep_current, self._refresh_all), log=log)
        keeper.start()
        overview = Overview(process_context, queues.ids, self._read_stats)
        return _Open(process_context, queues, overview, counters, Home(asyncio.get_running_loop()), keeper)

    async def close(self) -> None:
        """Write pending messages, release lanes, disconnect. `async with` does it."""
        if self._closed or self._now is None:
            self._closed = True
            return
        require_process(self._pid)
        self._closed = True
        await self._now.keeper.stop()
        try:
            await asyncio.gather(self._now.counters.close(), self._now.queues.close())
        finally:
            await self._now.process_context.close()

    async def __aenter__(self) -> Headgate:
        return await self.open()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    @property
    def process_context(self) -> ProcessContext:
        """Stores, clock and catalogue of this process: for the worker runtime and for tools."""
        return self._known().process_context

    def dead_loops(self) -> list[str]:
        """Why background work that all queues need is done no more, if so: only a new process helps."""
        now = self._known()
        reasons = (now.keeper.why_dead(), now.process_context.clock.why_dead())
        return [reason for reason in reasons if reason is not None]

    def require_usable(self) -> None:
        """Refuse in another process, on another loop, before it was opened and after its end."""
        if self._now is not None and not self._closed and self._now.home.is_same_loop():
            return
        if os.getpid() != self._pid:
            require_process(self._pid)
        if self._closed:
            raise ConnectionClosed
        if asyncio.get_running_loop() is not self._known().home.loop:
            raise WrongEventLoop

    def now_us(self) -> int:
        """The time, good enough for display; promises are made by `process_context.clock.require`."""
        return self._known().process_context.clock.now_us()

    @property
    def batches(self) -> CassandraBatches | None:
        """The facts about the application's own batches."""
        return self._known().process_context.batches

    # ---- queues

    async def queue(self, name: str) -> Queue:
        """The queue of that name (`namespace/name`); the same object each time, until it was deleted."""
        self.require_usable()
        return await self._known().queues.open(name)

    async def queues(self, namespace: str | None = None) -> list[str]:
        """The names of all queues, or of those in one namespace; without deleted ones."""
        self.require_usable()
        return await self._known().queues.names(namespace)

    async def queue_entries(self, namespace: str) -> list[Entry]:
        """Those of a namespace as in the catalogue, for a process that is about to open most of them."""
        self.require_usable()
        return await self._known().queues.entries_to_open(namespace)

    # ---- counters

    async def counter(self, name: str, *, memory_bytes: int | None = None) -> Counter:
        """The counter of that name (`namespace/name`); the same object each time, until it was deleted.

        `memory_bytes` is the maximum memory of its states in this process. Default: 64 MiB. Beyond that, keys without
        recent updates are evicted, and read back when they are updated."""
        self.require_usable()
        return await self._known().counters.open(name, memory_bytes=memory_bytes)

    async def counters(self, namespace: str | None = None) -> list[str]:
        """The names of all counters, or of those in one namespace; without deleted ones."""
        self.require_usable()
        return await self._known().counters.names(namespace)

    async def counter_entries(self, namespace: str | None = None) -> list[Entry]:
        """The same, as in the catalogue, including those that this process cannot open."""
        self.require_usable()
        return await self._known().counters.entries(namespace)

    # ---- all queues

    async def overview(self, namespace: str | None = None) -> list[QueueSummary]:
        """The figures of all queues, or of those in one namespace: from the summary, in a few small reads.
        `Queue.stats()` is exact, and costs more."""
        return [build_summary(each) for each in await self.read_overview(namespace)]

    async def read_overview(self, namespace: str | None = None) -> list[QueueOverview]:
        """As `overview`, with the engine's figures, for the commands."""
        self.require_usable()
        known = self._known()
        return await known.overview.read(namespace, now_us=self.now_us())

    async def _read_stats(self, name: str) -> Stats:
        return await (await self.queue(name)).read_stats()

    async def refresh(self) -> None:
        """Read the catalogue for all open queues and counters, which also happens every 15 s by itself. Changes that
        were applied before are in force in this process when this returns. Raises the first failure.
        """
        self.require_usable()
        failures = await self._refresh_all()
        if failures:
            raise failures[0]

    async def _refresh_all(self) -> list[HeadgateError]:
        known = self._known()
        of_queues, of_counters = await asyncio.gather(known.queues.refresh_all(), known.counters.refresh_all())
        return [*of_queues, *of_counters]

    def generations_of(self, queue: Queue) -> CatalogueGenerations:
        """Repair's updates to the catalogue."""
        catalogue = self._known().process_context.catalogue()
        return CatalogueGenerations(catalogue, queue.entry, lambda: queue.record.settings.skew_us)

    async def freshen(self, queue: Queue, within_s: float) -> None:
        """Return when the clock and the knowledge of the queue are current; else raise the reason."""
        await self._known().queues.freshen(queue, within_s)

    def _known(self) -> _Open:
        if self._now is None:
            raise NotConnected
        return self._now


def connect(
    environment: Mapping[str, str] | str | None = None,
    *,
    namespace: str = NAMESPACE,
    name: str | None = None,
    max_clock_skew: Span = SKEW_S,
    session: Any = None,
    **options: Unpack[ConnectionOptions],
) -> Headgate:
    """A connection by the environment: HEADGATE_CONTACT_POINTS, HEADGATE_USERNAME and the rest (docs/python.md).

    `connect("memory://")` needs no Cassandra: its queues and counters are in the memory of this process, and are gone
    when the last connection to this address is closed. Other text is taken as `contact_points`.

    An option of the same name (`contact_points=["10.0.0.1"]`, `username=...`) goes before its variable.
    `namespace` is that of queues and counters whose name has none; `name` is this process's, for people.
    `session` is an open `cassandra.cluster.Session` of yours: the connection uses it, changes no setting of it, and
    leaves it open. Of the environment and the options only the keyspace, the data centre and the cluster name count
    then.
    """
    given: Mapping[str, str] = os.environ if environment is None or isinstance(environment, str) else environment
    if isinstance(environment, str):
        options["contact_points"] = environment
    settings = read_settings(given, options) if session is None else read_session_settings(session, given, options)
    max_skew_us = span_us(max_clock_skew, "max_clock_skew")

    async def process_context() -> ProcessContext:
        return await open_process_context(
            settings, name=name or process_name(), max_skew_us=max_skew_us, driver_session=session
        )

    return Headgate(process_context, namespace=namespace)
