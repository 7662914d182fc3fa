"""Runs Python's cyclic collector over all objects while the operator is idle.

A full collection with the objects of a thousand queues took 0.5 s on a busy machine, and one of a second generation
of 400,000 took 0.7 s (0.2 s of CPU). Both come in the middle of the work, since work creates objects. So the younger
two generations are collected often, a few objects at a time. Little is left for the full collection (three thousand
objects of a storm of a thousand queues), so it can wait, but not for ever: after `ROUNDS_MAX` it runs at once.
"""

from __future__ import annotations

import asyncio
import gc
import sys
from collections.abc import Callable
from typing import Final

THRESHOLDS: Final = (10_000, 5, 1_000_000)
"""The last threshold is never reached: full collections run here."""
SWITCHED_S: Final = 0.001
POLL_EVERY_S: Final = 5.0
ROUNDS: Final = 160
"""Collections of the second generation, 50,000 objects each, after which a full one is due."""
ROUNDS_MAX: Final = 4_000


def let_changes_pass() -> None:
    """A new change among a thousand others is decided within 100 ms, so nothing may hold the loop for long. Python
    would scan all objects again and again while their number grows, and let the driver's thread run for 5 ms.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*THRESHOLDS)
    sys.setswitchinterval(SWITCHED_S)


async def collect_at_rest(is_idle: Callable[[], bool]) -> None:
    """Run full collections, when one is due and nothing waits; for ever."""
    while True:
        await asyncio.sleep(POLL_EVERY_S)
        rounds = gc.get_count()[2]
        if rounds >= ROUNDS_MAX or (rounds >= ROUNDS and is_idle()):
            gc.collect()
