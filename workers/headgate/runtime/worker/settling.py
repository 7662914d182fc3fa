"""Settles in groups: settles that arrive during a call share the next one.

It keeps nothing: a settle that failed is reported to the worker, and the message comes again. A settle that was not
even sent, because the clock or the connection was not trusted, is retried until the message's visibility is over.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from headgate.engines.contract import Settle, Settled
from headgate.errors import HeadgateError, Unavailable
from headgate.process.background_tasks import start_task
from headgate.runtime.handler.context import Attempt

CALLS_MAX = 4
GROUP_MAX = 1_000
AGAIN_AFTER_S = 0.2

Entry = tuple[Attempt, Settle]
SettledCallback = Callable[[Attempt, Settle, Settled], None]


class Settler:
    def __init__(
        self, settle: Callable[[Sequence[Settle]], Awaitable[list[Settled]]], on_settled: SettledCallback
    ) -> None:
        self._settle = settle
        self._on_settled = on_settled
        self._waiting: list[Entry] = []
        self._calls: set[asyncio.Task[None]] = set()
        self._scheduled = False
        self.under_way = 0

    @property
    def pending(self) -> int:
        return len(self._waiting) + self.under_way

    def add(self, attempt: Attempt, settle: Settle) -> None:
        self._waiting.append((attempt, settle))
        if not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._begin)

    def _begin(self) -> None:
        self._scheduled = False
        while self._waiting and len(self._calls) < CALLS_MAX:
            group, self._waiting = self._waiting[:GROUP_MAX], self._waiting[GROUP_MAX:]
            self.under_way += len(group)
            call = start_task("settle", self._send(group))
            self._calls.add(call)
            call.add_done_callback(self._ended)

    def _ended(self, call: asyncio.Task[None]) -> None:
        self._calls.discard(call)
        self._begin()

    async def _send(self, group: list[Entry]) -> None:
        results = [Settled.UNKNOWN] * len(group)
        try:
            results = await self._until_sent(group)
        finally:
            self.under_way -= len(group)
            for (attempt, settle), result in zip(group, results, strict=True):
                self._on_settled(attempt, settle, result)

    async def _until_sent(self, group: list[Entry]) -> list[Settled]:
        loop = asyncio.get_running_loop()
        until_s = max(attempt.until_s for attempt, _ in group)
        while True:
            try:
                return await self._settle([settle for _, settle in group])
            except Unavailable:
                if loop.time() + AGAIN_AFTER_S >= until_s:
                    return [Settled.UNKNOWN] * len(group)
                await asyncio.sleep(AGAIN_AFTER_S)
            except HeadgateError:
                return [Settled.STALE] * len(group)
