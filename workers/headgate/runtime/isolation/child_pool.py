"""Runs crash suspects in child processes, each with one message at a time: a message that kills its process kills
that one alone.

After a process died, every message that it may have had in flight is a crash suspect
(docs/internals/protocols/dispatcher.md). They could run alone in the worker while everything else waits, but the
guilty one would kill the worker again each time. In a child it costs its own receive and no other work:
docs/decisions/0007. Children are kept for the next suspects, restarted after a death, and ended after a while without
suspects.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from headgate.engines.contract import NackDelivery, Settle
from headgate.errors import EnvironmentProblem
from headgate.process.background_tasks import BackgroundTasks
from headgate.runtime.handler.context import Attempt
from headgate.runtime.handler.decide_retry import Backoff, delay_after
from headgate.runtime.isolation.frames import HEAD, Begun, Extension, Granted, Work, from_frame, to_frame
from headgate.telemetry.logs import log_fields

log = logging.getLogger("headgate.worker")

START_WITHIN_S = 60.0
IDLE_S = 60.0
STARTS_MAX = 3
UNSTARTED_AS_ATTEMPT = 5
"""Where no child can be started, waiting longer than after a first failure is better."""


@dataclass(frozen=True)
class ChildTerms:
    entry_point: str
    queue: str
    log_form: str = "json"
    log_level: str = "info"
    backoff: Backoff = field(default_factory=Backoff)


class ChildPool:
    """A `Performer` of suspects: a child for each that runs, at most as many as there are slots for it."""

    batch = False
    wants_context = True

    def __init__(
        self, terms: ChildTerms, on_death: Callable[[], None] = lambda: None, *, rng: Random, idle_s: float = IDLE_S
    ) -> None:
        self._on_death = on_death
        self.terms = terms
        self._rng = rng
        self._idle_s = idle_s
        self._idle: list[Child] = []
        self._busy: set[Child] = set()
        self._ending: asyncio.TimerHandle | None = None
        self._ends = BackgroundTasks("end of a crash suspect process")

    @property
    def pids(self) -> list[int]:
        return [child.pid for child in (*self._idle, *self._busy) if child.pid is not None]

    async def perform(self, attempts: Sequence[Attempt]) -> Sequence[Settle]:
        (attempt,) = attempts
        if self._ending is not None:
            self._ending.cancel()
            self._ending = None
        child = self._idle.pop() if self._idle else Child(self.terms, self._rng, self._on_death)
        self._busy.add(child)
        try:
            return (await child.perform(attempt),)
        finally:
            self._busy.discard(child)
            self._idle.append(child)
            if not self._busy:
                self._ending = asyncio.get_running_loop().call_later(self._idle_s, self._end_idle)

    def drain(self) -> None:
        """Running handlers continue."""

    async def close(self) -> None:
        if self._ending is not None:
            self._ending.cancel()
        await asyncio.gather(*(child.end() for child in (*self._idle, *self._busy)), self._ends.wait())

    def _end_idle(self) -> None:
        """They cost memory, and there may be no suspect again for months."""
        idle, self._idle = self._idle, []
        for child in idle:
            self._ends.start(child.end())


class Child:
    """One child process, or none until the next message needs it."""

    def __init__(self, terms: ChildTerms, rng: Random, on_death: Callable[[], None]) -> None:
        self._terms = terms
        self._rng = rng
        self._on_death = on_death
        self._child: asyncio.subprocess.Process | None = None
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    @property
    def pid(self) -> int | None:
        return None if self._child is None else self._child.pid

    async def perform(self, attempt: Attempt) -> Settle:
        try:
            await self._hand_over(attempt)
            return await self._reply(attempt)
        except asyncio.CancelledError:
            await self.end()
            raise
        except EnvironmentProblem as error:
            log.error("crash suspects cannot be run", extra={**log_fields.get(), "error": str(error)})
            delay_us = delay_after(self._terms.backoff, UNSTARTED_AS_ATTEMPT, self._rng.random())
            return NackDelivery(attempt.delivery.receipt, delay_us, str(error), charged=False)
        except (EOFError, OSError):
            return await self._judge_death(attempt)

    # ---- one message

    async def _hand_over(self, attempt: Attempt) -> None:
        """Give it to a child that confirms its receipt. A child that died without a message counts against no
        message."""
        control = attempt.context.control if attempt.context is not None else None
        code = None
        for _ in range(STARTS_MAX):
            try:
                await self._start()
                await self._send(Work(attempt.delivery, self._terms.queue, control.deadline_s() if control else None))
                if isinstance(await self._receive(), Begun):
                    return
            except (EOFError, OSError):
                code = await self.end()
        raise EnvironmentProblem("The crash suspect process ended before it received a message", exit_code=code)

    async def _reply(self, attempt: Attempt) -> Settle:
        control = attempt.context.control if attempt.context is not None else None
        while True:
            reply = await self._receive()
            if isinstance(reply, Extension) and control is not None:
                yes = await control.extend(reply.seconds)
                await self._send(Granted(yes, control.deadline_s()))
            else:
                settle: Settle = reply
                return settle

    async def _judge_death(self, attempt: Attempt) -> Settle:
        """It is charged to this message: nothing else ran in that child."""
        code = await self.end()
        if code is not None and code < 0:
            why = f"its process was killed by {_signal_name(-code)}"
        else:
            why = f"its process ended with exit code {code}"
        self._on_death()
        log.error("crash suspect ended its process", extra={**log_fields.get(), "result": why})
        delay_us = delay_after(self._terms.backoff, attempt.delivery.attempt, self._rng.random())
        return NackDelivery(attempt.delivery.receipt, delay_us, why)

    # ---- the child

    async def _start(self) -> None:
        if self._child is not None and self._child.returncode is None and self._writer is not None:
            return
        await self.end()
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
        with contextlib.suppress(TimeoutError):
            # It may be dying by itself; then its own exit code is more informative than ours.
            return await asyncio.wait_for(child.wait(), 0.5 if writer is not None and _is_at_end(self._reader) else 0)
        with contextlib.suppress(ProcessLookupError):
            child.kill()
        return await child.wait()

    async def _send(self, value: object) -> None:
        if self._writer is None:
            raise EOFError
        self._writer.write(to_frame(value))
        await self._writer.drain()

    async def _receive(self) -> Any:
        if self._reader is None:
            raise EOFError
        head = await self._reader.readexactly(HEAD.size)
        return from_frame(await self._reader.readexactly(HEAD.unpack(head)[0]))


def _is_at_end(reader: asyncio.StreamReader | None) -> bool:
    return reader is not None and reader.at_eof()


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
