"""`headgate worker` on a real Cassandra: drains lanes, ends well, and what becomes of messages when it does not."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
import uuid
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import headgate
from dev.servers.cassandra.serving import Serving
from headgate.client.model.values import LaneStatus
from headgate.local.processes import wait_until

ROOT = Path(__file__).parents[3]
KEYSPACE = f"worker_{uuid.uuid4().hex[:12]}"


def queue_of(name: str, spec: str, timeline: str = "") -> str:
    """A queue whose clocks are near, so that nothing waits long."""
    return f"""---
apiVersion: headgate.io/v1beta1
kind: Queue
metadata: {{name: {name}, namespace: shop}}
spec: {{maxClockSkew: 100ms, timeline: {{safetyLag: 200ms, {timeline}}}, storage: {{tables: shared}}, {spec}}}
"""


QUEUES = "".join(
    [
        queue_of("wide", "shards: 12"),
        queue_of("drained", "shards: 4"),
        queue_of("fragile", "shards: 3, maxReceives: 3, deadLetter: dead"),
        queue_of("dead", "shards: 1"),
        queue_of("stormy", "shards: 6"),
        queue_of("stuck", "shards: 2"),
        queue_of("blocked", "shards: 2", "lease: {ttl: 4s, touch: 500ms}"),
    ]
)

LET_GO = ("message lost while in flight", "message not settled; it may be delivered again")


@pytest.fixture(scope="module")
def connection_variables(cassandra: Serving, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment of a process whose queues were applied."""
    environment = {**cassandra.environment(), "KEYSPACE": KEYSPACE}
    file = tmp_path_factory.mktemp("worker") / "queues.yaml"
    file.write_text(QUEUES)
    done = subprocess.run(
        [sys.executable, "-m", "headgate.cli.main", "apply", str(file)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert (0, 7) == (done.returncode, done.stdout.count(" created ")), done.stderr
    return environment


@dataclass(frozen=True)
class Note:
    """One line of a handler."""

    what: str
    worker: str
    message_id: str
    attempt: int
    epoch: int


class Notes:
    """Notes of the handlers."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def all(self) -> list[Note]:
        """So far."""
        lines = self.path.read_text().splitlines() if self.path.exists() else []
        return [
            Note(what, actor, what_of, int(attempt), int(epoch))
            for line in lines
            for what, actor, what_of, attempt, epoch in [line.split()]
        ]

    def begun(self) -> Counter[str]:
        """How often each message was begun."""
        return Counter(each.message_id for each in self.all() if each.what == "begun")


class Workers:
    """Processes of `headgate worker`, one queue and one handler."""

    def __init__(self, connection_variables: dict[str, str], folder: Path, queue: str, handler: str) -> None:
        self.notes = Notes(folder / "notes")
        self._environment = {**os.environ, **connection_variables, "NOTES": str(self.notes.path)}
        self._environment["PYTHONPATH"] = f"{ROOT / 'workers'}{os.pathsep}{ROOT}"
        self._queue = queue
        self._handler = handler
        self._folder = folder
        self.running: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str, *options: str) -> None:
        """One more."""
        command = [sys.executable, "-m", "headgate.cli.main", "worker", self._queue]
        command += [
            "--handler",
            f"tests.system.worker.worker_handlers:{self._handler}",
            "--health",
            "127.0.0.1:0",
            *options,
        ]
        with (self._folder / f"{name}.log").open("ab") as log:
            self.running[name] = subprocess.Popen(
                command, cwd=ROOT, env={**self._environment, "WORKER": name}, stdout=log, stderr=log
            )

    def end(self, name: str, number: int = signal.SIGTERM, *, within_s: float = 40) -> int:
        """Send it a signal; how it ended."""
        process = self.running.pop(name)
        process.send_signal(number)
        return process.wait(within_s)

    def log(self, name: str) -> list[dict[str, Any]]:
        """Its log lines."""
        return [json.loads(line) for line in (self._folder / f"{name}.log").read_text().splitlines()]

    def wait_for_log(self, name: str, text: str) -> dict[str, Any]:
        """Wait for a line of its log."""
        matches: list[dict[str, Any]] = []

        def has_line() -> bool:
            matches[:] = [line for line in self.log(name) if line["message"] == text]
            return bool(matches)

        assert wait_until(has_line, timeout_s=60), self.log(name)
        return matches[0]

    def until(self, holds: Callable[[], bool], *, timeout_s: float = 120) -> None:
        """Wait; the workers' logs are printed if it does not come."""
        if not wait_until(holds, timeout_s=timeout_s):
            logs = {name.stem: name.read_text()[-3_000:] for name in self._folder.glob("*.log")}
            raise AssertionError(f"{len(self.notes.begun())} begun; {logs}")


@contextmanager
def workers(connection_variables: dict[str, str], folder: Path, queue: str, handler: str) -> Iterator[Workers]:
    """Workers, all ended at the end."""
    made = Workers(connection_variables, folder, queue, handler)
    try:
        yield made
    finally:
        for process in made.running.values():
            process.kill()
            process.wait()


def connected(
    connection_variables: dict[str, str], work: Callable[[headgate.Headgate], Coroutine[Any, Any, Any]]
) -> Any:
    """Do something on a connection."""

    async def run() -> Any:
        async with headgate.connect(connection_variables) as connection:
            return await work(connection)

    return asyncio.run(run())


def put(connection_variables: dict[str, str], name: str, payloads: list[bytes], *, every_s: float = 0.0) -> list[str]:
    """Put these, in flushes of a hundred; their ids."""

    async def work(connection: headgate.Headgate) -> list[str]:
        queue = await connection.queue(name)
        ids: list[str] = []
        for start in range(0, len(payloads), 100):
            ids += await queue.put_many(payloads[start : start + 100])
            await asyncio.sleep(every_s)
        return ids

    matches: list[str] = connected(connection_variables, work)
    return matches


def metrics(port: int) -> dict[str, float]:
    """A worker's metrics for Prometheus."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    return {line.split("{")[0]: float(line.rpartition(" ")[2]) for line in lines if not line.startswith("#")}


def test_one_worker_drains_twelve_lanes_reports_what_it_did_and_ends_well(
    connection_variables: dict[str, str], tmp_path: Path
) -> None:
    ids = put(connection_variables, "shop/wide", [b"%d" % number for number in range(1_200)])
    with workers(connection_variables, tmp_path, "shop/wide", "at_once") as fleet:
        fleet.start("one")
        fleet.until(lambda: set(ids) <= set(fleet.notes.begun()))
        port = fleet.wait_for_log("one", "worker started")["health_port"]
        fleet.until(lambda: metrics(port)["headgate_worker_acked_total"] >= len(ids))
        observation = metrics(port)
        assert (12, 0) == (observation["headgate_worker_lanes"], observation["headgate_worker_in_flight"])
        assert 0 <= observation["headgate_worker_lease_age_seconds"] < 10
        assert (
            len(ids)
            == observation["headgate_worker_lag_seconds_count"]
            == observation["headgate_worker_received_total"]
        )
        for probe in ("livez", "readyz"):
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/{probe}", timeout=10) as answer:
                assert b"ok\n" == answer.read()
        assert 0 == fleet.end("one")
        assert {1} == set(fleet.notes.begun().values())
        assert "worker stopped" == fleet.log("one")[-1]["message"]


def test_sigterm_under_load_delivers_nothing_twice(connection_variables: dict[str, str], tmp_path: Path) -> None:
    with workers(connection_variables, tmp_path, "shop/drained", "slow") as fleet:
        fleet.start("one")
        fleet.wait_for_log("one", "worker started")
        ids = put(connection_variables, "shop/drained", [b"x"] * 800)
        fleet.until(lambda: len(fleet.notes.begun()) >= 200)
        fleet.start("two")
        assert 0 == fleet.end("one")
        assert len(fleet.notes.begun()) < len(ids), "the signal to end came too late to show anything"
        fleet.until(lambda: set(ids) <= set(fleet.notes.begun()))
        assert 0 == fleet.end("two")
        assert [] == [each for each, times in fleet.notes.begun().items() if times > 1]
        ended = Counter(each.message_id for each in fleet.notes.all() if each.what == "ended")
        assert set(ids) == set(ended)


def test_a_handler_that_kills_its_process_is_a_dead_letter_and_its_neighbours_are_not(
    connection_variables: dict[str, str], tmp_path: Path
) -> None:
    payloads = [b"x"] * 300
    payloads[150] = b"kill"
    with workers(connection_variables, tmp_path, "shop/fragile", "fragile") as fleet:
        fleet.start("one", "--backoff", "200ms")
        fleet.wait_for_log("one", "worker started")
        ids = put(connection_variables, "shop/fragile", payloads)
        assert -signal.SIGKILL == fleet.running.pop("one").wait(60)
        fleet.start("two", "--backoff", "200ms")
        killer = ids[150]
        others = set(ids) - {killer}

        def all_ended() -> bool:
            return others <= {each.message_id for each in fleet.notes.all() if each.what == "ended"}

        fleet.until(all_ended, timeout_s=180)
        fleet.until(lambda: any(line["message"] == "message moved to dead-letter queue" for line in fleet.log("two")))
        assert fleet.running["two"].poll() is None, "the second worker died too"
        assert 0 == fleet.end("two")

        async def dead(connection: headgate.Headgate) -> list[tuple[bytes, Any, Any]]:
            queue = await connection.queue("shop/dead")
            result = await queue.receive(10, wait=20)
            await queue.ack(result)
            more = await queue.receive(10, wait=3)
            return [
                (each.payload, each.attributes["headgate.dead.reason"], each.attributes["headgate.dead.attempts"])
                for each in result + more
            ]

        assert [(b"kill", "its process was killed by SIGKILL", "3")] == connected(connection_variables, dead)
        # with its worker, in groups of 16 that halve, once where its process had run another, three times alone
        assert 1 + 3 <= fleet.notes.begun()[killer] <= 1 + 4 + 1 + 3
        twice = {each for each, times in fleet.notes.begun().items() if times > 1} - {killer}
        received = {each.message_id for each in fleet.notes.all() if each.worker == "one"}
        assert len(twice - received) < 16, "but for the group of the killer, only what the first worker had begun"


def test_three_workers_killed_in_turn_under_load_lose_nothing_and_repeat_only_what_was_in_flight(
    connection_variables: dict[str, str], tmp_path: Path
) -> None:
    with workers(connection_variables, tmp_path, "shop/stormy", "slow") as fleet:
        names = ["one", "two", "three"]
        for name in names:
            fleet.start(name)
        for name in names:
            fleet.wait_for_log(name, "worker started")
        putting = subprocess.Popen(
            [sys.executable, "-c", _PUTTER, json.dumps(connection_variables)],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": f"{ROOT / 'workers'}{os.pathsep}{ROOT}"},
            stdout=subprocess.PIPE,
            text=True,
        )
        killed: list[str] = []
        for turn, name in enumerate(names):
            fleet.until(lambda name=name: sum(each.worker == name for each in fleet.notes.all()) >= 100)  # type: ignore[misc]
            assert -signal.SIGKILL == fleet.end(name, signal.SIGKILL)
            killed.append(name)
            fleet.start(f"again-{turn}")
            fleet.wait_for_log(f"again-{turn}", "worker started")
        assert putting.stdout is not None
        ids = json.loads(putting.communicate(timeout=120)[0])
        fleet.until(
            lambda: set(ids) <= {each.message_id for each in fleet.notes.all() if each.what == "ended"}, timeout_s=240
        )
        for turn in range(3):
            assert 0 == fleet.end(f"again-{turn}")
        notes = fleet.notes.all()
        begun = [each for each in notes if each.what == "begun"]
        twice = {each for each, times in Counter(note.message_id for note in begun).items() if times > 1}
        last_of_killed = {
            note.message_id for name in killed for note in [each for each in begun if each.worker == name][-100:]
        }
        # Where the machine stood still, a living worker's lease expired, and that worker logged it.
        let_go = {
            line["message_id"]
            for name in [*names, "again-0", "again-1", "again-2"]
            for line in fleet.log(name)
            if line["message"] in LET_GO
        }
        unexplained = twice - last_of_killed - let_go
        reported_of = [each for each in notes if each.message_id in unexplained]
        assert set() == unexplained, f"{len(unexplained)} came twice that were not in flight: {reported_of[:20]}"


def lanes_of(connection_variables: dict[str, str], queue: str) -> dict[tuple[int, int], LaneStatus]:
    """How each lane stands."""

    async def work(connection: headgate.Headgate) -> Any:
        return (await (await connection.queue(queue)).stats()).lanes

    return {(each.generation, each.shard): each for each in connected(connection_variables, work)}


def test_a_handler_that_blocks_its_worker_costs_the_lanes_of_that_worker_a_lease_and_no_message(
    connection_variables: dict[str, str], tmp_path: Path
) -> None:
    with workers(connection_variables, tmp_path, "shop/blocked", "blocking") as fleet:
        fleet.start("one")
        fleet.wait_for_log("one", "worker started")
        (blocks,) = put(connection_variables, "shop/blocked", [b"block"])
        fleet.until(lambda: fleet.notes.begun()[blocks] == 1)
        began_s = time.monotonic()
        fleet.start("two")
        ids = put(connection_variables, "shop/blocked", [b"x"] * 100)
        wanted = {blocks, *ids}
        fleet.until(lambda: wanted <= {each.message_id for each in fleet.notes.all() if each.what == "ended"})
        assert time.monotonic() - began_s < 60
        assert "time.sleep(600)" in fleet.wait_for_log("one", "event loop is blocked")["stack"]
        assert {"two"} == {each.worker for each in fleet.notes.all() if each.what == "ended"}
        assert 2 == fleet.notes.begun()[blocks]
        assert -signal.SIGKILL == fleet.end("one", signal.SIGKILL)
        assert 0 == fleet.end("two")


@pytest.mark.slow
def test_a_worker_whose_loop_hangs_while_its_touch_continues_is_stopped_and_its_lane_moves_within_a_minute(
    connection_variables: dict[str, str], tmp_path: Path, measured: Callable[[str], None]
) -> None:
    with workers(connection_variables, tmp_path, "shop/stuck", "at_once") as fleet:
        for name in ("one", "two"):
            fleet.start(name)
            fleet.wait_for_log(name, "worker started")
        fleet.until(lambda: has_a_lane_each(connection_variables, "shop/stuck"), timeout_s=60)
        fleet.running["one"].send_signal(signal.SIGUSR1)
        began_s = time.monotonic()
        before = lanes_of(connection_variables, "shop/stuck")
        ids = put(connection_variables, "shop/stuck", [b"x"] * 200)
        fleet.until(lambda: set(ids) <= set(fleet.notes.begun()))
        took_s = time.monotonic() - began_s
        measured(f"a lane whose owner hangs moved after {took_s:.0f} s")
        assert 25 < took_s < 60
        stopped = fleet.wait_for_log("two", "emergency stop: the owner of a lane makes no progress")
        lane = tuple(map(int, stopped["lane"].split("/")))
        after = lanes_of(connection_variables, "shop/stuck")
        assert before[lane].fencing_token == stopped["epoch"] < after[lane].fencing_token
        assert {"two"} == {each.worker for each in fleet.notes.all()}
        assert fleet.running["one"].poll() is None
        assert (503, b"a lane was taken from it: its loop hung") == livez(
            fleet.wait_for_log("one", "worker started")["health_port"]
        )
        assert (200, b"ok\n") == livez(fleet.wait_for_log("two", "worker started")["health_port"])
        assert [0, 0] == [fleet.end("one"), fleet.end("two")]


def livez(port: int) -> tuple[int, bytes]:
    """The probe's answer, and the beginning of its text."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/livez", timeout=10) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as refused:
        return refused.code, refused.read().split(b",")[0]


def has_a_lane_each(connection_variables: dict[str, str], queue: str) -> bool:
    """Whether each lane has an owner of its own."""
    held = [lane.owner for lane in lanes_of(connection_variables, queue).values()]
    return None not in held and len(set(held)) == len(held)


_PUTTER = """
import asyncio, json, sys
import headgate

async def main():
    async with headgate.connect(json.loads(sys.argv[1])) as connection:
        queue = await connection.queue("shop/stormy")
        ids = []
        for _ in range(100):
            ids += await queue.put_many([b"x"] * 20)
            await asyncio.sleep(0.15)
        print(json.dumps(ids))

asyncio.run(main())
"""
