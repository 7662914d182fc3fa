"""bench-spark: Spark on two cores. Reading compared with the JVM connector, on a table with one row per message; jobs
compared with one process of the SDK that does the same.

Parts, each of which can be measured by itself (`--only`):
- packed: a million immediate messages, in packed rows; rows per second compared with the connector's;
- scheduled: a million delayed messages, one row each; rows per client CPU second compared with the connector's;
- drain, redrive: bulk jobs (spark_jobs.py);
- beside: the rate that a job leaves to a live consumer of the same queue (spark_beside.py);
- planning: how long a driver plans, compared with a queue of a tenth of the history (spark_planning.py);
- large: ten million messages through executors of 1 GB (spark_large.py); only where it is named.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from bench.client_process import ROOT
from bench.figure import Side, Target
from bench.measurement import Measured, Plan, Results, figures_of
from bench.rounds import CASSANDRA_US, CLIENT_US, ROWS_PER_CLIENT_CPU_S, ROWS_PER_S, Window, take_rounds
from bench.servers import ServerKind, Servers
from bench.spark_connector import connector_jars
from bench.spark_consumer import PART as CONSUMER
from bench.spark_consumer import measure_consumer
from bench.spark_jobs import JOBS, measure_job
from bench.spark_jobs_work import QUEUES as JOB_QUEUES
from bench.spark_large import PART as LARGE
from bench.spark_large import measure_large
from bench.spark_planning import PART as PLANNING
from bench.spark_planning import measure_planning
from bench.spark_planning_work import QUEUES as PLANNED_QUEUES
from bench.spark_work import MESSAGES, QUEUES, ROWS, Read, Work
from bench.store_work import KEYSPACE
from bench.window import take_window
from headgate.errors import Bug
from headgate.local import progress

READING = "bench.spark_reading"
KIND = ServerKind()
READS = ("packed", "scheduled")
PARTS = (*READS, *JOBS, CONSUMER, PLANNING, LARGE)
TOTAL_S_MAX = 1_200.0
PREPARE_WITHIN_S = 300.0
READ_WITHIN_S = 120.0
METRICS = (ROWS_PER_S, ROWS_PER_CLIENT_CPU_S, CLIENT_US, CASSANDRA_US)
TARGETS = {
    ("packed", ROWS_PER_S.name): Target(Side.AT_LEAST, 3.0),
    ("scheduled", ROWS_PER_CLIENT_CPU_S.name): Target(Side.AT_LEAST, 1.0),
}
TITLES = {"packed": "read a million, packed", "scheduled": "read a million, one row each"}
BY_CONNECTOR = "connector"
READ_ALL = "every read returned every message"
WORKED_ALL = "every job settled every message of its queue"
NONE_DIED = "the executors were the same from the first message to the last"
PLANNED_ALL = "every plan covered the backlog, and nothing that was settled"
EACH_ONE_WAY = "each message went either to the job or to the consumer, once"


def measure(plan: Plan) -> Results:
    """The parts that are wanted."""
    usual = PARTS if plan.quick else tuple(part for part in PARTS if part != LARGE)
    wanted = [part for part in PARTS if part in (plan.only or usual)]
    if set(wanted) & set(READS):
        connector_jars()
    results = Results()
    deadline = time.monotonic() + TOTAL_S_MAX
    with Servers(KEYSPACE, (ROWS,), profile=plan.server_profile) as servers:
        _make_queues(servers)
        for part in wanted:
            if time.monotonic() > deadline:
                results.left_out.append(part)
            elif part in READS:
                results.cases.append(_read(servers, plan, part, deadline))
            elif part == LARGE:
                results.cases.append(measure_large(servers, plan))
            elif part == PLANNING:
                results.cases += measure_planning(servers, plan, deadline)
            elif part == CONSUMER:
                results.cases.append(measure_consumer(servers, plan, deadline))
            else:
                results.cases.append(measure_job(servers, plan, part, deadline))
    measured = {case.part for case in results.cases}
    lines = (
        (READ_ALL, READS),
        (WORKED_ALL, (*JOBS, LARGE)),
        (EACH_ONE_WAY, (CONSUMER,)),
        (PLANNED_ALL, (PLANNING,)),
        (NONE_DIED, (LARGE,)),
    )
    results.checked += [what for what, parts in lines if measured & set(parts)]
    return results


def _read(servers: Servers, plan: Plan, part: str, deadline: float) -> Measured:
    messages = MESSAGES // 50 if plan.quick else MESSAGES
    client = servers.client(KIND, READING)
    works = {
        name: Work(read, messages, READ_WITHIN_S)
        for name, read in ((part, Read(part)), (BY_CONNECTOR, Read.CONNECTOR))
    }
    with progress.step(f"{part}: putting the messages to read", expect_s=90):
        for work in works.values():
            client.prepare(work.job(), within_s=PREPARE_WITHIN_S)

    def take(name: str) -> Window:
        return take_window(name, {client: works[name].job()}, [servers.at(KIND).pid])

    with progress.step(f"{part}: reading", expect_s=60):
        rounds = take_rounds(
            plan.run,
            TITLES[part],
            tuple(works),
            take,
            rounds=min(plan.rounds, 3),
            time_is_up=lambda: time.monotonic() > deadline,
        )
    figures = [
        replace(figure, target=TARGETS.get((part, figure.metric)))
        for figure in figures_of(rounds, METRICS, part, BY_CONNECTOR)
    ]
    return Measured(rounds, tuple(figures), part=part)


def _make_queues(servers: Servers) -> None:
    """By `headgate apply`."""
    environment = {**os.environ, **servers.at(KIND).environment}
    environment["PYTHONPATH"] = os.pathsep.join(str(ROOT / folder) for folder in ("workers", "."))
    with tempfile.TemporaryDirectory() as folder, progress.step("creating queues", expect_s=8):
        file = Path(folder) / "queues.yaml"
        file.write_text("\n---\n".join((QUEUES, JOB_QUEUES, PLANNED_QUEUES)), encoding="utf-8")
        done = subprocess.run(
            [sys.executable, "-m", "headgate.cli.main", "apply", str(file)],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
    if done.returncode != 0:
        raise Bug("the queues could not be created", cause=done.stderr.strip()[-500:])
