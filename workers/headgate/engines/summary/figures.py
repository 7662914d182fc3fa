"""Writes the figures of one owner of lanes into the summary, and counts the whole queue where that is its turn. The
prose is docs/internals/protocols/summary.md, "Figures"; decide_figures.py decides the content and the times.

It reads no books and knows no engine: the states of lanes, and a function that counts a queue, are passed in. Nothing
waits for it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from typing import Any
from uuid import UUID

from headgate.engines.context import Host
from headgate.engines.contract import Stats
from headgate.engines.summary.decide_figures import (
    SECOND_US,
    Figures,
    LaneStand,
    Rate,
    decide_figures,
    fresh,
    has_to_count,
    is_owed,
    next_count_us,
    with_total,
)
from headgate.engines.summary.reading import owners_of, read_of_queue
from headgate.engines.summary.rows import figures_statement, key_of
from headgate.errors import HeadgateError
from headgate.process.background_tasks import SupervisedLoop, end_task, start_task
from headgate.store.catalogue.tables import SUMMARY
from headgate.store.model.statements import Delete

log = logging.getLogger("headgate.summary")

TURN_S = 1.0
READ_EVERY_US = 5 * SECOND_US


class OwnersFigures:
    """The reports of one process about its lanes of a queue. Its store is that of the catalogue's keyspace."""

    def __init__(
        self,
        host: Host,
        queue: UUID,
        *,
        stands: Callable[[], Mapping[Any, LaneStand]],
        lanes: Callable[[], int],
        count: Callable[[], Coroutine[Any, Any, Stats]],
    ) -> None:
        self.me = host.uuid()
        self._host = host
        self._queue = queue
        self._stands = stands
        self._lanes = lanes
        self._count = count
        self._rate = Rate()
        self._written: Figures | None = None
        self._written_us = 0
        self._stamped_us = 0
        self._read_us = 0
        self._counts = False
        self._counted: Stats | None = None
        self._count_again_us = 0
        self._loop = SupervisedLoop("figures", self._keep, log=log)
        self._counting: asyncio.Task[None] | None = None
        self._failed = False

    def begin(self) -> None:
        """Report from now on."""
        self._loop.start()

    async def end(self) -> None:
        """Stop reporting; others need not wait for the row to expire."""
        await self._loop.stop()
        counting, self._counting = self._counting, None
        if counting is not None:
            await end_task(counting)
        if self._written is not None:
            self._written = None
            with suppress(HeadgateError):
                key = key_of(self._queue, self.me)
                await self._host.store.write(Delete(SUMMARY, key, timestamp_us=self._stamp(self._host.now_us())))

    async def _keep(self) -> None:
        while True:
            try:
                await self.turn(self._host.now_us())
                self._failed = False
            except HeadgateError as error:
                self._report(error)
            await asyncio.sleep(TURN_S)

    async def turn(self, now_us: int) -> None:
        """The work of each second: mostly nothing."""
        stands = self._stands()
        rate = self._rate.at(now_us, {lease_term: stand.answered for lease_term, stand in stands.items()})
        figures = decide_figures(stands.values(), rate)
        if figures.lanes and now_us - self._read_us >= READ_EVERY_US:
            self._read_us = now_us
            await self._read_others(figures, now_us)
        if not (self._counts and figures.lanes):
            self._counted = None
        elif self._counting is None and self._now_us() >= self._count_again_us:
            self._counting = start_task("count of a queue", self._count_all())
        if self._counted is not None:
            figures = with_total(figures, self._counted.backlog, self._counted.oldest_due_us)
        if is_owed(figures, self._written, written_us=self._written_us, now_us=now_us):
            statement = figures_statement(self._queue, self.me, figures, at_us=now_us, stamp_us=self._stamp(now_us))
            await self._host.store.write(statement)
            self._written, self._written_us = figures, now_us

    async def _read_others(self, own: Figures, now_us: int) -> None:
        rows = owners_of(await read_of_queue(self._host.store, self._queue))
        others = [row for row in fresh(rows, now_us) if row.writer != self.me]
        self._counts = has_to_count(own, others, lanes=self._lanes())

    async def _count_all(self) -> None:
        """Its figures stay until the next count; one that fails costs as much as one that does not."""
        began_us = self._now_us()
        try:
            self._counted = await self._count()
        except HeadgateError as error:
            self._counted = None
            self._report(error)
        finally:
            self._count_again_us = next_count_us(began_us, self._now_us())
            self._counting = None

    def _now_us(self) -> int:
        """For durations; the times of turns come from the host's clock, which runs as fast."""
        return round(asyncio.get_running_loop().time() * SECOND_US)

    def _stamp(self, now_us: int) -> int:
        self._stamped_us = max(self._stamped_us + 1, now_us)
        return self._stamped_us

    def _report(self, error: HeadgateError) -> None:
        if not self._failed:
            self._failed = True
            log.warning("queue figures could not be written", extra={"error": str(error)})
