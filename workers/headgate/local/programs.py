"""Programs of a local stack: started, their lines shown under their names, restarted when they end.

A program that ends soon after its start is restarted with growing pauses, so that a broken handler does not spin.
This module knows nothing of queues.

No process stays behind. A program is a session of its own, and the rest of its session is killed after its end. Where
the kernel supports it (Linux), a program also ends when this process is killed.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from headgate.process.background_tasks import BackgroundTasks, end_task, start_task
from headgate.process.pacing import ExponentialPause

LINE_BYTES_MAX = 1024 * 1024
LAST_LINES_WITHIN_S = 1.0
"""Its last lines are shown; a process that left its session and still holds its output is not waited for."""

PrintLine = Callable[[str, str], None]
"""Show a line of a program."""


@dataclass(frozen=True)
class Program:
    """A program to run, and the name under which its lines are shown."""

    name: str
    arguments: tuple[str, ...]
    directory: Path
    environment: tuple[tuple[str, str], ...] = ()
    """In addition to the environment of all programs, or in its place."""


@dataclass(frozen=True)
class Pauses:
    """The pause before a restart, and the time limit for a requested end."""

    again_s: float = 1.0
    again_s_max: float = 30.0
    long_s: float = 10.0
    """A program that ran for this long and then ended is restarted after the shortest pause."""
    grace_s: float = 30.0


def pause_after(pause: ExponentialPause, *, ran_s: float, long_s: float) -> float:
    """The pause before a restart. It doubles while the program ends soon after its start."""
    if ran_s >= long_s:
        pause.reset()
    return pause.next_s()


class Programs:
    """The programs of one stack that run forever."""

    def __init__(self, environment: Mapping[str, str], print_line: PrintLine, pauses: Pauses | None = None) -> None:
        self._environment = dict(environment)
        self._print_line = print_line
        self._pauses = pauses or Pauses()
        self._kept: dict[Program, asyncio.Task[None]] = {}
        self._ending = BackgroundTasks("end of a program")
        self._running: set[asyncio.subprocess.Process] = set()

    def keep(self, wanted: Sequence[Program]) -> None:
        """Run exactly these from now on."""
        for program in set(self._kept) - set(wanted):
            self._ending.start(end_task(self._kept.pop(program)))
        for program in wanted:
            if program not in self._kept:
                self._kept[program] = start_task(program.name, self._keep(program))

    async def close(self) -> None:
        kept, self._kept = list(self._kept.values()), {}
        await end_task(*kept)
        await self._ending.wait()

    def hurry(self) -> None:
        """The user does not want to wait for a clean end: a worker that gets a second signal ends at once."""
        for process in self._running:
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(signal.SIGTERM)

    async def _keep(self, program: Program) -> None:
        pause = ExponentialPause(self._pauses.again_s, self._pauses.again_s_max)
        loop = asyncio.get_running_loop()
        while True:
            began_s = loop.time()
            code = await self.run(program)
            now_s = pause_after(pause, ran_s=loop.time() - began_s, long_s=self._pauses.long_s)
            self._print_line(program.name, f"{ended_how(code)}; restarting in {now_s:g} s")
            await asyncio.sleep(now_s)

    async def run(self, program: Program) -> int:
        """Run it once, to its end; cancelled, it is ended with SIGTERM, and killed where that does not help."""
        lines, output = await _pipe()
        try:
            process = await asyncio.create_subprocess_exec(
                *_ending_with_us(),
                *program.arguments,
                cwd=program.directory,
                env=self._environment | dict(program.environment),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        finally:
            os.close(output)
        self._running.add(process)
        showing = start_task(f"lines of {program.name}", self._show(program.name, lines))
        try:
            return await process.wait()
        finally:
            await self._end(process)
            self._running.discard(process)
            await asyncio.wait([showing], timeout=LAST_LINES_WITHIN_S)
            showing.cancel()

    async def _end(self, process: asyncio.subprocess.Process) -> None:
        """Stop it cleanly if it still runs; then kill the rest of its session, which would hold its output."""
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(signal.SIGTERM)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(process.wait(), self._pauses.grace_s)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()

    async def _show(self, name: str, lines: asyncio.StreamReader) -> None:
        while True:
            try:
                line = await lines.readline()
            except ValueError:
                self._print_line(name, "line too long to show")
                continue
            if not line:
                return
            self._print_line(name, line.decode(errors="replace").rstrip())


async def _pipe() -> tuple[asyncio.StreamReader, int]:
    """Our own wait: asyncio's would wait for all processes that hold the program's output, such as one that it left
    behind."""
    ours, theirs = os.pipe()
    reader = asyncio.StreamReader(limit=LINE_BYTES_MAX)
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(ours, "rb"))
    return reader, theirs


def ended_how(code: int) -> str:
    if code >= 0:
        return f"ended with code {code}"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"was killed by signal {-code}"


def _ending_with_us() -> tuple[str, ...]:
    """The prefix of a command that makes the kernel end it when this process is gone, for any reason."""
    setpriv = shutil.which("setpriv")
    return () if setpriv is None else (setpriv, "--pdeathsig", "TERM", "--")
