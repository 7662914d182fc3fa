"""The API server as a process of the simulated world: it serves requests that the network brings, pushes watches.

Faults on the way are the network's; faults of the server are in `faults`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from headgate_operator.cluster.requests import ApiRequest, ApiResponse
from tests.kit.simulated_cluster import refusals
from tests.kit.simulated_cluster.collecting import DELAY_S, GarbageCollector
from tests.kit.simulated_cluster.controllers import Deployments, IdleNode, Kubelet, PodNode
from tests.kit.simulated_cluster.faults import ApiFault, Faults, Wrong
from tests.kit.simulated_cluster.log import WriteEntry
from tests.kit.simulated_cluster.plain import copied
from tests.kit.simulated_cluster.schedules import IdlePrograms, JobPrograms, Schedules
from tests.kit.simulated_cluster.server import ApiServer
from tests.kit.simulated_cluster.watching import BOOKMARK_EVERY_S, Event, Watcher, WatchRequest
from tests.kit.simulated_world import Process, World

SERVE_S: Final = (0.002, 0.006)
"""How long a request takes at the server."""
Reply = Callable[[ApiResponse], None]
Deliver = Callable[[int, Event | None], None]


class SimulatedApi:
    """An API server in a world."""

    def __init__(self, world: World, *, name: str = "api-server") -> None:
        self.world = world
        self.process = world.process(name)
        self.faults = Faults()
        self._rng = world.rng("api server")
        self.server = ApiServer(now_us=self.process.clock.wall_us, new_uid=lambda: str(self.process.uuid()))
        self.server.when_written(self._written)
        self.requests: list[tuple[float, str, ApiRequest]] = []
        """Every requested write with its time and its client. Tests of a quiet minute use it."""
        self.collector = GarbageCollector(self.server, self._later)
        self._watchers: dict[int, tuple[Watcher, str]] = {}
        self._opened = 0

    # ---- requests

    def serve(self, source: Process, request: ApiRequest, reply: Reply) -> None:
        """A request has arrived."""
        if request.verb not in ("get", "list"):
            self.requests.append((self.world.now_s(), source.name, request))
        fault = self.faults.strike(request, source.name)
        if fault is not None:
            self.process.note("fault", fault.wrong.value, str(request))
            if fault.wrong is Wrong.UNHEARD:
                return
        unheld = self.server.is_unheld(request)
        self.world.loop.call_later(self._rng.uniform(*SERVE_S), self._serve, source, request, reply, fault, unheld)

    def _serve(
        self, source: Process, request: ApiRequest, reply: Reply, fault: ApiFault | None, unheld: bool
    ) -> None:
        answer = self._answer(request, fault, unheld)
        self.process.note("answers", source.name, str(request), answer.status)
        if fault is None or fault.wrong is not Wrong.UNANSWERED:
            self.world.network.send("api answer", self.process, source, reply, answer)

    def _answer(self, request: ApiRequest, fault: ApiFault | None, unheld: bool) -> ApiResponse:
        match fault.wrong if fault else None:
            case Wrong.THROTTLED if fault:
                return refusals.throttled(fault.retry_after_s).answer
            case Wrong.CONFLICT:
                return refusals.modified(request.kind, request.name or "").answer
            case Wrong.BROKEN:
                return refusals.broken().answer
            case Wrong.BROKEN_AFTER:
                self.server.answer(request, was_unheld=unheld)
                return refusals.broken().answer
        return self.server.answer(request, was_unheld=unheld)

    # ---- watches

    def open_watch(self, source: Process, request: WatchRequest, number: int, deliver: Deliver) -> None:
        """A watch has arrived."""

        def send(event_number: int, event: Event | None) -> None:
            copy = copied(event)
            self.world.network.send("api event", self.process, source, deliver, event_number, copy)

        watcher = Watcher(self.server, request, send)
        self._watchers[number] = (watcher, source.name)
        watcher.begin()
        self.world.loop.call_later(BOOKMARK_EVERY_S, self._bookmark, number)
        self.world.loop.call_later(request.within_s, self.end_watch, number)

    def next_number(self) -> int:
        """A number for a watch."""
        self._opened += 1
        return self._opened

    def end_watch(self, number: int) -> None:
        """Its time is over, or nobody listens any more."""
        watcher, _ = self._watchers.pop(number, (None, ""))
        if watcher is not None:
            watcher.bookmark()
            watcher.send_event(None)

    def hang_watches(self, source: str | None = None) -> None:
        """A fault: watches stay open and send no more events and no bookmarks."""
        for number, (watcher, watch_source) in list(self._watchers.items()):
            if source in (None, watch_source):
                watcher.open = False
                del self._watchers[number]

    def _bookmark(self, number: int) -> None:
        if number in self._watchers:
            self._watchers[number][0].bookmark()
            self.world.loop.call_later(BOOKMARK_EVERY_S, self._bookmark, number)

    def _written(self, entry: WriteEntry) -> None:
        for watcher, _ in list(self._watchers.values()):
            watcher.note(entry)

    def staff(self, node: PodNode | None = None, programs: JobPrograms | None = None) -> None:
        """Have Deployments, pods, CronJobs and Jobs worked; without this nobody does."""
        later, rng = self.world.outside, self.world.rng("controllers")
        Deployments(self.server, later, rng)
        Kubelet(self.server, later, rng, node or IdleNode())
        Schedules(self.server, later, rng, programs or IdlePrograms())

    def _later(self, act: Callable[[], object]) -> None:
        self.world.outside(self._rng.uniform(*DELAY_S), act)

    def write(self, **asked: Any) -> ApiResponse:
        """A request from within the cluster, as of somebody with kubectl: no network, no fault."""
        return self.server.answer(ApiRequest(**asked))
