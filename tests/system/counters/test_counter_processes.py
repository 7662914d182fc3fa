"""Ten processes count the same and different keys while they are killed and collectors run: the totals are exact.

Mutators die of age every second or two and of `kill -9`, states are culled, and every process collects all the time.
"""

from __future__ import annotations

import http.client
import json
import os
import random
import socket
import sys
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from click.testing import CliRunner

from dev.servers.cassandra.serving import Serving
from dev.servers.owned_server import OwnedServer
from headgate.cli.main import main
from headgate.counters.model.decide_tokens import Token
from headgate.local.processes import wait_until

ROOT = Path(__file__).parents[3]
KEYSPACE = f"counting_{uuid.uuid4().hex[:12]}"
PROCESSES = 10
CALLERS = 12
UPDATES_MIN, UPDATES_MAX = 6_000, 100_000
KEYS = 30
CALLS_A_CONNECTION = 40
KILLS = 5
STARTS_WITHIN_S = 120.0
TRIES_MAX = 200
TIMEOUT_S = 30.0
RESOURCES = """
apiVersion: headgate.io/v1beta1
kind: Counter
metadata: {name: hits, namespace: shop}
spec: {type: sum, buckets: 8, storage: {tables: shared}}
---
apiVersion: headgate.io/v1beta1
kind: Counter
metadata: {name: visitors, namespace: shop}
spec: {type: distinct, buckets: 8, storage: {tables: shared}}
"""


@dataclass
class Front:
    """The one port that all processes listen on, and the processes."""

    port: int
    servers: list[OwnedServer]
    kills: int = 0
    _local: threading.local = field(default_factory=threading.local)

    def ask(self, method: str, path: str) -> tuple[int, bytes]:
        """By this thread's connection, or a new one; 0 when it was cut off: nobody knows what became of it."""
        connection = getattr(self._local, "connection", None)
        if connection is None:
            connection = self._local.connection = http.client.HTTPConnection(
                "127.0.0.1", self.port, timeout=TIMEOUT_S
            )
        try:
            connection.request(method, path)
            answer = connection.getresponse()
            return answer.status, answer.read()
        except (OSError, http.client.HTTPException):
            connection.close()
            self._local.connection = None
            return 0, b""

    def leave(self) -> None:
        """The next call is by another connection: another process may answer."""
        connection = getattr(self._local, "connection", None)
        if connection is not None:
            connection.close()
        self._local.connection = None

    def ask_again(self, path: str) -> Any:
        """By a connection of its own."""
        self.leave()
        status, body = self.ask("GET", path)
        assert 200 == status, (body, [each.last_error_lines() for each in self.servers if not each.alive()])
        return json.loads(body)

    def kill_one(self, rng: random.Random) -> None:
        """kill -9, and another in its place."""
        server = rng.choice(self.servers)
        server.kill()
        server.log.unlink()
        server.start()
        self.kills += 1
        assert wait_until(lambda: _is_ready(server), timeout_s=STARTS_WITHIN_S), server.last_error_lines()


def _is_ready(server: OwnedServer) -> bool:
    return server.log.exists() and "ready" in server.log.read_text(errors="replace").split()


@pytest.fixture
def front(cassandra: Serving, tmp_path: Path) -> Iterator[Front]:
    """All processes, ready."""
    environment = {**cassandra.environment(), "KEYSPACE": KEYSPACE}
    file = tmp_path / "counters.yaml"
    file.write_text(RESOURCES)
    done = CliRunner().invoke(main, ["apply", str(file)], env=environment)
    assert 0 == done.exit_code, done.output
    with socket.socket() as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        held.bind(("127.0.0.1", 0))
        port = held.getsockname()[1]
        servers = [
            OwnedServer(
                f"counting-{number}",
                [sys.executable, "-m", "tests.system.counters.counter_process", str(port)],
                log=tmp_path / f"{number}.log",
                cwd=ROOT,
                env={**os.environ, "PYTHONPATH": "workers:.", **environment},
            )
            for number in range(PROCESSES)
        ]
        try:
            for server in servers:
                server.start()
            for server in servers:
                assert wait_until(lambda s=server: _is_ready(s), timeout_s=STARTS_WITHIN_S), server.last_error_lines()
            yield Front(port, servers)
        finally:
            for server in servers:
                server.kill()
    cassandra.cql(f"DROP KEYSPACE {KEYSPACE}")


@dataclass
class Report:
    """The callers' answers."""

    counted: Counter[str] = field(default_factory=Counter)
    unknown: dict[str, list[int]] = field(default_factory=dict)
    once: Counter[str] = field(default_factory=Counter)
    repeated: int = 0
    visitors: dict[str, set[str]] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def bounds(self, key: str) -> tuple[int, int]:
        """Between which its total lies: what was acknowledged is counted, each that is not known may be or not."""
        counted, unknown = self.counted[key], self.unknown.get(key, [])
        return counted + sum(min(each, 0) for each in unknown), counted + sum(max(each, 0) for each in unknown)


def key_of(number: int) -> str:
    """Every second update goes to the same key."""
    return "same" if number % 2 else f"key-{number % KEYS}"


def call(front: Front, connection_variables: Report, number: int) -> None:
    """One update: plainly, with a token, or of a kind that may be repeated as it likes."""
    key, amount = key_of(number), number % 7 - 1
    if number % 3 == 0:
        status, body = front.ask("POST", f"/sum/plain-{key}?argument={amount}")
        assert status in (0, 204, 503), body
        with connection_variables.lock:
            if status == 204:
                connection_variables.counted[f"plain-{key}"] += amount
            else:
                connection_variables.unknown.setdefault(f"plain-{key}", []).append(amount)
        return
    if number % 3 == 1:
        token = Token(int(time.time()), f"update-{number}")
        path = f"/sum/once-{key}?argument={amount}&token={quote(str(token))}"
    else:
        path = f"/distinct/{key}?argument=visitor-{number}"
    tries = 0
    while (answer := front.ask("POST", path))[0] != 204:
        assert answer[0] in (0, 503), answer
        tries += 1
        assert tries < TRIES_MAX
    with connection_variables.lock:
        connection_variables.repeated += tries
        if number % 3 == 1:
            connection_variables.once[f"once-{key}"] += amount
        else:
            connection_variables.visitors.setdefault(key, set()).add(f"visitor-{number}")


@pytest.mark.slow
def test_ten_processes_count_exactly_while_they_are_killed_and_collectors_run(
    front: Front, measured: Callable[[str], None]
) -> None:
    record = Report()
    over = threading.Event()

    def call_always(caller: int) -> int:
        for number in range(caller, UPDATES_MAX, CALLERS):
            if over.is_set() and number >= UPDATES_MIN:
                break
            if number // CALLERS % CALLS_A_CONNECTION == 0:
                front.leave()  # so that those that came later are called too
            call(front, record, number)
        return number

    rng = random.Random(1)
    with ThreadPoolExecutor(CALLERS) as pool:
        calling = pool.map(call_always, range(CALLERS))
        try:
            while front.kills < KILLS:  # by this thread: what a thread started ends with it
                front.kill_one(rng)
        finally:
            over.set()
        updates = max(calling)
    assert UPDATES_MIN <= updates
    assert wait_until(lambda: any(front.ask_again("/collected") for _ in range(PROCESSES)), timeout_s=TIMEOUT_S)

    for _ in range(3):  # of whatever process
        assert dict(record.once) == {key: front.ask_again(f"/sum/{key}") for key in record.once}
        for key in record.counted.keys() | record.unknown.keys():
            low, high = record.bounds(key)
            assert low <= front.ask_again(f"/sum/{key}") <= high, (key, low, high)
        for key, visitors in record.visitors.items():
            value = front.ask_again(f"/distinct/{key}")
            assert value["low"] <= len(visitors) <= value["high"], (key, len(visitors), value)
    unknown = sum(map(len, record.unknown.values()))
    assert unknown or record.repeated, "no kill met an update on its way"
    measured(f"{updates} updates, {front.kills} kills, {unknown} not known, {record.repeated} repeated: totals exact")
