"""The part `depth` of bench-timeline: whether receives slow down with past messages, or with scheduled ones.

Three queues with tables of their own: one that a thousand messages have passed, one that five million have, and one
that a thousand have, with a million scheduled for later. In each round each gets the same backlog, which its consumer
reads and then drains. The server's reads for it are traced: rows, partitions, tombstones. The consumer's memory is
measured after the first million and after the last.
"""

# ruff: noqa: S608 - the ids are the server's own
from __future__ import annotations

import re
import time
import uuid
from collections.abc import Iterable
from dataclasses import dataclass, replace

from bench.client_process import ClientProcess
from bench.contender import Job
from bench.figure import Figure, Series, Side, Target
from bench.machine import read_memory_mb
from bench.measurement import Measured, Plan, Results, figures_of
from bench.rounds import P50_MS, P99_MS, Rounds, Window, order_of_round
from bench.servers import Running, ServerKind, Servers
from bench.timeline_work import SECOND_US, Do, Work, new_queue, tables_of
from bench.window import take_window
from headgate.errors import Bug
from headgate.local import progress
from headgate.store.model.table import Table

OURS = "bench.timeline_headgate"
KIND = ServerKind()
PREPARE_WITHIN_S = 60.0
LONGEST_S = 600.0
LAG_S = 1.3
"""Longer than the safety lag: by then all of a backlog is due."""
HOUR_US = 3_600 * SECOND_US
TRACED_ROWS = 64
"""Sixteen rows in each lane, put one after the other so that none is shared."""
TRACE_WITHIN_S = 30.0
MINUTE_S = 60
READ = re.compile(r"Read (\d+) live rows and (\d+) tombstone cells")

TARGETS = {P50_MS.name: Target(Side.AT_MOST, 1.2), P99_MS.name: Target(Side.AT_MOST, 1.5)}
MEMORY_TARGET = Target(Side.AT_MOST, 1.1)


@dataclass(frozen=True)
class DeepQueue:
    """One of the three queues."""

    name: str
    passed: int
    scheduled: int
    queue: str
    creation: str

    def work(self, do: Do, **more: int | bool) -> Work:
        """A run on it; its consumer keeps its lanes."""
        base = Work(do, self.queue, LONGEST_S, creation=self.creation, keeps=do not in (Do.PUT,))
        return replace(base, **more)  # type: ignore[arg-type]  # names are checked by the dataclass


@dataclass(frozen=True)
class Depth:
    """How deep, and how much is drained in a round."""

    few: DeepQueue
    many: DeepQueue
    ahead: DeepQueue
    first: int
    """The consumer's memory is measured after this many, and at the end."""
    backlog: int
    slices: int

    @classmethod
    def of(cls, plan: Plan) -> Depth:
        """As the plan has time."""
        few, many, ahead = (1_000, 60_000, 10_000) if plan.quick else (1_000, 5_000_000, 1_000_000)
        return cls(
            _queue(f"after {few:,}", few, 0),
            _queue(f"after {many:,}", many, 0),
            _queue(f"after {few:,}, {ahead:,} scheduled", few, ahead),
            first=many // 5,
            backlog=8_000 if plan.quick else 80_000,
            slices=25,
        )

    @property
    def queues(self) -> tuple[DeepQueue, ...]:
        """All three."""
        return self.few, self.many, self.ahead

    @property
    def tables(self) -> list[Table]:
        """Those of all three."""
        return [table for queue in self.queues for table in vars(tables_of(queue.creation)).values()]


def _queue(name: str, passed: int, scheduled: int) -> DeepQueue:
    return DeepQueue(name, passed, scheduled, new_queue(), uuid.uuid4().hex)


def measure_depth(depth: Depth, servers: Servers, plan: Plan, results: Results, deadline: float) -> None:
    """The whole part."""
    deep = _Deep(depth, servers)
    with progress.step(f"{depth.many.passed:,} messages pass", expect_s=depth.many.passed / 30_000):
        memory = deep.fill()
    with progress.step("depth: receive and slices", expect_s=plan.rounds * 3 * 6):
        receives, slices = deep.rounds(plan, deadline)
    figures = [*_figures("receive of 100", receives, depth), *_figures("a slice of a lane", slices, depth)]
    figures.append(_memory_figure(plan.run, depth, memory))
    with progress.step("depth: what the server reads, traced", expect_s=40):
        results.checked.append(deep.trace())
    results.cases.append(Measured(receives, tuple(figures), part="depth"))
    results.cases.append(Measured(slices, (), part="depth"))


def _figures(case: str, rounds: Rounds, depth: Depth) -> list[Figure]:
    made = []
    for queue in (depth.many, depth.ahead):
        of_case = figures_of(rounds, (P50_MS, P99_MS), queue.name, depth.few.name, case=f"{case}, {queue.name}")
        made += [replace(figure, target=TARGETS[figure.metric]) for figure in of_case]
    return made


def _memory_figure(run: str, depth: Depth, memory: tuple[float, float]) -> Figure:
    at_first, at_last = memory
    return Figure(
        case="a consumer's memory",
        metric="resident",
        unit="MB",
        ours=Series(run, depth.many.name, (at_last,)),
        baseline=Series(run, f"after {depth.first:,}", (at_first,)),
        target=MEMORY_TARGET,
    )


class _Deep:
    """The three queues, filled."""

    def __init__(self, depth: Depth, servers: Servers) -> None:
        self._depth = depth
        self._server = servers.at(KIND)
        self._producer = servers.client(KIND, OURS, "producer")
        self._consumers = {queue: servers.client(KIND, OURS, queue.name) for queue in depth.queues}

    def fill(self) -> tuple[float, float]:
        """Let messages pass, schedule others; the memory of the deep queue's consumer after the first and the last
        of them, in MB."""
        for queue in (self._depth.few, self._depth.ahead):
            self._pass(queue, queue.passed)
        many = self._depth.many
        self._pass(many, self._depth.first)
        at_first = read_memory_mb(self._consumers[many].pid)
        self._pass(many, many.passed - self._depth.first)
        at_last = read_memory_mb(self._consumers[many].pid)
        ahead = self._depth.ahead
        put = ahead.work(Do.PUT, messages_max=ahead.scheduled, callers=20, batch=100, delay_us=HOUR_US)
        self._run(ahead, {self._producer: put})
        return at_first, at_last

    def _pass(self, queue: DeepQueue, messages: int) -> None:
        put = queue.work(Do.PUT, messages_max=messages, callers=10, batch=100, baseline_name=True)
        consume = queue.work(Do.CONSUME, messages_max=messages, callers=8, batch=100)
        self._run(queue, {self._producer: put, self._consumers[queue]: consume})

    def rounds(self, plan: Plan, deadline: float) -> tuple[Rounds, Rounds]:
        """In each, the three queues one after the other: a backlog is put, slices of it are read, it is drained."""
        receives: dict[str, list[Window]] = {queue.name: [] for queue in self._depth.queues}
        slices: dict[str, list[Window]] = {queue.name: [] for queue in self._depth.queues}
        by_name = {queue.name: queue for queue in self._depth.queues}
        for number in range(plan.rounds):
            if number and time.monotonic() > deadline:
                break
            for name in order_of_round(list(by_name), number):
                queue = by_name[name]
                self._put(queue, self._depth.backlog, batch=100, callers=8)
                slices[name].append(self._consume(queue, Do.SLICES, batch=self._depth.slices))
                receives[name].append(self._consume(queue, Do.DRAIN, messages_max=self._depth.backlog, batch=100))
        return (
            Rounds(plan.run, "receive", {name: tuple(windows) for name, windows in receives.items()}),
            Rounds(plan.run, "slices", {name: tuple(windows) for name, windows in slices.items()}),
        )

    def _put(self, queue: DeepQueue, messages: int, *, batch: int, callers: int) -> None:
        put = queue.work(Do.PUT, messages_max=messages, callers=callers, batch=batch)
        self._run(queue, {self._producer: put})
        time.sleep(LAG_S)

    def _consume(self, queue: DeepQueue, do: Do, **more: int) -> Window:
        return self._run(queue, {self._consumers[queue]: queue.work(do, **more)})

    def _run(self, queue: DeepQueue, works: dict[ClientProcess, Work]) -> Window:
        for client, work in works.items():
            client.prepare(work.job(), within_s=PREPARE_WITHIN_S)
        jobs: dict[ClientProcess, Job] = {client: work.job() for client, work in works.items()}
        return take_window(queue.name, jobs, [self._server.pid])

    # ---- the server's reads

    def trace(self) -> str:
        """The same rows are put into each queue and read; the server's work for it has to be the same."""
        observed = {queue: self._traced(queue) for queue in self._depth.queues}
        reads = set(observed.values())
        if len(reads) != 1 or any(each.tombstones for each in reads):
            output = "; ".join(f"{queue.name}: {each}" for queue, each in observed.items())
            raise Bug("read cost depends on history or on the future", traced=output)
        return f"traced: a read of each lane took {next(iter(reads))} in each of the three queues"

    def _traced(self, queue: DeepQueue) -> Reads:
        _wait_for_a_whole_minute()
        self._put(queue, TRACED_ROWS * 100, batch=100, callers=1)
        nodetool = self._server.cassandra.node.nodetool
        table = tables_of(queue.creation).work.name
        before = _sessions(self._server, table)
        nodetool("settraceprobability", "1")
        try:
            self._consume(queue, Do.SLICES, batch=1)
        finally:
            nodetool("settraceprobability", "0")
        reads = _reads(self._server, before, table)
        self._consume(queue, Do.DRAIN, messages_max=TRACED_ROWS * 100, batch=100)
        return reads


@dataclass(frozen=True)
class Reads:
    """The server's reads for the slices of all lanes."""

    partitions: int
    rows: int
    tombstones: int

    def __str__(self) -> str:
        return f"{self.rows} rows of {self.partitions} partitions and {self.tombstones} tombstones"


def _wait_for_a_whole_minute() -> None:
    """Messages that are put and read at the same time are in one part: the same number of partitions for all."""
    late_s = time.time() % MINUTE_S
    if late_s > MINUTE_S * 2 / 3:
        time.sleep(MINUTE_S - late_s + 2)


def _sessions(server: Running, table: str) -> set[str]:
    """The traces that are kept of requests that name a table."""
    rows = server.cassandra.cql("SELECT session_id, parameters FROM system_traces.sessions")
    return {str(row["session_id"]) for row in rows if table in str(row["parameters"])}


def _reads(server: Running, before: set[str], table: str) -> Reads:
    """The reads of a table since then that returned rows, and all tombstones that they met. A trace is written
    slightly after its request."""
    until = time.monotonic() + TRACE_WITHIN_S
    last: list[tuple[int, int]] | None = None
    while True:
        time.sleep(2)
        matches = list(_reads_of(server, _sessions(server, table) - before))
        if matches and matches == last:
            break
        if time.monotonic() > until:
            raise Bug("no read was traced", table=table)
        last = matches
    return Reads(
        sum(1 for live, _ in matches if live), sum(live for live, _ in matches), sum(dead for _, dead in matches)
    )


def _reads_of(server: Running, sessions: Iterable[str]) -> Iterable[tuple[int, int]]:
    for session in sorted(sessions):
        events = server.cassandra.cql(f"SELECT activity FROM system_traces.events WHERE session_id = {session}")
        for event in events:
            read = READ.search(str(event["activity"]))
            if read:
                yield int(read[1]), int(read[2])
