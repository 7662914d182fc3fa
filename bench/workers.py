"""bench-workers: the cost of the SDK and the worker runtime on top of the engine, whether lanes wait for each other,
and the cost of an idle worker.

Parts, each of which can be measured by itself (`--only`):
- path: put by the SDK, handled by an empty handler and settled by `headgate worker`, compared with bench-timeline's
  own put, receive and acknowledge in the same rounds;
- lanes: the longest wait of a lane of 96 on one worker, compared with four lanes;
- idle: a worker with 12 empty lanes, compared with one with a single lane at the same time.
"""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from bench.client_process import ROOT, ClientProcess
from bench.contender import Job
from bench.cpu import children_of, grown_by, read_cpu_s
from bench.figure import Figure, Of, Series, Side, Target
from bench.machine import read_memory_mb
from bench.measurement import Measured, Plan, Results, figures_of
from bench.rounds import (
    CASSANDRA_US,
    CLIENT_US,
    ROWS_PER_CPU_S,
    ROWS_PER_S,
    Metric,
    Rounds,
    Window,
    take_rounds,
)
from bench.servers import ServerKind, Servers
from bench.store_work import KEYSPACE
from bench.timeline_work import WORKERS_VISIBILITY_US, Do, new_queue, shared
from bench.timeline_work import Work as EngineWork
from bench.window import take_window
from bench.workers_work import Handling, QueueSpec, Work, documents
from headgate.errors import Bug
from headgate.local import progress

ENGINE, PUTTING, HANDLING = "bench.timeline_headgate", "bench.workers_putting", "bench.workers_handling"
KIND = ServerKind()
PARTS = ("path", "lanes", "idle")
TOTAL_S_MAX = 300.0
PREPARE_WITHIN_S = 90.0
APPLY_WITHIN_S = 120.0
LONGEST_S = 60.0
CALLERS = 1_000

PATH_METRICS = (ROWS_PER_S, CLIENT_US, CASSANDRA_US, ROWS_PER_CPU_S)
WORST_LANE_MS = Metric("longest wait of the worst lane", "ms", lambda window: window.p99_ms)
MIDDLE_LANE_MS = Metric("longest wait of the middle lane", "ms", lambda window: window.p50_ms)
LANES_METRICS = (WORST_LANE_MS, MIDDLE_LANE_MS, ROWS_PER_S)

BY_WORKER, BY_ENGINE = "SDK and worker", "bench-timeline's path"
PATH_MESSAGES = 250_000
PATH_TARGET = Target(Side.AT_LEAST, 0.8)
WAIT_TARGET = Target(Side.AT_MOST, 1_000, Of.VALUE)

IDLE_LANES = (12, 1)
IDLE_S = 35.0
SETTLES_S = 12.0
IDLE_CPU_TARGET = Target(Side.AT_MOST, 3.0, Of.VALUE)
IDLE_MB_TARGET = Target(Side.AT_MOST, 80, Of.VALUE)


@dataclass(frozen=True)
class Drain:
    """A contender of the part lanes."""

    name: str
    lanes: int
    handling: Handling
    messages: int
    callers: int
    """Concurrent puts share a row, and rows go to lanes in turn: few callers, many rows per lane."""


MANY = (
    Drain("96 lanes, handler at once", 96, Handling.AT_ONCE, 60_000, 120),
    Drain("96 lanes, handler of 10 ms", 96, Handling.SLOWLY, 4_000, 10),
)
FEW = Drain("4 lanes, handler at once", 4, Handling.AT_ONCE, 60_000, 120)


def measure(plan: Plan) -> Results:
    """The parts that are wanted."""
    wanted = plan.only or PARTS
    results = Results()
    deadline = time.monotonic() + TOTAL_S_MAX
    with Servers(KEYSPACE, shared(), profile=plan.server_profile) as servers:
        bench = _Bench(servers, plan, results, deadline)
        for part in (part for part in PARTS if part in wanted):
            if time.monotonic() > deadline:
                results.left_out.append(part)
            else:
                bench.measure(part)
    return results


class _Bench:
    """All parts."""

    def __init__(self, servers: Servers, plan: Plan, results: Results, deadline: float) -> None:
        self._servers = servers
        self._plan = plan
        self._results = results
        self._deadline = deadline
        self._queues: dict[int, list[QueueSpec]] = {}

    def measure(self, part: str) -> None:
        """One part."""
        if part == "path":
            self._path()
        elif part == "lanes":
            self._lanes()
        else:
            self._idle()

    # ---- path

    def _path(self) -> None:
        messages = PATH_MESSAGES // 20 // CALLERS * CALLERS if self._plan.quick else PATH_MESSAGES
        self._make_queues({4: 2 * self._plan.rounds + 20})
        self._warm_up(messages // 5 // CALLERS * CALLERS)

        def take(name: str) -> Window:
            return self._engine_window(messages) if name == BY_ENGINE else self._path_window(messages)

        with progress.step("path: put, handle and settle", expect_s=self._plan.rounds * 2 * 12):
            rounds = self._take("put, handle and settle", (BY_WORKER, BY_ENGINE), take)
        figures = figures_of(rounds, PATH_METRICS, BY_WORKER, BY_ENGINE, case="put + handle + settle")
        figures = [
            replace(figure, target=PATH_TARGET if figure.metric == ROWS_PER_S.name else None) for figure in figures
        ]
        self._results.cases.append(Measured(rounds, tuple(figures), part="path"))
        self._results.checked.append("every message was handled, and every worker stopped cleanly")

    def _warm_up(self, messages: int) -> None:
        """The server's JIT compiles the code of the later work, and each kind of client has worked once."""
        used_s, until = 0.0, time.monotonic() + self._plan.server_warm_up_s_max
        with progress.step("warming up", expect_s=self._plan.server_warm_up_cpu_s):
            for window in itertools.cycle((self._engine_window, self._path_window)):
                if used_s >= self._plan.server_warm_up_cpu_s or time.monotonic() > until or not self._queues[4]:
                    return
                used_s += window(messages).cassandra_cpu_s

    def _path_window(self, messages: int) -> Window:
        work = Work(self._queues[4].pop().full_name, LONGEST_S, messages, 4)
        return self._worker_window(BY_WORKER, work)

    def _engine_window(self, messages: int) -> Window:
        """As bench-timeline takes it."""
        work = EngineWork(Do.PUT, new_queue(), LONGEST_S, messages_max=messages, callers=CALLERS)
        producer, consumer = (self._servers.client(KIND, ENGINE, role) for role in ("producer", "consumer"))
        consuming = replace(work, do=Do.CONSUME, callers=8, batch=100, visibility_us=WORKERS_VISIBILITY_US)
        works = {producer: replace(work, baseline_name=True), consumer: consuming}
        return self._window(BY_ENGINE, {client: work.job() for client, work in works.items()})

    # ---- lanes

    def _lanes(self) -> None:
        tenth = 10 if self._plan.quick else 1
        drains = {
            each.name: replace(each, messages=each.messages // tenth, callers=each.callers // tenth)
            for each in (*MANY, FEW)
        }
        rounds_max = min(self._plan.rounds, 3)
        self._make_queues({96: len(MANY) * rounds_max, 4: rounds_max})

        def take(name: str) -> Window:
            drain = drains[name]
            queue = self._queues[drain.lanes].pop().full_name
            work = Work(queue, LONGEST_S, drain.messages, drain.lanes, drain.callers, drain.handling)
            return self._worker_window(name, work)

        with progress.step("lanes: the longest wait of each", expect_s=rounds_max * len(drains) * 9):
            rounds = self._take("the longest wait of a lane", tuple(drains), take, rounds=rounds_max)
        figures: list[Figure] = []
        for many in MANY:
            for figure in figures_of(rounds, LANES_METRICS, many.name, FEW.name, case=many.name):
                promised = WAIT_TARGET if figure.metric == WORST_LANE_MS.name else None
                figures.append(replace(figure, target=promised))
        self._results.cases.append(Measured(rounds, tuple(figures), part="lanes"))

    # ---- idle

    def _idle(self) -> None:
        """Both at the same time: the machine's changes affect both."""
        seconds = 3.0 if self._plan.quick else IDLE_S
        self._make_queues(dict.fromkeys(IDLE_LANES, 1))
        works = {}
        with progress.step("idle: workers without messages", expect_s=seconds + SETTLES_S + 8):
            for lanes in IDLE_LANES:
                client = self._servers.client(KIND, HANDLING, f"idle {lanes}")
                work = Work(self._queues[lanes].pop().full_name, seconds, 0, lanes)
                client.prepare(work.job(), within_s=PREPARE_WITHIN_S)
                works[lanes] = client, work, _worker_of(client)
            time.sleep(1.0 if self._plan.quick else SETTLES_S)
            before, began_s = read_cpu_s([pid for _, _, pid in works.values()]), time.perf_counter()
            time.sleep(seconds)
            used, wall_s = grown_by(before, read_cpu_s(list(before))), time.perf_counter() - began_s
            memory = {lanes: read_memory_mb(pid) for lanes, (_, _, pid) in works.items()}
            for client, work, _ in works.values():
                client.begin(replace(work, seconds=0.0).job())
                client.end(within_s=LONGEST_S)
                client.report(within_s=LONGEST_S)
        cpu = {lanes: max(used[pid], 1e-3) / wall_s * 100 for lanes, (_, _, pid) in works.items()}
        figures = (
            self._idle_figure("share of a core", "%", cpu, IDLE_CPU_TARGET),
            self._idle_figure("resident", "MB", memory, IDLE_MB_TARGET),
        )
        self._results.cases.append(Measured(None, figures, part="idle"))

    def _idle_figure(self, metric: str, unit: str, values: Mapping[int, float], target: Target) -> Figure:
        many, few = IDLE_LANES
        run = self._plan.run
        return Figure(
            case=f"an idle worker with {many} lanes",
            metric=metric,
            unit=unit,
            ours=Series(run, f"{many} lanes", (values[many],)),
            baseline=Series(run, f"{few} lane", (values[few],)),
            target=target,
        )

    # ---- all

    def _worker_window(self, name: str, work: Work) -> Window:
        putting = self._servers.client(KIND, PUTTING)
        handling = self._servers.client(KIND, HANDLING)
        return self._window(name, {putting: work.job(), handling: work.job()})

    def _window(self, name: str, jobs: Mapping[ClientProcess, Job]) -> Window:
        for client, job in jobs.items():
            client.prepare(job, within_s=PREPARE_WITHIN_S)
        return take_window(name, jobs, [self._servers.at(KIND).pid])

    def _take(
        self, case: str, names: Sequence[str], take: Callable[[str], Window], *, rounds: int | None = None
    ) -> Rounds:
        return take_rounds(
            self._plan.run,
            case,
            names,
            take,
            rounds=rounds or self._plan.rounds,
            time_is_up=lambda: time.monotonic() > self._deadline,
        )

    def _make_queues(self, wanted: Mapping[int, int]) -> None:
        """This many queues with this many lanes, by `headgate apply`."""
        made = {
            lanes: [QueueSpec(f"q{new_queue()[:12]}", lanes) for _ in range(count)] for lanes, count in wanted.items()
        }
        environment = {**os.environ, **self._servers.at(KIND).environment}
        environment["PYTHONPATH"] = os.pathsep.join(str(ROOT / folder) for folder in ("workers", "."))
        with tempfile.TemporaryDirectory() as folder, progress.step("creating queues", expect_s=8):
            file = Path(folder) / "queues.yaml"
            file.write_text(documents(queue for queues in made.values() for queue in queues), encoding="utf-8")
            done = subprocess.run(
                [sys.executable, "-m", "headgate.cli.main", "apply", str(file)],
                env=environment,
                capture_output=True,
                text=True,
                check=False,
                timeout=APPLY_WITHIN_S,
            )
        if done.returncode != 0:
            raise Bug("the queues could not be created", cause=done.stderr.strip()[-500:])
        self._queues = made


def _worker_of(client: ClientProcess) -> int:
    """The worker that a handling process has started."""
    children = children_of(client.pid)
    if len(children) != 1:
        raise Bug("a handling process has one worker", has=len(children))
    return children[0]
