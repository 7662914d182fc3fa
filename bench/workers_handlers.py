"""Handlers of bench-workers, run by `headgate worker`: one that does nothing, and two that note how long lanes wait.

A lane waits while others are served. Its wait starts when its next message is due, or when its last one was
delivered, or the first one of any lane, whichever is the latest. It ends when the handler has that next one; messages
of a lane come in the order in which they are due. The times are written at the end of the process, to the file that
NOTES names.
"""

from __future__ import annotations

import asyncio
import atexit
import json
import os
import time
from pathlib import Path

from headgate.engines.timeline.model.layout import MessagePlace, id_bytes
from headgate.runtime import Context

NOTES = "HEADGATE_BENCH_NOTES"
SLOWLY_S = 0.01
ANY = -1
"""In the place of a lane: when the first message of all was handed out."""

_served_us: dict[int, int] = {}
_longest_us: dict[int, int] = {}


async def nothing(payload: bytes) -> None:
    """An empty handler."""


async def at_once(payload: bytes, context: Context) -> None:
    """Done as soon as it is noted."""
    _note(context)


async def slowly(payload: bytes, context: Context) -> None:
    """As a handler that calls a service."""
    _note(context)
    await asyncio.sleep(SLOWLY_S)


def _note(context: Context) -> None:
    lane = MessagePlace.from_bytes(id_bytes(context.message_id)).row.shard
    now_us = time.time_ns() // 1_000
    began_us = _served_us.setdefault(ANY, now_us)
    since_us = max(_served_us.get(lane, began_us), context.delivery.due_us)
    _served_us[lane] = now_us
    _longest_us[lane] = max(_longest_us.get(lane, 0), now_us - since_us)


def _write() -> None:
    if NOTES in os.environ:
        Path(os.environ[NOTES]).write_text(json.dumps(_longest_us), encoding="utf-8")


atexit.register(_write)
