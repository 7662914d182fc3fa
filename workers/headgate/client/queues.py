"""The queues of one connection: opened with their dead-letter queues, and kept current.

A read is valid for `notice` from its start (rule R6); after that a queue puts nothing, and asks for another read.
"""

from __future__ import annotations

import asyncio
import contextlib

from headgate.client.catalogue.queue_record import (
    KIND,
    QueueDeleted,
    QueueNotFound,
    QueueNotReady,
    QueueRecord,
    QueueRecreated,
    QueueRetained,
)
from headgate.client.open_and_refresh import RETRY_EVERY_S, CatalogueKind, ResourcesByName
from headgate.client.queue import Queue
from headgate.engines.context import Opening
from headgate.engines.contract import QueueSettings
from headgate.engines.registry import engine_record
from headgate.errors import HeadgateError, InvalidRequest, Unavailable
from headgate.expiry import SECOND_US
from headgate.process.live import Live
from headgate.store.catalogue.decide_generation import knowledge
from headgate.store.catalogue.entry import Entry, KnownEntry, Name

QUEUES = CatalogueKind(KIND, "shop/emails", QueueNotFound, QueueNotReady, QueueDeleted, QueueRetained, QueueRecreated)


class CatalogueUnreadable(Unavailable):
    """The catalogue could not be read for too long: the place of new messages is unknown."""


class Queues(ResourcesByName[QueueRecord, Queue]):
    kind = QUEUES

    async def open(self, text: str) -> Queue:
        return await self.open_once(text, self._make)

    async def freshen(self, queue: Queue, within_s: float) -> None:
        """Return when the clock may be relied on and the queue's knowledge is fresh; raise the reason why not."""
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + within_s
        await self._process_context.clock.until_trusted(within_s, queue.record.settings.skew_us)
        while not self._is_fresh(queue):
            left_s = max(deadline_s - loop.time(), 0.0)
            with contextlib.suppress(TimeoutError):  # the read itself continues
                await asyncio.wait_for(self.refresh(queue), left_s)
            if queue.ended is not None or self._is_fresh(queue):
                return
            if loop.time() + RETRY_EVERY_S >= deadline_s:
                raise self._unreadable(queue)
            await asyncio.sleep(RETRY_EVERY_S)

    def require_supported(self, entry: Entry) -> None:
        engine_record(entry, engines=self._process_context.engines)

    async def create(self, name: Name) -> bool:
        make = self._process_context.create_queue
        return make is not None and await make(name)

    def settings_of(self, entry: Entry) -> QueueSettings:
        """Those of its engine."""
        record = engine_record(entry, engines=self._process_context.engines)
        return record.settings_of(entry, self._process_context.data_center)

    def record_of(self, known: KnownEntry, settings: QueueSettings) -> QueueRecord:
        """With its settings."""
        return QueueRecord(known.entry, settings, known.read_started_us)

    async def renew(self, queue: Queue, record: QueueRecord) -> HeadgateError | None:
        """In force from now on, for puts and for the lanes that are held."""
        queue.bound.set(record.settings.skew_us)
        self._process_context.clock.serve(queue.bound.now)
        queue.record = record
        queue.engine.settings_changed(record.settings, read_us=record.read_us)
        try:
            dead = await self._find_dead_letters(record)
        except (Unavailable, InvalidRequest) as error:  # a dead-letter queue that cannot be read stops no put
            self.report(_dead_letters_of(record), f"their queue cannot be read: {error}")
            return error
        queue.engine.dead_letters_changed(None if dead is None else dead.known_to(self._process_context, queue.bound))
        return None

    async def _make(self, record: QueueRecord) -> Queue:
        dead = await self._find_dead_letters(record)
        self._connection.require_usable()
        context, bound = self._process_context, Live(record.settings.skew_us)
        context.clock.serve(bound.now)
        opening = Opening(
            record.known_to(context, bound),
            None if dead is None else dead.known_to(context, bound),
            catalogue=context.host_of(context.keyspace, bound),
        )
        engine = engine_record(record.entry, engines=context.engines).open(opening)
        return Queue(record, engine, self._connection, bound)

    async def _find_dead_letters(self, record: QueueRecord) -> QueueRecord | None:
        """The dead-letter queue for messages that fail too often. Without one they stay and come again."""
        name = record.settings.dead_letter
        if name is None:
            return None
        try:
            dead = await self.find(Name(KIND, record.entry.name.namespace, name))
        except (QueueNotFound, QueueDeleted, QueueNotReady) as error:
            self.report(_dead_letters_of(record), f"{error}: messages that fail too often stay in the queue")
            return None
        self._reported.pop(_dead_letters_of(record), None)
        return dead

    def _is_fresh(self, queue: Queue) -> bool:
        now_us = self._process_context.clock.now_us()
        return knowledge(queue.record.read_us).still_holds(max(now_us, queue.record.read_us))

    def _unreadable(self, queue: Queue) -> CatalogueUnreadable:
        return CatalogueUnreadable(
            queue=queue.name,
            read_s_ago=(self._process_context.clock.now_us() - queue.record.read_us) // SECOND_US,
            last=self._reported.get(queue.name, "no answer in time"),
        )


def _dead_letters_of(record: QueueRecord) -> str:
    return f"dead letters of {record.settings.name}"
