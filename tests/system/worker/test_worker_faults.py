"""`headgate worker` on a real Cassandra with slow messages, with rights revoked for a while, with large messages."""

from __future__ import annotations

import asyncio
import os
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import headgate
from dev.servers.cassandra.cql_probe import CqlProbe
from dev.servers.cassandra.serving import Serving
from headgate.errors import OperationRefused
from headgate.local.processes import wait_until
from tests.system.cassandra.test_role import make_role
from tests.system.sdk.commands import Commands
from tests.system.worker.test_worker import Workers, connected, livez, metrics, queue_of, workers

PUTS_PER_S = 100
PUT_FOR_S = 40
"""40 MB at this pace: more than a lane reads ahead."""
LAG_S_MAX = 2.0
"""How long after its put a quick message may be settled on a busy machine."""
REVOKED_S = 8.0
AGAIN_WITHIN_S = 5.0
LARGE = 1024 * 1024
LARGE_PER_LANE = 30
LANES = 12
WORKER_MB_MAX = 300


@pytest.fixture
def keyspace(cassandra: Serving) -> Iterator[str]:
    """A keyspace of one test, and a role of the same name that has the rights of docs/security.md in it."""
    name = f"faults_{uuid.uuid4().hex[:8]}"
    yield name
    cassandra.cql(f"DROP KEYSPACE IF EXISTS {name}")
    cassandra.cql(f"DROP ROLE IF EXISTS {name}")


def apply_queue(cassandra: Serving, keyspace: str, folder: Path, name: str, spec: str) -> dict[str, str]:
    """Apply a queue as the superuser; the environment of a process that uses it as the superuser."""
    environment = {**cassandra.environment(), "KEYSPACE": keyspace}
    file = folder / "queue.yaml"
    file.write_text(queue_of(name, spec))
    done = Commands(environment)("apply", str(file))
    assert (0, []) == (done.code, done.err)
    return environment


# ---- one slow message


@pytest.mark.slow
def test_one_slow_message_in_a_hundred_does_not_stop_its_lane(
    cassandra: Serving, keyspace: str, tmp_path: Path, measured: Callable[[str], None]
) -> None:
    environment = apply_queue(cassandra, keyspace, tmp_path, "steady", "shards: 1")
    quick = PUTS_PER_S * PUT_FOR_S * 99 // 100
    with workers(environment, tmp_path, "shop/steady", "one_in_a_hundred_slow") as fleet:
        fleet.start("one", "--concurrency", "100")
        port = fleet.wait_for_log("one", "worker started")["health_port"]
        put_s = put_steadily(environment, "shop/steady")
        wait_until(lambda: acked(port) >= quick, timeout_s=LAG_S_MAX)
        rate = acked(port) / put_s
        slow = Counter(note.what for note in fleet.notes.all())
        measured(f"{rate:.0f} messages/s settled of {PUTS_PER_S} put per s for {put_s:.1f} s; {slow}")
        assert rate >= 95
        assert slow["begun"] - slow["ended"] >= PUT_FOR_S * 0.95, "the slow messages were not in flight"


def put_steadily(environment: dict[str, str], name: str) -> float:
    """Put numbered messages of 10 kB at an even pace; how long it took."""

    async def work(connection: headgate.Headgate) -> float:
        queue = await connection.queue(name)
        began_s = time.monotonic()
        for first in range(0, PUTS_PER_S * PUT_FOR_S, 10):
            await asyncio.sleep(max(0.0, began_s + first / PUTS_PER_S - time.monotonic()))
            await queue.put_many([number.to_bytes(8) + os.urandom(9_992) for number in range(first, first + 10)])
        return time.monotonic() - began_s

    took_s: float = connected(environment, work)
    return took_s


def acked(port: int) -> float:
    """How many messages a worker has settled as done."""
    return metrics(port)["headgate_worker_acked_total"]


# ---- rights that are revoked for a while


@pytest.mark.slow
def test_workers_whose_rights_are_revoked_for_8_s_continue_by_themselves(
    cassandra: Serving, keyspace: str, tmp_path: Path, measured: Callable[[str], None]
) -> None:
    granted = make_role(cassandra, keyspace)
    environment = apply_queue(cassandra, keyspace, tmp_path, "guarded", "shards: 6")
    cassandra.cql(f"CREATE TABLE {keyspace}.probe (id int PRIMARY KEY)")
    with (
        workers(granted, tmp_path, "shop/guarded", "at_once") as fleet,
        under_load(environment, "shop/guarded") as ids,
    ):
        ports = {}
        for name in ("one", "two"):
            fleet.start(name)
            ports[name] = fleet.wait_for_log(name, "worker started")["health_port"]
        fleet.until(lambda: all(handled_by(fleet, name) >= 20 for name in ports))
        revoke(cassandra, keyspace)
        assert wait_until(lambda: rights_of(cassandra, granted) == set(), timeout_s=5), "a right was left"
        refused_s = time.monotonic()
        assert not wait_until(lambda: rights_of(cassandra, granted) != set(), timeout_s=REVOKED_S, every_s=0.5)
        grant(cassandra, keyspace)
        assert wait_until(lambda: rights_of(cassandra, granted) == set(RIGHTS), timeout_s=5), "a right is missing"
        granted_s = time.monotonic()
        before = {name: handled_by(fleet, name) for name in ports}
        again = wait_until(
            lambda: all(handled_by(fleet, name) > before[name] for name in ports), timeout_s=AGAIN_WITHIN_S
        )
        after = {name: handled_by(fleet, name) - before[name] for name in ports}
        measured(
            f"refused for {granted_s - refused_s:.1f} s; after {time.monotonic() - granted_s:.1f} s: {after} handled,"
            f" {[livez(port) for port in ports.values()]}, {[each.poll() for each in fleet.running.values()]}"
        )
        assert dict.fromkeys(ports) == {name: fleet.running[name].poll() for name in ports}
        assert again, f"handled since the grant: {after}; {[last_lines(fleet, name) for name in ports]}"
        ids.stop()
        fleet.until(lambda: set(ids.all()) <= set(fleet.notes.begun()), timeout_s=60)
        assert dict.fromkeys(ports, (200, b"ok\n")) == {name: livez(port) for name, port in ports.items()}
        assert dict.fromkeys(ports) == {name: fleet.running[name].poll() for name in ports}


class Load:
    """Puts 40 messages per second until it is stopped."""

    def __init__(self, environment: dict[str, str], name: str) -> None:
        self._ids: list[str] = []
        self._stopped = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, args=(environment, name))
        self._thread.start()

    def stop(self) -> None:
        """Put nothing more; raises what ended it before."""
        self._stopped.set()
        self._thread.join()
        if self._error is not None:
            raise self._error

    def all(self) -> list[str]:
        """The ids of all that was put; after its end."""
        assert not self._thread.is_alive()
        return self._ids

    def _run(self, environment: dict[str, str], name: str) -> None:
        async def work(connection: headgate.Headgate) -> None:
            queue = await connection.queue(name)
            while not self._stopped.is_set():
                self._ids += await queue.put_many([b"x"] * 10)
                await asyncio.to_thread(self._stopped.wait, 0.25)

        try:
            connected(environment, work)
        except BaseException as error:
            self._error = error


@contextmanager
def under_load(environment: dict[str, str], name: str) -> Iterator[Load]:
    """A queue to which messages are put, until the end at the latest."""
    load = Load(environment, name)
    try:
        yield load
    finally:
        load.stop()


def handled_by(fleet: Workers, name: str) -> int:
    """How many messages a worker has begun."""
    return sum(note.worker == name for note in fleet.notes.all())


def last_lines(fleet: Workers, name: str) -> list[str]:
    """The last log lines of a worker, without tracebacks."""
    return [f"{line['level']}: {line['message']}" for line in fleet.log(name)[-5:]]


RIGHTS = ("SELECT", "MODIFY")


def revoke(cassandra: Serving, name: str) -> None:
    """Take the rights to read and to write from the role of the keyspace."""
    for right in RIGHTS:
        cassandra.cql(f"REVOKE {right} ON KEYSPACE {name} FROM {name}")


def grant(cassandra: Serving, name: str) -> None:
    """Give them back."""
    for right in RIGHTS:
        cassandra.cql(f"GRANT {right} ON KEYSPACE {name} TO {name}")


def rights_of(cassandra: Serving, granted: dict[str, str]) -> set[str]:
    """Which rights the role has now: a statement for each is tried, since a server caches them for half a second."""
    connection = cassandra.connection.as_role(granted["USERNAME"], granted["PASSWORD"])
    table = f"{granted['KEYSPACE']}.probe"
    statements = (f"SELECT id FROM {table}", f"INSERT INTO {table} (id) VALUES (1)")  # noqa: S608  a name of ours
    with CqlProbe(connection.contact_points[0], connection) as probe:
        return {right for right, statement in zip(RIGHTS, statements, strict=True) if is_allowed(probe, statement)}


def is_allowed(probe: CqlProbe, statement: str) -> bool:
    """Whether a statement is not refused."""
    try:
        probe.query(statement)
    except OperationRefused:
        return False
    return True


# ---- a backlog of large messages


def test_twelve_lanes_with_a_backlog_of_1_mib_messages_take_less_than_300_mb(
    cassandra: Serving, keyspace: str, tmp_path: Path, measured: Callable[[str], None]
) -> None:
    environment = apply_queue(cassandra, keyspace, tmp_path, "large", f"shards: {LANES}")
    ids = put_backlog(environment, "shop/large")
    with workers(environment, tmp_path, "shop/large", "slow") as fleet:
        fleet.start("one", "--concurrency", "4")
        fleet.until(lambda: set(ids) <= set(fleet.notes.begun()))
        peak_mb = peak_memory_mb(fleet.running["one"].pid)
        port = fleet.wait_for_log("one", "worker started")["health_port"]
        measured(f"peak of the worker's memory: {peak_mb:.0f} MB")
        assert LANES == metrics(port)["headgate_worker_lanes"]
        assert 0 == fleet.end("one")
    assert peak_mb < WORKER_MB_MAX


def put_backlog(environment: dict[str, str], name: str) -> list[str]:
    """Messages of the default's largest size that do not compress, ten at a time."""

    async def work(connection: headgate.Headgate) -> list[str]:
        queue = await connection.queue(name)
        ids: list[str] = []
        for _ in range(LANES * LARGE_PER_LANE // 10):
            ids += await queue.put_many([os.urandom(LARGE) for _ in range(10)])
        return ids

    matches: list[str] = connected(environment, work)
    return matches


def peak_memory_mb(pid: int) -> float:
    """The most that a process had in memory so far."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    (peak,) = (line.split() for line in lines if line.startswith("VmHWM:"))
    assert peak[2] == "kB"
    return int(peak[1]) / 1024
