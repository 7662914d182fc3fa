"""Background tasks of the operator, in addition to the reconcilers: checks, lists, sweeps, audits.

Each of them is for many resources. A fault of one resource, or a bug in checking it, may cost that check. It may not
end the process, which would restart, meet the same fault and end again, for all resources. So a task that ends by an
error is logged and restarted, after a pause that doubles as long as it fails at once.
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
"""A task that has run this long did not fail at once: its next pause is a short one again."""


async def keep_going(what: str, work: Callable[[], Awaitable[None]]) -> None:
    """Run it for ever; ends only when it is cancelled."""
    loop = asyncio.get_running_loop()
    pause_s = PAUSE_S
    while True:
        began_s = loop.time()
        try:
            await work()
        except asyncio.CancelledError:
            if is_being_cancelled():
                raise
            log.warning("background task cancelled, restarting", extra={"task": what})
        except Exception:
            log.exception("bug in a background task, please report it", extra={"task": what})
        if loop.time() - began_s >= WELL_AFTER_S:
            pause_s = PAUSE_S
        await asyncio.sleep(pause_s)
        pause_s = min(pause_s * 2, PAUSE_S_MAX)


def is_being_cancelled() -> bool:
    """Whether this very task is being cancelled, and not something that it waits for."""
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0
