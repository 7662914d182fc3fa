"""The client's side: a Store that connects to simulated nodes, as the driver does to real ones.

It belongs to one process of the world: when that is paused or killed, so is it; its requests are on their way none
the less. It chooses coordinators by the rules of the real one (cassandra_routing.py): only in the home data centre,
any replica in turn for plain requests and the first one in ring order for LWTs, one that let a request time out
last.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any

from headgate.errors import Bug
from headgate.store.clock.clock_state import Instant
from headgate.store.memory.keys import partition_key, token_of
from headgate.store.model.rows import Row
from headgate.store.model.statements import Batch, BatchIf, Decision, Scan, Select, Write, partition_of
from headgate.store.store import AttemptAnswer, NotEnoughReplicas, OutcomeUnknown, Store
from tests.kit.simulated_store.cluster import Cluster
from tests.kit.simulated_store.node import DECISIONS, SimulatedNode
from tests.kit.simulated_store.scanning import Page, RangeCommand
from tests.kit.simulated_world.process import Process, ProcessState

SUSPECT_S = 15.0


class SimulatedStore(Store):
    """Runs statements on a simulated ring, in virtual time."""

    def __init__(self, cluster: Cluster, process: Process, *, home: str | None = None) -> None:
        self.cluster = cluster
        self.process = process
        self.home = home or process.data_centre
        self._loop = cluster.world.loop
        self._turn = process.rng.randrange(1_000)
        self._suspect_until_s: dict[str, float] = {}
        self._excluded: frozenset[str] = frozenset()
        self._pending: dict[int, tuple[asyncio.Future[Any], str]] = {}
        self._requests = 0
        self._closed = False
        for name in self._local_nodes():
            self._watch(cluster.nodes[name])

    # ---- the interface of a Store

    @property
    def data_center(self) -> str:
        """Its home."""
        return self.home

    async def attempt(self, statement: Write | Decision | Select, within_s: float) -> AttemptAnswer:
        """Send it once."""
        answer: AttemptAnswer = await self._ask(statement, within_s)
        return answer

    async def scan(self, scan: Scan) -> AsyncIterator[Row]:
        """Keys by token range, page by page."""
        command = RangeCommand(scan, None)
        while True:
            page = await self._page(command)
            for row in page.rows:
                yield row
            if page.after is None:
                return
            command = RangeCommand(scan, page.after)

    async def _page(self, command: RangeCommand) -> Page:
        page: Page = await self._tried_again(lambda left_s: self._ask(command, left_s), None)
        return page

    def monotonic_s(self) -> float:
        """The monotonic clock of this process."""
        return self.process.clock.monotonic_s()

    async def pause(self, seconds: float) -> None:
        """Wait in virtual time."""
        await asyncio.sleep(seconds)

    async def close(self) -> None:
        """Requests in flight end as Unknown."""
        self._closed = True
        pending, self._pending = self._pending, {}
        for future, _ in pending.values():
            if not future.done():
                future.set_exception(OutcomeUnknown("The store was closed"))

    # ---- the interface for a clock

    def coordinators(self) -> Mapping[str, bool]:
        """All nodes of the home data center, and whether each is up as far as this client knows."""
        return {name: self._is_up(self.cluster.nodes[name]) for name in self._local_nodes()}

    async def ask_time(self, coordinator: str, within_s: float) -> int:
        """A node's own clock, in microseconds, cut to milliseconds."""
        node = self.cluster.nodes[coordinator]
        number, future = self._open(node.name)
        self._send(node, node.answer_time, number)
        time_us: int = await self._await(number, future, within_s, node.name)
        return time_us

    def exclude(self, coordinators: frozenset[str]) -> None:
        """From now on send nothing to these (but `ask_time`), and to all others again."""
        self._excluded = coordinators

    # ---- within

    async def _ask(self, statement: Any, within_s: float) -> Any:
        if self._closed:
            raise Bug("The store is closed")
        node = self._coordinator_for(statement)
        number, future = self._open(node.name)
        noted = self.process.note
        noted("asks", ("number", number), ("node", node.name), _shown(statement))
        self._send(node, node.serve, number, statement)
        try:
            answer = await self._await(number, future, within_s, node.name)
        except Exception as error:
            noted("hears", ("number", number), type(error).__name__, str(error))
            raise
        noted("hears", ("number", number), _shown_answer(answer))
        return answer

    def _open(self, node: str) -> tuple[int, asyncio.Future[Any]]:
        self._requests += 1
        future: asyncio.Future[Any] = self._loop.create_future()
        self._pending[self._requests] = (future, node)
        return self._requests, future

    def _send(self, node: SimulatedNode, receive: Any, number: int, *args: Any) -> None:
        def answered(answer: Any) -> None:
            self._answered(number, answer)

        self.cluster.world.network.send("request", self.process, node.process, receive, self.process, *args, answered)

    async def _await(self, number: int, future: asyncio.Future[Any], within_s: float, node: str) -> Any:
        timer = self._loop.call_later(max(0.0, within_s), self._expire, number, node)
        try:
            return await future
        finally:
            timer.cancel()
            self._pending.pop(number, None)

    def _answered(self, number: int, answer: Any) -> None:
        entry = self._pending.get(number)
        if entry is None:
            return
        future, node = entry
        self._suspect_until_s.pop(node, None)
        if future.done():
            return
        if isinstance(answer, BaseException):
            future.set_exception(answer)
        else:
            future.set_result(answer)

    def _expire(self, number: int, node: str) -> None:
        self._suspect_until_s[node] = self._loop.time() + SUSPECT_S
        entry = self._pending.get(number)
        if entry is not None and not entry[0].done():
            entry[0].set_exception(OutcomeUnknown("No answer in time", coordinator=node))

    def _coordinator_for(self, statement: Any) -> SimulatedNode:
        nodes = self.cluster.nodes
        usable = [name for name in self._local_nodes() if name not in self._excluded and self._is_up(nodes[name])]
        if not usable:
            raise NotEnoughReplicas("No node of the home data centre can be reached")
        self._turn += 1
        start = self._turn % len(usable)
        plan = usable[start:] + usable[:start]
        token = _token(statement)
        if token is not None:
            replicas = self.cluster.topology.replicas(token)
            if isinstance(statement, DECISIONS):
                plan.sort(key=lambda name: replicas.index(name) if name in replicas else len(replicas))
            elif len(replicas) < len(nodes):  # else all are replicas, and this would change nothing
                plan.sort(key=lambda name: name not in replicas)
        if self._suspect_until_s:
            now_s = self._loop.time()
            plan.sort(key=lambda name: self._suspect_until_s.get(name, 0.0) > now_s)
        return nodes[plan[0]]

    def _local_nodes(self) -> tuple[str, ...]:
        return self.cluster.topology.nodes.get(self.home, ())

    def _is_up(self, node: SimulatedNode) -> bool:
        """A dead node breaks its connections, so its clients know; a stopped or partitioned one does not."""
        return node.process.state is not ProcessState.DEAD

    def _watch(self, node: SimulatedNode) -> None:
        """A node that dies breaks its connections: every caller that waited for it learns that, and nothing else."""

        def check() -> None:
            if node.process.state is ProcessState.DEAD:
                for number, (_, name) in list(self._pending.items()):
                    if name == node.name:
                        self._loop.call_later(0.0005, self._broken, number, context=self.process.context)

        self.cluster.watch(node.name, check)

    def _broken(self, number: int) -> None:
        entry = self._pending.get(number)
        if entry is not None and not entry[0].done():
            entry[0].set_exception(OutcomeUnknown("The connection broke before the answer", coordinator=entry[1]))


def _token(statement: Any) -> int | None:
    if isinstance(statement, RangeCommand):
        return None
    first = statement.statements[0] if isinstance(statement, (Batch, BatchIf)) else statement
    return token_of(partition_key(first.shape.table, partition_of(first)))


class _Shown:
    """A statement for the history: written out only when the history is read."""

    __slots__ = ("statement",)

    def __init__(self, statement: Any) -> None:
        self.statement = statement

    def __repr__(self) -> str:
        return repr(self.statement)


def _shown(statement: Any) -> _Shown:
    return _Shown(statement)


def _shown_answer(answer: Any) -> Any:
    if isinstance(answer, AttemptAnswer):
        return ("applied", answer.applied) if not answer.rows else ("rows", tuple(answer.rows))
    return ("rows", len(answer.rows)) if isinstance(answer, Page) else answer


class SimulatedTime:
    """The machine's clocks, as a simulated process reads them."""

    def __init__(self, process: Process) -> None:
        self._clock = process.clock

    def read_instant(self) -> Instant:
        """Both, at the same time."""
        return Instant(round(self._clock.boottime_s() * 1_000_000), self._clock.wall_us())
