"""Queues on a real Cassandra for tests of bulk jobs: some for each test, and what tests do with them."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from dev.servers.cassandra.serving import Serving
from headgate import Put, settle
from headgate.client.queue import Queue
from headgate.engines.summary.pass_results import PassStatus, read_pass_status
from headgate_spark.jobs.request import bulk_of, job_id, request_of
from headgate_spark.jobs.run import run_job
from headgate_spark.jobs.show_progress import JobProgress
from headgate_spark.process.worker_connection import WorkerConnection

OBSERVED_WITHIN_S = 60.0
SPEC = "maxClockSkew: 100ms, timeline: {safetyLag: 200ms}, storage: {tables: shared}"


class Shop:
    """Queues `shop/...`, a connection, and jobs on them."""

    def __init__(self, environment: Mapping[str, str], spark: SparkSession) -> None:
        self.environment = environment
        self.spark = spark
        self.connection = WorkerConnection({**os.environ, **environment})

    def queue(self, name: str) -> Queue:
        """One of them."""
        return self.connection.queue(f"shop/{name}")

    def put(self, name: str, count: int, **fields: Any) -> list[str]:
        """This number of messages, which carry their number; their ids."""
        puts = [Put(b"%d" % number, **fields) for number in range(count)]
        return self.connection.run(self.queue(name).put_many(puts))

    def settle_down(self) -> None:
        """Until what was put is due."""
        self.connection.run(asyncio.sleep(0.6))

    def taken(self, name: str, *, quiet_s: float = 2.5) -> list[bytes]:
        """Receive and settle what is there until nothing comes; the payloads."""
        return [each.payload for each in self.received(name, quiet_s=quiet_s)]

    def received(self, name: str, *, quiet_s: float = 2.5) -> list[Any]:
        """The same, as messages."""
        return self.connection.run(_take_all(self.queue(name), quiet_s))

    def backlog(self, name: str) -> int:
        """The number of messages to deliver."""
        return self.connection.run(self.queue(name).stats()).backlog

    def standing(self, queue: str, job: str) -> PassStatus:
        """The last report of a job."""
        store = self.connection.headgate.process_context.store_in(self.environment["KEYSPACE"])
        text = self.connection.run(read_pass_status(store, job_id(self.queue(queue).entry, job)))
        assert text is not None
        return text

    def job(self, queue: str, mode: str, *, name: str | None = None, **fields: Any) -> JobProgress:
        """Run one here, to its end."""
        names = ("reservation_s", "batch_messages", "resume_at_once")
        options = {key: fields.pop(key) for key in names if key in fields}
        document = {"name": name or mode, "mode": mode, "schedule": "0 0 1 1 *", **fields}
        request = request_of(f"shop/{queue}", bulk_of(document), **options)
        entry = self.queue(queue).entry
        return run_job(self.spark, self.connection, request, job_id(entry, request.name))


async def _take_all(queue: Queue, quiet_s: float) -> list[Any]:
    """Until nothing comes, and nothing can be seen: on a busy machine lanes take longer than it has to be quiet."""
    matches: list[Any] = []
    until_s = time.monotonic() + OBSERVED_WITHIN_S
    while (given := await queue.receive(1000, wait=quiet_s)) or (time.monotonic() < until_s and await queue.peek(1)):
        matches += given
        await queue.settle([settle.Ack(each.receipt) for each in given])
    await queue.engine.leave()
    return matches


@contextmanager
def opened_shop(
    cassandra: Serving, spark: SparkSession, folder: Path, names: Iterable[str], *, counters: Iterable[str] = ()
) -> Iterator[Shop]:
    """The queues of that name, each with dead letters in `<name>-dead`, and counters of sums."""
    keyspace = f"bulk_{uuid.uuid4().hex[:12]}"
    environment = {**cassandra.environment(), "KEYSPACE": keyspace}
    documents = [
        f"apiVersion: headgate.io/v1beta1\nkind: Queue\nmetadata: {{name: {name}, namespace: shop}}\n"
        f"spec: {{shards: 3, {SPEC}{f', deadLetter: {name}-dead' if not name.endswith('-dead') else ''}}}\n"
        for base in names
        for name in (f"{base}-dead", base)
    ]
    documents += [
        f"apiVersion: headgate.io/v1beta1\nkind: Counter\nmetadata: {{name: {name}, namespace: shop}}\n"
        "spec: {type: sum, buckets: 8, maxClockSkew: 100ms, windows: [1m], storage: {tables: shared}}\n"
        for name in counters
    ]
    file = folder / "queues.yaml"
    file.write_text("---\n".join(documents))
    done = subprocess.run(
        [sys.executable, "-m", "headgate.cli.main", "apply", str(file)],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    shop = Shop(environment, spark)
    workers = spark.sparkContext.environment
    before = dict(workers)
    try:
        yield shop
    finally:
        workers.clear()
        workers.update(before)  # other tests share the session: their tasks read the address of Cassandra from them
        shop.connection.close()
        cassandra.cql(f"DROP KEYSPACE IF EXISTS {keyspace}")


def twice(values: Iterable[Any]) -> list[Any]:
    """Those that are there more than once."""
    return [value for value, count in Counter(values).items() if count > 1]
