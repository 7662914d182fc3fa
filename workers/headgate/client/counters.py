"""The counters of one connection: looked up by name in the catalogue, opened once per process, and refreshed.

The type of a counter never changes. The lifetime of its mutators, the clock bound and its existence may change; they
are read every `REFRESH_EVERY_S`. Unlike a queue, a counter continues while the catalogue is unavailable: nothing that
an update or a read relies on can change under it.
"""

from __future__ import annotations

import asyncio
import difflib
import logging
from collections.abc import Callable
from dataclasses import replace

from headgate.client.catalogue.directory import ADOPT
from headgate.client.catalogue.process_context import ProcessContext
from headgate.client.counter import Counter
from headgate.counters.counter import CounterHandle
from headgate.counters.model.settings import CounterSettings, settings_of
from headgate.counters.types.registry import type_of
from headgate.errors import Conflict, HeadgateError, InvalidRequest, NotFound, OperationRefused, Unavailable
from headgate.process.live import Live
from headgate.process.supervised_loop import SupervisedLoop
from headgate.store.catalogue.catalogue import Catalogue
from headgate.store.catalogue.entry import Entry, EntryState, KnownEntry, Name

log = logging.getLogger("headgate.client")

KIND = "Counter"
REFRESH_EVERY_S = 15.0
RETRY_EVERY_S = 1.0
PATIENCE_S = 10.0


class CounterNotFound(NotFound):
    """There is no such counter."""


class CounterNotReady(Unavailable):
    """Its tables do not all exist yet."""


class CounterDeleted(OperationRefused):
    """The counter was deleted."""


class CounterRetained(CounterDeleted):
    """The counter was kept when its resource was deleted, and takes nothing."""


class CounterRecreated(Conflict):
    """The counter was deleted, and another was created under its name."""


class Counters:
    """All that one connection has open."""

    def __init__(
        self, process_context: ProcessContext, *, namespace: str, require_usable: Callable[[], None]
    ) -> None:
        self._process_context = process_context
        self._require_usable = require_usable
        self._catalogue: Catalogue = process_context.catalogue()
        self._namespace = namespace
        self._open: dict[Name, Counter] = {}
        self._opening = asyncio.Lock()
        self._reported: dict[str, str] = {}
        self._keeper = SupervisedLoop("counters", self._keep, log=log)

    # ---- finding

    def name_of(self, text: str) -> Name:
        """`namespace/name`, or a name in the connection's namespace."""
        parts = text.split("/")
        if len(parts) > 2 or not all(parts):
            raise InvalidRequest("A counter is named NAMESPACE/NAME", remedy="write shop/page-views", given=text)
        return Name(KIND, parts[0] if len(parts) == 2 else self._namespace, parts[-1])

    async def names(self, namespace: str | None = None) -> list[str]:
        """Every counter, or those of one namespace, as `namespace/name`."""
        return [_shown(entry.name) for entry in await self.entries(namespace)]

    async def entries(self, namespace: str | None = None) -> list[Entry]:
        """The same, as in the catalogue, including those that cannot be opened."""
        namespaces = [namespace] if namespace is not None else sorted(await self._catalogue.namespaces())
        return [known.entry for each in namespaces for known in await self._catalogue.list(each, KIND)]

    async def _find(self, name: Name) -> KnownEntry:
        known = await self._catalogue.find(name)
        if known is None:
            raise await self._unknown(name)
        return known

    def _usable(self, known: KnownEntry) -> CounterSettings:
        entry = known.entry
        if entry.state is EntryState.DELETING:
            raise CounterDeleted("The counter is being deleted", counter=_shown(entry.name))
        if entry.state is EntryState.RETAINED:
            raise CounterRetained(counter=_shown(entry.name), remedy=ADOPT)
        if entry.state is EntryState.MAKING:
            raise CounterNotReady(counter=_shown(entry.name), remedy="apply it again, or wait for the operator")
        return settings_of(entry, data_center=self._process_context.data_center)

    async def _unknown(self, name: Name) -> CounterNotFound:
        in_namespace, everywhere = await self.names(name.namespace), await self.names()
        near = difflib.get_close_matches(name.name, [each.rpartition("/")[2] for each in in_namespace], n=1)
        close = [f"{name.namespace}/{each}" for each in near] or [
            each for each in everywhere if each.rpartition("/")[2] == name.name
        ]
        if close:
            return CounterNotFound(counter=_shown(name), remedy=f"did you mean {close[0]}?")
        names = ", ".join((in_namespace or everywhere)[:5])
        return CounterNotFound(
            counter=_shown(name), remedy=f"available: {names}" if names else "create one: headgate apply FILE"
        )

    # ---- opening

    async def open(self, text: str, *, memory_bytes: int | None = None) -> Counter:
        """The counter of that name; the same object each time, until it was deleted."""
        name = self.name_of(text)
        async with self._opening:
            standing = self._open.get(name)
            if standing is not None and standing.ended is None:
                return standing
            await self._process_context.clock.until_trusted(PATIENCE_S)
            known = await self._find(name)
            settings = self._usable(known)
            if memory_bytes is not None:
                settings = replace(settings, memory_bytes_max=memory_bytes)
            if standing is not None:
                await standing.close()
            self._open[name] = opened = self._opened(known.entry, settings)
            self._keeper.start()
            return opened

    def _opened(self, entry: Entry, settings: CounterSettings) -> Counter:
        bound = Live(settings.skew_us)
        kind = type_of(settings.kind)
        self._process_context.clock.serve(bound.now)
        host = self._process_context.host_of(entry.place.keyspace, bound)
        handle = CounterHandle(host, settings, hints=self._process_context.hints, kind=kind)
        return Counter(entry, handle, self._process_context, bound, self._require_usable)

    # ---- keeping fresh

    async def _keep(self) -> None:
        pause_s = REFRESH_EVERY_S
        while True:
            await asyncio.sleep(pause_s)
            pause_s = RETRY_EVERY_S if await self.refresh_all() else REFRESH_EVERY_S

    async def refresh_all(self) -> list[HeadgateError]:
        """Read the catalogue for all open counters; returns the failures."""
        failed = [await self._refresh(counter) for counter in list(self._open.values())]
        return [failure for failure in failed if failure is not None]

    async def _refresh(self, counter: Counter) -> HeadgateError | None:
        if counter.ended is not None:
            return None
        try:
            known = await self._catalogue.find(counter.entry.name)
            if known is None:
                counter.end(CounterDeleted(counter=counter.name))
                return None
            if known.entry.id != counter.entry.id:
                counter.end(
                    CounterRecreated(counter=counter.name, remedy="open the counter again to use the new one")
                )
                return None
            settings = self._usable(known)
        except CounterDeleted as gone:
            counter.end(gone)
            return None
        except HeadgateError as error:
            if self._reported.get(counter.name) != str(error):
                self._reported[counter.name] = str(error)
                log.warning("catalogue cannot be read", extra={"counter": counter.name, "error": str(error)})
            return error
        self._reported.pop(counter.name, None)
        memory_bytes = counter.handle.settings.memory_bytes_max
        counter.renew(known.entry, replace(settings, memory_bytes_max=memory_bytes))
        self._process_context.clock.serve(settings.skew_us)
        return None

    # ---- the end

    async def close(self) -> None:
        """Write pending updates in all of them."""
        await self._keeper.stop()
        await asyncio.gather(*(counter.close() for counter in self._open.values()))


def _shown(name: Name) -> str:
    return f"{name.namespace}/{name.name}"
