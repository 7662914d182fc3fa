"""Runs a Python handler: async ones on the event loop, others in threads. What it raises becomes a verdict.

It knows neither receipts nor settling. A handler in a thread can not be stopped; it is told (`Context.lost`).
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from random import Random
from typing import Any, Protocol

from penstock.runtime.context import Context
from penstock.runtime.decide_retry import DONE, Never, Verdict, judge_failure
from penstock.runtime.failures import told
from penstock.runtime.flight import Flight
from penstock.runtime.handlers import Handler
from penstock.runtime.payloads import PayloadInvalid


class Performer(Protocol):
    """Something that handles messages."""

    batch: bool
    """Whether it takes several at a time."""
    can_stop: bool
    """Whether cancelling the task that runs it stops it."""

    wants_context: bool
    """Whether it looks at what a `Context` tells."""

    async def perform(self, flight: Flight) -> Verdict:
        """Handle one. It raises nothing but its cancellation."""
        ...

    async def perform_batch(self, flights: Sequence[Flight]) -> Sequence[Verdict]:
        """Handle these; a verdict for each."""
        ...

    def drain(self) -> None:
        """The worker ends: what has not really begun is given back."""
        ...

    async def close(self) -> None:
        """Let go of what it holds."""
        ...


class PythonPerformer:
    """Calls a Python handler."""

    def __init__(self, handler: Handler, *, threads: int, chance: Random) -> None:
        self.batch = handler.batch
        self.can_stop = handler.is_async
        self.wants_context = handler.context is not None
        self._handler = handler
        self._chance = chance
        self._pool = None if handler.is_async else ThreadPoolExecutor(threads, thread_name_prefix="penstock-handler")

    async def perform(self, flight: Flight) -> Verdict:
        """Handle one."""
        handler = self._handler
        try:
            payload = handler.decode(flight.delivery)
            if self._pool is None and handler.context is None:
                await handler.function(payload)
            else:
                await self._call([payload], [flight.context])
        except (Exception, SystemExit, asyncio.CancelledError) as error:
            return self._judge(error, flight)
        return DONE

    async def perform_batch(self, flights: Sequence[Flight]) -> Sequence[Verdict]:
        """Handle these."""
        verdicts: list[Verdict] = [DONE] * len(flights)
        payloads: list[Any] = []
        places: list[int] = []
        for place, flight in enumerate(flights):
            try:
                payloads.append(self._handler.decode(flight.delivery))
                places.append(place)
            except PayloadInvalid as invalid:
                verdicts[place] = self._judge(invalid, flight)
        if not places:
            return verdicts
        try:
            outcomes = await self._call(payloads, [flights[place].context for place in places])
            failed = failures_of(outcomes, len(places))
        except (Exception, SystemExit, asyncio.CancelledError) as error:
            failed = [error] * len(places)
        for place, failure in zip(places, failed, strict=True):
            if failure is not None:
                verdicts[place] = self._judge(failure, flights[place])
        return verdicts

    def drain(self) -> None:
        """What runs goes on."""

    async def close(self) -> None:
        """Threads that still run are left alone; they end with the process."""
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)

    async def _call(self, payloads: Sequence[Any], contexts: Sequence[Context | None]) -> Any:
        if self._pool is None:
            return await self._handler.call(payloads, contexts)
        context = contextvars.copy_context()
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._pool, context.run, self._in_thread, payloads, contexts)

    def _in_thread(self, payloads: Sequence[Any], contexts: Sequence[Context | None]) -> Any:
        """`sys.exit` in a handler fails its message, and ends no thread of the pool."""
        try:
            return self._handler.call(payloads, contexts)
        except SystemExit as error:
            raise HandlerExited(f"the handler called sys.exit({error.code!r})") from error
        except StopIteration as error:
            raise RuntimeError("the handler raised StopIteration") from error

    def _judge(self, error: BaseException, flight: Flight) -> Verdict:
        """A failure as a verdict; the cancellation of the task itself goes on."""
        task = asyncio.current_task()
        if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
            raise error
        attempt = flight.delivery.attempt
        if isinstance(error, PayloadInvalid) and not self._handler.retry_invalid:
            return Never(str(error), 0)
        said = str(error) if isinstance(error, PayloadInvalid) else told(error)
        return judge_failure(self._handler.retries, error, attempt=attempt, chance=self._chance.random(), told=said)


class HandlerExited(Exception):
    """A handler called sys.exit."""


class BatchAnswer(TypeError):
    """What a batch handler returned is not understood."""


def failures_of(outcomes: Any, count: int) -> Sequence[BaseException | None]:
    """What a batch handler returned: nothing, or for each message None or the exception that is its failure."""
    if outcomes is None:
        return [None] * count
    if not isinstance(outcomes, Sequence) or len(outcomes) != count:
        raise BatchAnswer(f"a batch handler returns None, or a list of {count} entries, one for each message")
    if not all(each is None or isinstance(each, BaseException) for each in outcomes):
        raise BatchAnswer("a batch handler's list has None or an exception for each message")
    return outcomes
