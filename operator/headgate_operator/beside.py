"""What goes on beside the reconcilers, for as long as the operator works: looks, lists, sweeps, audits.

Each of them is for many resources. What is wrong with one of these, or a bug in a look at it, may cost that look; it
may not end the process, which would begin again, meet the same and end again, for all of them. So whatever ends by an
error is told and begun again, after a pause that doubles as long as it fails at once.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

log = logging.getLogger("headgate.operator")

PAUSE_S: Final = 1.0
PAUSE_S_MAX: Final = 60.0
WELL_AFTER_S: Final = 120.0
"""What has gone on for so long did not fail at once: its next pause is a short one again."""


async def keep_going(what: str, work: Callable[[], Awaitable[None]]) -> None:
    """Do it for ever; ends only when it is cancelled."""
    loop = asyncio.get_running_loop()
    pause_s = PAUSE_S
    while True:
        began_s = loop.time()
        try:
            await work()
        except asyncio.CancelledError:
            if is_being_cancelled():
                raise
            log.warning("what goes on beside was cut short; begun again", extra={"what": what})
        except Exception:
            log.exception("a bug in what goes on beside; please report it", extra={"what": what})
        if loop.time() - began_s >= WELL_AFTER_S:
            pause_s = PAUSE_S
        await asyncio.sleep(pause_s)
        pause_s = min(pause_s * 2, PAUSE_S_MAX)


def is_being_cancelled() -> bool:
    """Whether it is this very task that somebody ends, and not something that it waits for."""
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0
