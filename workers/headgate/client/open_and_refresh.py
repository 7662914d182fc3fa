"""The resources of one kind that a connection uses, queues or counters: found in the catalogue by name, opened once
per process, and kept current.

A resource that was deleted ends, also where another was created under its name. One that cannot be read is reported
once, and keeps what it knows. Where many of a namespace are open, or all are about to be, the namespace is listed:
one read for all of them.
"""

from __future__ import annotations

import asyncio
import difflib
import logging
from abc import ABC, abstractmethod
from collections import Counter as Counted
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeVar
from uuid import UUID

from headgate.client.catalogue.opened import PATIENCE_S
from headgate.client.catalogue.process_context import ProcessContext
from headgate.client.counter import Counter
from headgate.client.queue import Queue, Upkeep
from headgate.errors import Conflict, HeadgateError, InvalidRequest, NotFound, OperationRefused, Unavailable
from headgate.process.background_tasks import SharedWork
from headgate.store.catalogue.entry import Entry, EntryState, KnownEntry, Name

log = logging.getLogger("headgate.client")

REFRESH_EVERY_S = 15.0
RETRY_EVERY_S = 1.0
SETTINGS_KEPT_MAX = 65_536
LISTED_FROM = 16
"""From this number of open resources of a namespace on, a list of it is read, unless it holds LISTED_PER_OPEN times
as many."""
LISTED_PER_OPEN = 8
LISTED_US = 30_000_000
"""The time for which a list serves what is opened. Knowledge is good for longer, from the start of its read."""
AT_ONCE = 100
"""Refreshed in one turn of the event loop."""
ADOPT = "apply its resource again, with the annotation headgate.io/adopt: by-name, or by `headgate apply --adopt`"


@dataclass(frozen=True)
class CatalogueKind:
    name: str
    """As in the catalogue."""
    example: str
    not_found: type[NotFound]
    not_ready: type[Unavailable]
    deleted: type[OperationRefused]
    retained: type[OperationRefused]
    """A `deleted`."""
    recreated: type[Conflict]

    @property
    def noun(self) -> str:
        return self.name.lower()


Record = TypeVar("Record")
Opened = TypeVar("Opened", Queue, Counter)


class ResourcesByName(ABC, Generic[Record, Opened]):
    """The resources of one kind, of one connection."""

    kind: ClassVar[CatalogueKind]

    def __init__(self, process_context: ProcessContext, connection: Upkeep, *, namespace: str) -> None:
        self._process_context = process_context
        self._connection = connection
        self._catalogue = process_context.catalogue()
        self._namespace = namespace
        self._open: dict[Name, Opened] = {}
        self._settings: dict[Name, tuple[Entry, Any]] = {}
        self._listings: dict[str, dict[Name, KnownEntry]] = {}
        self._passed_over: set[str] = set()
        """Namespaces all of whose resources are about to be opened."""
        self._too_wide: dict[str, int] = {}
        """Namespaces with many more resources than are open, and how many of them were."""
        self._opening = asyncio.Lock()
        self._reading: SharedWork[Opened, HeadgateError | None] = SharedWork(f"refresh of a {self.kind.noun}")
        self._reported: dict[str, str] = {}

    @abstractmethod
    def settings_of(self, entry: Entry) -> Any:
        """The settings that its document declares."""

    @abstractmethod
    def record_of(self, known: KnownEntry, settings: Any) -> Record:
        """The record of a resource that is ready, from a read."""

    @abstractmethod
    async def renew(self, opened: Opened, record: Record) -> HeadgateError | None:
        """Take over the result of a later read."""

    def require_supported(self, entry: Entry) -> None:
        """Refuse what this release cannot open."""

    async def create(self, name: Name) -> bool:
        """Create a resource that nobody declared, where the connection does so; whether it did."""
        return False

    # ---- finding

    def name_of(self, text: str) -> Name:
        """`namespace/name`, or a name in the connection's namespace."""
        parts = text.split("/")
        if len(parts) > 2 or not all(parts):
            message = f"A {self.kind.noun} is named NAMESPACE/NAME"
            raise InvalidRequest(message, remedy=f"write {self.kind.example}", given=text)
        return Name(self.kind.name, parts[0] if len(parts) == 2 else self._namespace, parts[-1])

    async def find(self, name: Name) -> Record:
        known = await self._read(name)
        if known is None and await self.create(name):
            known = await self._catalogue.find(name)
        if known is None:
            raise await self._unknown(name)
        return self._usable(known)

    async def entries(self, namespace: str | None = None) -> list[Entry]:
        """Those of one namespace or of all, as in the catalogue, including those that cannot be opened."""
        namespaces = [namespace] if namespace is not None else sorted(await self._catalogue.namespaces())
        return [known.entry for each in namespaces for known in await self._catalogue.list(each, self.kind.name)]

    async def entries_to_open(self, namespace: str) -> list[Entry]:
        """The same of one namespace, for a caller that is about to open most of them: none is then read by itself."""
        self._passed_over.add(namespace)
        return [known.entry for known in (await self._list(namespace)).values()]

    async def _list(self, namespace: str) -> dict[Name, KnownEntry]:
        known = await self._catalogue.list(namespace, self.kind.name)
        listing = self._listings[namespace] = {each.entry.name: each for each in known}
        return listing

    async def _read(self, name: Name) -> KnownEntry | None:
        """From a list that is fresh, or by itself."""
        listed = self._listings.get(name.namespace, {}).get(name)
        if listed is not None and 0 <= self._process_context.clock.now_us() - listed.read_started_us < LISTED_US:
            return listed
        return await self._catalogue.find(name)

    async def names(self, namespace: str | None = None) -> list[str]:
        """As `namespace/name`, without deleted ones."""
        gone = (EntryState.DELETING, EntryState.RETAINED)
        return [_shown(entry.name) for entry in await self.entries(namespace) if entry.state not in gone]

    async def ids(self) -> dict[UUID, str]:
        return {entry.id: _shown(entry.name) for entry in await self.entries()}

    async def _find_again(self, entry: Entry) -> Record:
        known = await self._read(entry.name)
        if known is None:
            raise self.kind.deleted(**self._about(entry.name))
        if known.entry.id != entry.id:
            remedy = f"open the {self.kind.noun} again to use the new one"
            raise self.kind.recreated(remedy=remedy, **self._about(entry.name))
        return self._usable(known)

    def _usable(self, known: KnownEntry) -> Record:
        entry, about = known.entry, self._about(known.entry.name)
        if entry.state is EntryState.DELETING:
            raise self.kind.deleted(f"The {self.kind.noun} is being deleted", **about)
        if entry.state is EntryState.RETAINED:
            raise self.kind.retained(remedy=ADOPT, **about)
        self.require_supported(entry)
        if entry.state is EntryState.MAKING:
            raise self.kind.not_ready(remedy="apply it again, or wait for the operator", **about)
        return self.record_of(known, self._settings_of(entry))

    def _settings_of(self, entry: Entry) -> Any:
        """Parsed once, and again when the entry has changed: a process reads each of its queues every 15 s."""
        before = self._settings.get(entry.name)
        if before is None or before[0] != entry:
            if len(self._settings) >= SETTINGS_KEPT_MAX:
                self._settings.clear()
            before = self._settings[entry.name] = entry, self.settings_of(entry)
        return before[1]

    async def _unknown(self, name: Name) -> NotFound:
        in_namespace, everywhere = await self.names(name.namespace), await self.names()
        near = decide_near(name, in_namespace, everywhere)
        some = ", ".join((in_namespace or everywhere)[:5])
        remedy = f"available: {some}" if some else "create one: headgate apply FILE"
        return self.kind.not_found(remedy=f"did you mean {near}?" if near else remedy, **self._about(name))

    def _about(self, name: Name) -> dict[str, str]:
        return {self.kind.noun: _shown(name)}

    # ---- opening

    async def open_once(self, text: str, make: Callable[[Record], Awaitable[Opened]]) -> Opened:
        """The resource of that name; the same object each time, until it was deleted."""
        name = self.name_of(text)
        async with self._opening:
            standing = self._open.get(name)
            if standing is not None and standing.ended is None:
                return standing
            await self._process_context.clock.until_trusted(PATIENCE_S)  # it may not be ready shortly after the start
            opened = await make(await self.find(name))
            if standing is not None:
                await standing.close()
            self._open[name] = opened
            return opened

    # ---- keeping current

    async def refresh_all(self) -> list[HeadgateError]:
        opened = [each for each in self._open.values() if each.ended is None]
        counts = Counted(each.entry.name.namespace for each in opened)
        for namespace in decide_listed(counts, self._passed_over, self._too_wide):
            try:
                listing = await self._list(namespace)
            except HeadgateError as error:
                self._listings.pop(namespace, None)
                self.report(namespace, f"the catalogue cannot be listed: {error}")
                return [error]
            if len(listing) > LISTED_PER_OPEN * counts[namespace]:
                self._too_wide[namespace] = counts[namespace]
        failures: list[HeadgateError] = []
        for start in range(0, len(opened), AT_ONCE):
            ended = await asyncio.gather(*map(self.refresh, opened[start : start + AT_ONCE]))
            failures += [failure for failure in ended if failure is not None]
        for namespace in self._listings.keys() - self._passed_over:  # what is opened next is read by itself
            del self._listings[namespace]
        return failures

    async def refresh(self, opened: Opened) -> HeadgateError | None:
        """Read once for this one; concurrent callers wait for the same read. Returns the failure, if any."""
        return await self._reading.run(opened, lambda: self._refresh(opened))

    async def _refresh(self, opened: Opened) -> HeadgateError | None:
        if opened.ended is not None:
            return None
        name = _shown(opened.entry.name)
        try:
            record = await self._find_again(opened.entry)
        except (self.kind.deleted, self.kind.recreated) as gone:
            opened.end(gone)
            return None
        except HeadgateError as error:
            self.report(name, f"the catalogue cannot be read: {error}")
            return error
        if self._reported.pop(name, None) is not None:
            log.info("catalogue is readable again", extra={self.kind.noun: name})
        return await self.renew(opened, record)

    def report(self, about: str, what: str) -> None:
        if self._reported.get(about) != what:
            self._reported[about] = what
            log.warning("refresh failed", extra={self.kind.noun: about, "error": what})

    async def close(self) -> None:
        await self._reading.stop()
        await asyncio.gather(*(each.close() for each in self._open.values()))


async def keep_current(refresh_all: Callable[[], Awaitable[Sequence[HeadgateError]]]) -> None:
    """Read all that is open again and again, and sooner while something cannot be read."""
    while True:
        failures = await refresh_all()
        await asyncio.sleep(RETRY_EVERY_S if failures else REFRESH_EVERY_S)


def decide_listed(counts: Mapping[str, int], passed_over: Collection[str], too_wide: Mapping[str, int]) -> list[str]:
    """The namespaces to be listed, by the number of their open resources."""
    many = {each for each, count in counts.items() if count >= LISTED_FROM and count >= 2 * too_wide.get(each, 0)}
    return sorted(many | set(passed_over))


def decide_near(name: Name, in_namespace: Sequence[str], everywhere: Sequence[str]) -> str | None:
    near = difflib.get_close_matches(name.name, [each.rpartition("/")[2] for each in in_namespace], n=1)
    if near:
        return f"{name.namespace}/{near[0]}"
    elsewhere = [each for each in everywhere if each not in in_namespace]
    namesakes = [each for each in elsewhere if each.rpartition("/")[2] == name.name]
    close = namesakes or difflib.get_close_matches(_shown(name), elsewhere, n=1)
    return close[0] if close else None


def _shown(name: Name) -> str:
    return f"{name.namespace}/{name.name}"
