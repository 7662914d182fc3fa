"""The jobs of bench-spark on two cores, compared with one plain process of the SDK that does the same.

- drain: a backlog through a handler that reports everything as done; the target is 20,000 messages per second;
- redrive: dead letters back into their source queue, by once keys; the target is 5,000 per second.
"""

from __future__ import annotations

import time
from dataclasses import replace

from bench.figure import Of, Side, Target
from bench.measurement import Measured, Plan, figures_of
from bench.rounds import CASSANDRA_US, CLIENT_US, ROWS_PER_CLIENT_CPU_S, ROWS_PER_S, Window, take_rounds
from bench.servers import ServerKind, Servers
from bench.spark_jobs_work import MESSAGES, By, JobWork
from bench.window import take_window
from headgate.local import progress

WORKING = "bench.spark_jobs_working"
KIND = ServerKind()
PREPARE_WITHIN_S = 240.0
WORK_WITHIN_S = 180.0
METRICS = (ROWS_PER_S, ROWS_PER_CLIENT_CPU_S, CLIENT_US, CASSANDRA_US)
TITLES = {"drain": "drain a backlog through a handler", "redrive": "redrive dead letters"}
JOBS = {"drain": By.DRAIN, "redrive": By.REDRIVE}
PLAIN = {"drain": By.CONSUMER, "redrive": By.PLAIN_REDRIVE}
TARGETS = {
    "drain": Target(Side.AT_LEAST, 20_000, Of.VALUE),
    "redrive": Target(Side.AT_LEAST, 5_000, Of.VALUE),
}
SHARE = {"drain": 1.0, "redrive": 0.2}
"""Of the messages."""
SHARE_OF_PLAIN = {"drain": 1.0, "redrive": 0.25}
"""Of those: a process that claims key by key is much slower."""


def measure_job(servers: Servers, plan: Plan, part: str, deadline: float) -> Measured:
    """One of them, in turns with the plain process."""
    messages = int(MESSAGES * SHARE[part] / (20 if plan.quick else 1))
    plain = int(messages * SHARE_OF_PLAIN[part])
    works = {
        by.value: JobWork(by, count, WORK_WITHIN_S) for by, count in ((JOBS[part], messages), (PLAIN[part], plain))
    }
    clients = {
        work.by.value: servers.client(KIND, WORKING, "job" if work.by is JOBS[part] else "plain")
        for work in works.values()
    }

    def take(name: str) -> Window:
        clients[name].prepare(works[name].job(), within_s=PREPARE_WITHIN_S)
        return take_window(name, {clients[name]: works[name].job()}, [servers.at(KIND).pid])

    with progress.step(f"{part}: working", expect_s=120):
        rounds = take_rounds(
            plan.run,
            TITLES[part],
            tuple(works),
            take,
            rounds=min(plan.rounds, 3),
            time_is_up=lambda: time.monotonic() > deadline,
        )
    figures = [
        replace(figure, target=TARGETS[part] if figure.metric == ROWS_PER_S.name else None)
        for figure in figures_of(rounds, METRICS, JOBS[part].value, PLAIN[part].value)
    ]
    return Measured(rounds, tuple(figures), part=part)
