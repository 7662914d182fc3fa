"""Handlers for tests of suspects and of processes: what they do depends on the payload."""

from __future__ import annotations

import os
import signal
import sys
import time

from headgate.runtime import Context, Reject


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


def slow(payload: str) -> None:
    """Takes this number of seconds, in a thread."""
    time.sleep(float(payload))


async def hang_the_loop(payload: str) -> None:
    """Blocks the event loop, as a handler should not."""
    time.sleep(float(payload))  # noqa: ASYNC251  that is what it is for
