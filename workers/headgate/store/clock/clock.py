"""The clock of a process (rule R1): reads the machine's clocks, queries the nodes' clocks, and reports when they
differ. All decisions are in clock_state.py, the argument in docs/internals/protocols/clocks.md.

    async with Clock(store) as clock:
        promise = Promise(clock.require(), lasts_us)    # refuses with one line when the time is not to be relied on

It knows no driver: `NodeTimes` is the interface that it needs of a store. The machine's clocks are passed in, and
waiting is the event loop's, so that a simulated process has clocks of its own.

Survives: unavailable or slow nodes (queried concurrently, with a time limit); a pause of this process between any two
lines (noticed at the next `now_us` or `require`).
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Protocol

from headgate.errors import Unavailable
from headgate.expiry import SECOND_US
from headgate.process.background_tasks import SupervisedLoop, start_task
from headgate.store.clock import clock_state as decide
from headgate.store.clock.clock_state import Bounds, ClockProblem, ClockReading, ClockState, Doubt, Instant, Trust
from headgate.store.store import STORE_ERRORS
from headgate.telemetry.metrics import Registry

log = logging.getLogger("headgate.clock")

TURN_S = 0.25
ASK_WITHIN_S = 2.0
ASKED_TIMES = 3


class ClockNotTrusted(Unavailable):
    """The clock is not trusted, so nothing is owned, acknowledged or sent."""


class NodeTimes(Protocol):
    """The interface that a store offers to the clock. `CassandraStore` and the simulated one implement it."""

    def coordinators(self) -> Mapping[str, bool]:
        """All nodes of the home data centre that could be coordinators, and whether each is up."""

    async def ask_time(self, coordinator: str, within_s: float) -> int:
        """That node's own clock: microseconds since 1970, truncated to milliseconds. Unavailable if it does not
        answer."""

    def exclude(self, coordinators: frozenset[str]) -> None:
        """From now on send nothing to these (but `ask_time`), and to all others again."""


class TimeSource(Protocol):
    """The machine's clocks."""

    def read_instant(self) -> Instant:
        """Both, read at the same time."""


class MachineTime:
    """CLOCK_BOOTTIME counts while the machine sleeps, and nobody can set it; NTP steers the wall clock."""

    def read_instant(self) -> Instant:
        """Boot time is read before and after the wall clock: a switch of tasks in between would seem to be a step."""
        best: tuple[int, Instant] | None = None
        for _ in range(3):
            before = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
            wall = time.time_ns()
            after = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
            instant = Instant((before + after) // 2000, wall // 1000)
            if after - before < 1_000_000:
                return instant
            best = min(best or (after - before, instant), (after - before, instant), key=lambda each: each[0])
        assert best is not None  # noqa: S101 - three turns were made
        return best[1]


@dataclass(frozen=True)
class ClockFigures:
    trusted: bool
    differences_us: Mapping[str, int]
    """By node; positive where the node is ahead. Nodes that did not answer are left out."""
    uncertainties_us: Mapping[str, int]
    excluded: tuple[str, ...]
    """Nodes that are not used as coordinators."""
    bound_us: int
    pauses: int
    steps: int


class Clock:
    """Now, as this process may promise by it."""

    def __init__(
        self,
        nodes: NodeTimes,
        *,
        bounds: Bounds | None = None,
        source: TimeSource | None = None,
        turn_s: float = TURN_S,
    ) -> None:
        self._nodes = nodes
        self._bounds = bounds or Bounds()
        self._source = source or MachineTime()
        self._turn_s = turn_s
        self._state: ClockState = decide.begin(self._source.read_instant())
        self._judged: ClockState | None = None
        self._trust: Trust | None = None
        self._given_us = 0
        self._reported: ClockProblem | None = None
        self._excluded: frozenset[str] = frozenset()
        self._checking = asyncio.Lock()
        self._concluded = asyncio.Event()
        self._probes = 0
        self._probed_boot_us = 0
        self._keeper = SupervisedLoop("clock", self._keep, log=log)

    async def __aenter__(self) -> Clock:
        self._turn()
        await self.check()
        self._keeper.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._keeper.stop()

    def now_us(self) -> int:
        """The time, in microseconds since 1970; never less than before. It promises nothing: see `require`."""
        return self._give(self._read_instant())

    def require(self, max_skew_us: int | None = None) -> int:
        """The time, if it may be relied on within this bound (the process's own unless a narrower one is given)."""
        instant = self._read_instant()
        if self._state is not self._judged:
            self._judged, self._trust = self._state, decide.trust(self._state, self._bounds)
        trust = self._trust
        narrow = max_skew_us is not None and trust is not None and max_skew_us < trust.bound_us_min
        if trust is None or instant.boot_us >= trust.until_boot_us or narrow:
            problem = decide.find_clock_problem(self._state, instant, self._bounds, max_skew_us)
            if problem is not None:
                raise _error(problem)
        return self._give(instant)

    @property
    def max_skew_us(self) -> int:
        """By how much any two processes' clocks may differ."""
        return self._bounds.max_skew_us

    def serve(self, max_skew_us: int) -> None:
        """From now on a resource with this bound depends on this clock too. Nodes are judged by the widest bound ever
        passed, steps by the narrowest, and `require` by each caller's own."""
        self._bounds = self._bounds.serving(max_skew_us)
        self._judged = None

    async def until_trusted(self, within_s: float, max_skew_us: int | None = None) -> int:
        """Wait until the clock is trusted again, and return the time; raise the reason once the time limit is up."""
        try:
            async with asyncio.timeout(within_s):
                while True:
                    try:
                        return self.require(max_skew_us)
                    except ClockNotTrusted:
                        self._concluded.clear()
                        await self._concluded.wait()
        except TimeoutError:
            return self.require(max_skew_us)

    async def check(self) -> None:
        """Compare with every node now, and judge. One at a time: a concurrent caller waits, and checks again."""
        async with self._checking:
            started = self._source.read_instant()
            readings = await self._ask_all()
            ended = self._source.read_instant()
            self._state = decide.conclude(
                self._state,
                started=started,
                ended=ended,
                readings=readings,
                given_us=self._given_us,
                bounds=self._bounds,
            )
            self._exclude()
        self._report()
        self._concluded.set()

    def figures(self) -> ClockFigures:
        """For metrics: the difference to each node, and whether anything is owned at all."""
        check = self._state.check
        answered = [each for each in check.findings if each.uncertainty_us] if check else []
        return ClockFigures(
            trusted=decide.find_clock_problem(self._state, self._source.read_instant(), self._bounds) is None,
            differences_us={each.node: each.difference_us for each in answered},
            uncertainties_us={each.node: each.uncertainty_us for each in answered},
            excluded=tuple(sorted(self._excluded)),
            bound_us=self._bounds.max_skew_us // 2,
            pauses=self._state.pauses,
            steps=self._state.steps,
        )

    def why_dead(self) -> str | None:
        """Why this clock is not kept any more, if so."""
        return self._keeper.why_dead()

    def _read_instant(self) -> Instant:
        instant = self._source.read_instant()
        self._state = decide.notice(self._state, instant, self._bounds)
        return instant

    def _give(self, instant: Instant) -> int:
        self._given_us = decide.now_us(self._state, instant, self._given_us)
        return self._given_us

    async def _keep(self) -> None:
        while True:
            self._turn()
            instant = self._source.read_instant()
            if decide.is_check_due(self._state, instant, self._up(), self._bounds):
                await self._while_turning(self.check())
            elif instant.boot_us - self._probed_boot_us >= self._bounds.probe_every_us:
                self._probed_boot_us = instant.boot_us
                await self._while_turning(self._probe())
            await asyncio.sleep(self._turn_s)

    async def _probe(self) -> None:
        """One reading of one node. A doubt that it causes is settled by the check of the next turn."""
        node = decide.decide_probe(self._state, self._source.read_instant(), self._probes, self._bounds)
        if node is None:
            return
        self._probes += 1
        reading = await self._ask(node, times=1)
        if reading is not None:
            self._state = decide.probed(self._state, reading, self._source.read_instant(), self._bounds)

    async def _while_turning(self, work: Coroutine[Any, Any, None]) -> None:
        """It takes longer than a turn may when nodes are slow: keep turning meanwhile."""
        asking = start_task("clock check", work)
        try:
            while not asking.done():
                await asyncio.wait({asking}, timeout=self._turn_s)
                self._turn()
            await asking
        finally:
            asking.cancel()

    def _turn(self) -> None:
        self._state = decide.turn(self._state, self._source.read_instant(), self._bounds)
        self._exclude()
        self._report()

    def _exclude(self) -> None:
        """Nodes beyond the bound are not coordinators; nor are those that came up and were not queried yet."""
        excluded = decide.excluded(self._state, self._nodes.coordinators())
        if excluded != self._excluded:
            self._excluded = excluded
            self._nodes.exclude(excluded)

    def _up(self) -> list[str]:
        return [node for node, is_up in self._nodes.coordinators().items() if is_up]

    async def _ask_all(self) -> dict[str, ClockReading | None]:
        asked = self._up()
        answers = await asyncio.gather(*(self._ask(node) for node in asked))
        return dict.fromkeys(self._nodes.coordinators()) | dict(zip(asked, answers, strict=True))

    async def _ask(self, node: str, *, times: int = ASKED_TIMES) -> ClockReading | None:
        """The best of a few readings: a pause of the server in one of them does not affect the result."""
        readings = []
        for _ in range(times):
            sent = self._source.read_instant()
            try:
                node_us = await self._nodes.ask_time(node, ASK_WITHIN_S)
            except STORE_ERRORS:
                break
            readings.append(ClockReading(node, sent.boot_us, self._source.read_instant().boot_us, node_us))
        return decide.best_reading(readings)

    def _report(self) -> None:
        """One line when the trust is lost for a caller that needs it, and one when it is back. There is none when the
        same trouble shows at another node, as it does in turn when this clock is off and all nodes are correct."""
        problem = decide.find_clock_problem(self._state, self._source.read_instant(), self._bounds)
        if (problem.problem if problem else None) == (self._reported.problem if self._reported else None):
            return
        if problem is None:
            log.info("clock is within bounds again")
        elif self._state.doubt is Doubt.NEVER_ASKED:
            return
        else:  # of a doubt, the check that follows reports the result
            level = logging.WARNING if self._state.doubt is None else logging.INFO
            log.log(level, "clock is not trusted", extra={"reason": str(_error(problem))})
        self._reported = problem


def _error(problem: ClockProblem) -> ClockNotTrusted:
    by_ms = None if problem.by_us is None else round(problem.by_us / 1000)
    bound_ms = None if problem.bound_us is None else problem.bound_us // 1000
    facts = {"why": problem.problem, "node": problem.node, "by_ms": by_ms, "bound_ms": bound_ms}
    given = {name: fact for name, fact in facts.items() if fact is not None}
    message = "Clock is not trusted; nothing is owned, acknowledged or sent"
    return ClockNotTrusted(message, remedy=problem.remedy, **given)


_Values = Iterable[tuple[tuple[str, ...], float]]


def measure_clocks(registry: Registry, read: Callable[[], Iterable[ClockFigures]]) -> None:
    """The offset of the nodes' clocks from this process's clock, as metrics: the quantity that a clock bound limits.

    Reported as the last comparison measured it: once per minute, and after each pause or step. A process with several
    connections reports a node once, by the comparison with the largest error.
    """

    def differences() -> _Values:
        return _of_nodes(read(), of_difference=True)

    def uncertainties() -> _Values:
        return _of_nodes(read(), of_difference=False)

    def bound() -> _Values:
        return [((), min(each.bound_us for each in clocks) / SECOND_US)] if (clocks := list(read())) else []

    def trusted() -> _Values:
        return [((), float(all(each.trusted for each in clocks)))] if (clocks := list(read())) else []

    name = "headgate_clock_"
    registry.reading(
        name + "difference_seconds", "Offset of a node's clock from this process's clock.", ["node"], differences
    )
    registry.reading(name + "uncertainty_seconds", "Uncertainty of the clock comparison.", ["node"], uncertainties)
    registry.reading(
        name + "bound_seconds",
        "Largest accepted clock error (difference plus uncertainty): half of maxClockSkew.",
        (),
        bound,
    )
    registry.reading(name + "trusted", "1 while this process's clock is trusted.", (), trusted)


def _of_nodes(clocks: Iterable[ClockFigures], *, of_difference: bool) -> _Values:
    worst: dict[str, tuple[int, int]] = {}
    for each in clocks:
        for node, difference_us in each.differences_us.items():
            measured = difference_us, each.uncertainties_us[node]
            if node not in worst or abs(difference_us) + measured[1] > abs(worst[node][0]) + worst[node][1]:
                worst[node] = measured
    for node, (difference_us, uncertainty_us) in sorted(worst.items()):
        yield (node,), (difference_us if of_difference else uncertainty_us) / SECOND_US
