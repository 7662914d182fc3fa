"""How long a driver plans where ten times as much was put and settled before: equally long, if settled messages cost
it nothing. Both queues have the same backlog, and parts are of a second, so that there are many of them.

Only planning is timed, in one process: Spark's overhead does not depend on the queue.
"""

from __future__ import annotations

import time
from dataclasses import replace

from bench.figure import Side, Target
from bench.measurement import Measured, Plan, figures_of
from bench.rounds import P50_MS, P99_MS, Window, take_rounds
from bench.servers import ServerKind, Servers
from bench.spark_planning_work import OLD, PART_S, TIMES_OLDER, YOUNG, Planning, What
from bench.window import take_window
from headgate.local import progress

PLANNING = "bench.spark_planning_working"
KIND = ServerKind()
PART = "planning"
HISTORY_PARTS = 6
PREPARE_WITHIN_S = 240.0
METRICS = (P50_MS, P99_MS)
TARGET = Target(Side.AT_MOST, 1.2)
"""Of the median: a p99 of some hundred plans is one pause of the machine."""


def measure_planning(servers: Servers, plan: Plan, deadline: float) -> list[Measured]:
    """A case for each kind of plan, in turns: the old queue compared with the young one."""
    young = 1 if plan.quick else HISTORY_PARTS
    parts = {YOUNG: young, OLD: young * TIMES_OLDER}
    client = servers.client(KIND, PLANNING)
    with progress.step(
        f"planning: {sum(parts.values())} parts of history", expect_s=sum(parts.values()) * PART_S + 15
    ):
        for name, count in parts.items():
            client.prepare(Planning(name, history_parts=count).job(), within_s=PREPARE_WITHIN_S)
        for name in parts:  # at the same time, since recent messages have parts behind them that may still be filled
            client.prepare(Planning(name).job(), within_s=PREPARE_WITHIN_S)
    measured = []
    for what in What:

        def take(name: str, what: What = what) -> Window:
            job = Planning(name, what, plan.seconds).job()
            return take_window(name, {client: job}, [servers.at(KIND).pid])

        title = f"plan a {what.value} with {parts[OLD]} parts of history"
        with progress.step(f"planning: a {what.value}", expect_s=4 * plan.seconds * plan.rounds):
            rounds = take_rounds(
                plan.run,
                title,
                (OLD, YOUNG),
                take,
                rounds=plan.rounds,
                time_is_up=lambda: time.monotonic() > deadline,
            )
        figures = [
            replace(figure, target=TARGET if figure.metric == P50_MS.name else None)
            for figure in figures_of(rounds, METRICS, OLD, YOUNG)
        ]
        measured.append(Measured(rounds, tuple(figures), part=PART))
    return measured
