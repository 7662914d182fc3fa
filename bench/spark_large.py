"""A drain of ten million messages through two executors of 1 GB each, compared with one of a tenth of them: whether
all are processed, by the same executors from the first to the last, and their memory.

It takes longer than all other parts together, and is measured only where it is named.
"""

from __future__ import annotations

import time
from pathlib import Path

from bench.cpu import children_of
from bench.figure import Figure, Series
from bench.machine import read_peak_memory_mb
from bench.measurement import Measured, Plan
from bench.servers import ServerKind, Servers
from bench.spark_jobs import WORKING
from bench.spark_jobs_work import By, JobWork
from headgate.errors import Bug
from headgate.local import progress

KIND = ServerKind()
PART = "large"
MESSAGES = 10_000_000
EXECUTORS = 2
EXECUTOR = b"CoarseGrainedExecutorBackend"
PUT_WITHIN_S, WORK_WITHIN_S = 300.0, 900.0


def measure_large(servers: Servers, plan: Plan) -> Measured:
    """A tenth, then all of it, by the same driver."""
    many = MESSAGES // (500 if plan.quick else 1)
    client = servers.client(KIND, WORKING, PART)
    peaks: dict[int, float] = {}
    speeds: dict[int, float] = {}
    observations: set[int] = set()
    for count in (many // 10, many):
        job = JobWork(By.DRAIN, count, WORK_WITHIN_S, executors=EXECUTORS).job()
        with progress.step(
            f"large: putting {count:,} messages, after Spark has started", expect_s=30 + count / 100_000
        ):
            client.prepare(job, within_s=PUT_WITHIN_S)
        with progress.step(f"large: working {count:,} messages", expect_s=count / 30_000):
            began_s = time.perf_counter()
            client.begin(job)
            ran = client.end(within_s=WORK_WITHIN_S)
            speeds[count] = ran.rows / (time.perf_counter() - began_s)
        executors = executors_of(client.pid)
        observations |= set(executors)
        peaks[count] = max(executors.values())
    if len(observations) != EXECUTORS:
        raise Bug("executors were killed, and replacements took over", executors=len(observations))
    return Measured(None, tuple(_figures(plan, peaks, speeds)), part=PART)


def executors_of(pid: int) -> dict[int, float]:
    """The executors below a driver, each with the most memory that it and its Python workers had."""
    entries: dict[int, float] = {}
    for process in _below(pid):
        if EXECUTOR in Path(f"/proc/{process}/cmdline").read_bytes():
            entries[process] = sum(map(read_peak_memory_mb, [process, *_below(process)]))
    return entries


def _below(pid: int) -> list[int]:
    children = children_of(pid)
    return [*children, *(deeper for child in children for deeper in _below(child))]


def _figures(plan: Plan, peaks: dict[int, float], speeds: dict[int, float]) -> list[Figure]:
    few, many = sorted(peaks)
    return [
        Figure(
            case=f"drain {many:,} through {EXECUTORS} executors of 1 GB",
            metric=metric,
            unit=unit,
            ours=Series(plan.run, f"{many:,}", (values[many],)),
            baseline=Series(plan.run, f"{few:,}", (values[few],)),
        )
        for metric, unit, values in (
            ("rows per second", "/s", speeds),
            ("most memory of an executor with its Python", "MB", peaks),
        )
    ]
