"""How often another task gets a turn of the event loop while something runs."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass
class Turns:
    """Of a task that wants the next turn as soon as it has had one."""

    count: int = 0


@contextmanager
def turns_meanwhile() -> Iterator[Turns]:
    """Those that others have while the block runs."""
    turns = Turns()

    async def take() -> None:
        while True:
            turns.count += 1
            await asyncio.sleep(0)

    taking = asyncio.get_running_loop().create_task(take())
    try:
        yield turns
    finally:
        taking.cancel()
