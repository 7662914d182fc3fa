"""Handlers for `headgate worker` that fail each in its own way, so that an alert has a reason to fire."""

from __future__ import annotations

import asyncio
import os
import signal

from headgate.runtime import Reject


async def rejects(payload: bytes) -> None:
    """Each message is a mistake."""
    raise Reject("not wanted")


async def fails(payload: bytes) -> None:
    """The server that it calls is unavailable."""
    raise ConnectionError("No server answers")


async def lingers(payload: bytes) -> None:
    """Takes longer than anybody waits for."""
    await asyncio.sleep(600)


async def takes_a_while(payload: bytes) -> None:
    """A message is in flight at any time."""
    await asyncio.sleep(2)


async def kills(payload: bytes) -> None:
    """One message ends the process that handles it."""
    if payload == b"kill":
        os.kill(os.getpid(), signal.SIGKILL)
