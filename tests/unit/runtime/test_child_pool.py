"""The pool of children, with children of the test: what they run, what is charged, and how a handler is stopped."""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Awaitable, Callable, Sequence
from random import Random

import pytest

from headgate.engines.contract import Ack, Delivery, NackDelivery, Settle
from headgate.errors import EnvironmentProblem
from headgate.process.background_tasks import end_task
from headgate.runtime.handler.context import Attempt, Context
from headgate.runtime.handler.decide_retry import Backoff
from headgate.runtime.isolation.child_pool import STOP_WITHIN_S, ChildPool, PoolTerms, Suspect
from headgate.runtime.isolation.decide_groups import CHILDREN_MAX, GROUP_MAX
from tests.unit.runtime.workers import in_virtual_time


class Limits:
    """The control of a message: it keeps the bounds that the pool sets."""

    def __init__(self) -> None:
        self.limits: list[float] = []

    async def extend(self, seconds: float) -> bool:
        return True

    def extend_blocking(self, seconds: float) -> bool:
        return True

    def deadline_s(self) -> float | None:
        return None

    def limit(self, seconds: float) -> None:
        self.limits.append(seconds)


class GuidedChild:
    """A child whose test decides what becomes of its messages."""

    pid = None

    def __init__(self, bench: PoolBench) -> None:
        self.ran = 0
        self.is_killed = False
        self.members: list[Suspect] = []
        self.ended: asyncio.Future[str | None]
        self._bench = bench

    async def run(self, members: Sequence[Suspect]) -> str | None:
        if self._bench.broken is not None:
            raise self._bench.broken
        self.members = [member for member in members if not member.is_settled]
        self.ended = asyncio.get_running_loop().create_future()
        self.is_killed = False
        self._bench.groups.append([name_of(member) for member in self.members])
        self._bench.running.append(self)
        try:
            return await self.ended
        finally:
            self._bench.running.remove(self)

    def begin(self, *names: str) -> None:
        for member in self.members:
            if not names or name_of(member) in names:
                self.ran += 1
                member.begin()

    def answer(self, *names: str) -> None:
        for member in self.members:
            if not names or name_of(member) in names:
                member.end(Ack(member.delivery.receipt))
        if all(member.is_settled for member in self.members):
            self.ended.set_result(None)

    async def die(self, why: str = "its process was killed by SIGKILL") -> None:
        self.ended.set_result(why)
        for _ in range(5):
            await asyncio.sleep(0)
        self.ran = 0

    def cancel(self, member: Suspect) -> None:
        self._bench.cancelled.append(name_of(member))
        if name_of(member) != "stubborn":
            member.end(None)

    def kill(self) -> None:
        self.is_killed = True
        for member in self.members:
            member.stopped.set()
        self.ended.set_result("its process was killed by SIGKILL")

    async def end(self) -> None:
        self.ran = 0


class PoolBench:
    def __init__(self) -> None:
        self.groups: list[list[str]] = []
        """Of messages that ran together, in their order."""
        self.running: list[GuidedChild] = []
        self.cancelled: list[str] = []
        self.performing: list[asyncio.Task[Sequence[Settle]]] = []
        self.broken: Exception | None = None
        self.deaths = 0
        self.controls: dict[str, Limits] = {}
        terms = PoolTerms(timeout_s=7, backoff=Backoff(0, 1, 0))
        self.pool = ChildPool(lambda: GuidedChild(self), terms, self._note_death, rng=Random(1))

    def _note_death(self) -> None:
        self.deaths += 1

    async def perform(self, *names: str) -> list[asyncio.Task[Sequence[Settle]]]:
        """Give the pool these messages in one step, and let it start."""
        tasks = []
        for name in names:
            delivery = Delivery(name, b"", {}, None, 1, 0, 0, 1, 0, name)
            control = self.controls[name] = Limits()
            attempt = Attempt(delivery, 0.0, Context(delivery, "test/queue", control))
            tasks.append(asyncio.get_running_loop().create_task(self._perform(attempt)))
        self.performing += tasks
        for _ in range(5):
            await asyncio.sleep(0)
        return tasks

    async def _perform(self, attempt: Attempt) -> Sequence[Settle]:
        return await self.pool.perform([attempt])


def name_of(member: Suspect) -> str:
    return member.delivery.message_id


def names(first: int, after: int) -> list[str]:
    return [str(number) for number in range(first, after)]


def on_bench(scenario: Callable[[PoolBench], Awaitable[None]]) -> None:
    async def run() -> None:
        bench = PoolBench()
        await scenario(bench)
        await bench.pool.close()
        await end_task(*bench.performing)

    in_virtual_time(run)


def test_messages_that_come_together_make_full_groups_and_each_is_settled_when_its_handler_ends() -> None:
    async def scenario(bench: PoolBench) -> None:
        count = CHILDREN_MAX * GROUP_MAX
        performing = await bench.perform(*names(0, count))
        late = await bench.perform("late")
        assert [GROUP_MAX] * CHILDREN_MAX == [len(group) for group in bench.groups]
        assert names(0, count) == [name for group in bench.groups for name in group]
        child = bench.running[0]
        child.begin()
        child.answer("3")
        assert (Ack("3"),) == await performing[3]
        assert not any(task.done() for task in [*performing[:3], *performing[4:]])
        child.answer()
        await asyncio.gather(*performing[:GROUP_MAX])
        await asyncio.sleep(0)
        assert ["late"] == bench.groups[-1]
        bench.running[-1].answer()
        assert [(Ack("late"),)] == [await task for task in late]

    on_bench(scenario)


def test_a_death_of_several_charges_none_and_their_halves_run_before_others_without_the_answered() -> None:
    async def scenario(bench: PoolBench) -> None:
        performing = await bench.perform(*names(0, 5))
        child = bench.running[0]
        child.begin("0", "1", "2", "3")
        child.answer("1")
        await child.die()
        assert [["0", "2"], ["3"], ["4"]] == bench.groups[1:]
        assert [1] == [index for index, task in enumerate(performing) if task.done()]
        assert 1 == bench.deaths

    on_bench(scenario)


def test_one_that_ends_a_process_of_its_own_is_charged_and_stays_a_suspect() -> None:
    async def scenario(bench: PoolBench) -> None:
        (performing,) = await bench.perform("0")
        bench.running[0].begin()
        await bench.running[0].die("its process ended with exit code 7")
        expected = NackDelivery("0", 0, "its process ended with exit code 7", killed=True)
        assert (expected,) == await performing

    on_bench(scenario)


def test_one_that_ends_a_process_which_ran_another_is_charged_only_after_it_ran_alone() -> None:
    async def scenario(bench: PoolBench) -> None:
        (first,) = await bench.perform("0")
        bench.running[0].begin()
        bench.running[0].answer()
        await first
        (second,) = await bench.perform("1")
        for _ in range(2):
            assert not second.done()
            bench.running[0].begin()
            await bench.running[0].die()
        assert [NackDelivery("1", 0, "its process was killed by SIGKILL", killed=True)] == list(await second)
        assert [["0"], ["1"], ["1"]] == bench.groups

    on_bench(scenario)


def test_a_handler_that_stops_leaves_its_group_alone_and_another_is_ended_with_its_process() -> None:
    async def scenario(bench: PoolBench) -> None:
        performing = await bench.perform("0", "gentle", "stubborn", "3")
        child = bench.running[0]
        child.begin()
        performing[1].cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await performing[1]
        assert [child] == bench.running
        performing[2].cancel()
        before_s = asyncio.get_running_loop().time()
        with contextlib.suppress(asyncio.CancelledError):
            await performing[2]
        assert STOP_WITHIN_S == asyncio.get_running_loop().time() - before_s
        for _ in range(5):
            await asyncio.sleep(0)
        assert (["gentle", "stubborn"], [["0", "3"]]) == (bench.cancelled, bench.groups[1:])
        assert (0, False, False) == (bench.deaths, performing[0].done(), performing[3].done())

    on_bench(scenario)


def test_a_process_that_dies_before_a_message_began_is_started_again_a_few_times_and_charges_none() -> None:
    async def scenario(bench: PoolBench) -> None:
        performing = await bench.perform("0", "1")
        for _ in range(3):
            await bench.running[0].die()
        settles = [settle for task in performing for settle in await task]
        assert [("0", False), ("1", False)] == [
            (each.receipt, each.charged) for each in settles if isinstance(each, NackDelivery)
        ]
        assert 0 == bench.deaths
        bench.broken = EnvironmentProblem("Crash suspect process does not start")
        (broken,) = await bench.perform("2")
        (settle,) = await broken
        assert isinstance(settle, NackDelivery) and not settle.charged

    on_bench(scenario)


def test_the_timeout_of_a_message_runs_from_the_start_of_its_handler() -> None:
    async def scenario(bench: PoolBench) -> None:
        await bench.perform("0", "1")
        bench.running[0].begin("0")
        assert ([math.inf, 7], [math.inf]) == (bench.controls["0"].limits, bench.controls["1"].limits)
        bench.running[0].begin("1")
        await bench.running[0].die()
        assert [math.inf, 7, math.inf] == bench.controls["0"].limits

    on_bench(scenario)


def test_messages_that_wait_for_a_process_are_returned_when_the_worker_drains() -> None:
    async def scenario(bench: PoolBench) -> None:
        running = await bench.perform(*names(0, CHILDREN_MAX * GROUP_MAX))
        (waiting,) = await bench.perform("waits")
        bench.pool.drain()
        assert (NackDelivery("waits", charged=False),) == await waiting
        assert not any(task.done() for task in running)

    on_bench(scenario)


def test_a_bug_of_the_pool_is_raised_to_the_worker() -> None:
    async def scenario(bench: PoolBench) -> None:
        bench.broken = KeyError("a bug")
        (performing,) = await bench.perform("0")
        with pytest.raises(KeyError, match="a bug"):
            await performing

    on_bench(scenario)
