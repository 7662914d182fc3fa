"""bench-counters: the cost of counting compared with native counter columns of the same Cassandra, in the same run.

Parts, each of which can be measured by itself (`--only`):
- hot: one key and a thousand callers in one process;
- keys: ten thousand keys at random, ten thousand updates in flight;
- ambiguous: a million increments, of which one request in twenty is not answered, done or not;
- read: a key that twenty mutators count, compared with a bare slice of twenty rows;
- collect: a hundred thousand keys, two final shards of each, and the memory that it takes.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

from bench.baseline import distances
from bench.counters_work import CounterWork, Do, new_counter, tables
from bench.figure import Figure, Of, Series, Side, Target
from bench.known import PEERS
from bench.measurement import Measured, Plan, Results, figures_of
from bench.rounds import (
    CASSANDRA_US,
    CLIENT_US,
    P50_MS,
    P99_MS,
    ROWS_PER_CPU_S,
    ROWS_PER_S,
    Metric,
    Window,
    take_rounds,
)
from bench.servers import ServerKind, Servers
from bench.store_work import KEYSPACE
from bench.window import take_window
from headgate.local import progress

OURS, NATIVE = "bench.counters_headgate", "bench.counters_native"
OURS_NAME, NATIVE_NAME, SLICE_NAME = "headgate", "counter columns", "a bare slice of 20 rows"
KIND = ServerKind()
PARTS = ("hot", "keys", "ambiguous", "read", "collect")
TOTAL_S_MAX = 600.0
PREPARE_WITHIN_S = 120.0
LONGEST_S = 60.0
AMBIGUOUS_S_MAX = 180.0
"""All increments are to be made: each request without an answer holds those behind it up for a while."""
METRICS = (ROWS_PER_S, ROWS_PER_CPU_S, CLIENT_US, CASSANDRA_US, P50_MS, P99_MS)
AMBIGUOUS_SHARE = 0.05


@dataclass(frozen=True)
class Case:
    """Counting: the number of keys and callers, and the target of each quantity."""

    part: str
    title: str
    keys: int
    in_flight: int
    native_in_flight: int
    promised: tuple[tuple[Metric, Target], ...]


CASES = {
    "hot": Case(
        "hot", "one hot key, 1,000 callers", 1, 1_000, 256, ((ROWS_PER_S, Target(Side.AT_LEAST, 100_000, Of.VALUE)),)
    ),
    "keys": Case(
        "keys",
        "10,000 keys, 10,000 updates in flight",
        10_000,
        10_000,
        256,
        ((ROWS_PER_CPU_S, Target(Side.AT_LEAST, 10.0)),),
    ),
}
KNOWN = {"hot": PEERS["counter columns, one hot key"], "keys": PEERS["counter columns, 10,000 keys"]}
EXACT = Target(Side.AT_MOST, 0, Of.VALUE)
READ_TARGET = Target(Side.AT_MOST, 1.5)
MEMORY_TARGET = Target(Side.AT_MOST, 2.0)
"""Ten times the keys, and not twice the memory."""


def measure(plan: Plan) -> Results:
    """The parts that are wanted."""
    wanted = plan.only or PARTS
    results = Results()
    deadline = time.monotonic() + TOTAL_S_MAX
    with Servers(KEYSPACE, tables(), profile=plan.server_profile) as servers:
        bench = _Bench(servers, plan, results, deadline)
        bench.warm_up()
        for part in (part for part in PARTS if part in wanted):
            if time.monotonic() > deadline:
                results.left_out.append(part)
            else:
                bench.measure(part)
    results.checked.append("after each run a fresh reader read every acknowledged increment, and no other")
    return results


class _Bench:
    """All parts."""

    def __init__(self, servers: Servers, plan: Plan, results: Results, deadline: float) -> None:
        self._servers = servers
        self._plan = plan
        self._results = results
        self._deadline = deadline

    def warm_up(self) -> None:
        """The server's JIT compiles the code of the later work."""
        if not self._plan.server_warm_up_cpu_s:
            return
        used_s, until = 0.0, time.monotonic() + self._plan.server_warm_up_s_max
        with progress.step("warming up Cassandra", expect_s=self._plan.server_warm_up_cpu_s):
            while used_s < self._plan.server_warm_up_cpu_s and time.monotonic() < until:
                for case in CASES.values():
                    for name in (OURS_NAME, NATIVE_NAME):
                        used_s += self._count_window(case, name, 1.0).cassandra_cpu_s

    def measure(self, part: str) -> None:
        """One part."""
        if part in CASES:
            self._count(CASES[part])
        elif part == "ambiguous":
            self._ambiguous()
        elif part == "read":
            self._read()
        else:
            self._collect()

    def _window(self, name: str, work: CounterWork, *, role: str = "") -> Window:
        module = OURS if name == OURS_NAME else NATIVE
        client = self._servers.client(KIND, module, role)
        client.prepare(work.job(), within_s=PREPARE_WITHIN_S)
        return take_window(name, {client: work.job()}, [self._servers.at(KIND).pid])

    # ---- counting

    def _count_window(self, case: Case, name: str, seconds: float) -> Window:
        in_flight = case.in_flight if name == OURS_NAME else case.native_in_flight
        return self._window(name, CounterWork(Do.COUNT, new_counter(), seconds, case.keys, in_flight))

    def _count(self, case: Case) -> None:
        seconds = self._plan.seconds * 2
        names = (OURS_NAME, NATIVE_NAME)
        with progress.step(case.title, expect_s=2 * self._plan.rounds * (seconds + 1)):
            rounds = take_rounds(
                self._plan.run,
                case.title,
                names,
                lambda name: self._count_window(case, name, seconds),
                rounds=self._plan.rounds,
                time_is_up=lambda: time.monotonic() > self._deadline,
            )
        promised = {metric.name: target for metric, target in case.promised}
        figures = [
            replace(figure, target=promised.get(figure.metric))
            for figure in figures_of(rounds, METRICS, OURS_NAME, NATIVE_NAME)
        ]
        known = distances(rounds, NATIVE_NAME, KNOWN[case.part])
        self._results.cases.append(Measured(rounds, tuple(figures), tuple(known), case.part))

    # ---- lost answers

    def _ambiguous(self) -> None:
        """Ours in full; of counter columns as many as time allows, and their error reckoned for as many."""
        updates = 20_000 if self._plan.quick else 1_000_000
        sample = updates // 10
        with progress.step("increments, one request in twenty not answered", expect_s=45):
            ours = self._errors_of(OURS_NAME, updates, 1_000)
            native = self._errors_of(NATIVE_NAME, sample, 256) * updates / sample
        figure = Figure(
            case=f"{updates:,} increments, one request in twenty not answered",
            metric="counted too often or not at all",
            unit="increments",
            ours=Series(self._plan.run, OURS_NAME, (ours,)),
            baseline=Series(self._plan.run, f"{NATIVE_NAME}, sent again", (native,)),
            target=EXACT,
        )
        self._results.cases.append(Measured(None, (figure,), (), "ambiguous"))

    def _errors_of(self, name: str, updates: int, in_flight: int) -> float:
        module = OURS if name == OURS_NAME else NATIVE
        client = self._servers.client(KIND, module)
        work = CounterWork(
            Do.COUNT, new_counter(), AMBIGUOUS_S_MAX, 100, in_flight, updates_max=updates, ambiguous=AMBIGUOUS_SHARE
        )
        client.prepare(work.job(), within_s=PREPARE_WITHIN_S)
        client.begin(work.job())
        ran = client.end(within_s=2 * AMBIGUOUS_S_MAX)
        if ran.rows < updates * 0.99:
            self._results.left_out.append(f"ambiguous: {ran.rows:,} of {updates:,} in time")
        return float(client.report(within_s=LONGEST_S).receipts_checked)

    # ---- reading

    def _read(self) -> None:
        seconds = self._plan.seconds * 2
        work = CounterWork(Do.READ, new_counter(), seconds, in_flight=2)
        ours = self._servers.client(KIND, OURS)
        ours.prepare(work.job(), within_s=PREPARE_WITHIN_S)
        bare = self._servers.client(KIND, NATIVE)

        def take(name: str) -> Window:
            client = ours if name == OURS_NAME else bare
            return take_window(name, {client: work.job()}, [self._servers.at(KIND).pid])

        names = (OURS_NAME, SLICE_NAME)
        with progress.step("a key of 20 live mutators", expect_s=2 * self._plan.rounds * seconds):
            for name in names:
                take(name)
            rounds = take_rounds(
                self._plan.run,
                "a key of 20 live mutators",
                names,
                take,
                rounds=self._plan.rounds,
                time_is_up=lambda: time.monotonic() > self._deadline,
            )
        figures = [
            replace(figure, target=READ_TARGET if figure.metric == P99_MS.name else None)
            for figure in figures_of(rounds, (P99_MS, P50_MS, CLIENT_US, CASSANDRA_US), OURS_NAME, SLICE_NAME)
        ]
        self._results.cases.append(Measured(rounds, tuple(figures), (), "read"))

    # ---- collecting

    def _collect(self) -> None:
        """Each in a process that has done nothing before."""
        many = 2_000 if self._plan.quick else 100_000
        few = many // 10
        with progress.step(f"collecting {many:,} keys", expect_s=90):
            walls, peaks = {}, {}
            for keys in (few, many):
                client = self._servers.client(KIND, OURS, f"collector of {keys}")
                work = CounterWork(Do.COLLECT, new_counter(), LONGEST_S, keys)
                client.prepare(work.job(), within_s=PREPARE_WITHIN_S)
                client.begin(work.job())
                walls[keys] = client.end(within_s=5 * LONGEST_S).wall_s
                peaks[keys] = client.report(within_s=LONGEST_S).receipts_checked / 1024
        run = self._plan.run
        case, others = f"collecting {many:,} keys, two shards each", f"{few:,} keys"
        figures = (
            Figure(
                case=case,
                metric="memory beyond the initial",
                unit="MB",
                ours=Series(run, f"{many:,} keys", (peaks[many],)),
                baseline=Series(run, others, (peaks[few],)),
                target=None if self._plan.quick else MEMORY_TARGET,  # a quick run does not fill one page
            ),
            Figure(
                case=case,
                metric="keys per second",
                unit="/s",
                ours=Series(run, f"{many:,} keys", (many / walls[many],)),
                baseline=Series(run, others, (few / walls[few],)),
            ),
        )
        self._results.cases.append(Measured(None, figures, (), "collect"))
