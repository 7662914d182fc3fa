"""The operator between its watches and the two ports, wired up.

It knows neither kopf nor HTTP nor the Lease: whether it may act is asked, events come in by `intake`. Time is the
event loop's and a clock that is handed in, so all of it runs in the simulation's world as it does on a machine.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Final
from uuid import UUID

from headgate.errors import Unavailable
from headgate.process.background_tasks import SupervisedLoop, run_together
from headgate.store.catalogue.catalogue import RECEIPT_KEY_BYTES
from headgate.telemetry.metrics import Registry
from headgate_operator.cluster.requests import ClusterPort
from headgate_operator.dry_run.live import plan_live
from headgate_operator.informers.event_ingest import EventIngest
from headgate_operator.informers.object_cache import ObjectCache
from headgate_operator.informers.watch_audit import WatchAudit
from headgate_operator.informers.work_queue import Class, WorkQueue
from headgate_operator.model.kinds import NAMESPACE
from headgate_operator.model.names import CONNECTION_COPY, Key, namespace_key
from headgate_operator.model.world import OperatorSettings
from headgate_operator.observe.bulk_runs import BulkRows
from headgate_operator.observe.lane_health import Health
from headgate_operator.observe.maintenance_results import PassBoard
from headgate_operator.observe.pods import PodInspector
from headgate_operator.observe.queue_stats import FigureBoard
from headgate_operator.observe.world_builder import Observer, Sources
from headgate_operator.reconcile.apply_plan import EffectTargets, PlanApplier
from headgate_operator.reconcile.decision_log import DecisionLog
from headgate_operator.reconcile.reconciler import ObservationRecorder, Reconciler
from headgate_operator.store.catalogue import StoreSide
from headgate_operator.store.connections import Connections
from headgate_operator.store.orphans import OrphanSweep
from headgate_operator.store.secret_cache import Secrets
from headgate_operator.store.sessions import Open, Sessions

log = logging.getLogger("headgate.operator")

RESYNC_S: Final = 1200.0
SCHEMA_CHECK_S: Final = 10.0
SECRETS_S: Final = 20.0
SECRETS_AT_A_TIME: Final = 20
FINISH_S: Final = 10.0
PLAN_WITHIN_S: Final = 25.0
"""Less than the clients' timeout."""
PAUSE_S_MAX: Final = 60.0
"""Between two starts of a background task that fails."""


@dataclass(frozen=True)
class Ports:
    port: ClusterPort
    open_session: Open
    now_us: Callable[[], int]
    """The wall clock, never backwards."""
    rng: Random
    may_act: Callable[[], bool] = lambda: True
    new_key: Callable[[], bytes] = lambda: secrets.token_bytes(RECEIPT_KEY_BYTES)
    folder: Path | None = None
    registry: Registry = field(default_factory=Registry)
    instance: str = "headgate-operator"


class Operator:
    def __init__(self, settings: OperatorSettings, ports: Ports) -> None:
        def now_s() -> float:
            return asyncio.get_running_loop().time()

        self.settings = settings
        self._ports = ports
        self.queue = WorkQueue(rng=ports.rng, registry=ports.registry, settle=True)
        self.cache = ObjectCache()
        self.intake = EventIngest(self.cache, self.queue)
        self.secrets = Secrets(ports.port, now_s=now_s, changed=self._secret_changed)
        self.sessions = Sessions(ports.open_session, now_s=now_s, folder=ports.folder, ended=self._session_ended)
        self.connections = Connections(
            self.secrets, self.sessions, settings, now_us=ports.now_us, labels_of=self._labels_of_namespace
        )
        self.store = StoreSide(
            self.sessions,
            cluster=settings.cluster,
            lives=self.cache.is_there,
            now_us=ports.now_us,
            now_s=now_s,
            new_key=ports.new_key,
        )
        self.board = FigureBoard(self.sessions, self.queue.add)
        self.health = Health(self.board, self.queue.add)
        self.bulk_rows = BulkRows(self.store)
        self.passes = PassBoard(self.store, self.cache, self._notify_id)
        self.ring = DecisionLog()
        self.sweep = OrphanSweep(ports.port, self.cache, self.store, self.connections, may_act=ports.may_act)
        pods = PodInspector(ports.port, now_s=now_s)
        sources = Sources(
            ports.port, self.cache, self.sessions, self.secrets, self.connections, self.store, self.board,
            self.health, self.passes, self.bulk_rows, pods,
        )  # fmt: skip
        self.observer = Observer(sources, settings, now_us=ports.now_us)
        targets = EffectTargets(
            ports.port, self.intake, self.cache, self.secrets, self.store, self.board, ports.may_act, ports.now_us,
            ports.instance,
        )  # fmt: skip
        self.performer = PlanApplier(targets)
        recorder = ObservationRecorder(self.connections, self.store, self.board, self.intake, now_us=ports.now_us)
        self.reconciler = Reconciler(
            self.queue,
            self.observer,
            recorder,
            self.performer,
            self.ring,
            now_us=ports.now_us,
            forget=self._forget,
        )
        self.audit = WatchAudit(ports.port, self.cache, self.intake)
        self._planning = asyncio.Lock()
        self.listed = asyncio.Event()
        """Set once every kind was listed, and keys are worked."""

    async def run(self) -> None:
        """Once all is listed work; for ever."""
        try:
            await self.audit.wait_until_listed()
            for namespace in self.cache.names_in(NAMESPACE.kind, ""):  # its children may be gone, and its Secret left
                self.queue.add(namespace_key(namespace), Class.RESYNC)
            self.queue.release()
            self.listed.set()
            await run_together(supervised(self._background_work()) | {"reconcilers": self.reconciler.run()})
        finally:
            await self.board.stop()

    async def plan(self, key: Key, document: Mapping[str, Any] | None) -> Mapping[str, Any]:
        """The plan of now, or for this document; it changes nothing. One plan at a time."""
        try:
            async with asyncio.timeout(PLAN_WITHIN_S), self._planning:
                await self.connections.reach_default()  # the operator's own, which its sweep opens too
                return await plan_live(self.reconciler, self.observer, key, document, self._ports.now_us())
        except TimeoutError:
            raise Unavailable("The plan takes too long", within_s=PLAN_WITHIN_S, remedy="retry later") from None

    async def finish(self, within_s: float = FINISH_S) -> None:
        """Wait until no key is worked, where nothing new may begin."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self.queue.until_none_is_worked(), within_s)

    async def close(self) -> None:
        await self.sessions.close()

    # ---- background tasks

    def _background_work(self) -> Mapping[str, Callable[[], Coroutine[Any, Any, None]]]:
        return {
            "probes": self.reconciler.probe,
            "checks of lanes": self.health.run,
            "results of passes": self.passes.run,
            "sweep": self.sweep.run,
            "audit of watches": self.audit.run,
            "resync": self._resync,
            "reads of schemas": self._check_schemas,
            "reading of Secrets": self._read_secrets,
        }

    async def _resync(self) -> None:
        """Every key once in twenty minutes, spread evenly."""
        while True:
            keys = list(self.cache.keys())
            began_s = asyncio.get_running_loop().time()
            for number, key in enumerate(keys):
                self.store.invalidate(key)
                self.intake.resync(key)
                due_s = began_s + RESYNC_S * (number + 1) / len(keys)
                await asyncio.sleep(max(0.0, due_s - asyncio.get_running_loop().time()))
                if self.queue.resync_owed and not len(self.queue):
                    break
            if self.queue.resync_owed and not len(self.queue):
                self.queue.begin_resync()
                for key in list(self.cache.keys()):
                    self.intake.resync(key)
            if not keys:
                await asyncio.sleep(RESYNC_S / 20)

    async def _check_schemas(self) -> None:
        while True:
            await asyncio.sleep(SCHEMA_CHECK_S)
            for key in await self.store.check_schemas():
                self.queue.add(key, Class.CHANGED)

    async def _read_secrets(self) -> None:
        """A rotation is found within a minute or so; copies in turn, some at a time."""
        while True:
            await asyncio.sleep(SECRETS_S)
            for place in self.secrets.oldest(SECRETS_AT_A_TIME):
                await self.secrets.read(*place, within_s=SECRETS_S / 2)

    def _secret_changed(self, place: tuple[str, str]) -> None:
        for key in self.connections.users_of(place):
            self.queue.add(key, Class.CHANGED)
        is_source = self.connections.is_source(place)
        namespaces = self.cache.namespaces() if is_source else {place[0]} if place[1] == CONNECTION_COPY else set()
        for namespace in sorted(namespaces):
            self.queue.add(namespace_key(namespace), Class.CHANGED)
            for key in (
                [] if is_source else self.cache.keys_in(namespace)
            ):  # a Secret of its own may have come, or gone
                self.queue.add(key, Class.CHANGED)

    # ---- small services

    def _session_ended(self, digest: str) -> None:
        """An attempt to open a session ended: its resources continue."""
        for key in self.connections.take_waiting(digest):
            self.queue.add(key, Class.CHANGED)

    def _labels_of_namespace(self, name: str) -> Mapping[str, str] | None:
        document = self.cache.get(NAMESPACE.kind, "", name)
        return None if document is None else document["metadata"].get("labels") or {}

    def _notify_id(self, id_: UUID) -> None:
        for key in (*self.store.keys_of(id_), *self.bulk_rows.keys_of(id_)):
            self.queue.add(key, Class.RESYNC)

    def _forget(self, key: Key) -> None:
        self.board.forget(key)
        self.store.forget(key)
        self.bulk_rows.forget(key)
        self.connections.forget(key)


def supervised(works: Mapping[str, Callable[[], Coroutine[Any, Any, None]]]) -> dict[str, Coroutine[Any, Any, None]]:
    """Each continues for ever, whatever error it meets."""
    return {what: SupervisedLoop(what, work, log=log, pause_s_max=PAUSE_S_MAX).run() for what, work in works.items()}
