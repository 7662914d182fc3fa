"""Groups of suspects in real processes: what kills is found, and nothing else is charged or lost."""

from __future__ import annotations

import asyncio
import os
import signal
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from headgate.engines.contract import Ack, Delivery, NackDelivery
from headgate.local.processes import wait_until
from headgate.runtime.handler.decide_retry import Backoff
from headgate.runtime.handler.handlers import load_handler
from headgate.runtime.handler.runner import PythonPerformer
from headgate.runtime.isolation.child import Child, ChildTerms
from headgate.runtime.isolation.child_pool import ChildPool, PoolTerms
from headgate.runtime.isolation.decide_groups import CHILDREN_MAX, GROUP_MAX
from headgate.runtime.worker.worker import SUSPECTS_MAX, WorkerTerms
from tests.kit.worker_queue import FaultyQueue
from tests.unit.runtime.test_worker_process import worker
from tests.unit.runtime.workers import Bench, bench_of

DEATHS_MAX = 5
"""Of one that kills, among GROUP_MAX."""


class SuspectQueue(FaultyQueue):
    """Everything that it delivers is a suspect, any number at a time."""

    async def receive(self, limit: int, *, visibility_us: int | None = None, wait_us: int = 0) -> list[Delivery]:
        given = await super().receive(limit, visibility_us=visibility_us, wait_us=wait_us)
        return [replace(each, suspect=True) for each in given]


class Runs:
    """The notes of the handlers: the process and the payload of each start of a handler."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> list[tuple[int, str]]:
        lines = self._path.read_text().splitlines() if self._path.exists() else []
        return [(int(pid), payload) for pid, _, payload in (line.partition(" ") for line in lines)]

    @property
    def processes(self) -> set[int]:
        return {pid for pid, _ in self.read()}

    @property
    def of_payload(self) -> Counter[str]:
        return Counter(payload for _, payload in self.read())


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Runs:
    path = tmp_path / "runs"
    monkeypatch.setenv("HEADGATE_TEST_RUNS", str(path))
    return Runs(path)


def bench(handler: str, payloads: Sequence[str], timeout_s: float = 30) -> Bench:
    """A worker of a queue of these suspects."""
    entry_point = f"tests.unit.runtime.killers:{handler}"
    at_once = Backoff(0, 1, 0)
    child_terms = ChildTerms(entry_point, "test/queue", "text", "error")

    def count_death() -> None:
        made.metrics.child_deaths.add(1)

    made = bench_of(
        None,
        queue=SuspectQueue(max_receives=1, visibility_us=4_000_000),
        performer=PythonPerformer(load_handler(entry_point), threads=4, rng=Random(1)),
        suspects=ChildPool(lambda: Child(child_terms), PoolTerms(timeout_s, at_once), count_death, rng=Random(1)),
        terms=WorkerTerms(concurrency=SUSPECTS_MAX, prefetch=0, backoff=at_once, timeout_s=timeout_s, grace_s=5),
    )
    for payload in payloads:
        made.queue.put_now(payload.encode())
    return made


async def until_settled(made: Bench) -> None:
    running = asyncio.get_running_loop().create_task(made.worker.run())
    async with asyncio.timeout(60):
        while made.queue.live and not running.done():
            await made.queue.next_event()
    made.worker.end()
    await running


def charged(made: Bench) -> list[str]:
    return [each.reason for each in made.queue.settles if isinstance(each, NackDelivery) and each.charged]


def acked(made: Bench) -> int:
    receipts = [each.receipt for each in made.queue.settles if isinstance(each, Ack)]
    assert len(receipts) == len(set(receipts)) == made.metrics.acked.value
    return len(receipts)


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("kill", "its process was killed by SIGKILL"),
        ("exit", "its process ended with exit code 7"),
        ("segfault", "its process was killed by SIGSEGV"),
    ],
)
def test_of_64_suspects_the_one_that_kills_is_charged_and_the_others_are_settled_once(
    runs: Runs, kind: str, reason: str
) -> None:
    async def scenario() -> None:
        made = bench("recorded", [kind if n == 37 else f"wait:{n}" for n in range(SUSPECTS_MAX)])
        await until_settled(made)
        assert ([reason], SUSPECTS_MAX - 1) == (charged(made), acked(made))
        assert [(kind.encode(), 1)] == [(dead.payload, dead.attempts) for dead in made.queue.dead]
        assert {1} == {each.attempt for each in made.queue.deliveries}
        assert SUSPECTS_MAX == len(made.queue.deliveries)
        deaths = made.metrics.child_deaths.value
        assert runs.of_payload[kind] == deaths <= DEATHS_MAX
        assert len(runs.processes) <= CHILDREN_MAX + DEATHS_MAX + 1
        again = [payload for payload, count in runs.of_payload.items() if count > 1]
        assert len(again) <= GROUP_MAX, "messages of another group ran again"

    asyncio.run(scenario())


def test_several_that_kill_are_all_charged_and_a_message_that_was_answered_never_runs_again(runs: Runs) -> None:
    async def scenario() -> None:
        made = bench("recorded", [f"kill:{n}" if n in (1, 7, 12) else f"fine:{n}" for n in range(GROUP_MAX)])
        await until_settled(made)
        assert (["its process was killed by SIGKILL"] * 3, GROUP_MAX - 3) == (charged(made), acked(made))
        assert all(count == 1 for payload, count in runs.of_payload.items() if payload.startswith("fine"))

    asyncio.run(scenario())


def test_a_batch_handler_gets_each_suspect_of_a_group_by_itself(runs: Runs) -> None:
    async def scenario() -> None:
        made = bench("recorded_batch", ["a", "b", "c"])
        await until_settled(made)
        assert ({"a": 1, "b": 1, "c": 1}, 3) == (runs.of_payload, acked(made))

    asyncio.run(scenario())


def test_a_handler_that_takes_too_long_is_stopped_alone_where_it_can_be(runs: Runs) -> None:
    async def scenario() -> None:
        made = bench("recorded", ["hang", *(f"wait:{n}" for n in range(4))], timeout_s=1)
        await until_settled(made)
        assert (["the handler exceeded its timeout of 1 s"], 4) == (charged(made), acked(made))
        assert (1, 0) == (len(runs.processes), made.metrics.child_deaths.value)
        assert {1} == set(runs.of_payload.values())

    asyncio.run(scenario())


def test_a_handler_that_cannot_be_stopped_ends_its_process_and_the_others_run_again_together(runs: Runs) -> None:
    async def scenario() -> None:
        made = bench("recorded_in_thread", ["patient:1", "hang", "patient:2"], timeout_s=1)
        await until_settled(made)
        assert (["the handler exceeded its timeout of 1 s"], 2) == (charged(made), acked(made))
        first, second = [{payload for pid, payload in runs.read() if pid == each} for each in _in_order(runs)]
        assert ({"patient:1", "hang", "patient:2"}, {"patient:1", "patient:2"}) == (first, second)
        assert 0 == made.metrics.child_deaths.value

    asyncio.run(scenario())


def test_a_kill_from_outside_charges_no_message_of_a_group(runs: Runs) -> None:
    async def scenario() -> None:
        made = bench("recorded", [f"hold:{n}" for n in range(8)])
        running = asyncio.get_running_loop().create_task(made.worker.run())
        assert await asyncio.to_thread(wait_until, lambda: len(runs.read()) == 8, timeout_s=30)
        os.kill(runs.read()[0][0], signal.SIGKILL)
        async with asyncio.timeout(30):
            while made.queue.live:
                await made.queue.next_event()
        made.worker.end()
        await running
        assert ([], 8, 1) == (charged(made), acked(made), made.metrics.child_deaths.value)

    asyncio.run(scenario())


def test_children_die_with_their_worker_whatever_they_run(runs: Runs) -> None:
    with worker("recorded_in_thread", 1, "hang", 60, environment={"HEADGATE_TEST_SUSPECTS": "1"}) as report:
        report.until("open")
        assert wait_until(lambda: len(runs.read()) == 1, timeout_s=30)
        assert report.process.pid not in runs.processes
        report.process.kill()
        report.process.wait(10)
        assert wait_until(lambda: not any(_lives(pid) for pid in runs.processes), timeout_s=10)


def _in_order(runs: Runs) -> list[int]:
    return list(dict.fromkeys(pid for pid, _ in runs.read()))


def _lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
