"""bench-timeline's part lanes: a process that holds empty lanes, compared with one that holds a single one.

Its CPU, its statements, the time until it holds all of them, and the longest turn of its event loop. The driver and
its threads are within the CPU, as in a worker.
"""

from __future__ import annotations

import time
from dataclasses import replace

from bench.figure import Figure, Of, Side, Target
from bench.measurement import Measured, Plan, Results, figures_of
from bench.rounds import Metric, Window, take_rounds
from bench.servers import ServerKind, Servers
from bench.timeline_work import Do, Work, new_queue
from bench.window import take_window
from headgate.local import progress

HOLDING = "bench.timeline_holding"
ONE = 1
MANY, QUICK_MANY = (12, 100, 1_000), (12, 100)
SECONDS, QUICK_SECONDS = 12.0, 3.0
PREPARE_WITHIN_S = 120.0
ROUNDS_MAX = 3

CPU = Metric("share of a core", "%", lambda window: 100 * window.clients_cpu_s / window.span_s)
STATEMENTS = Metric("statements per second", "/s", lambda window: window.rows / window.wall_s)
TAKEN_MS = Metric("time to take all lanes", "ms", lambda window: window.p50_ms)
TURN_MS = Metric("longest turn of the event loop, in CPU time", "ms", lambda window: window.p99_ms)
METRICS = (CPU, STATEMENTS, TAKEN_MS, TURN_MS)
TARGETS = {
    (1_000, CPU.name): Target(Side.AT_MOST, 8, Of.VALUE),
    (1_000, TAKEN_MS.name): Target(Side.AT_MOST, 5_000, Of.VALUE),
    (1_000, TURN_MS.name): Target(Side.AT_MOST, 50, Of.VALUE),
}


def name_of(lanes: int) -> str:
    """A contender."""
    return f"{lanes:,} empty lanes" if lanes > 1 else "one empty lane"


def measure_lanes(servers: Servers, kind: ServerKind, plan: Plan, results: Results, deadline: float) -> None:
    """The whole part."""
    seconds = QUICK_SECONDS if plan.quick else SECONDS
    many = QUICK_MANY if plan.quick else MANY
    by_name = {name_of(lanes): lanes for lanes in (*many, ONE)}

    def take(name: str) -> Window:
        work = Work(Do.HOLD, new_queue(), seconds, lanes=by_name[name])
        client = servers.client(kind, HOLDING, name)
        client.prepare(work.job(), within_s=PREPARE_WITHIN_S)
        return take_window(name, {client: work.job()}, [servers.at(kind).pid])

    count = min(plan.rounds, ROUNDS_MAX)
    with progress.step("lanes: processes without messages", expect_s=count * len(by_name) * (seconds + 12)):
        rounds = take_rounds(
            plan.run,
            "empty lanes",
            tuple(by_name),
            take,
            rounds=count,
            time_is_up=lambda: time.monotonic() > deadline,
        )
    figures: list[Figure] = []
    for lanes in many:
        for figure in figures_of(rounds, METRICS, name_of(lanes), name_of(ONE), case=name_of(lanes)):
            figures.append(replace(figure, target=TARGETS.get((lanes, figure.metric))))
    results.cases.append(Measured(rounds, tuple(figures), part="lanes"))
