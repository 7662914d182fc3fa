"""Runs a Python handler: async ones on the event loop, others in threads. The result is how its message is settled.

A handler is done when every awaitable that it returned is done. An async function behind an ordinary decorator seems
to be a sync one, runs in a thread, and returns its coroutine. The awaited part runs on the event loop.

A thread cannot be stopped: its handler reads `Context.lost`. From the time
when a handler waits on the loop, its flights can be stopped (`Attempt.in_thread`).
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import traceback
from collections.abc import Awaitable, Sequence
from concurrent.futures import ThreadPoolExecutor, thread
from pathlib import Path
from random import Random
from types import TracebackType
from typing import Any, Protocol

from headgate.engines.contract import Ack, DeadLetterDelivery, Settle
from headgate.process.background_tasks import start_task
from headgate.runtime.handler.context import Attempt, Context
from headgate.runtime.handler.decide_retry import Reject, Retry, bounded_reason, decide_retry, delay_after
from headgate.runtime.handler.handlers import Handler
from headgate.runtime.handler.payloads import PayloadInvalid


class HandlerRunner(Protocol):
    batch: bool
    """Whether it takes several at a time."""
    wants_context: bool
    """Whether it reads the fields of its `Context`."""

    async def perform(self, attempts: Sequence[Attempt]) -> Sequence[Settle]:
        """Handle one, or several where it takes several; how each is settled. It raises nothing but its
        cancellation."""

    def drain(self) -> None:
        """The worker is stopping: handlers that have not really started are given back."""

    async def close(self) -> None: ...


class PythonPerformer:
    def __init__(self, handler: Handler, *, threads: int, rng: Random) -> None:
        self.batch = handler.batch
        self.wants_context = handler.context is not None
        self._handler = handler
        self._rng = rng
        self._pool = None if handler.is_async else ThreadPoolExecutor(threads, thread_name_prefix="headgate-handler")

    async def perform(self, attempts: Sequence[Attempt]) -> Sequence[Settle]:
        if self.batch:
            return await self._perform_batch(attempts)
        attempt, handler = attempts[0], self._handler
        try:
            payload = handler.decode(attempt.delivery)
            if self._pool is None and handler.context is None:
                outcome = await handler.function(payload)
                if outcome is not None:
                    await _await_all(outcome)
            else:
                await self._call([payload], attempts)
        except (Exception, SystemExit, asyncio.CancelledError) as error:
            return (self._judge(error, attempt),)
        return (Ack(attempt.delivery.receipt),)

    async def _perform_batch(self, attempts: Sequence[Attempt]) -> Sequence[Settle]:
        settles: list[Settle] = [Ack(attempt.delivery.receipt) for attempt in attempts]
        payloads: list[Any] = []
        places: list[int] = []
        for place, attempt in enumerate(attempts):
            try:
                payloads.append(self._handler.decode(attempt.delivery))
                places.append(place)
            except PayloadInvalid as invalid:
                settles[place] = self._judge(invalid, attempt)
        if not places:
            return settles
        failed = await self._failures(payloads, [attempts[place] for place in places])
        for place, failure in zip(places, failed, strict=True):
            if failure is not None:
                settles[place] = self._judge(failure, attempts[place])
        return settles

    async def _failures(self, payloads: Sequence[Any], attempts: Sequence[Attempt]) -> Sequence[BaseException | None]:
        """Call the handler of a batch; the failure of each message, if any. An error refers to the frame that caught
        it, so that frame keeps no error: the batch would stay in memory until the collector comes."""
        try:
            return failures_of(await self._call(payloads, attempts), len(payloads))
        except (Exception, SystemExit, asyncio.CancelledError) as error:
            return [error] * len(payloads)

    def drain(self) -> None:
        """Running handlers continue."""

    async def close(self) -> None:
        """Threads that still run are left alone; they end with the process."""
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)

    async def _call(self, payloads: Sequence[Any], attempts: Sequence[Attempt]) -> Any:
        contexts = [attempt.context for attempt in attempts]
        if self._pool is None:
            return await _await_all(await self._handler.call(payloads, contexts))
        batch, variables = attempts[0].batch or attempts, contextvars.copy_context()
        for attempt in batch:
            attempt.in_thread = True
        loop = asyncio.get_running_loop()
        outcome = await loop.run_in_executor(self._pool, variables.run, self._in_thread, payloads, contexts)
        if not inspect.isawaitable(outcome):
            return outcome
        return await _await_after_thread(outcome, batch, variables)

    def _in_thread(self, payloads: Sequence[Any], contexts: Sequence[Context | None]) -> Any:
        """`sys.exit` in a handler fails its message, and ends no thread of the pool."""
        try:
            return self._handler.call(payloads, contexts)
        except SystemExit as error:
            raise HandlerExited(f"the handler called sys.exit({error.code!r})") from error
        except StopIteration as error:
            raise RuntimeError("the handler raised StopIteration") from error

    def _judge(self, error: BaseException, attempt: Attempt) -> Settle:
        """How a failure settles its message; the cancellation of the task itself is passed on."""
        task = asyncio.current_task()
        if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
            raise error
        if isinstance(error, PayloadInvalid) and not self._handler.retry_invalid:
            # Without a dead-letter queue it comes again: later, as after any failure.
            delay_us = delay_after(self._handler.retries.backoff, attempt.delivery.attempt, self._rng.random())
            return DeadLetterDelivery(attempt.delivery.receipt, str(error), delay_us)
        detail = str(error) if isinstance(error, PayloadInvalid) else format_failure(error)
        jitter = self._rng.random()
        return decide_retry(self._handler.retries, error, attempt.delivery, jitter=jitter, reason=detail)


class HandlerExited(Exception):
    """A handler called sys.exit."""


async def _await_all(outcome: Any) -> Any:
    while inspect.isawaitable(outcome):
        outcome = await outcome
    return outcome


async def _await_after_thread(
    awaitable: Awaitable[Any], batch: Sequence[Attempt], variables: contextvars.Context
) -> Any:
    """Await on the loop the result of a handler in a thread, with the context variables that it set in that thread.

    From now on the handler can be stopped. The awaited part does not start where all its messages were lost, overdue
    or given back before the thread returned.
    """
    for attempt in batch:
        attempt.in_thread = False
    caller = asyncio.current_task()
    if caller is not None and all(attempt.is_stopped for attempt in batch):
        caller.cancel()
    task = start_task("handler", _await_without_exit(awaitable), context=variables)
    try:
        return await task
    finally:
        # A task that was cancelled before its first step has not started to await it.
        if isinstance(awaitable, asyncio.Future):
            awaitable.cancel()
        elif inspect.iscoroutine(awaitable):
            awaitable.close()


async def _await_without_exit(awaitable: Awaitable[Any]) -> Any:
    """`sys.exit` in a task of its own would end the event loop."""
    try:
        return await _await_all(awaitable)
    except SystemExit as error:
        raise HandlerExited(f"the handler called sys.exit({error.code!r})") from error


_OURS = (str(Path(__file__).parent.parent), thread.__file__)
"""The worker's own files, and the pool of threads that it runs handlers in."""


def format_failure(error: BaseException) -> str:
    """Bounded: the type and message first, then the end of the traceback from the handler on."""
    kind = type(error)
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    text = str(error)
    if isinstance(error, Reject):
        return bounded_reason(f"rejected: {text}" if text else "rejected")
    if isinstance(error, Retry):
        return bounded_reason(f"retry requested: {text}" if text else "retry requested")
    lines = traceback.format_exception(kind, error, _from_handler(error.__traceback__))
    return bounded_reason(f"{name}: {text}" if text else name, "".join(lines))


def _from_handler(trace: TracebackType | None) -> TracebackType | None:
    """Without the worker's own frames, which do not help to find the fault."""
    own = trace
    while own is not None and own.tb_frame.f_code.co_filename.startswith(_OURS):
        own = own.tb_next
    return own if own is not None else trace


class BatchAnswer(TypeError):
    """The batch handler returned a value that is not supported."""


def failures_of(outcomes: Any, count: int) -> Sequence[BaseException | None]:
    """The result of a batch handler: None, or for each message None or the exception that is its failure."""
    if outcomes is None:
        return [None] * count
    if not isinstance(outcomes, Sequence) or len(outcomes) != count:
        raise BatchAnswer(f"a batch handler must return None or a list of {count} entries, one per message")
    if not all(each is None or isinstance(each, BaseException) for each in outcomes):
        raise BatchAnswer("a batch handler's list must hold None or an exception for each message")
    return outcomes
