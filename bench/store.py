"""bench-store: the cost of the store compared with the bare driver, and the cost of Cassandra's own settings.

Three parts: all kinds of requests on the usual server; LWTs under both variants of Paxos; writes under the three ways
to sync the commit log. In each part the store and the bare driver do the same work in the same rounds, with the same
number of requests in flight, on the same server. In the latter two the servers run in the same rounds, too.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from bench.baseline import Distance, distances
from bench.contender import Job
from bench.figure import Figure, Side, Target
from bench.known import DRIVER
from bench.measurement import Measured, Plan, Results, figures_of
from bench.rounds import (
    CASSANDRA_US,
    CLIENT_US,
    P50_MS,
    P99_MS,
    ROWS_PER_CPU_S,
    ROWS_PER_S,
    Rounds,
    Window,
    take_rounds,
)
from bench.servers import ServerKind, Servers
from bench.store_work import KEYSPACE, PREPARED_PARTS, TABLES, RequestKind
from bench.window import take_window
from headgate.local import progress

REQUESTS_MAX = 200_000
PREPARE_WITHIN_S = 120.0
METRICS = (CLIENT_US, CASSANDRA_US, ROWS_PER_CPU_S, ROWS_PER_S, P50_MS, P99_MS)
USUAL = ServerKind()


@dataclass(frozen=True)
class Case:
    """One kind of request. Rows are messages: a packed row holds a hundred of them."""

    name: str
    kind: RequestKind
    rows: int
    in_flight: int
    client_cpu: Target | None = None
    """The target for the client's CPU per row, against the bare driver's."""

    def job(self, seconds: float) -> Job:
        """The request to a contender."""
        return {
            "kind": self.kind.value,
            "rows": self.rows,
            "in_flight": self.in_flight,
            "seconds": seconds,
            "requests_max": REQUESTS_MAX,
        }


SINGLE = Case("single inserts", RequestKind.INSERT, 1, 128)
BATCH_100 = Case("batches of 100", RequestKind.BATCH, 100, 16, Target(Side.AT_MOST, 1.5))
PACKED = Case("packed rows of 100", RequestKind.PACKED, 100, 16)
LWT_DISTINCT = Case("LWT, distinct keys", RequestKind.LWT_DISTINCT, 1, 32)
LWT_HOT = Case("LWT, one hot key", RequestKind.LWT_HOT, 1, 4)
CASES = (
    SINGLE,
    Case("batches of 10", RequestKind.BATCH, 10, 64),
    Case("batches of 50", RequestKind.BATCH, 50, 32),
    BATCH_100,
    PACKED,
    Case("slices of 100", RequestKind.SLICE, 100, 16),
    Case("slices of 500", RequestKind.SLICE, 500, 16),
    LWT_DISTINCT,
    LWT_HOT,
)


@dataclass(frozen=True)
class Speaker:
    """The sender of the requests."""

    name: str
    module: str


OURS = Speaker("headgate", "bench.store_headgate")
DRIVER_ALONE = Speaker("driver", "bench.store_driver")
SPEAKERS = (OURS, DRIVER_ALONE)


@dataclass(frozen=True)
class Part:
    """Some cases, on servers that run side by side."""

    title: str
    kinds: tuple[ServerKind, ...]
    cases: tuple[Case, ...]
    label: Callable[[ServerKind], str]

    def contender(self, speaker: Speaker, kind: ServerKind) -> str:
        """A contender's name."""
        return speaker.name + (f", {self.label(kind)}" if len(self.kinds) > 1 else "")

    @property
    def contenders(self) -> dict[str, tuple[Speaker, ServerKind]]:
        """All of them by name."""
        return {self.contender(speaker, kind): (speaker, kind) for kind in self.kinds for speaker in SPEAKERS}


PARTS = (
    Part("requests", (USUAL,), CASES, str),
    Part(
        "variants of Paxos",
        (USUAL, ServerKind(paxos_variant="v2")),
        (LWT_DISTINCT, LWT_HOT),
        lambda kind: f"Paxos {kind.paxos_variant}",
    ),
    Part(
        "commit log",
        (USUAL, ServerKind("group"), ServerKind("batch")),
        (SINGLE, BATCH_100, PACKED),
        lambda kind: f"{kind.commitlog_sync} sync",
    ),
)


def measure(plan: Plan) -> Results:
    """All parts."""
    results = Results()
    deadline = time.monotonic() + plan.total_s_max
    with Servers(KEYSPACE, TABLES, profile=plan.server_profile) as servers:
        for part in PARTS:
            if time.monotonic() < deadline:
                _prepare(part, servers, plan)
            for case in part.cases:
                if time.monotonic() > deadline:
                    results.left_out.append(f"{part.title}: {case.name}")
                    continue
                expect_s = len(part.contenders) * (plan.rounds * plan.seconds + plan.warm_up_s)
                with progress.step(f"{part.title}: {case.name}", expect_s=expect_s):
                    rounds = _take(part, case, servers, plan, deadline)
                results.cases.append(Measured(rounds, _figures(part, case, rounds), _distances(part, case, rounds)))
    return results


def _prepare(part: Part, servers: Servers, plan: Plan) -> None:
    """Servers are started, the data to read is written, and the server's JIT has compiled the code of the later
    work."""
    parts = PREPARED_PARTS if any(case.kind is RequestKind.SLICE for case in part.cases) else 0
    for speaker, kind in part.contenders.values():
        servers.client(kind, speaker.module).prepare({"parts": parts}, within_s=PREPARE_WITHIN_S)
    for kind in part.kinds:
        if plan.server_warm_up_cpu_s:
            with progress.step(f"warming up Cassandra ({kind})", expect_s=plan.server_warm_up_cpu_s):
                _warm_up(part, servers, kind, plan)


def _warm_up(part: Part, servers: Servers, kind: ServerKind, plan: Plan) -> None:
    used_s = 0.0
    until = time.monotonic() + plan.server_warm_up_s_max
    for case in itertools.cycle(part.cases):
        used_s += _window(case, servers, DRIVER_ALONE, kind, 0.5).cassandra_cpu_s
        if used_s >= plan.server_warm_up_cpu_s or time.monotonic() > until:
            return


def _window(case: Case, servers: Servers, speaker: Speaker, kind: ServerKind, seconds: float) -> Window:
    client = servers.client(kind, speaker.module)
    return take_window(speaker.name, {client: case.job(seconds)}, [servers.at(kind).pid])


def _take(part: Part, case: Case, servers: Servers, plan: Plan, deadline: float) -> Rounds:
    contenders = part.contenders

    def take(name: str) -> Window:
        return replace(_window(case, servers, *contenders[name], plan.seconds), contender=name)

    for speaker, kind in contenders.values():
        _window(case, servers, speaker, kind, plan.warm_up_s)
    until = min(deadline, time.monotonic() + plan.case_s_max(len(contenders)))
    return take_rounds(
        plan.run,
        case.name,
        list(contenders),
        take,
        rounds=plan.rounds,
        time_is_up=lambda: time.monotonic() > until,
    )


def _figures(part: Part, case: Case, rounds: Rounds) -> tuple[Figure, ...]:
    """The store compared with the driver on each server; and on each other server compared with itself on the usual
    one."""
    figures = []
    for kind in part.kinds:
        ours, driver = part.contender(OURS, kind), part.contender(DRIVER_ALONE, kind)
        name = case.name + (f", {part.label(kind)}" if len(part.kinds) > 1 else "")
        figures += [
            replace(figure, target=case.client_cpu)
            if figure.metric == CLIENT_US.name and part is PARTS[0]
            else figure
            for figure in figures_of(rounds, METRICS, ours, driver, case=name)
        ]
        if kind != USUAL:
            usual = part.contender(OURS, USUAL)
            versus = f"{case.name}, {part.label(kind)} versus {part.label(USUAL)}"
            figures += figures_of(rounds, (CASSANDRA_US, ROWS_PER_S, P50_MS, P99_MS), ours, usual, case=versus)
    return tuple(figures)


def _distances(part: Part, case: Case, rounds: Rounds) -> tuple[Distance, ...]:
    """Only the driver, on the usual server and alone, was measured before."""
    if len(part.kinds) > 1 or case.name not in DRIVER:
        return ()
    return tuple(distances(rounds, part.contender(DRIVER_ALONE, USUAL), DRIVER[case.name]))
