"""`headgate-operator`: one process of the operator, leading or standing by.

It wires the parts of the other files: the cluster, the Lease, kopf, the port for probes, and the operator between
them. A fault of the environment is one line and an exit code. On SIGTERM no new effect starts, the one under way is
finished, and the Lease is given up, so that a standby takes over at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from random import SystemRandom
from typing import Any, Final

import click

from headgate.client.catalogue.process_context import ProcessContext, open_process_context
from headgate.command_line.exit_codes import exit_code_of
from headgate.engines.registry import ENGINE_MODULES
from headgate.errors import EnvironmentProblem, HeadgateError, InvalidRequest
from headgate.process.background_tasks import end_task, run_together, start_task
from headgate.process.event_loop import call_on_sigterm, collect_at_rest, let_changes_pass, new_loop
from headgate.process.http_server import HttpServer, probe_routes, read_address
from headgate.process.version import read_version
from headgate.store.cassandra.settings import ConnectionSettings
from headgate.telemetry.logs import FORMATS, LEVELS, log_to
from headgate.telemetry.metrics import Registry
from headgate_operator.cluster.api_server import HttpApiClient
from headgate_operator.cluster.port import ApiObject, Denial
from headgate_operator.cluster.requests import ClusterPort
from headgate_operator.informers.kopf_watch import KopfWatch
from headgate_operator.model.kinds import CRD, NAMESPACE, QUEUE, ObjectAddress
from headgate_operator.model.label_selector import EVERYTHING, LabelSelector, parse_selector
from headgate_operator.model.names import INSPECTION_PORT
from headgate_operator.model.world import OperatorSettings
from headgate_operator.process.inspection_servers import (
    InspectionOptions,
    InspectionServers,
    read_loopback_address,
)
from headgate_operator.process.leader_election import LeaderElection
from headgate_operator.process.liveness import LivenessCheck
from headgate_operator.process.metrics import measure
from headgate_operator.process.serving_certificate import FOLDER
from headgate_operator.process.wiring import Operator, Ports
from headgate_operator.reconcile.reconciler import RECONCILERS
from headgate_operator.store.sessions import SchemaOfCluster

log = logging.getLogger("headgate.operator")

MAX_SKEW_US: Final = 500_000
KOPF_ENDS_S: Final = 10.0
REACH_WITHIN_S: Final = 30.0
REACH_AGAIN_S: Final = 1.0
NAMESPACE_FILE: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


class CrdsMissing(EnvironmentProblem):
    """The CRDs of Headgate are not installed in this cluster."""


class ClusterUnreachable(EnvironmentProblem):
    """The API server cannot be reached."""


@dataclass(frozen=True)
class OperatorOptions:
    kubeconfig: str | None
    context: str | None
    namespace: str
    secret: str
    image: str
    spark_image: str | None
    address: tuple[str, int] | None
    inspection: InspectionOptions
    identity: str
    qps: float
    pull_secrets: tuple[str, ...] = ()
    workers_secret: str | None = None
    tables_max: int = OperatorSettings.tables_max
    namespace_tables_max: int = OperatorSettings.namespace_tables_max
    connection_namespaces: LabelSelector = EVERYTHING


@click.command("headgate-operator", context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--kubeconfig", envvar="KUBECONFIG", help="Kubeconfig. Default: the pod's account, or yours.")
@click.option("--context", help="Context of the kubeconfig.")
@click.option("--namespace", envvar="HEADGATE_NAMESPACE", help="Namespace of the Lease and the Secret.")
@click.option(
    "--connection-secret",
    envvar="HEADGATE_CONNECTION_SECRET",
    default="headgate-connection",
    show_default=True,
    help="Secret with the connection to Cassandra.",
)
@click.option("--workers-secret", envvar="HEADGATE_WORKERS_SECRET", help="Secret with the connection of pods.")
@click.option(
    "--connection-namespaces",
    envvar="HEADGATE_CONNECTION_NAMESPACES",
    default="",
    metavar="JSON",
    help="Labels of namespaces that may use it.",
)
@click.option("--image", envvar="HEADGATE_IMAGE", help="Image of workers, repair and gc.")
@click.option("--spark-image", envvar="HEADGATE_SPARK_IMAGE", help="Image of bulk jobs.")
@click.option(
    "--health",
    envvar="HEADGATE_HEALTH",
    default="0.0.0.0:9091",
    show_default=True,
    help="Address of probes and metrics.",
)
@click.option(
    "--inspection",
    envvar="HEADGATE_INSPECTION",
    default=f"127.0.0.1:{INSPECTION_PORT}",
    show_default=True,
    help="Loopback address of /why and /plan, or off.",
)
@click.option(
    "--inspection-login",
    envvar="HEADGATE_INSPECTION_LOGIN",
    default="off",
    show_default=True,
    help="Address of /why and /plan with login.",
)
@click.option(
    "--inspection-tls",
    default=FOLDER,
    show_default=True,
    metavar="FOLDER",
    help="Folder with tls.crt and tls.key.",
)
@click.option("--pull-secret", "pull_secrets", multiple=True, help="Pull Secret of workers' images; repeatable.")
@click.option(
    "--tables-max",
    type=int,
    default=OperatorSettings.tables_max,
    show_default=True,
    help="Maximum tables in a Cassandra.",
)
@click.option(
    "--namespace-tables-max",
    type=int,
    default=OperatorSettings.namespace_tables_max,
    show_default=True,
    help="Maximum dedicated tables per namespace.",
)
@click.option("--qps", type=float, default=100.0, show_default=True, help="Maximum API requests per second.")
@click.option("--log-format", type=click.Choice(FORMATS), envvar="HEADGATE_LOG_FORMAT", default="json")
@click.option("--log-level", type=click.Choice(LEVELS), envvar="HEADGATE_LOG_LEVEL", default="info")
@click.version_option(prog_name="headgate-operator", package_name="headgate")
def main(**options: Any) -> None:
    """Run the operator: it keeps tables, workers and status of Queues and Counters as declared."""
    log_to(form=options.pop("log_format"), level=options.pop("log_level"))
    logging.getLogger("kubernetes").setLevel(logging.ERROR)  # its warnings are reported as errors of ours
    try:
        with asyncio.Runner(loop_factory=new_loop) as runner:
            runner.run(run(given_by(options)))
    except (HeadgateError, ExceptionGroup) as ended:
        error = _error_to_report(ended)
        if error is None:
            raise
        for line in str(error).splitlines():
            click.echo(line, err=True)
        sys.exit(exit_code_of(error))


def _error_to_report(ended: Exception) -> HeadgateError | None:
    """The error for people, also if it ended a group of tasks; None: it is a bug."""
    while isinstance(ended, ExceptionGroup) and len(ended.exceptions) == 1:
        ended = ended.exceptions[0]
    return ended if isinstance(ended, HeadgateError) else None


def given_by(options: dict[str, Any]) -> OperatorOptions:
    """Options, with what a pod can know by itself."""
    own = NAMESPACE_FILE.read_text().strip() if NAMESPACE_FILE.exists() else "headgate-system"
    return OperatorOptions(
        kubeconfig=options["kubeconfig"],
        context=options["context"],
        namespace=options["namespace"] or own,
        secret=options["connection_secret"],
        image=options["image"] or f"headgate:{read_version()}",
        spark_image=options["spark_image"],
        address=read_address(options["health"]),
        inspection=InspectionOptions(
            read_loopback_address(options["inspection"]),
            read_address(options["inspection_login"], option="--inspection-login"),
            Path(options["inspection_tls"]),
        ),
        identity=f"{os.environ.get('POD_NAME') or socket.gethostname()}_{os.getpid()}",
        qps=options["qps"],
        pull_secrets=tuple(options["pull_secrets"]),
        workers_secret=options["workers_secret"] or None,
        tables_max=options["tables_max"],
        namespace_tables_max=options["namespace_tables_max"],
        connection_namespaces=parse_selector(options["connection_namespaces"]),
    )


async def run(given: OperatorOptions) -> None:
    """Until SIGTERM, or until another has the Lease."""
    cluster = await HttpApiClient.connect(kubeconfig=given.kubeconfig, context=given.context, qps=given.qps)
    try:
        with tempfile.TemporaryDirectory(prefix="headgate-operator-") as folder:
            await _Process(given, cluster, await _settings(given, cluster), Path(folder)).run()
    finally:
        await cluster.close()


class _Process:
    def __init__(
        self, given: OperatorOptions, cluster: HttpApiClient, settings: OperatorSettings, folder: Path
    ) -> None:
        rng = SystemRandom()
        wall = _Wall()
        self._given = given
        self._cluster = cluster
        self._registry = Registry()
        self._stopping = asyncio.Event()
        self._leading = LeaderElection(
            cluster,
            namespace=given.namespace,
            identity=given.identity,
            boot_s=lambda: time.clock_gettime(time.CLOCK_BOOTTIME),
            wall_us=wall.now_us,
            rng=rng,
        )
        ports = Ports(
            cluster,
            open_session,
            now_us=wall.now_us,
            rng=rng,
            may_act=lambda: self._leading.may_act() and not self._stopping.is_set(),
            folder=folder,
            registry=self._registry,
            instance=given.identity,
        )
        self._operator = Operator(settings, ports)
        self._inspection = InspectionServers(self._operator, cluster, self._leading)
        self._kopf = KopfWatch(self._operator.intake, cluster.access, self._stopping)
        self._alive = LivenessCheck(self._operator.queue, self._operator.audit, reconcilers=RECONCILERS)
        self._watching: asyncio.Task[None] | None = None
        measure(self._registry, self._operator, is_leading=self._leading.may_act)

    async def run(self) -> None:
        http_server = await self._open_http_server()
        await self._inspection.open(self._given.inspection)
        call_on_sigterm(self._stopping.set)
        keeping = start_task("lease", self._leading.keep())
        working = start_task("leading", self._lead())
        stopped = start_task("stop", self._stopping.wait())
        ending = start_task("end of kopf", self._kopf.ending.wait())
        try:
            done, _ = await asyncio.wait({keeping, working, stopped, ending}, return_when=asyncio.FIRST_COMPLETED)
            for task in done - {stopped, ending}:
                task.result()  # raises what ended it
            if keeping in done and not self._stopping.is_set():
                raise EnvironmentProblem("Leadership lost; restarting as standby")
            await self._operator.finish()
        finally:
            await end_task(keeping, stopped, working, ending)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._leading.give_up(), 5)
            fault = await self._end_kopf()
            await self._operator.close()
            await self._inspection.close()
            if http_server is not None:
                await http_server.close()
            if fault is not None:
                raise fault

    async def _lead(self) -> None:
        """Stand by until the Lease is ours; then watch and work."""
        await self._leading.taken.wait()
        let_changes_pass()
        collecting = collect_at_rest(self._operator.queue.is_idle)
        self._watching = start_task("kopf", self._kopf.run())
        watching = _result_of(self._watching)
        await run_together({"kopf": watching, "operator": self._operator.run(), "collector": collecting})

    async def _end_kopf(self) -> BaseException | None:
        """After the Lease was given up: kopf waits for each task of the loop that is younger, for seconds, and only
        reads. Returns its fault."""
        if self._watching is None:
            return None
        if self._kopf.ending.is_set():
            await asyncio.wait({self._watching}, timeout=KOPF_ENDS_S)
        if self._watching.done() and not self._watching.cancelled():
            return self._watching.exception()
        self._kopf.stop()
        await end_task(self._watching)
        return None

    async def _open_http_server(self) -> HttpServer | None:
        if self._given.address is None:
            return None
        routes = probe_routes(
            self._registry, why_not_alive=self._alive.why_not_alive, why_not_ready=self._why_not_ready
        )
        http_server = HttpServer(routes)
        await http_server.open(*self._given.address)
        log.info("serving probes and metrics", extra={"port": http_server.port})
        return http_server

    def _why_not_ready(self) -> str | None:
        if self._leading.may_act():
            return None if self._operator.listed.is_set() else "it leads, but has not read all lists yet"
        return None if self._leading.has_read_lease.is_set() else "it has not reached the cluster yet"


async def _result_of(task: asyncio.Task[None]) -> None:
    """What it ends with. Cancelling this does not cancel it."""
    await asyncio.shield(task)


class _Wall:
    """The wall clock, which never goes back here."""

    def __init__(self) -> None:
        self._given_us = 0

    def now_us(self) -> int:
        self._given_us = max(self._given_us, time.time_ns() // 1000)
        return self._given_us


async def open_session(settings: ConnectionSettings) -> tuple[ProcessContext, SchemaOfCluster]:
    """A real Cassandra. The driver is imported here first, and without numpy: 11 MB less."""
    from headgate.store.cassandra.without_numpy import leave_numpy_out

    leave_numpy_out()
    from headgate.store.cassandra.schema import CassandraSchema
    from headgate.store.cassandra.store import CassandraStore

    process_context = await open_process_context(settings, name="operator", max_skew_us=MAX_SKEW_US, must_exist=False)
    store = process_context.store_in(process_context.keyspace)
    if not isinstance(store, CassandraStore):
        raise InvalidRequest("The session has an unknown type")
    return process_context, CassandraSchema(store)


async def _settings(given: OperatorOptions, port: ClusterPort) -> OperatorSettings:
    """With what only the cluster knows; one line if it cannot be reached, or lacks our CRDs."""
    system = await _must(lambda: port.get(ObjectAddress(NAMESPACE, None, "kube-system"), metadata_only=True))
    crd = await port.get(ObjectAddress(CRD, None, f"{QUEUE.plural}.{QUEUE.group}"), metadata_only=True)
    if not isinstance(crd, ApiObject) and crd.denial is Denial.NOT_FOUND:
        raise CrdsMissing(remedy="run `kubectl apply --server-side -f crds/` and restart it")
    return OperatorSettings(
        cluster=system.uid,
        version=read_version(),
        image=given.image,
        spark_image=given.spark_image,
        namespace=given.namespace,
        connection_secret=given.secret,
        workers_secret=given.workers_secret,
        tables_max=given.tables_max,
        namespace_tables_max=given.namespace_tables_max,
        connection_namespaces=given.connection_namespaces,
        pull_secrets=given.pull_secrets,
        supported=frozenset(ENGINE_MODULES),
    )


async def _must(ask: Callable[[], Coroutine[Any, Any, Any]]) -> ApiObject:
    deadline_s = asyncio.get_running_loop().time() + REACH_WITHIN_S
    while True:
        answer = await ask()
        if isinstance(answer, ApiObject):
            return answer
        if answer.is_permanent or asyncio.get_running_loop().time() > deadline_s:
            raise ClusterUnreachable(
                answer=str(answer), remedy="check --kubeconfig, --context, and the rights of its account"
            )
        await asyncio.sleep(REACH_AGAIN_S)


if __name__ == "__main__":
    main()
