"""How often somebody else has a turn of the event loop while something goes on."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass
class Turns:
    """Of somebody who wants one again as soon as he has had one."""

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
