"""The working side of the jobs of bench-spark: a driver with a session on two cores, or a process of the SDK."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from pyspark.sql import SparkSession

import headgate
from bench.contender import ClientReport, Contender, Job, Ran
from bench.spark_home import spark_home_in
from bench.spark_jobs_work import By, JobWork, fill, work_of
from headgate.client.redriving import redrive
from headgate.errors import Bug
from headgate_spark.jobs.request import JobRequest, job_id
from headgate_spark.jobs.run import run_job
from headgate_spark.process.session import LOCAL, open_session
from headgate_spark.process.worker_connection import WorkerConnection

HANDLER = "bench.spark_jobs_work:everything_is_done"
DUE_S = 1.5
WARM_UP_MESSAGES = 5_000
WARM_AGAIN = 400
"""Spark ends Python workers that idle for a minute, as they do while another contender has its turn. Beginning them
costs a job a second or two, once, as its JVM does: it is not a part of how fast the job works."""


class WorkingContender(Contender):
    """One process."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = dict(environment)
        self._spark: SparkSession | None = None
        self._local: WorkerConnection | None = None
        self._warm: set[By] = set()
        self._folder = TemporaryDirectory(prefix="headgate-bench-spark-")

    def prepare(self, job: Job) -> int:
        """Put the messages to empty, after processing some that do not count."""
        work = work_of(job)
        warm_up = replace(work, messages=WARM_AGAIN if work.by in self._warm else WARM_UP_MESSAGES, rate=None)
        self._warm.add(work.by)
        asyncio.run(fill(self._environment, warm_up))
        time.sleep(DUE_S)
        self._work(warm_up)
        asyncio.run(fill(self._environment, work))
        time.sleep(DUE_S)
        return work.messages

    def run(self, job: Job) -> Ran:
        """Empty it."""
        work = work_of(job)
        began_s = time.perf_counter()
        done = self._work(work)
        if work.rate is None and done != work.messages:
            raise Bug("the job left messages", by=work.by.value, done=done, messages=work.messages)
        return Ran(time.perf_counter() - began_s, done, 1, 0)

    def report(self) -> ClientReport:
        """How many were worked is checked in the run."""
        return ClientReport(0.0, 0.0, 0)

    def close(self) -> None:
        if self._local is not None:
            self._local.close()
        if self._spark is not None:
            self._spark.stop()
        self._folder.cleanup()

    def _work(self, work: JobWork) -> int:
        if self._local is None:
            self._local = WorkerConnection(self._environment)
        if work.by is By.CONSUMER:
            return self._local.run(_consume(self._local.headgate, work))
        if work.by is By.PLAIN_REDRIVE:
            return self._local.run(redrive(self._local.headgate, work.queue)).moved
        handler = HANDLER if work.by is By.DRAIN else None
        request = JobRequest(work.queue, work.by.value, work.by.value, handler=handler, rate=work.rate)
        entry = self._local.queue(work.queue).entry
        return run_job(self._session(work), self._local, request, job_id(entry, work.by.value)).done

    def _session(self, work: JobWork) -> SparkSession:
        if self._spark is None:
            if work.cores == 1:
                os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
            os.environ["SPARK_HOME"] = str(spark_home_in(Path(self._folder.name)))
            self._spark = open_session(
                "bench-spark", master=work.master, settings={**LOCAL, "spark.driver.memory": "1g"}
            )
            self._spark.sparkContext.setLogLevel("ERROR")
        return self._spark


async def _consume(opened: headgate.Headgate, work: JobWork) -> int:
    queue = await opened.queue(work.queue)
    done = 0
    while done < work.messages and (given := await queue.receive(1_000, wait=10)):
        await queue.ack(given)
        done += len(given)
    await queue.engine.leave()
    return done


def open_contender(environment: Mapping[str, str]) -> Contender:
    """For the client process."""
    return WorkingContender(environment)
