"""Handlers for tests of suspects and of processes: what they do depends on the payload."""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import sys
import time
from pathlib import Path

from headgate.runtime import Context, Reject, handler


async def fragile(payload: str, context: Context) -> None:
    """Dies of some messages."""
    match payload:
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        case "exit":
            os._exit(7)
        case "fail":
            raise ValueError("no such person")
        case "reject":
            raise Reject("never")
        case "extend":
            await context.extend(60)
            assert context.deadline is not None


def fragile_in_thread(payload: str, context: Context) -> None:
    """The same, not async."""
    match payload:
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        case "exit":
            sys.exit(3)
        case "hang":
            time.sleep(600)
        case "extend":
            context.extend_blocking(60)


async def recorded(payload: str, context: Context) -> None:
    """Notes the process of each message in a file; the payload is what it does, up to a colon."""
    _record(payload)
    match payload.partition(":")[0]:
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        case "exit":
            os._exit(7)
        case "segfault":
            ctypes.string_at(0)
        case "hold":
            while len({line.split()[0] for line in _runs().read_text().splitlines()}) == 1:  # noqa: ASYNC110  other process
                await asyncio.sleep(0.05)
        case "wait":
            await asyncio.sleep(0.2)
        case "hang":
            await asyncio.sleep(600)


def recorded_in_thread(payload: str, context: Context) -> None:
    """The same, not async."""
    _record(payload)
    match payload.partition(":")[0]:
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        case "hang":
            time.sleep(600)
        case "patient":
            context.extend_blocking(60)
            time.sleep(2.5)


@handler(batch=True)
async def recorded_batch(payloads: list[str]) -> None:
    """Notes the messages that it gets together."""
    _record("+".join(payloads))


def _record(payload: str) -> None:
    with _runs().open("a") as runs:
        runs.write(f"{os.getpid()} {payload}\n")


def _runs() -> Path:
    return Path(os.environ["HEADGATE_TEST_RUNS"])


def slow(payload: str) -> None:
    """Takes this number of seconds, in a thread."""
    time.sleep(float(payload))


async def hang_the_loop(payload: str) -> None:
    """Blocks the event loop, as a handler should not."""
    time.sleep(float(payload))  # noqa: ASYNC251  that is what it is for
