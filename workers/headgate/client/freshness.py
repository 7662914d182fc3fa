"""Refreshes a process's knowledge of its queues: every `REFRESH_EVERY_S`, at once on a queue's request, and every
`RETRY_EVERY_S` while the catalogue cannot be read.

A read is valid for `notice` from its start (rule R6); after that a queue puts nothing. This module opens and closes
nothing. A queue that was deleted from the catalogue is notified, and ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Collection

from headgate.client.catalogue.directory import (
    Directory,
    QueueDeleted,
    QueueNotFound,
    QueueNotReady,
    QueueRecord,
    QueueRecreated,
)
from headgate.client.catalogue.process_context import ProcessContext
from headgate.client.queue import Queue
from headgate.errors import HeadgateError, InvalidRequest, Unavailable
from headgate.expiry import SECOND_US
from headgate.process.background_tasks import SharedWork
from headgate.store.catalogue.decide_generation import knowledge
from headgate.store.catalogue.entry import Name

log = logging.getLogger("headgate.client")

REFRESH_EVERY_S = 15.0
RETRY_EVERY_S = 1.0


class CatalogueUnreadable(Unavailable):
    """The catalogue could not be read for too long: the place of new messages is unknown."""


class Freshness:
    """The state of a connection's queues."""

    def __init__(self, process_context: ProcessContext, directory: Directory, queues: Collection[Queue]) -> None:
        self._process_context = process_context
        self._directory = directory
        self._queues = queues
        self._reading = SharedWork[Queue, HeadgateError | None]("refresh of a queue")
        self._reported: dict[str, str] = {}

    async def run(self) -> None:
        """Read for all open queues, forever."""
        while True:
            failures = await self.refresh_all()
            await asyncio.sleep(RETRY_EVERY_S if failures else REFRESH_EVERY_S)

    async def refresh_all(self) -> list[HeadgateError]:
        """Read once for all open queues; returns the failures."""
        ended = await asyncio.gather(*(self.refresh(queue) for queue in list(self._queues)))
        return [failure for failure in ended if failure is not None]

    async def stop(self) -> None:
        """End the running tasks."""
        await self._reading.stop()

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

    async def refresh(self, queue: Queue) -> HeadgateError | None:
        """Read once for this queue; concurrent callers wait for the same read. Returns the failure, if any."""
        return await self._reading.run(queue, lambda: self._refresh(queue))

    async def find_dead_letters(self, record: QueueRecord) -> QueueRecord | None:
        """The dead-letter queue for messages that fail too often. Without one they stay and come again."""
        name = record.settings.dead_letter
        if name is None:
            return None
        wanted = Name(record.entry.name.kind, record.entry.name.namespace, name)
        try:
            dead = await self._directory.find(wanted)
        except (QueueNotFound, QueueDeleted, QueueNotReady) as error:
            self._report(
                f"dead letters of {record.settings.name}", f"{error}: messages that fail too often stay in the queue"
            )
            return None
        self._reported.pop(f"dead letters of {record.settings.name}", None)
        return dead

    async def _refresh(self, queue: Queue) -> HeadgateError | None:
        if queue.ended is not None:
            return None
        try:
            record = await self._directory.find_again(queue.entry)
        except (QueueDeleted, QueueRecreated) as gone:
            queue.end(gone)
            return None
        except HeadgateError as error:
            self._report(queue.name, f"the catalogue cannot be read: {error}")
            return error
        if self._reported.pop(queue.name, None) is not None:
            log.info("catalogue is readable again", extra={"queue": queue.name})
        queue.bound.set(record.settings.skew_us)
        self._process_context.clock.serve(queue.bound.now)
        queue.record = record
        queue.engine.settings_changed(record.settings, read_us=record.read_us)
        return await self._refresh_dead_letters(queue, record)

    async def _refresh_dead_letters(self, queue: Queue, record: QueueRecord) -> HeadgateError | None:
        """Separate from the queue's own read: a dead-letter queue that cannot be read stops no put."""
        try:
            dead = await self.find_dead_letters(record)
        except (Unavailable, InvalidRequest) as error:
            self._report(f"dead letters of {queue.name}", f"their queue cannot be read: {error}")
            return error
        known = None if dead is None else dead.known_to(self._process_context, queue.bound)
        queue.engine.dead_letters_changed(known)
        return None

    def _is_fresh(self, queue: Queue) -> bool:
        now_us = self._process_context.clock.now_us()
        return knowledge(queue.record.read_us).still_holds(max(now_us, queue.record.read_us))

    def _unreadable(self, queue: Queue) -> CatalogueUnreadable:
        return CatalogueUnreadable(
            queue=queue.name,
            read_s_ago=(self._process_context.clock.now_us() - queue.record.read_us) // SECOND_US,
            last=self._reported.get(queue.name, "no answer in time"),
        )

    def _report(self, about: str, what: str) -> None:
        """Once, not every second."""
        if self._reported.get(about) != what:
            self._reported[about] = what
            log.warning("queue refresh failed", extra={"queue": about, "error": what})
