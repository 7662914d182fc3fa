"""The engines that the suite runs on, each behind one small adapter. Another engine joins by a line in KINDS.

An adapter makes a queue of some terms and opens it for one process; all else goes through the contract.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol
from uuid import UUID
from weakref import WeakKeyDictionary

from headgate.engines.context import Host
from headgate.engines.contract import Engine
from headgate.engines.lanes.ownership.decide_lease import LeaseTerms
from headgate.engines.memory.engine import MemoryQueue
from headgate.engines.memory.server import MemoryServer
from headgate.engines.memory.settings import MemorySettings
from headgate.engines.timeline.engine import TimelineQueue
from headgate.engines.timeline.lanes.make_lanes import make_lanes
from headgate.engines.timeline.model.settings import GenerationSettings, TimelineSettings
from headgate.engines.timeline.model.tables import ALL as TIMELINE_TABLES
from headgate.engines.timeline.model.tables import shared_tables
from headgate.store.model.table import Table
from tests.contract.engines.terms import SECOND_US, Terms


@dataclass(frozen=True)
class Opened:
    """A queue as one process has it."""

    engine: Engine
    close: Callable[[], Awaitable[None]]
    refresh: Callable[[], None]
    """To be called now and then, as by a process that reads the catalogue."""
    crash: Callable[[], None] = lambda: None
    """To be called when the process is killed, by an engine that would not notice."""


class Kind(Protocol):
    """One engine."""

    worlds: tuple[str, ...]
    """Where its cases run."""

    def lanes(self, terms: Terms) -> int:
        """How many lanes such a queue has."""
        ...

    def tables(self) -> list[Table]:
        """Its tables, under the names it uses here."""
        ...

    async def make(self, host: Host, queue: UUID, terms: Terms) -> None:
        """Make what a new queue needs."""
        ...

    def open(self, host: Host, queue: UUID, terms: Terms, dead_letters: UUID | None) -> Opened:
        """The queue for one process, with the id of its dead-letter queue. To be called in the process."""
        ...


class TimelineKind:
    """Engine timeline."""

    worlds = ("simulated", "real")

    def lanes(self, terms: Terms) -> int:
        """Its shards."""
        return terms.lanes

    def tables(self) -> list[Table]:
        """Its shared ones."""
        return [table.named(f"timeline_{table.name}") for table in TIMELINE_TABLES]

    async def make(self, host: Host, queue: UUID, terms: Terms) -> None:
        """Its lanes."""
        settings = _timeline(queue, terms)
        await make_lanes(host, settings, settings.generations[0])

    def open(self, host: Host, queue: UUID, terms: Terms, dead_letter_queue: UUID | None) -> Opened:
        """One process's part of it."""
        settings = _timeline(queue, terms)
        dead = _timeline(dead_letter_queue, terms) if dead_letter_queue is not None else None
        engine = TimelineQueue(host, settings, read_us=host.now_us(), dead_letters=dead)

        def refresh() -> None:
            engine.settings_changed(settings, read_us=host.now_us(), dead_letters=dead)

        return Opened(engine, engine.close, refresh)


def _timeline(queue: UUID, terms: Terms) -> TimelineSettings:
    skew_us = round(terms.skew_s * SECOND_US)
    return TimelineSettings(
        queue,
        "cases",
        shared_tables(),
        (GenerationSettings(1, terms.lanes),),
        part_us=5 * SECOND_US,
        safety_lag_us=2 * skew_us,
        skew_us=skew_us,
        retention_us=terms.retention_s * SECOND_US,
        visibility_us=terms.visibility_us,
        delay_us=round(terms.delay_s * SECOND_US),
        max_receives=terms.max_receives,
        message_bytes_max=terms.message_bytes_max,
        once_window_us=terms.once_window_s * SECOND_US,
        lease=LeaseTerms(ttl_s=terms.lease_s, touch_us=SECOND_US, skew_us=skew_us),
        receipt_key=queue.bytes,
    )


class MemoryKind:
    """Engine memory: a server of its own for each event loop, so for each case."""

    worlds = ("simulated",)

    def __init__(self) -> None:
        self._servers: WeakKeyDictionary[asyncio.AbstractEventLoop, MemoryServer] = WeakKeyDictionary()

    def lanes(self, terms: Terms) -> int:
        """Always one."""
        return 1

    def tables(self) -> list[Table]:
        """None."""
        return []

    async def make(self, host: Host, queue: UUID, terms: Terms) -> None:
        """The first one makes the server."""
        self._servers.setdefault(asyncio.get_running_loop(), MemoryServer(host.now_us))

    def open(self, host: Host, queue: UUID, terms: Terms, dead_letter_queue: UUID | None) -> Opened:
        """One connection's part of it."""
        settings = _memory(queue, terms)
        dead = _memory(dead_letter_queue, terms) if dead_letter_queue is not None else None
        server = self._servers[asyncio.get_running_loop()]
        engine = MemoryQueue(server, settings, name=host.name, dead_letters=dead)
        return Opened(
            engine, engine.close, lambda: engine.settings_changed(settings, read_us=host.now_us()), engine.crash
        )


def _memory(queue: UUID, terms: Terms) -> MemorySettings:
    return MemorySettings(
        queue,
        "cases",
        visibility_us=terms.visibility_us,
        delay_us=round(terms.delay_s * SECOND_US),
        max_receives=terms.max_receives,
        message_bytes_max=terms.message_bytes_max,
        retention_us=terms.retention_s * SECOND_US,
        once_window_us=terms.once_window_s * SECOND_US,
        skew_us=round(terms.skew_s * SECOND_US),
        receipt_key=queue.bytes,
    )


KINDS: dict[str, Kind] = {
    "timeline": TimelineKind(),
    "memory": MemoryKind(),
}
