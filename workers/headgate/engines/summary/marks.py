"""Writes the marks of one producer of one queue into the summary. The prose is docs/internals/protocols/summary.md,
"Marks"; which marks are owed is decide_marks.py's.

Nobody waits for it, and no safety depends on it: a failed write is repeated with the next. It knows no engine.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from uuid import UUID

from headgate.engines.context import Host
from headgate.engines.summary.decide_marks import LastPut, Mark, Owed
from headgate.engines.summary.reading import read_next_mark
from headgate.engines.summary.rows import NEXT_DUE, SECOND_US, mark_statement
from headgate.errors import HeadgateError
from headgate.process.background_tasks import SupervisedLoop

log = logging.getLogger("headgate.summary")

WRITE_EVERY_S = 1.0


class Marks:
    """The marks of one producer. Its store is that of the catalogue's keyspace."""

    def __init__(self, host: Host, queue: UUID, *, part_us: int, retention_us: Callable[[], int]) -> None:
        self._host = host
        self._queue = queue
        self._me = host.uuid()
        self._stamped_us = 0
        self._owed = Owed(part_us)
        self._retention_us = retention_us
        self._changed = asyncio.Event()
        self._loop = SupervisedLoop("marks", self._keep, log=log)
        self._closed = False
        self._failed = False

    def add(self, dues_us: Sequence[int], *, sent_us: int) -> None:
        """Messages due at these times are durable. Once per flush, not per message."""
        self._owed.add(dues_us, sent_us=sent_us)
        self._changed.set()
        if not self._closed:
            self._loop.start()

    async def announce_later(self, due_us: int) -> None:
        """The next message of the queue is due then: from a process that leaves it. Raises the error."""
        mark, standing = self._owed.mark_of(due_us), await read_next_mark(self._host.store, self._queue)
        if standing is not None and standing.due_us <= self._host.now_us():
            await self._write(LastPut(standing.until_us))
        if mark != standing:
            await self._write(mark, writer=NEXT_DUE)

    async def announce_put(self, due_us: int) -> None:
        """A message waits that has been due since then: from a process that read it. Raises the error."""
        await self._write(LastPut(due_us))

    async def close(self) -> None:
        """Write the owed marks now."""
        self._closed = True
        if not self._loop.is_running:
            return
        await self._loop.stop()
        with suppress(HeadgateError):
            await self._write_owed(self._host.now_us())

    async def _keep(self) -> None:
        """At most once per second, the first at once; until nothing is left to mark."""
        while True:
            self._changed.clear()
            next_us: int | None = None
            now_us = 0
            try:
                now_us = self._host.now_us()
                await self._write_owed(now_us)
                next_us = self._owed.next_us(now_us)
                self._failed = False
            except HeadgateError as error:
                self._report(error)
                self._changed.set()
            await asyncio.sleep(WRITE_EVERY_S)
            if self._changed.is_set():
                continue
            if next_us is None:
                return
            with suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), max(next_us - now_us, 0) / SECOND_US)

    async def _write_owed(self, now_us: int) -> None:
        for mark in self._owed.marks(now_us):
            await self._write(mark)
            self._owed.is_written(mark)

    async def _write(self, mark: Mark, *, writer: UUID | None = None) -> None:
        self._stamped_us = max(self._stamped_us + 1, self._host.now_us())
        statement = mark_statement(
            self._queue,
            writer or self._me,
            mark,
            retention_us=self._retention_us(),
            stamp_us=self._stamped_us,
            last_expiry_s=self._host.last_expiry_s,
        )
        await self._host.store.write(statement)

    def _report(self, error: HeadgateError) -> None:
        if not self._failed:
            self._failed = True
            log.warning("backlog mark could not be written", extra={"error": str(error)})
