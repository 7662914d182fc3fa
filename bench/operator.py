"""bench-operator: a thousand Queues applied at once, a fresh change among them, and an operator at rest, compared
with a minimal kopf operator that creates one Deployment for each, on the same API server in the same run.

The minimal one runs before and after ours, so that the machine's changes affect both. Its figures are the middle of
the two, but for its rest, which is measured once. Writes are counted in the API server's own audit log. Cassandra has
applied some hundred queues before, by `headgate apply`: a fresh server compiles its code during the measurement,
which is unrealistic.
"""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.cpu import read_cpu_s
from bench.figure import Figure, Of, Series, Side, Target
from bench.machine import read_memory_mb
from bench.measurement import Measured, Plan, Results
from bench.operator_contenders import Changed, Contender, Minimal, Ours
from bench.operator_load import Load, is_ready, queue_document, writes_since
from bench.servers import ServerKind, Servers
from bench.store_work import KEYSPACE
from dev.cluster import lifecycle
from dev.cluster.kubectl import Kubectl
from dev.cluster.state import Cluster as LocalCluster
from headgate.errors import EnvironmentProblem
from headgate.local import progress
from headgate_operator.cluster.api_server import HttpApiClient
from headgate_operator.model.kinds import DEPLOYMENT, QUEUE

CLUSTER = "bench"
OWN_NAMESPACE = "headgate-system"
SECRET = "headgate-connection"  # noqa: S105 - the name of a Secret
COUNT, COUNT_QUICK = 1_000, 40
NAMESPACES = 10
WARMED_BY, WARMED_WITHIN_S = 400, 120.0
EARLY = 20
"""Queues that exist before the others: changes to them come while the others are new."""
CHANGES = 100
CHANGE_EVERY_S = 0.1
READY_WITHIN_S = 600.0
SETTLES_S, REST_S = 45.0, 60.0
MINIMAL_SETTLES_S = 10.0
"""It does nothing after its one Deployment; ours inspects its children once more."""
LEASE = "the Lease's renewals"


@dataclass
class Turn:
    """The work of one operator."""

    name: str
    all_done_s: float
    cpu_s: float
    peak_mb: float
    decided_ms: list[float]
    missed: int
    """Changes without a decision."""
    rest: Rest | None


@dataclass(frozen=True)
class Rest:
    """A minute without any request."""

    cpu_percent: float
    writes: int
    lease_writes: int
    other: list[str]


def measure(plan: Plan) -> Results:
    """All of it."""
    return asyncio.run(_Bench(plan).measure())


class _Bench:
    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._count = COUNT_QUICK if plan.quick else COUNT
        self._rest_s = 5.0 if plan.quick else REST_S
        self._stack = ExitStack()

    async def measure(self) -> Results:
        local = self._cluster()
        kubectl = lifecycle.client(local)
        with self._stack:
            logs = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="headgate-bench-")))
            servers = self._stack.enter_context(Servers(KEYSPACE, (), profile=self._plan.server_profile))
            connection = servers.at(ServerKind()).environment
            self._prepare(kubectl, connection)
            self._warm(connection, logs / "warm.json")
            port = await HttpApiClient.connect(kubeconfig=local.kubeconfig, context=None, qps=2_000)
            try:
                load = Load(port)
                first = await self._minimal(load, local, logs, "minimal-1")
                ours = await self._ours(load, local, logs)
                second = await self._minimal(load, local, logs, "minimal-2", is_last=True)
            finally:
                await port.close()
        return self._results(ours, first, second)

    def _cluster(self) -> LocalCluster:
        was_up = lifecycle.is_up(CLUSTER)
        local = lifecycle.up(CLUSTER)
        if not was_up:
            self._stack.callback(lifecycle.down, CLUSTER)
        if not local.audit_log.exists():
            raise EnvironmentProblem(
                "this cluster keeps no readable audit log", remedy="use the project's own cluster"
            )
        return local

    def _prepare(self, kubectl: Kubectl, connection: Any) -> None:
        kubectl.run("apply", "--server-side", "--force-conflicts", "-f", "crds/")
        data = {name: str(value) for name, value in connection.items()}
        kubectl.apply(
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": OWN_NAMESPACE}},
            {
                "apiVersion": "v1",
                "kind": "Secret",
                "metadata": {"name": SECRET, "namespace": OWN_NAMESPACE},
                "stringData": data,
            },
        )

    def _warm(self, connection: Mapping[str, str], file: Path) -> None:
        queues = [queue_document("warm", f"q{n}") for n in range(20 if self._plan.quick else WARMED_BY)]
        file.write_text("\n---\n".join(map(json.dumps, queues)), encoding="utf-8")
        with progress.step(f"headgate apply of {len(queues)} Queues", expect_s=30):
            done = subprocess.run(
                [sys.executable, "-m", "headgate.cli.main", "apply", str(file)],
                env={**os.environ, **connection},
                capture_output=True,
                text=True,
                check=False,
                timeout=WARMED_WITHIN_S,
            )
        if done.returncode:
            raise EnvironmentProblem("Cassandra could not be warmed up", cause=done.stderr.strip()[-500:])

    # ---- turns

    async def _minimal(
        self, load: Load, local: LocalCluster, logs: Path, namespace: str, *, is_last: bool = False
    ) -> Turn:
        await load.make_namespaces([namespace])
        with Minimal(local.kubeconfig, namespace, logs / f"{namespace}.log") as operator:
            early = [queue_document(namespace, f"early-{n}") for n in range(EARLY)]
            await load.apply_all(early)
            await load.until(DEPLOYMENT, [namespace], EARLY, bool, READY_WITHIN_S)
            late = [queue_document(namespace, f"q{n}") for n in range(self._count - EARLY)]
            with progress.step(f"{operator.name}: {self._count} Queues", expect_s=60):
                turn = await self._turn(operator, load, early, late, [namespace], by=DEPLOYMENT)
            if not is_last:
                turn.rest = await self._rest(operator, local, MINIMAL_SETTLES_S)
        if not is_last:
            await load.delete_namespaces([namespace], READY_WITHIN_S)
        return turn

    async def _ours(self, load: Load, local: LocalCluster, logs: Path) -> Turn:
        namespaces = [f"bench-{n}" for n in range(NAMESPACES)]
        await load.make_namespaces(namespaces)
        with Ours(local.kubeconfig, OWN_NAMESPACE, logs / "ours.log") as operator:
            await asyncio.to_thread(operator.until_ready)
            early = [queue_document(namespaces[n % NAMESPACES], f"early-{n}") for n in range(EARLY)]
            await load.apply_all(early)
            await load.until(QUEUE, namespaces, EARLY, is_ready, READY_WITHIN_S)
            late = [queue_document(namespaces[n % NAMESPACES], f"q{n}") for n in range(self._count - EARLY)]
            with progress.step(f"{operator.name}: {self._count} Queues", expect_s=60):
                turn = await self._turn(operator, load, early, late, namespaces, by=QUEUE)
            turn.rest = await self._rest(operator, local, SETTLES_S)
            await load.delete_namespaces(namespaces, READY_WITHIN_S)
        return turn

    async def _turn(
        self,
        operator: Contender,
        load: Load,
        early: Sequence[dict[str, Any]],
        late: Sequence[dict[str, Any]],
        namespaces: Sequence[str],
        *,
        by: Any,
    ) -> Turn:
        peak = [read_memory_mb(operator.pid)]
        watching = asyncio.create_task(_watch_memory(operator, peak))
        began_s, cpu_s = time.monotonic(), read_cpu_s([operator.pid])[operator.pid]
        changing = asyncio.create_task(_change(load, early, 10 if self._plan.quick else CHANGES))
        await load.apply_all(late)
        done_s = await load.until(by, namespaces, self._count, is_ready if by is QUEUE else bool, READY_WITHIN_S)
        cpu_s = read_cpu_s([operator.pid])[operator.pid] - cpu_s
        changes = await changing
        await asyncio.sleep(2.0)
        decided = operator.decided_at(changes)
        operator.require_alive()
        watching.cancel()
        return Turn(
            name=operator.name,
            all_done_s=done_s - began_s,
            cpu_s=cpu_s,
            peak_mb=max(peak),
            decided_ms=[max((at - changes[change]) * 1e3, 0.0) for change, at in decided.items()],
            missed=len(changes) - len(decided),
            rest=None,
        )

    async def _rest(self, operator: Contender, local: LocalCluster, settles_s: float) -> Rest:
        """After it has settled."""
        await asyncio.sleep(2.0 if self._plan.quick else settles_s)
        offset = local.audit_log.stat().st_size
        cpu_s, began_s = read_cpu_s([operator.pid])[operator.pid], time.monotonic()
        await asyncio.sleep(self._rest_s)
        cpu_s = read_cpu_s([operator.pid])[operator.pid] - cpu_s
        share = cpu_s / (time.monotonic() - began_s)
        operator.require_alive()
        writes, of_leases, others = writes_since(local.audit_log, offset)
        return Rest(share * 100, writes, of_leases, others)

    # ---- the results

    def _results(self, ours: Turn, *minimal: Turn) -> Results:
        def figure(metric: str, unit: str, of: Any, target: Target | None = None) -> Figure:
            baseline = statistics.mean(max(each, 1e-3) for turn in minimal if (each := of(turn)) is not None)
            return Figure(
                case=f"{self._count} Queues",
                metric=metric,
                unit=unit,
                ours=Series(self._plan.run, ours.name, (of(ours),)),
                baseline=Series(self._plan.run, minimal[0].name, (baseline,)),
                target=target,
            )

        def at_most(bound: float) -> Target:
            return Target(Side.AT_MOST, bound, Of.VALUE)

        rest = ours.rest
        assert rest is not None
        writes = Figure(
            case="at rest",
            metric="writes in a quiet minute",
            unit="",
            ours=Series(self._plan.run, ours.name, (float(rest.writes),)),
            baseline=Series(self._plan.run, LEASE, (max(float(rest.lease_writes), 1e-3),)),
            target=Target(Side.AT_MOST, 1.0),
        )
        figures = (
            figure("all done after", "s", lambda turn: turn.all_done_s, at_most(120)),
            figure("CPU until then", "s", lambda turn: turn.cpu_s),
            figure("most memory", "MB", lambda turn: turn.peak_mb, at_most(300)),
            figure("p50 from a change to its decision", "ms", lambda turn: _percentile(turn.decided_ms, 50)),
            figure(
                "p99 from a change to its decision", "ms", lambda turn: _percentile(turn.decided_ms, 99), at_most(100)
            ),
            figure("share of a core at rest", "%", lambda turn: turn.rest and turn.rest.cpu_percent, at_most(2)),
            writes,
        )
        results = Results(cases=[Measured(None, figures)])
        results.checked.append(f"of {len(ours.decided_ms) + ours.missed} changes {ours.missed} have no decision")
        if rest.other:
            results.checked.append(f"other writes at rest: {', '.join(sorted(set(rest.other)))}")
        return results


async def _change(load: Load, early: Sequence[dict[str, Any]], count: int) -> dict[Changed, float]:
    """One after the other, while others are new; returns the time of each answer."""
    changes: dict[Changed, float] = {}
    for number in range(count):
        meta = early[number % len(early)]["metadata"]
        document = queue_document(meta["namespace"], meta["name"], max_receives=6 + number)
        generation, answered_s = await load.change(document)
        changes[meta["namespace"], meta["name"], generation] = answered_s
        await asyncio.sleep(CHANGE_EVERY_S)
    return changes


async def _watch_memory(operator: Contender, peak: list[float]) -> None:
    while True:
        operator.require_alive()
        peak.append(read_memory_mb(operator.pid))
        await asyncio.sleep(0.5)


def _percentile(values: Sequence[float], percent: int) -> float:
    ordered = sorted(values) or [float("inf")]
    return ordered[min(len(ordered) - 1, len(ordered) * percent // 100)]
