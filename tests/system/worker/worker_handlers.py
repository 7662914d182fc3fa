"""Handlers for `headgate worker` in tests: each call is a line in the file that NOTES names.

On SIGUSR1 a worker reads no lane any more, as if no answer came, while all else in it runs.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time

from headgate.engines.timeline.read.source import TimelineSource
from headgate.runtime import Context

_NOTES = os.open(os.environ["NOTES"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)


def note(what: str, context: Context) -> None:
    """One line, whole whatever else is written: it is short, and appended by one call."""
    line = f"{what} {os.environ['WORKER']} {context.message_id} {context.attempt} {context.fencing_token}\n"
    os.write(_NOTES, line.encode())


async def at_once(payload: bytes, context: Context) -> None:
    """Done as soon as it is begun."""
    note("begun", context)


async def slow(payload: bytes, context: Context) -> None:
    """Takes a while."""
    note("begun", context)
    await asyncio.sleep(0.05)
    note("ended", context)


async def blocking(payload: bytes, context: Context) -> None:
    """In the worker `one` a certain message blocks the event loop, and with it everything."""
    note("begun", context)
    if payload == b"block" and os.environ["WORKER"] == "one":
        time.sleep(600)  # noqa: ASYNC251  that is the mistake
    note("ended", context)


async def one_in_a_hundred_slow(payload: bytes, context: Context) -> None:
    """Takes a minute for each hundredth message: the payload begins with its number."""
    note("begun", context)
    if int.from_bytes(payload[:8]) % 100 == 0:
        await asyncio.sleep(60)
    note("ended", context)


async def fragile(payload: bytes, context: Context) -> None:
    """Kills its process by one message."""
    note("begun", context)
    if payload == b"kill":
        os.kill(os.getpid(), signal.SIGKILL)
    await asyncio.sleep(0.02)
    note("ended", context)


async def _no_answer(*_: object, **__: object) -> None:
    await asyncio.Event().wait()


def _read_no_more(*_: object) -> None:
    TimelineSource.read = _no_answer  # type: ignore[assignment,method-assign]


signal.signal(signal.SIGUSR1, _read_no_more)
