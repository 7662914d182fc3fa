"""The Cassandra of a local stack, which is the stack's own from before it is started until it has ended.

It starts in a thread of its own, which alone launches the server and alone knows whether it did. So a stack that is
stopped at any time during the start aborts that start, waits for the thread, and leaves nothing. A server that ran
already, for another `headgate dev` of the same files, is used and not stopped. Its data stays for the next run.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable
from pathlib import Path

from headgate.errors import InvalidRequest
from headgate.local.cassandra.kept import Starting, find_kept, start_kept, stop_kept
from headgate.process.background_tasks import start_task


class OwnCassandra:
    """One run of it."""

    def __init__(self, directory: Path, print_line: Callable[[str], None], *, fresh: bool) -> None:
        self._directory = directory
        self._print_line = print_line
        self._fresh = fresh
        self._starting = Starting()
        self._bringing: asyncio.Future[dict[str, str]] | None = None

    async def bring(self) -> dict[str, str]:
        """The variables by which it is reached, once it answers. A caller that is cancelled leaves it to `end`."""
        if self._bringing is None:
            self._bringing = start_task("start of Cassandra", asyncio.to_thread(self._bring))
        return await asyncio.shield(self._bringing)

    async def end(self) -> None:
        """Abort a start that is under way, and stop the started server after a flush."""
        if self._bringing is None:
            return
        self._starting.give_up()
        done = await asyncio.gather(self._bringing, return_exceptions=True)
        if self._starting.launched and isinstance(done[0], dict):
            self._print_line("stopping; its data stays for the next run")
            await asyncio.to_thread(stop_kept, self._directory)

    def _bring(self) -> dict[str, str]:
        self._directory.mkdir(parents=True, exist_ok=True)
        running = find_kept(self._directory)
        if running is not None:
            if self._fresh:
                raise InvalidRequest(
                    "--fresh requires its Cassandra to be stopped", remedy="stop the other `headgate dev` first"
                )
            return running
        if self._fresh:
            shutil.rmtree(self._directory, ignore_errors=True)
        self._print_line("starting")
        return start_kept(self._directory, starting=self._starting)
