"""bench-timeline: the cost of the timeline engine compared with the bare driver and with the loop that it descends
from.

Parts, each of which can be measured by itself (`--only`):
- put: messages per client CPU second, compared with bare unlogged batches of a hundred;
- once: puts with once keys, compared with the same puts without;
- json: single puts of dicts and of bytes, in the same rounds;
- path: put, receive and acknowledge, producer and consumer in separate processes, compared with the origin's loop;
- delivery: the lateness of messages at a thousand per second;
- tail: messages of 10 kB while one handler in a hundred runs on and on, compared with none that does;
- lanes: the cost of a process that holds 12, 100 or 1,000 empty lanes (`timeline_lanes.py`);
- depth: receiving after millions of messages, and with a million scheduled for later (`timeline_depth.py`);
- synced: put and path with a commit log that is synced before each answer, so nothing depends on its last seconds.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from bench.baseline import distances
from bench.client_process import ClientProcess
from bench.contender import Job
from bench.figure import Figure, Of, Side, Target
from bench.known import DRIVER, PEERS
from bench.measurement import Measured, Plan, Results, figures_of
from bench.rounds import (
    CASSANDRA_US,
    CLIENT_US,
    P50_MS,
    P99_MS,
    ROWS_PER_CLIENT_CPU_S,
    ROWS_PER_CPU_S,
    ROWS_PER_S,
    Metric,
    Rounds,
    Window,
    take_rounds,
)
from bench.servers import ServerKind, Servers
from bench.store_work import KEYSPACE, TABLES, RequestKind
from bench.timeline_depth import Depth, measure_depth
from bench.timeline_lanes import measure_lanes
from bench.timeline_origin import ORIGIN_TABLES
from bench.timeline_work import LANES, SECOND_US, WORKERS_VISIBILITY_US, Do, Form, Keys, Work, new_queue, shared
from bench.window import take_window
from headgate.local import progress

OURS, ORIGIN, DRIVER_ALONE = "bench.timeline_headgate", "bench.timeline_origin", "bench.store_driver"
USUAL, SYNCED = ServerKind(), ServerKind("batch")
PARTS = ("put", "once", "json", "path", "delivery", "tail", "lanes", "depth", "synced")
QUICK_PARTS = PARTS[:-1]
"""The last does nothing that the first two do not, on a second server."""
TOTAL_S_MAX = 1_500.0
PREPARE_WITHIN_S = 60.0
LONGEST_S = 60.0
HOUR_US = 3_600 * SECOND_US
CALLERS = 1_000
"""Of single messages; how many are put in all is a multiple of it."""

PUT_METRICS = (ROWS_PER_CLIENT_CPU_S, CLIENT_US, CASSANDRA_US, ROWS_PER_S, P50_MS, P99_MS)
PATH_METRICS = (ROWS_PER_S, CLIENT_US, CASSANDRA_US, ROWS_PER_CPU_S, P50_MS, P99_MS)
DELIVERY_METRICS = (P50_MS, P99_MS, CLIENT_US, CASSANDRA_US)


@dataclass(frozen=True)
class Puts:
    """A contender of the part put: the request for our messages."""

    name: str
    callers: int
    batch: int
    delay_us: int = 0
    target: Target | None = None
    keys: Keys | None = None


SINGLE = Puts("1,000 single callers", 1_000, 1, target=Target(Side.AT_LEAST, 1.8))
BATCHES = Puts("32 callers of 100", 32, 100, target=Target(Side.AT_LEAST, 4.0))
SCHEDULED = Puts("scheduled, 32 callers of 100", 32, 100, HOUR_US, Target(Side.AT_LEAST, 0.6))
SCHEDULED_SINGLE = Puts("scheduled, 1,000 single callers", 1_000, 1, HOUR_US)
PUTS = (SINGLE, BATCHES, SCHEDULED, SCHEDULED_SINGLE)
WITHOUT_KEYS = Puts("without keys, 32 callers of 100", 32, 100)
KEYED = (
    Puts("in scopes, 8 callers of 200", 8, 200, keys=Keys.SCOPED, target=Target(Side.AT_LEAST, 5_000, Of.VALUE)),
    Puts("8 callers of 50", 8, 50, keys=Keys.EACH),
    Puts("64 single callers", 64, 1, keys=Keys.EACH),
    Puts("put again in scopes, 8 callers of 200", 8, 200, keys=Keys.REPEATED),
    WITHOUT_KEYS,
)
BARE = "driver's batches of 100"
BARE_JOB: Job = {"kind": RequestKind.BATCH.value, "rows": 100, "in_flight": 16, "requests_max": 10**9}


FORMS = ((Form.TYPED, Form.BYTES), (Form.DICTS, Form.ENCODED))
"""Each is compared with the other, which does the same without the part of the SDK."""
AS_BYTES = Target(Side.AT_LEAST, 0.9)


@dataclass(frozen=True)
class Loop:
    """A contender that puts, receives and acknowledges this many messages per window."""

    name: str
    module: str
    messages: int
    delay_us: int = 0
    targets: tuple[Target, ...] = ()
    rate: int = 0
    """Puts per second; 0 is unlimited."""
    lanes: int = LANES
    payload_bytes: int = 0
    slow_one_in: int = 0

    @property
    def handled(self) -> int:
        """How many messages are settled within the window."""
        return self.messages - (self.messages // self.slow_one_in if self.slow_one_in else 0)


LOOPS = (
    Loop(
        "1,000 single callers",
        OURS,
        400_000,
        targets=(Target(Side.AT_LEAST, 40_000, Of.VALUE), Target(Side.AT_LEAST, 6.0)),
    ),
    Loop("scheduled", OURS, 150_000, 2 * SECOND_US, (Target(Side.AT_LEAST, 12_000, Of.VALUE),)),
    Loop("the origin's loop", ORIGIN, 40_000),
)
PACED = (
    Loop("due at once", OURS, 8_000, targets=(Target(Side.AT_MOST, 1_500, Of.VALUE),), rate=1_000),
    Loop("due in 3 s", OURS, 8_000, 3 * SECOND_US, rate=1_000),
    Loop("the origin's loop", ORIGIN, 8_000, rate=1_000),
)


TAIL = Loop("no slow handlers", OURS, 2_000, rate=100, lanes=1, payload_bytes=10_000)
TAILS = (
    replace(TAIL, name="1 % slow handlers", slow_one_in=100, targets=(Target(Side.AT_LEAST, 0.95),)),
    TAIL,
)


def measure(plan: Plan) -> Results:
    """The parts that are wanted."""
    wanted = plan.only or (QUICK_PARTS if plan.quick else PARTS)
    depth = Depth.of(plan)
    tables = [*TABLES, *shared(), *ORIGIN_TABLES, *(depth.tables if "depth" in wanted else ())]
    results = Results()
    deadline = time.monotonic() + TOTAL_S_MAX
    with Servers(KEYSPACE, tables, profile=plan.server_profile) as servers:
        bench = _Bench(servers, plan, results, deadline)
        for part in (part for part in PARTS if part in wanted):
            if time.monotonic() > deadline:
                results.left_out.append(part)
            elif part == "lanes":
                measure_lanes(servers, USUAL, plan, results, deadline)
            elif part == "depth":
                bench.warm_up(USUAL)
                measure_depth(depth, servers, plan, results, deadline)
            else:
                bench.measure(part)
    results.checked.append(
        "puts without once keys were sent without lightweight transactions, and each lane sent at most one per second"
    )
    return results


class _Bench:
    """The parts of this module."""

    def __init__(self, servers: Servers, plan: Plan, results: Results, deadline: float) -> None:
        self._servers = servers
        self._plan = plan
        self._results = results
        self._deadline = deadline
        self._warm: set[ServerKind] = set()

    def measure(self, part: str) -> None:
        """One part."""
        if part == "put":
            self._put(part, USUAL, PUTS)
        elif part == "once":
            self._keyed(part)
        elif part == "json":
            self._forms(part)
        elif part == "path":
            self._loops(part, USUAL, LOOPS, "put + receive + ack")
        elif part == "delivery":
            self._loops(part, USUAL, PACED, "delivery at 1,000/s", DELIVERY_METRICS, P99_MS)
        elif part == "tail":
            self._loops(part, USUAL, TAILS, "10 kB at 100/s, one lane")
        else:
            self._put(part, SYNCED, tuple(replace(each, target=None) for each in (SINGLE, BATCHES, SCHEDULED)))
            slower = tuple(replace(each, targets=(), messages=each.messages // 2) for each in LOOPS)
            self._loops(part, SYNCED, slower, "put + receive + ack")

    def warm_up(self, kind: ServerKind) -> None:
        """The server's JIT compiles the code of the later work."""
        if kind in self._warm or not self._plan.server_warm_up_cpu_s:
            return
        self._warm.add(kind)
        used_s, until = 0.0, time.monotonic() + self._plan.server_warm_up_s_max
        with progress.step(f"warming up Cassandra ({kind})", expect_s=self._plan.server_warm_up_cpu_s):
            for loop in itertools.cycle(LOOPS):
                used_s += self._loop_window(kind, replace(loop, messages=loop.messages // 10)).cassandra_cpu_s
                used_s += self._bare_window(kind, 0.5).cassandra_cpu_s
                if used_s >= self._plan.server_warm_up_cpu_s or time.monotonic() > until:
                    return

    # ---- put

    def _put(self, part: str, kind: ServerKind, puts: tuple[Puts, ...]) -> None:
        self.warm_up(kind)
        by_name = {each.name: each for each in puts}
        seconds = self._plan.seconds * 2

        def take(name: str) -> Window:
            puts = by_name.get(name)
            return self._bare_window(kind, seconds) if puts is None else self._put_window(kind, puts, seconds)

        names = [*by_name, BARE]
        with progress.step(f"{part}: puts", expect_s=len(names) * (self._plan.rounds * seconds + 2)):
            for name in names:
                take(name)
            rounds = self._take(f"put ({part})", names, take)
        figures: list[Figure] = []
        for each in puts:
            for figure in figures_of(rounds, PUT_METRICS, each.name, BARE, case=_case("put", each.name, kind)):
                promised = each.target if figure.metric == ROWS_PER_CLIENT_CPU_S.name else None
                figures.append(replace(figure, target=promised))
        known = distances(rounds, BARE, DRIVER["batches of 100"]) if kind == USUAL else []
        self._results.cases.append(Measured(rounds, tuple(figures), tuple(known), part))

    def _put_window(self, kind: ServerKind, puts: Puts, seconds: float) -> Window:
        work = Work(
            Do.PUT,
            new_queue(),
            seconds,
            callers=puts.callers,
            batch=puts.batch,
            delay_us=puts.delay_us,
            keys=puts.keys,
        )
        return self._window(puts.name, kind, {self._servers.client(kind, OURS, "producer"): work})

    def _bare_window(self, kind: ServerKind, seconds: float) -> Window:
        client = self._servers.client(kind, DRIVER_ALONE)
        return take_window(BARE, {client: {**BARE_JOB, "seconds": seconds}}, [self._servers.at(kind).pid])

    # ---- once keys

    def _keyed(self, part: str) -> None:
        self.warm_up(USUAL)
        by_name = {each.name: each for each in KEYED}
        seconds = self._plan.seconds * 2

        def take(name: str) -> Window:
            return self._put_window(USUAL, by_name[name], seconds)

        with progress.step(f"{part}: puts", expect_s=len(KEYED) * (self._plan.rounds * seconds + 2)):
            for name in by_name:
                take(name)
            rounds = self._take(f"put with once keys ({part})", list(by_name), take)
        figures: list[Figure] = []
        for each in KEYED[:-1]:
            case = _case("put with once keys", each.name, USUAL)
            for figure in figures_of(rounds, PUT_METRICS, each.name, WITHOUT_KEYS.name, case=case):
                promised = each.target if figure.metric == ROWS_PER_S.name else None
                figures.append(replace(figure, target=promised))
        self._results.cases.append(Measured(rounds, tuple(figures), (), part))

    # ---- json

    def _forms(self, part: str) -> None:
        self.warm_up(USUAL)
        seconds = self._plan.seconds * 2

        def take(name: str) -> Window:
            work = Work(Do.PUT, new_queue(), seconds, callers=CALLERS, form=Form(name))
            return self._window(name, USUAL, {self._servers.client(USUAL, OURS, "producer"): work})

        names = [form.value for form in Form]
        with progress.step(f"{part}: single puts", expect_s=len(names) * (self._plan.rounds * seconds + 2)):
            for name in names:
                take(name)
            rounds = self._take(f"single puts ({part})", names, take)
        figures: list[Figure] = []
        for form, baseline in FORMS:
            of_form = figures_of(rounds, PUT_METRICS, form, baseline, case=_case("single put", form, USUAL))
            for figure in of_form:
                promised = AS_BYTES if figure.metric == ROWS_PER_CLIENT_CPU_S.name else None
                figures.append(replace(figure, target=promised))
        self._results.cases.append(Measured(rounds, tuple(figures), (), part))

    # ---- path and delivery

    def _loops(
        self,
        part: str,
        kind: ServerKind,
        loops: tuple[Loop, ...],
        title: str,
        metrics: Sequence[Metric] = PATH_METRICS,
        promised: Metric = ROWS_PER_S,
    ) -> None:
        self.warm_up(kind)
        if self._plan.quick:
            loops = tuple(replace(each, messages=_fewer(each.messages)) for each in loops)
        by_name = {each.name: each for each in loops}
        baseline = loops[-1].name

        def take(name: str) -> Window:
            return self._loop_window(kind, by_name[name])

        with progress.step(f"{part}: {title}", expect_s=len(loops) * self._plan.rounds * 10):
            rounds = self._take(f"{title} ({part})", list(by_name), take)
        figures: list[Figure] = []
        for each in loops[:-1]:
            case = _case(title, each.name, kind)
            of_case = figures_of(rounds, metrics, each.name, baseline, case=case)
            for figure in of_case:
                targets = each.targets if figure.metric == promised.name else ()
                figures += [replace(figure, target=target) for target in targets] or [figure]
        known = distances(rounds, baseline, PEERS["time queue's loop"]) if part == "path" else []
        self._results.cases.append(Measured(rounds, tuple(figures), tuple(known), part))

    def _loop_window(self, kind: ServerKind, loop: Loop) -> Window:
        work = Work(
            Do.PACE if loop.rate else Do.PUT,
            new_queue(),
            LONGEST_S,
            messages_max=loop.messages,
            callers=CALLERS,
            delay_us=loop.delay_us,
            rate=loop.rate,
            lanes=loop.lanes,
            payload_bytes=loop.payload_bytes,
        )
        producer = self._servers.client(kind, loop.module, "producer")
        consumer = self._servers.client(kind, loop.module, "consumer")
        consuming = replace(work, do=Do.CONSUME, callers=8, batch=100, visibility_us=WORKERS_VISIBILITY_US)
        if loop.slow_one_in:  # hidden for as long as the window lasts, as a worker would keep it
            long_us = 2 * round(LONGEST_S) * SECOND_US
            consuming = replace(
                consuming, messages_max=loop.handled, slow_one_in=loop.slow_one_in, visibility_us=long_us
            )
        return self._window(loop.name, kind, {producer: replace(work, baseline_name=True), consumer: consuming})

    # ---- both

    def _window(self, name: str, kind: ServerKind, works: Mapping[ClientProcess, Work]) -> Window:
        for client, work in works.items():
            client.prepare(work.job(), within_s=PREPARE_WITHIN_S)
        jobs = {client: work.job() for client, work in works.items()}
        return replace(take_window(name, jobs, [self._servers.at(kind).pid]), contender=name)

    def _take(self, case: str, names: list[str], take: Callable[[str], Window]) -> Rounds:
        return take_rounds(
            self._plan.run,
            case,
            names,
            take,
            rounds=self._plan.rounds,
            time_is_up=lambda: time.monotonic() > self._deadline,
        )


def _fewer(messages: int) -> int:
    """A twentieth, in whole turns of all callers."""
    return max(1, messages // 20 // CALLERS) * CALLERS


def _case(title: str, name: str, kind: ServerKind) -> str:
    return f"{title}, {name}" + (f", {kind.commitlog_sync} sync" if kind != USUAL else "")
