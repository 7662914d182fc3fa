"""A process that runs suspects: messages of which one may kill its process. Started by `isolation/child.py`.

It runs the works that it receives concurrently, and reports each as soon as its handler ends. It communicates over
one socket (`frames.py`), which a thread reads: a handler that blocks the event loop delays neither an extension nor
the end. It ends when the socket closes, and on Linux when its parent ends, whatever runs.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import io
import logging
import os
import queue
import signal
import socket
import sys
import threading
import time
from random import Random
from typing import Any

from headgate.engines.contract import Settle
from headgate.errors import HeadgateError
from headgate.process.background_tasks import BackgroundTasks
from headgate.runtime.handler.context import Attempt, Context
from headgate.runtime.handler.handlers import load_handler
from headgate.runtime.handler.runner import PythonPerformer
from headgate.runtime.isolation.decide_groups import GROUP_MAX
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
from headgate.telemetry.logs import log_fields, log_to
from headgate.telemetry.tracing import current_trace, read_trace

log = logging.getLogger("headgate.worker")

_PR_SET_PDEATHSIG = 1


class Channel:
    """The child's end. It sends at once, from any thread: what it sent survives the death of the process."""

    def __init__(self, end: socket.socket) -> None:
        self._file: io.BufferedReader = end.makefile("rb")
        self._end = end
        self._sending = threading.Lock()
        self._answers: dict[int, queue.SimpleQueue[Granted]] = {}

    def receive(self) -> Any:
        """None at its end, which may come within a frame."""
        head = self._file.read(HEAD.size)
        if len(head) < HEAD.size:
            return None
        payload = self._file.read(length := HEAD.unpack(head)[0])
        return from_frame(payload) if len(payload) == length else None

    def send(self, value: object) -> None:
        with self._sending:
            self._end.sendall(to_frame(value))

    def ask(self, request: Extension) -> Granted:
        """One request of a work at a time."""
        answers = self._answers[request.number] = queue.SimpleQueue()
        self.send(request)
        return answers.get()

    def answer(self, granted: Granted) -> None:
        self._answers.pop(granted.number).put(granted)


class RunningWork:
    """One message whose handler runs, and its requests to the worker."""

    def __init__(self, channel: Channel, work: Work) -> None:
        self.work = work
        trace = read_trace(work.delivery.attributes)
        self.attempt = Attempt(work.delivery, 0.0, Context(work.delivery, work.queue, self, trace=trace), trace=trace)
        self.task: asyncio.Task[None] | None = None
        self._channel = channel
        self._asking = threading.Lock()
        self._deadline_s = None if work.timeout_s is None else time.time() + work.timeout_s

    async def extend(self, seconds: float) -> bool:
        return await asyncio.to_thread(self.extend_blocking, seconds)

    def extend_blocking(self, seconds: float) -> bool:
        with self._asking:
            granted = self._channel.ask(Extension(self.work.number, seconds))
        self._deadline_s = granted.deadline_s
        if isinstance(granted.answer, HeadgateError):
            raise granted.answer
        return granted.answer

    def deadline_s(self) -> float | None:
        return self._deadline_s

    def limit(self, seconds: float) -> None:
        raise NotImplementedError  # its worker keeps the deadline

    def stop(self) -> None:
        """Cancel the handler, or notify it where it is in a thread."""
        _mark_lost(self.attempt)
        if self.task is not None and not self.attempt.in_thread:
            self.task.cancel()


class ChildProgram:
    def __init__(self, channel: Channel, performer: PythonPerformer) -> None:
        self._channel = channel
        self._performer = performer
        self._running: dict[int, RunningWork] = {}
        self._tasks = BackgroundTasks("crash suspect", failed=_end_by_bug)

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        threading.Thread(target=self._read, args=[loop], name="headgate-worker-socket", daemon=True).start()
        self._channel.send("ready")
        await asyncio.Event().wait()  # the thread that reads ends the process

    def _read(self, loop: asyncio.AbstractEventLoop) -> None:
        try:
            while (frame := self._channel.receive()) is not None:
                if isinstance(frame, Granted):
                    self._channel.answer(frame)
                else:
                    loop.call_soon_threadsafe(self._take, frame)
        except Exception as error:
            _end_by_bug(error)
        os._exit(0)

    def _take(self, frame: Work | Cancel) -> None:
        match frame:
            case Work():
                running = self._running[frame.number] = RunningWork(self._channel, frame)
                running.task = self._tasks.start(self._handle(running))
                running.task.add_done_callback(lambda _: self._report(running.work.number, None))
            case Cancel() if frame.number in self._running:
                self._running[frame.number].stop()

    async def _handle(self, running: RunningWork) -> None:
        delivery, number = running.work.delivery, running.work.number
        current_trace.set(running.attempt.trace)
        log_fields.set({"queue": running.work.queue, "message_id": delivery.message_id, "attempt": delivery.attempt})
        self._channel.send(Begun(number))
        (settle,) = await self._performer.perform([running.attempt])
        self._report(number, settle)

    def _report(self, number: int, settle: Settle | None) -> None:
        if self._running.pop(number, None) is not None:
            self._channel.send(Result(number, settle))


def _mark_lost(attempt: Attempt) -> None:
    attempt.lost = True
    if attempt.context is not None:
        attempt.context.mark_lost()


def _end_by_bug(error: BaseException) -> None:
    log.error("bug in a crash suspect process", exc_info=error)
    os._exit(1)


def main(end: socket.socket, entry_point: str) -> None:
    performer = PythonPerformer(load_handler(entry_point), threads=GROUP_MAX, rng=Random())  # noqa: S311  jitter
    asyncio.run(ChildProgram(Channel(end), performer).run())


def _die_with_parent(parent: int) -> None:
    """The kernel ends this process when its parent ends, whatever runs. Without such a call, the end of the socket
    does it."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(0)


if __name__ == "__main__":
    _die_with_parent(int(sys.argv[2]))
    log_to(form=sys.argv[4], level=sys.argv[5])
    main(socket.socket(fileno=int(sys.argv[1])), sys.argv[3])
