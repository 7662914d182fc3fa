"""`headgate dev --memory`: queues in the memory of this process, and a worker for each consumer beside them.

There is no server and no other process. Each line of the input is put as a message; everything is gone at the end.
"""

from __future__ import annotations

import asyncio
import signal
import sys
import threading
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from random import Random

import click

from headgate.api.read.loader import load_files
from headgate.api.resources.consumer import Consumer
from headgate.api.resources.queues import QueueResource
from headgate.applying.call import apply
from headgate.client.connection import Headgate, connect
from headgate.errors import HeadgateError
from headgate.local.declared import counted
from headgate.local.first_message import FirstMessage, find_worked_queue, parse_payload, put_first_message
from headgate.process.background_tasks import end_task, start_task
from headgate.runtime.handler.decide_retry import Backoff
from headgate.runtime.handler.handlers import load_handler
from headgate.runtime.handler.http_runner import HttpPerformer
from headgate.runtime.handler.runner import HandlerRunner, PythonPerformer
from headgate.runtime.worker.worker import Worker, WorkerTerms
from headgate.runtime.worker.worker_metrics import WorkerMetrics
from headgate.runtime.worker.worker_queue import WorkerQueue
from headgate.store.connection_variables import MEMORY
from headgate.telemetry.logs import log_to
from headgate.telemetry.metrics import Registry

ENVIRONMENT = {"HEADGATE_CONTACT_POINTS": MEMORY}
ENDS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
HTTP_TIMEOUT_S = 300.0
UNIT_S = {"s": 1, "m": 60, "h": 3_600}


async def run_in_memory(files: Sequence[Path], *, first: FirstMessage | None) -> None:
    """Run until a shutdown request, or until the first message is handled."""
    log_to(sys.stderr, form="text", level="info")
    resources = load_files(files)
    worked = find_worked_queue(resources)
    ending = asyncio.Event()
    for number in ENDS:
        asyncio.get_running_loop().add_signal_handler(number, ending.set)
    async with connect(ENVIRONMENT) as connection, AsyncExitStack() as workers:
        (await apply(files, environment=ENVIRONMENT)).check()
        for queue in (each for each in resources if isinstance(each, QueueResource)):
            for consumer in queue.spec.consumers or ():
                worker = await _build_worker(connection, queue, consumer)
                running = start_task(f"worker of {queue.metadata.name}", worker.run())
                running.add_done_callback(lambda _: ending.set())
                workers.push_async_callback(_end, worker, running)
        click.echo(f"ready, in memory: {counted(resources)}. Ctrl-C ends it, and its messages.")
        if first is not None:
            await put_first_message(ENVIRONMENT, worked, first.payload, click.echo)
            if first.then_end:
                return
        click.echo(f"A line that you type here is put into {worked}. Other processes cannot reach queues in memory.")
        putting = start_task("input", _put_lines(connection, worked))
        await ending.wait()
        await end_task(putting)


async def _build_worker(connection: Headgate, queue: QueueResource, consumer: Consumer) -> Worker:
    name = f"{queue.metadata.namespace}/{queue.metadata.name}"
    visibility = consumer.visibility_timeout
    opened = WorkerQueue(
        connection,
        await connection.queue(name),
        visibility_us=None if visibility is None else visibility.ms * 1_000,
    )
    terms = WorkerTerms(
        concurrency=consumer.concurrency,
        rate_per_s=_parse_rate(consumer.rate),
        timeout_s=None if consumer.http is None else HTTP_TIMEOUT_S,
    )
    performer: HandlerRunner
    if consumer.http is None:
        handler = load_handler(str(consumer.handler))
        performer = PythonPerformer(handler, threads=consumer.concurrency, rng=Random())  # noqa: S311  jitter
    else:
        performer = HttpPerformer(
            f"http://127.0.0.1:{consumer.http.port}{consumer.http.path}",
            queue=name,
            connections=consumer.concurrency,
            timeout_s=HTTP_TIMEOUT_S,
            backoff=Backoff(),
            rng=Random(),  # noqa: S311  jitter
        )
    return Worker(opened, performer, terms, WorkerMetrics(Registry(), name))


def _parse_rate(rate: str | None) -> float | None:
    if rate is None:
        return None
    number, unit = rate.split("/")
    return int(number) / UNIT_S[unit]


async def _end(worker: Worker, running: asyncio.Task[None]) -> None:
    worker.end()
    await running


async def _put_lines(connection: Headgate, name: str) -> None:
    """Put each line of the input, until it ends. A thread reads it: asyncio cannot read a file."""
    queue = await connection.queue(name)
    lines: asyncio.Queue[str] = asyncio.Queue()
    loop = asyncio.get_running_loop()

    def read() -> None:
        for line in sys.stdin:
            loop.call_soon_threadsafe(lines.put_nowait, line.strip())

    threading.Thread(target=read, name="headgate: input", daemon=True).start()
    while True:
        line = await lines.get()
        if not line:
            continue
        try:
            click.echo(f"put {await queue.put(parse_payload(line))}")
        except HeadgateError as error:
            click.echo(f"not put: {error}")
