"""A process that runs suspects: messages of which one may have killed its process. Started by
`isolation/child_pool.py`.

It runs one message at a time, so that its death identifies the message. It communicates over one socket
(`frames.py`). It ends when the socket closes, and on Linux when its parent ends, whatever runs.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import io
import os
import signal
import socket
import sys
import threading
from random import Random
from typing import Any

from headgate.engines.contract import Settle
from headgate.runtime.handler.context import Attempt, Context
from headgate.runtime.handler.handlers import load_handler
from headgate.runtime.handler.runner import PythonPerformer
from headgate.runtime.isolation.frames import HEAD, Begun, Extension, Granted, Work, from_frame, to_frame
from headgate.telemetry.logs import log_fields, log_to
from headgate.telemetry.tracing import current_trace, read_trace

_PR_SET_PDEATHSIG = 1


class Channel:
    """The child's end, blocking; used by one thread at a time."""

    def __init__(self, end: socket.socket) -> None:
        self._file: io.BufferedReader = end.makefile("rb")
        self._end = end
        self._asking = threading.Lock()
        self.deadline_s: float | None = None

    def receive(self) -> Any:
        head = self._file.read(HEAD.size)
        if len(head) < HEAD.size:
            return None
        return from_frame(self._file.read(HEAD.unpack(head)[0]))

    def send(self, value: object) -> None:
        self._end.sendall(to_frame(value))

    def ask(self, seconds: float) -> bool:
        with self._asking:
            self.send(Extension(seconds))
            granted = self.receive()
        if not isinstance(granted, Granted):
            os._exit(0)
        self.deadline_s = granted.deadline_s
        return granted.yes


class _ControlOfChild:
    def __init__(self, channel: Channel) -> None:
        self._channel = channel

    async def extend(self, seconds: float) -> bool:
        return await asyncio.to_thread(self._channel.ask, seconds)

    def extend_blocking(self, seconds: float) -> bool:
        return self._channel.ask(seconds)

    def deadline_s(self) -> float | None:
        return self._channel.deadline_s

    def limit(self, seconds: float) -> None:
        raise NotImplementedError  # its worker knows the deadline


async def _handle(performer: PythonPerformer, work: Work, channel: Channel) -> Settle:
    channel.deadline_s = work.deadline_s
    trace = read_trace(work.delivery.attributes)
    context = Context(work.delivery, work.queue, _ControlOfChild(channel), trace=trace)
    current_trace.set(trace)
    log_fields.set({"queue": work.queue, "message_id": work.delivery.message_id, "attempt": work.delivery.attempt})
    (settle,) = await performer.perform([Attempt(work.delivery, 0.0, context)])
    return settle


def main(end: socket.socket, entry_point: str) -> None:
    channel = Channel(end)
    performer = PythonPerformer(load_handler(entry_point), threads=1, rng=Random())  # noqa: S311  jitter
    channel.send("ready")
    with asyncio.Runner() as runner:
        while isinstance(work := channel.receive(), Work):
            channel.send(Begun())
            channel.send(runner.run(_handle(performer, work, channel)))
        runner.run(performer.close())


def _die_with_parent(parent: int) -> None:
    """The kernel ends this process when its parent ends, whatever runs. Without such a call, the end of the socket
    does it as soon as nothing runs."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(0)


if __name__ == "__main__":
    _die_with_parent(int(sys.argv[2]))
    log_to(form=sys.argv[4], level=sys.argv[5])
    main(socket.socket(fileno=int(sys.argv[1])), sys.argv[3])
