"""A child process that runs groups of crash suspects, from the worker's side: its start, its frames and its end."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

from headgate.errors import EnvironmentProblem, HeadgateError
from headgate.process.background_tasks import BackgroundTasks
from headgate.runtime.isolation.child_pool import Suspect
from headgate.runtime.isolation.frames import (
    HEAD,
    Begun,
    Cancel,
    Extension,
    Granted,
    Result,
    Work,
    from_frame,
    to_frame,
)

START_WITHIN_S = 60.0


@dataclass(frozen=True)
class ChildTerms:
    entry_point: str
    queue: str
    log_form: str = "json"
    log_level: str = "info"


class Child:
    """One child process, or none until the next group needs it."""

    def __init__(self, terms: ChildTerms) -> None:
        self._terms = terms
        self.ran = 0
        self.is_killed = False
        self._child: asyncio.subprocess.Process | None = None
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._numbers = count(1)
        self._open: dict[int, Suspect] = {}
        self._extensions = BackgroundTasks("extension of a crash suspect")

    @property
    def pid(self) -> int | None:
        return None if self._child is None else self._child.pid

    async def run(self, members: Sequence[Suspect]) -> str | None:
        try:
            await self._start()
            for member in members:
                if not member.is_settled:
                    number = next(self._numbers)
                    self._open[number] = member
                    self._send(Work(number, member.delivery, self._terms.queue, member.timeout_s))
            while self._open:
                self._take(await self._receive())
        except (EOFError, OSError):
            return _describe_end(await self.end())
        finally:
            for member in self._open.values():
                member.stopped.set()
            self._open.clear()
        return None

    def cancel(self, member: Suspect) -> None:
        for number, each in self._open.items():
            if each is member:
                with contextlib.suppress(EOFError, OSError):
                    self._send(Cancel(number))

    def kill(self) -> None:
        self.is_killed = True
        if self._child is not None:
            with contextlib.suppress(ProcessLookupError):
                self._child.kill()

    def _take(self, frame: Begun | Extension | Result) -> None:
        match frame:
            case Begun():
                self.ran += 1
                self._open[frame.number].begin()
            case Extension():
                self._extensions.start(self._extend(self._open[frame.number], frame))
            case Result():
                self._open.pop(frame.number).end(frame.settle)

    async def _extend(self, member: Suspect, request: Extension) -> None:
        answer: bool | HeadgateError
        try:
            answer = await member.control.extend(request.seconds)
        except HeadgateError as error:
            answer = error
        with contextlib.suppress(EOFError, OSError):
            self._send(Granted(request.number, answer, member.control.deadline_s()))

    # ---- the process

    async def _start(self) -> None:
        if self._child is not None and self._child.returncode is None and self._writer is not None:
            return
        await self.end()
        self.ran, self.is_killed = 0, False
        ours, theirs = socket.socketpair()
        try:
            command = (
                "-m",
                "headgate.runtime.isolation.child_main",
                str(theirs.fileno()),
                str(os.getpid()),
                self._terms.entry_point,
            )
            self._child = await asyncio.create_subprocess_exec(
                sys.executable,
                *command,
                self._terms.log_form,
                self._terms.log_level,
                pass_fds=[theirs.fileno()],
                stdin=asyncio.subprocess.DEVNULL,
                start_new_session=True,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            )
        finally:
            theirs.close()
        self._reader, self._writer = await asyncio.open_connection(sock=ours, limit=2**20)
        try:
            async with asyncio.timeout(START_WITHIN_S):
                await self._receive()
        except TimeoutError:
            raise EnvironmentProblem("Crash suspect process does not start", within_s=START_WITHIN_S) from None

    async def end(self) -> int | None:
        """Kill it, if it lives; how it ended."""
        child, self._child = self._child, None
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.transport.abort()
        if child is None:
            return None
        try:
            with contextlib.suppress(TimeoutError):
                # It may be dying by itself; then its own exit code is more informative than ours.
                own_s = 0.5 if writer is not None and _is_at_end(self._reader) else 0
                return await asyncio.wait_for(child.wait(), own_s)
        finally:  # also where this is cancelled: nobody else knows the process
            with contextlib.suppress(ProcessLookupError):
                child.kill()
        return await child.wait()

    def _send(self, value: object) -> None:
        """The child reads at any time, and what is on its way is bounded by its group."""
        if self._writer is None:
            raise EOFError
        self._writer.write(to_frame(value))

    async def _receive(self) -> Any:
        if self._reader is None:
            raise EOFError
        head = await self._reader.readexactly(HEAD.size)
        return from_frame(await self._reader.readexactly(HEAD.unpack(head)[0]))


def _is_at_end(reader: asyncio.StreamReader | None) -> bool:
    return reader is not None and reader.at_eof()


def _describe_end(code: int | None) -> str:
    if code is not None and code < 0:
        return f"its process was killed by {_signal_name(-code)}"
    return f"its process ended with exit code {code}"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
