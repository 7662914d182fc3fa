"""Programs that belong to a local stack: started, their lines shown under their names, begun again when they end.

A program that ends soon after its start is begun again later and later, so that a handler that can not work does not
spin. It knows nothing of queues.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

AGAIN_S = 1.0
AGAIN_S_MAX = 30.0
LONG_S = 10.0
"""Who ran for so long and then ended is begun again at once."""
GRACE_S = 30.0
LINE_BYTES_MAX = 1024 * 1024

Say = Callable[[str, str], None]
"""Show a line of somebody."""


@dataclass(frozen=True)
class Program:
    """What is to be run, and under which name its lines are shown."""

    name: str
    arguments: tuple[str, ...]
    directory: Path


class Programs:
    """The programs of one stack that run for ever."""

    def __init__(self, environment: Mapping[str, str], say: Say) -> None:
        self._environment = dict(environment)
        self._say = say
        self._kept: dict[Program, asyncio.Task[None]] = {}

    def keep(self, wanted: Sequence[Program]) -> None:
        """Run exactly these from now on."""
        for program in set(self._kept) - set(wanted):
            self._kept.pop(program).cancel()
        for program in wanted:
            if program not in self._kept:
                self._kept[program] = asyncio.get_running_loop().create_task(self._keep(program))

    async def close(self) -> None:
        """End them in good order."""
        kept, self._kept = list(self._kept.values()), {}
        for task in kept:
            task.cancel()
        await asyncio.gather(*kept, return_exceptions=True)

    async def _keep(self, program: Program) -> None:
        pause_s = AGAIN_S
        loop = asyncio.get_running_loop()
        while True:
            began_s = loop.time()
            code = await self.run(program)
            if loop.time() - began_s >= LONG_S:
                pause_s = AGAIN_S
            self._say(program.name, f"ended with code {code}; begun again in {pause_s:.0f} s")
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, AGAIN_S_MAX)

    async def run(self, program: Program) -> int:
        """Run it once, to its end; cancelled, it is ended with SIGTERM, and killed where that does not help."""
        process = await asyncio.create_subprocess_exec(
            *program.arguments,
            cwd=program.directory,
            env=self._environment,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            limit=LINE_BYTES_MAX,
            start_new_session=True,
        )
        showing = asyncio.get_running_loop().create_task(self._show(program.name, process))
        try:
            return await process.wait()
        finally:
            if process.returncode is None:
                await self._end(process)
            await showing

    async def _end(self, process: asyncio.subprocess.Process) -> None:
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGTERM)
        try:
            await asyncio.wait_for(process.wait(), GRACE_S)
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()

    async def _show(self, name: str, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None  # noqa: S101  it is a pipe
        while True:
            try:
                line = await process.stdout.readline()
            except ValueError:
                self._say(name, "a line too long to be shown")
                continue
            if not line:
                return
            self._say(name, line.decode(errors="replace").rstrip())
