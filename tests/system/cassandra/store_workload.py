"""Writers and contenders for locks on a store, as a process of its own that can stand on any host of a test.

    python -m tests.system.cassandra.store_workload run      works until its standard input ends, then prints what
    happened python -m tests.system.cassandra.store_workload check    reads the list of acknowledged writes, prints
    what is missing

It prints `acked N` after each hundred acknowledged writes, so that its caller waits for progress, not for time.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from uuid import UUID, uuid4

from headgate.errors import HeadgateError
from headgate.store.cassandra.settings import read_settings
from headgate.store.cassandra.store import CassandraStore
from headgate.store.model.consistency import Consistency
from headgate.store.model.cql import create_keyspace_cql, create_table_cql
from headgate.store.model.statements import Insert, InsertIfAbsent, Select, UpdateIf, is_
from headgate.store.model.table import Column, Keyspace, Table, WrittenBy
from headgate.store.model.types import Type
from headgate.store.store import OutcomeUnknown, Verdict

KEYSPACE = "headgate_ring"
WRITERS = 6
CONTENDERS = 3
LOCKS = 4
LOCK_TTL_S = 20
PRINT_EVERY = 100

WRITES = Table(
    "ring_writes",
    "numbers that were acknowledged to their writers",
    (Column("run", Type.UUID), Column("writer", Type.INT)),
    (Column("number", Type.INT),),
    (Column("v", Type.TEXT),),
)
LOCKED = Table(
    "ring_locks",
    "locks that contenders take",
    (Column("run", Type.UUID), Column("lock", Type.INT)),
    (),
    (Column("holder", Type.UUID, WrittenBy.LWT), Column("attempt", Type.UUID, WrittenBy.LWT)),
    rows=WrittenBy.LWT,
    attempt="attempt",
)


@dataclass
class Observed:
    """The progress so far."""

    run: UUID
    acked: list[int] = field(default_factory=lambda: [0] * WRITERS)
    """The next number of each writer: all below were acknowledged, one after the other."""
    failed: list[str] = field(default_factory=list)
    longest_write_s: float = 0.0
    longest_gap_s: float = 0.0
    last_ack_s: float = field(default_factory=time.monotonic)
    verdicts: Counter[str] = field(default_factory=Counter)
    resolved: int = 0
    unknown_lwts: int = 0
    takes: int = 0
    double_locks: list[int] = field(default_factory=list)

    def acknowledged(self, writer: int, took_s: float) -> None:
        """One more write is durable."""
        now_s = time.monotonic()
        self.longest_gap_s = max(self.longest_gap_s, now_s - self.last_ack_s)
        self.longest_write_s = max(self.longest_write_s, took_s)
        self.last_ack_s = now_s
        self.acked[writer] += 1
        total = sum(self.acked)
        if total % PRINT_EVERY == 0:
            sys.stdout.write(f"acked {total}\n")
            sys.stdout.flush()

    def describe(self) -> str:
        """As one line of JSON."""
        return json.dumps({name: value for name, value in vars(self).items() if name != "last_ack_s"}, default=str)


async def connect() -> CassandraStore:
    """A store with the tables in place."""
    settings = read_settings({**os.environ, "KEYSPACE": KEYSPACE})
    store = await CassandraStore.connect(settings, must_exist=False)
    await store.cql(create_keyspace_cql(Keyspace(KEYSPACE, ((store.data_center, 3),))))
    for table in (WRITES, LOCKED):
        await store.cql(create_table_cql(KEYSPACE, table))
    return store


async def write(store: CassandraStore, objects: Observed, writer: int, ended: asyncio.Event) -> None:
    """Write number after number; each is durable before the next."""
    while not ended.is_set():
        row = {"run": objects.run, "writer": writer, "number": objects.acked[writer], "v": "x" * 100}
        began_s = time.monotonic()
        try:
            await store.write(Insert(WRITES, row, timestamp_us=time.time_ns() // 1000))
        except HeadgateError as error:
            objects.failed.append(f"{type(error).__name__}: {error}")
            continue
        objects.acknowledged(writer, time.monotonic() - began_s)


async def contend(store: CassandraStore, objects: Observed, holders: dict[int, UUID], ended: asyncio.Event) -> None:
    """Take a lock, hold it for a short time, release it; nobody else may hold it meanwhile."""
    turn = 0
    while not ended.is_set():
        turn += 1
        lock = turn % LOCKS
        mine = uuid4()
        key = {"run": objects.run, "lock": lock}
        sent_s = time.monotonic()
        take = UpdateIf(LOCKED, key, {"holder": mine}, is_("holder", None), attempt=mine, ttl_s=LOCK_TTL_S)
        if not await _decided(store, objects, take):
            await asyncio.sleep(0.01)
            continue
        if time.monotonic() - sent_s > LOCK_TTL_S / 2:
            continue
        objects.takes += 1
        if lock in holders:
            objects.double_locks.append(lock)
        holders[lock] = mine
        await asyncio.sleep(0.005)
        del holders[lock]
        await _decided(store, objects, UpdateIf(LOCKED, key, {"holder": None}, is_("holder", mine), attempt=uuid4()))


async def _decided(store: CassandraStore, objects: Observed, statement: UpdateIf) -> bool:
    try:
        outcome = await store.decide(statement)
    except OutcomeUnknown:
        objects.unknown_lwts += 1
        return False
    except HeadgateError as error:
        objects.failed.append(f"{type(error).__name__}: {error}")
        return False
    objects.verdicts[outcome.verdict.value] += 1
    objects.resolved += outcome.resolved
    return outcome.verdict is Verdict.APPLIED


async def run() -> None:
    """Work until standard input ends."""
    store = await connect()
    objects = Observed(uuid4())
    for lock in range(LOCKS):
        await store.decide(InsertIfAbsent(LOCKED, {"run": objects.run, "lock": lock}, attempt=uuid4()))
    ended = asyncio.Event()
    asyncio.get_running_loop().add_reader(sys.stdin, ended.set)
    holders: dict[int, UUID] = {}
    objects.last_ack_s = time.monotonic()
    await asyncio.gather(
        *(write(store, objects, writer, ended) for writer in range(WRITERS)),
        *(contend(store, objects, holders, ended) for _ in range(CONTENDERS)),
    )
    sys.stdout.write(f"ended {objects.describe()}\n")
    await store.close()


async def check() -> None:
    """Read, at a quorum, all that was acknowledged."""
    document = json.loads(sys.stdin.readline())
    store = await connect()
    missing = []
    for writer, count in enumerate(document["acked"]):
        key = {"run": UUID(document["run"]), "writer": writer}
        result = await store.read(Select(WRITES, key, ("number",), consistency=Consistency.LOCAL_QUORUM))
        missing += [(writer, number) for number in sorted(set(range(count)) - {row.number for row in result})]
    sys.stdout.write(f"missing {json.dumps(missing)}\n")
    await store.close()


if __name__ == "__main__":
    asyncio.run({"run": run, "check": check}[sys.argv[1]]())
