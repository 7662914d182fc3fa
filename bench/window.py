"""One window: clients work at the same time, and the use of the CPU by them, Cassandra and all others is measured.

Where several clients work, rows are their sum, time is the longest, percentiles are the worst of them.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from bench.client_process import ClientProcess
from bench.contender import Job
from bench.cpu import grown_by, read_cpu_s
from bench.machine import read_machine_cpu
from bench.rounds import Window
from headgate.errors import Unavailable

SLACK_S = 60.0
"""How much longer than its job a client may take before it counts as hung: requests have time limits of their own."""


def take_window(
    contender: str, jobs: Mapping[ClientProcess, Job], cassandra_pids: list[int], *, aside_pids: Sequence[int] = ()
) -> Window:
    """Measure one; only the time between the clients' start and their end counts. Concurrent work of the case is
    neither theirs nor others' use of the machine."""
    client_pids = [client.pid for client in jobs]
    began = time.perf_counter()
    machine_before = read_machine_cpu()
    before = read_cpu_s([*client_pids, *cassandra_pids, *aside_pids])
    for client, job in jobs.items():
        client.begin(job)
    ran = [client.end(within_s=float(job["seconds"]) + SLACK_S) for client, job in jobs.items()]
    used = grown_by(before, read_cpu_s(list(before)))
    machine = read_machine_cpu()
    span_s = time.perf_counter() - began
    lines = [client.report(within_s=SLACK_S) for client in jobs]
    if not sum(one.rows for one in ran):
        raise Unavailable("a window without any work", contender=contender, failed=sum(one.failed for one in ran))
    return Window(
        contender=contender,
        wall_s=max(one.wall_s for one in ran),
        span_s=span_s,
        rows=sum(one.rows for one in ran),
        requests=sum(one.requests for one in ran),
        failed=sum(one.failed for one in ran),
        clients_cpu_s=sum(used[pid] for pid in client_pids),
        cassandra_cpu_s=sum(used[pid] for pid in cassandra_pids),
        others_cpu_s=machine.busy_s - machine_before.busy_s - sum(used.values()),
        stolen_cpu_s=machine.stolen_s - machine_before.stolen_s,
        p50_ms=max(one.p50_ms for one in lines),
        p99_ms=max(one.p99_ms for one in lines),
    )
