"""Holds lanes of one queue for one process: takes those that are free, works them, and lets go of those it lost.

It takes up to as many as it is told and knows nothing of other members; sharing lanes evenly is the runtime's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

from penstock.engines.dispatcher import Dispatcher, DispatchTerms
from penstock.engines.host import Host
from penstock.engines.lane import Lane
from penstock.engines.rows import BookTerms
from penstock.engines.timeline.lane_rows import lane_key
from penstock.engines.timeline.sender import Sender
from penstock.engines.timeline.settings import TimelineSettings
from penstock.engines.timeline.source import TimelineSource
from penstock.errors import Unavailable

LOOK_EVERY_S = 1.0
RECEIVES_WITHOUT_END = 2**31

LaneName = tuple[int, int]
"""Generation and shard."""


class LaneKeeper:
    """The lanes that this process works."""

    def __init__(self, host: Host, settings: TimelineSettings, sender: Sender, dead_letters: Sender | None) -> None:
        self.host = host
        self.settings = settings
        self.held: dict[LaneName, Dispatcher] = {}
        self.wanted = 0
        self.on_change: Callable[[], None] | None = None
        self._sender = sender
        self._dead_letters = dead_letters
        self._loop: asyncio.Task[None] | None = None

    def want(self, lanes: int) -> None:
        """Hold up to so many from now on."""
        self.wanted = lanes
        if self._loop is None and lanes:
            self._loop = asyncio.get_running_loop().create_task(self._keep())

    def settings_changed(self, settings: TimelineSettings, dead_letters: Sender | None) -> None:
        """In force from the next message on, on lanes that are held too; the lease's terms from their next taking."""
        if settings == self.settings and dead_letters is self._dead_letters:
            return
        self.settings = settings
        self._dead_letters = dead_letters
        for dispatcher in self.held.values():
            dispatcher.books.terms = self._terms().books
            if isinstance(dispatcher.source, TimelineSource):
                dispatcher.source.settings_changed(settings, dead_letters)

    async def close(self) -> None:
        """Give every lane back."""
        self.wanted = 0
        if self._loop is not None:
            self._loop.cancel()
            self._loop = None
        held, self.held = self.held, {}
        await asyncio.gather(*(dispatcher.give_back() for dispatcher in held.values()))

    async def _keep(self) -> None:
        while True:
            self._drop_ended()
            for name in list(self._free_names()):
                if len(self.held) >= self.wanted:
                    break
                try:
                    await self._try(name)
                except Unavailable:
                    break
            await asyncio.sleep(LOOK_EVERY_S)

    def _drop_ended(self) -> None:
        for name, dispatcher in list(self.held.items()):
            if dispatcher.is_over():
                dispatcher.abandon()
                del self.held[name]

    def _free_names(self) -> Iterator[LaneName]:
        """The lanes that are not ours, in an order of this process's own, so that not all try the same one first."""
        names = [
            (generation.number, shard)
            for generation in self.settings.generations
            for shard in range(generation.shards)
            if (generation.number, shard) not in self.held
        ]
        self.host.chance.shuffle(names)
        return iter(names)

    async def _try(self, name: LaneName) -> None:
        generation, shard = name
        settings = self.settings
        lane = Lane(self.host, settings.tables.lanes, lane_key(settings, generation, shard), settings.lease)
        seen = await lane.look()
        tenure = await lane.take(seen) if seen is not None else None
        if seen is None or tenure is None:
            return
        source = TimelineSource(
            self.host,
            settings,
            self._sender,
            self._dead_letters,
            generation=generation,
            shard=shard,
            tenure=tenure,
        )
        dispatcher = await Dispatcher.start(self.host, lane, source, self._terms(), tenure, seen)
        dispatcher.on_change = self.on_change
        self.held[name] = dispatcher

    def _terms(self) -> DispatchTerms:
        settings = self.settings
        trusted_us = settings.lease.promise(0).silent_after_us
        books = BookTerms(
            max_receives=settings.max_receives if self._dead_letters is not None else RECEIVES_WITHOUT_END,
            hold_us_max=settings.lease.ttl_s * 1_000_000,
            remembered_us=trusted_us,
            dead_letters=self._dead_letters is not None,
        )
        return DispatchTerms(books)
