"""A store in memory: one replica that answers at once, of `memory://` and of nothing else.

It has everything that the catalogue and counters need, and no failures: `simulated_store` has those, on the same
rules. All stores of one address share a replica; each connection has a store of its own, on its event loop.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from typing import NamedTuple

from headgate.store.memory.conditions import holds, question_of, refusal_rows
from headgate.store.memory.mutations import Mutation, Part, decided_update, mutations_of
from headgate.store.memory.partition import EVERYTHING, Cut, Image, Partition
from headgate.store.memory.selections import StoredCommand, command_of, scanned_rows, selected_rows
from headgate.store.model.rows import Row
from headgate.store.model.statements import BatchIf, Decision, InsertIfAbsent, Scan, Select, UpdateIf, Write
from headgate.store.model.types import Value
from headgate.store.store import AttemptAnswer, Store

DATA_CENTER = "memory"
COMPACTED_EVERY = 10_000
"""Writes. Then everything that is deleted or has expired is dropped: no other replica could bring it back."""


class _Held(NamedTuple):
    token: int
    values: tuple[Value, ...]
    partition: Partition


class MemoryReplica:
    """The tables of all keyspaces: their rows are apart by the ids of their resources."""

    def __init__(self, now_us: Callable[[], int]) -> None:
        self.now_us = now_us
        self._tables: dict[str, dict[bytes, _Held]] = {}
        self._lock = threading.Lock()
        self._ballot_us = 0
        self._writes = 0

    def run(self, statement: Write | Decision | Select) -> AttemptAnswer:
        """The answer to a statement, which takes effect at once."""
        with self._lock:
            now_us = self.now_us()
            now_s = now_us // 1_000_000
            if isinstance(statement, Select):
                command = command_of(statement, now_s)
                return AttemptAnswer(selected_rows(statement, command, self._read(command)))
            if isinstance(statement, InsertIfAbsent | UpdateIf | BatchIf):
                return self._decide(statement, now_us)
            for mutation in mutations_of(statement, now_s):
                self._apply(mutation, now_s)
            return AttemptAnswer()

    def _decide(self, statement: Decision, now_us: int) -> AttemptAnswer:
        now_s = now_us // 1_000_000
        question = question_of(statement, now_s)
        command = question.command
        image = self._read(command)
        if not holds(question, image):
            return AttemptAnswer(refusal_rows(question, image), applied=False)
        self._ballot_us = max(now_us, self._ballot_us + 1)
        update = decided_update(statement, self._ballot_us, now_s)
        self._apply(Mutation(command.key, command.token, [Part(command.table, command.values, update)]), now_s)
        return AttemptAnswer()

    def _read(self, command: StoredCommand) -> Image:
        held = self._tables.get(command.table.name, {}).get(command.key)
        return Image(None, [], []) if held is None else held.partition.image(command.cut)

    def _apply(self, mutation: Mutation, now_s: int) -> None:
        for table, values, update in mutation.parts:
            partitions = self._tables.setdefault(table.name, {})
            held = partitions.get(mutation.key)
            if held is None:
                held = partitions[mutation.key] = _Held(mutation.token, values, Partition())
            held.partition.apply(update)
        self._writes += 1
        if self._writes % COMPACTED_EVERY == 0:
            self._compact(now_s)

    def _compact(self, now_s: int) -> None:
        for partitions in self._tables.values():
            for key, held in list(partitions.items()):
                held.partition.purge(now_s, now_s)
                if held.partition.is_empty:
                    del partitions[key]

    def scan(self, scan: Scan) -> list[Row]:
        with self._lock:
            now_s = self.now_us() // 1_000_000
            cut = Cut(EVERYTHING, False, None, now_s)
            held = self._tables.get(scan.shape.table.name, {}).items()
            return [
                row
                for _, each in sorted(held, key=lambda one: (one[1].token, one[0]))
                if scan.from_token < each.token <= scan.to_token
                for row in scanned_rows(scan.shape, each.values, each.partition.image(cut), now_s)
            ]


class MemoryStore(Store):
    """One connection: others run while it waits, as they would while a server answers."""

    def __init__(self, replica: MemoryReplica) -> None:
        self.replica = replica

    @property
    def data_center(self) -> str:
        return DATA_CENTER

    async def attempt(self, statement: Write | Decision | Select, within_s: float) -> AttemptAnswer:
        await asyncio.sleep(0)
        return self.replica.run(statement)

    async def scan(self, scan: Scan) -> AsyncIterator[Row]:
        for row in self.replica.scan(scan):
            yield row

    def monotonic_s(self) -> float:
        return asyncio.get_running_loop().time()

    async def pause(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def close(self) -> None:
        """Nothing is open."""
