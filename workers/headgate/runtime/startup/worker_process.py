"""One worker process: everything put together, its signals, and how it ends.

The handler is loaded before anything is connected, so that a mistake in it costs one line and no load. While the
store cannot be reached, the process retries with growing pauses and answers its probes. The first SIGTERM or SIGINT
drains. The second ends the process at once, also while the event loop is busy. A file may request a drain as well
(drain_files.py): then the process ends when the following signal comes, or soon after.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sys
import threading
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from random import Random
from types import FrameType

from headgate.errors import Unavailable
from headgate.process.background_tasks import SupervisedLoop
from headgate.process.event_loop import SIGNALS, LoopWatch, run
from headgate.process.http_server import HttpServer, probe_routes
from headgate.runtime.handler.decide_retry import Backoff
from headgate.runtime.handler.handlers import Handler, load_handler
from headgate.runtime.handler.http_runner import HttpPerformer, checked_url
from headgate.runtime.handler.runner import HandlerRunner, PythonPerformer
from headgate.runtime.isolation.child import Child, ChildTerms
from headgate.runtime.isolation.child_pool import ChildPool, PoolTerms
from headgate.runtime.policy.decide_health import WorkerStatus, decide_liveness_problem, decide_readiness_problem
from headgate.runtime.startup.drain_files import DrainFiles
from headgate.runtime.worker.worker import Worker, WorkerTerms
from headgate.runtime.worker.worker_metrics import WorkerMetrics
from headgate.runtime.worker.worker_queue import WorkerQueue
from headgate.store.clock.clock import measure_clocks
from headgate.telemetry.graphite import Graphite, GraphiteSettings
from headgate.telemetry.logs import log_to
from headgate.telemetry.metrics import Registry
from headgate.telemetry.tracing import spans

log = logging.getLogger("headgate.worker")

OPEN_AGAIN = Backoff(first_s=0.5, factor=2.0, cap_s=30.0)
DRAIN_CHECK_S = 0.5
SIGNAL_WITHIN_S = 10.0
"""A worker that drained because of a file waits this long for the signal that follows: the hook that wrote the file
would be killed with the container."""


@dataclass(frozen=True)
class WorkerOptions:
    queue: str
    handler: str | None = None
    http: str | None = None
    terms: WorkerTerms = field(default_factory=WorkerTerms)
    health: tuple[str, int] | None = None
    health_may_move: bool = False
    """Whether another port does as well, because the user has not chosen this one."""
    graphite: GraphiteSettings | None = None
    drain: DrainFiles | None = None
    log_form: str = "json"
    log_level: str = "info"


Opening = Callable[[], Awaitable[WorkerQueue]]
"""Opens the queue; Unavailable where it has to be tried again."""


def run_worker(options: WorkerOptions, open_queue: Opening) -> None:
    """Run a worker until a shutdown request. Threads of a handler that do not end do not keep the process alive."""
    log_to(form=options.log_form, level=options.log_level)
    handler = load_handler(options.handler) if options.handler is not None else None
    if options.http is not None:
        checked_url(options.http)
    run(WorkerProcess(options, handler, open_queue).run())
    _end_in_spite_of_threads()


def _end_in_spite_of_threads() -> None:
    """A handler that still runs in a thread would keep the process, and its message stays hidden as promised."""
    if any(thread.name.startswith("headgate-handler") for thread in threading.enumerate()):
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)


class WorkerProcess:
    def __init__(self, options: WorkerOptions, handler: Handler | None, open_queue: Opening) -> None:
        self.options = options
        self._handler = handler
        self._open_queue = open_queue
        self._rng = Random()  # noqa: S311  jitter
        self.registry = Registry()
        self._metrics = WorkerMetrics(self.registry, options.queue)
        self._worker: Worker | None = None
        self._queue: WorkerQueue | None = None
        self._signals = 0
        self._ending = asyncio.Event()
        self._signalled = asyncio.Event()
        self._asked = False

    async def run(self) -> None:
        self._take_signals()
        watch = LoopWatch()
        watch.start()
        health_server = HttpServer(
            probe_routes(self.registry, why_not_alive=self._why_not_alive, why_not_ready=self._why_not_ready)
        )
        async with contextlib.AsyncExitStack() as stack:
            stack.callback(watch.stop)
            if self.options.drain is not None:
                poll = partial(self._poll_drain_file, self.options.drain)
                self._start(stack, SupervisedLoop("drain file", poll, log=log))
            if self.options.health is not None:
                stack.push_async_callback(health_server.close)
                await health_server.open(*self.options.health, may_move=self.options.health_may_move)
            if self.options.graphite is not None:
                graphite = Graphite(self.options.graphite, self.registry)
                self._start(stack, SupervisedLoop("Graphite", graphite.run, log=log))
            queue = await self._opened()
            if queue is not None:
                stack.push_async_callback(queue.close)
                await self._work(queue, health_server.port)
        await self._answer_file()
        log.info("worker stopped", extra={"queue": self.options.queue})

    @staticmethod
    def _start(stack: contextlib.AsyncExitStack, loop: SupervisedLoop) -> None:
        loop.start()
        stack.push_async_callback(loop.stop)

    async def _opened(self) -> WorkerQueue | None:
        """The queue; None if the shutdown request came first."""
        tries = 0
        while not self._ending.is_set():
            try:
                return await self._open_queue()
            except Unavailable as error:
                tries += 1
                again_s = OPEN_AGAIN.bound_s(tries) * (0.5 + self._rng.random() / 2)
                fields = {"queue": self.options.queue, "error": str(error), "again_in_s": round(again_s, 1)}
                log.warning("queue could not be opened", extra=fields)
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._ending.wait(), again_s)
        return None

    async def _work(self, queue: WorkerQueue, port: int) -> None:
        performer, suspects = self._performers(queue)
        self._worker = Worker(
            queue, performer, self.options.terms, self._metrics, suspects=suspects, spans=spans(), rng=self._rng
        )
        self._queue = queue
        self.register_readings(queue)
        if self._ending.is_set():
            self._worker.end()
        log.info(
            "worker started",
            extra={
                "queue": queue.name,
                "handler": self.options.handler or self.options.http,
                "concurrency": self.options.terms.concurrency,
                "health_port": port,
            },
        )
        await self._worker.run()

    def _performers(self, queue: WorkerQueue) -> tuple[HandlerRunner, HandlerRunner | None]:
        terms = self.options.terms
        if self._handler is None or self.options.handler is None:
            performer = HttpPerformer(
                self.options.http or "",
                queue=queue.name,
                connections=terms.concurrency,
                timeout_s=terms.timeout_s or 0.0,
                backoff=terms.backoff,
                rng=self._rng,
            )
            return performer, None
        options = self.options
        child_terms = ChildTerms(self.options.handler, queue.name, options.log_form, options.log_level)
        pool_terms = PoolTerms(terms.timeout_s, terms.backoff)
        suspects = ChildPool(partial(Child, child_terms), pool_terms, self._metrics.child_deaths.add, rng=self._rng)
        return PythonPerformer(self._handler, threads=terms.concurrency, rng=self._rng), suspects

    def register_readings(self, queue: WorkerQueue) -> None:
        def gauge(name: str, description: str, read: Callable[[], float]) -> None:
            self.registry.reading(
                f"headgate_worker_{name}", description, ["queue"], lambda: [((queue.name,), float(read()))]
            )

        def is_slow() -> bool:
            return self._worker is not None and self._worker.is_slow

        def oldest_s() -> float:
            return max((lease.age_s for lease in queue.leases()), default=0.0)

        in_flight = "Messages received and not yet settled."
        gauge("in_flight", in_flight, lambda: self._worker.in_flight if self._worker else 0)
        gauge("throttled", "1 while everything fails: the worker takes one message at a time, with pauses.", is_slow)
        gauge("lanes", "Lanes held by this worker.", lambda: len(queue.leases()))
        unreadable = "Rows set aside, since their stored bytes cannot be read."
        gauge("unreadable_rows", unreadable, lambda: queue.unreadable_rows)
        lease_s = "Time since the oldest lease renewal was sent. A lease lasts 10 s by default."
        gauge("lease_age_seconds", lease_s, oldest_s)
        measure_clocks(self.registry, lambda: [clock] if (clock := queue.clock()) is not None else [])

    # ---- signals and probes

    def _take_signals(self) -> None:
        """Runs between any two steps of Python, so that the second signal is handled while the event loop hangs."""
        loop = asyncio.get_running_loop()

        def on_signal(number: int, _: FrameType | None) -> None:
            self._signals += 1
            if self._signals > 1:
                os._exit(128 + number)
            loop.call_soon_threadsafe(self._end_by_signal)

        for number in SIGNALS:
            signal.signal(number, on_signal)

    def _end_by_signal(self) -> None:
        self._signalled.set()
        if not self._asked:
            self._end()

    async def _poll_drain_file(self, files: DrainFiles) -> None:
        try:
            files.begin(self.options.terms.grace_s)
        except OSError as error:
            log.warning("drain file is not watched", extra={"error": str(error)})
            return
        while not files.is_asked():  # noqa: ASYNC110  another process writes it
            await asyncio.sleep(DRAIN_CHECK_S)
        if not self._ending.is_set():
            self._asked = True
            self._end()

    async def _answer_file(self) -> None:
        """Everything is released: report it to the requester, and let it finish before this container ends."""
        if self.options.drain is None:
            return
        self.options.drain.finish()
        if self._asked:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._signalled.wait(), SIGNAL_WITHIN_S)

    def _end(self) -> None:
        log.warning("shutdown requested", extra={"queue": self.options.queue})
        self._ending.set()
        if self._worker is not None:
            self._worker.end()

    def _status(self) -> WorkerStatus | None:
        worker = self._worker
        if worker is None:
            return None
        return WorkerStatus(
            turned_ago_s=asyncio.get_running_loop().time() - worker.turned_s,
            slots=self.options.terms.concurrency,
            stuck=worker.stuck,
            is_receiving=worker.is_receiving,
            is_ending=worker.is_ending,
            stops=worker.queue.stops,
            dead_loops=worker.queue.dead_loops(),
        )

    def _why_not_alive(self) -> str | None:
        status = self._status()
        return None if status is None else decide_liveness_problem(status)

    def _why_not_ready(self) -> str | None:
        status = self._status()
        return "the queue is not open yet" if status is None else decide_readiness_problem(status)


def opening_by_client(options: WorkerOptions, environment: Mapping[str, str], visibility_us: int | None) -> Opening:
    """The queue as the SDK opens it. The driver is imported when it is first tried."""

    async def open_queue() -> WorkerQueue:
        from headgate.store.cassandra.without_numpy import leave_numpy_out

        leave_numpy_out()
        from headgate.client.connection import connect

        connection = connect(environment)
        await connection.open()
        try:
            queue = await connection.queue(options.queue)
        except BaseException:
            await connection.close()
            raise
        return WorkerQueue(connection, queue, visibility_us=visibility_us)

    return open_queue
