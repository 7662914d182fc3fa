"""A consumer of bench-spark concurrent with a job that drains the same queue, on one core and at half the job's rate
on it; and the same consumer alone. Both have a backlog that lasts for longer than the window.

The consumer gets this many messages per second. It takes and settles them in turns of twenty, and the duration of a
turn counts from the time at which it should have started. After each window the rest is taken and counted: every
message went to the consumer or to the job, and none to both.
"""

from __future__ import annotations

import time
from dataclasses import replace

from bench.figure import Side, Target
from bench.measurement import Measured, Plan, figures_of
from bench.rounds import P50_MS, P99_MS, ROWS_PER_S, Window, take_rounds
from bench.servers import ServerKind, Servers
from bench.spark_consumer_work import OFFERED_PER_S, Turn
from bench.spark_jobs import PREPARE_WITHIN_S, WORK_WITHIN_S, WORKING
from bench.spark_jobs_work import By, JobWork
from bench.window import take_window
from headgate.errors import Bug
from headgate.local import progress

CONSUMING = "bench.spark_consumer_client"
KIND = ServerKind()
PART, TITLE = "beside", "a consumer during a drain"
ALONE = "consumer alone"
WINDOW_S = 15.0
LASTS_LONGER = 1.3
SPEED_OF = 40_000
"""The number of messages that measures the job's rate on one core."""
METRICS = (ROWS_PER_S, P50_MS, P99_MS)
TARGETS = {ROWS_PER_S.name: Target(Side.AT_LEAST, 0.98), P99_MS.name: Target(Side.AT_MOST, 2.0)}


def measure_consumer(servers: Servers, plan: Plan, deadline: float) -> Measured:
    """In turns, alone and concurrent."""
    window_s = 3.0 if plan.quick else WINDOW_S
    driver = servers.client(KIND, WORKING, PART)
    consumer = servers.client(KIND, CONSUMING)
    whole = JobWork(By.DRAIN, SPEED_OF // (10 if plan.quick else 1), WORK_WITHIN_S, cores=1)
    consumer.prepare(Turn(0.0, leaves=True).job(), within_s=PREPARE_WITHIN_S)  # what other parts left
    with progress.step("beside: the job's rate on one core", expect_s=60):
        driver.prepare(whole.job(), within_s=PREPARE_WITHIN_S)
        driver.begin(whole.job())
        ran = driver.end(within_s=WORK_WITHIN_S)
    half = ran.rows / ran.wall_s / 2
    consumer.prepare(Turn(0.0).job(), within_s=PREPARE_WITHIN_S)  # from now on its lanes are its own

    def take(name: str) -> Window:
        work = replace(whole, messages=int((OFFERED_PER_S + half) * window_s * LASTS_LONGER), rate=half)
        driver.prepare(work.job(), within_s=PREPARE_WITHIN_S)
        if name != ALONE:
            driver.begin(work.job())
        pids = [servers.at(KIND).pid]
        window = take_window(name, {consumer: Turn(window_s).job()}, pids, aside_pids=[driver.pid])
        by_job = driver.end(within_s=WORK_WITHIN_S).rows if name != ALONE else 0
        left = consumer.prepare(Turn(0.0).job(), within_s=PREPARE_WITHIN_S)
        if by_job + window.rows + left != work.messages:
            raise Bug(
                "a message was lost, or handled twice",
                put=work.messages,
                by_job=by_job,
                by_consumer=window.rows,
                left=left,
            )
        return window

    with progress.step(f"beside: a consumer next to a job of {half:,.0f} messages/s", expect_s=150):
        rounds = take_rounds(
            plan.run,
            TITLE,
            (PART, ALONE),
            take,
            rounds=min(plan.rounds, 3),
            time_is_up=lambda: time.monotonic() > deadline,
        )
    figures = [
        replace(figure, target=TARGETS.get(figure.metric)) for figure in figures_of(rounds, METRICS, PART, ALONE)
    ]
    return Measured(rounds, tuple(figures), part=PART)
