"""bench-store's contender: the same work through our store's public API, from asyncio, with all its rules kept.

Each plain write carries its own timestamp (R4), each LWT leaves a fresh attempt (R3), a read is whole (R8).
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Awaitable, Callable, Mapping

from bench.store_work import HOT_NAME, LOCKS, ROWS, RequestKind, StoreContender
from headgate.errors import Bug, HeadgateError
from headgate.store.cassandra.settings import read_settings
from headgate.store.cassandra.store import CassandraStore
from headgate.store.model.consistency import Consistency
from headgate.store.model.rows import Row
from headgate.store.model.statements import Batch, Insert, InsertIfAbsent, Select, Slice, SliceBound, UpdateIf, is_not
from headgate.store.model.types import Value
from headgate.store.store import Store


def _now_us() -> int:
    return time.time_ns() // 1000


class HeadgateContender(StoreContender):
    """Our store."""

    def __init__(self, runner: asyncio.Runner, store: Store) -> None:
        super().__init__("headgate")
        self._runner = runner
        self._store = store
        self._requests: dict[RequestKind, Callable[[], Awaitable[int]]] = {
            RequestKind.INSERT: self._insert,
            RequestKind.BATCH: self._batch,
            RequestKind.PACKED: self._pack,
            RequestKind.SLICE: self._slice,
            RequestKind.LWT_DISTINCT: self._claim,
            RequestKind.LWT_HOT: self._change,
        }

    def drive(self, in_flight: int) -> None:
        self._runner.run(self._drive(in_flight))

    def write_part(self, part: int, rows: list[tuple[int, bytes]]) -> None:
        self._runner.run(self._store.write(self._batch_of(part, rows)))

    def read_part(self, part: int) -> dict[int, bytes]:
        key: dict[str, Value] = {"stream": self.stream, "part": part}
        return {row.seq: row.payload for row in self._runner.run(self._read(Select(ROWS, key, ("seq", "payload"))))}

    def make_lock(self, name: int, payload: bytes) -> None:
        self._runner.run(self._store.decide(self._claim_of(name, payload)))

    def read_lock(self, name: int) -> bytes | None:
        key: dict[str, Value] = {"stream": self.stream, "name": name}
        read = Select(LOCKS, key, ("payload",), consistency=Consistency.SERIAL)
        rows = self._runner.run(self._read(read))
        return rows[0].payload if rows else None

    def close(self) -> None:
        self._runner.run(self._store.close())
        self._runner.close()

    async def _drive(self, in_flight: int) -> None:
        await asyncio.gather(*(self._caller() for _ in range(in_flight)))

    async def _caller(self) -> None:
        tally, request = self.tally, self._requests[self.kind]
        while tally.may_begin():
            sent = time.perf_counter()
            try:
                tally.done(sent, await request())
            except HeadgateError as error:
                tally.fail(error)

    async def _read(self, select: Select) -> list[Row]:
        return list(await self._store.read(select))

    async def _insert(self) -> int:
        part, seq, payload = self.next_insert()
        values: dict[str, Value] = {"stream": self.stream, "part": part, "seq": seq, "payload": payload}
        await self._store.write(Insert(ROWS, values, timestamp_us=_now_us()))
        self.acknowledged(part, payload)
        return 1

    def _batch_of(self, part: int, rows: list[tuple[int, bytes]]) -> Batch:
        now_us, stream = _now_us(), self.stream
        return Batch(
            Insert(ROWS, {"stream": stream, "part": part, "seq": seq, "payload": payload}, timestamp_us=now_us)
            for seq, payload in rows
        )

    async def _batch(self) -> int:
        part, rows = self.next_part(), self.next_batch()
        await self._store.write(self._batch_of(part, rows))
        self.acknowledged(part, len(rows))
        return len(rows)

    async def _pack(self) -> int:
        part, payload = self.next_part(), self.next_packed()
        values: dict[str, Value] = {"stream": self.stream, "part": part, "seq": 0, "payload": payload}
        await self._store.write(Insert(ROWS, values, timestamp_us=_now_us()))
        self.acknowledged(part, payload)
        return self.rows

    async def _slice(self) -> int:
        part, seq = self.next_slice()
        rows = await self._store.read(
            Select(
                ROWS,
                {"stream": self.stream, "part": part},
                ("seq", "payload"),
                within=Slice("seq", lower=SliceBound(seq, True)),
                limit=self.rows,
            )
        )
        return self.check_slice(len(rows), rows[0].seq, seq)

    def _claim_of(self, name: int, payload: bytes) -> InsertIfAbsent:
        return InsertIfAbsent(LOCKS, {"stream": self.stream, "name": name, "payload": payload}, attempt=uuid.uuid4())

    async def _claim(self) -> int:
        name, payload = self.next_part(), next(self._payload)
        outcome = await self._store.decide(self._claim_of(name, payload))
        if not outcome.applied:
            raise Bug("an absent key was acquired", verdict=outcome.verdict.value)
        self.acknowledged(name, payload)
        return 1

    async def _change(self) -> int:
        payload = b"%d" % self.next_part()
        key: dict[str, Value] = {"stream": self.stream, "name": HOT_NAME}
        update = UpdateIf(LOCKS, key, {"payload": payload}, is_not("payload", b""), attempt=uuid.uuid4())
        outcome = await self._store.decide(update)
        self.acknowledged(HOT_NAME, payload)
        return int(outcome.applied)


def open_contender(environment: Mapping[str, str]) -> HeadgateContender:
    """Connected, in a loop of its own."""
    runner = asyncio.Runner()
    return HeadgateContender(runner, runner.run(CassandraStore.connect(read_settings(environment))))
