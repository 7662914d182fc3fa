"""The work of bench-store, the same for both contenders: its tables, its payloads, its keys, and its checks.

Each window writes fresh partitions; a partition holds the rows of one request (or a hundred single inserts). Slices
are read from partitions that were prepared once.
"""

from __future__ import annotations

import itertools
import json
import random
from abc import abstractmethod
from enum import StrEnum

from bench.contender import ClientReport, Contender, Job, Ran, Tally
from headgate.errors import Bug
from headgate.store.model.table import Column, Keyspace, Table, WrittenBy
from headgate.store.model.types import Type

KEYSPACE = "bench"
MESSAGE_BYTES = 200
PACKED_MESSAGES = 100
PREPARED_PARTS, PREPARED_ROWS = 20, 2_000
SINGLES_A_PART = 100
RECEIPTS_MAX = 20

ROWS = Table(
    "bench_rows",
    "rows of messages, written plainly",
    partition=(Column("stream", Type.TEXT), Column("part", Type.BIGINT)),
    clustering=(Column("seq", Type.BIGINT),),
    columns=(Column("payload", Type.BLOB),),
)
LOCKS = Table(
    "bench_locks",
    "rows written by LWT",
    partition=(Column("stream", Type.TEXT), Column("name", Type.BIGINT)),
    columns=(Column("payload", Type.BLOB, WrittenBy.LWT), Column("attempt", Type.UUID, WrittenBy.LWT)),
    rows=WrittenBy.LWT,
    attempt="attempt",
)
TABLES = (ROWS, LOCKS)
HOT_NAME = 0


class RequestKind(StrEnum):
    """The kind of one request."""

    INSERT = "insert"
    """One row."""
    BATCH = "batch"
    """An unlogged batch of rows of one partition."""
    PACKED = "packed"
    """One row that holds many messages."""
    SLICE = "slice"
    """A read of consecutive rows."""
    LWT_DISTINCT = "lwt_distinct"
    """INSERT IF NOT EXISTS, each of another key."""
    LWT_HOT = "lwt_hot"
    """UPDATE IF, all of the same key."""


def keyspace(data_center: str) -> Keyspace:
    """One replica: the server is one node."""
    return Keyspace(KEYSPACE, ((data_center, 1),))


def message(number: int) -> bytes:
    """A message as applications send them: JSON, some of it always the same."""
    output = {"id": number, "to": f"customer-{number % 9973}@example.org", "template": "invoice", "attempt": 1}
    text = json.dumps(output | {"note": ""})
    return json.dumps(output | {"note": "x" * (MESSAGE_BYTES - len(text))}).encode()


_MESSAGES = [message(number) for number in range(1_000)]
_PACKED = [
    b"".join(_MESSAGES[(first + offset) % 1_000] for offset in range(PACKED_MESSAGES))
    for first in range(0, 1_000, 50)
]


class StoreContender(Contender):
    """The common part of both: the keys of a run, the tally, the receipts. Each sends requests its own way."""

    def __init__(self, stream: str) -> None:
        self.stream = stream
        self._parts = itertools.count(random.randrange(2**48))
        self._choice = random.Random(0)
        self._payload = itertools.cycle(_MESSAGES)
        self._packed = itertools.cycle(_PACKED)
        self._singles = itertools.count(random.randrange(2**48) * SINGLES_A_PART)
        self._acknowledged: list[tuple[int, bytes | int]] = []
        self.rows = 1
        self.kind = RequestKind.INSERT
        self.tally = Tally(0, 0)

    @abstractmethod
    def drive(self, in_flight: int) -> None:
        """Send requests of `self.kind`, `in_flight` at a time, until the tally ends the run."""

    @abstractmethod
    def write_part(self, part: int, rows: list[tuple[int, bytes]]) -> None:
        """Write rows of a partition, and wait."""

    @abstractmethod
    def read_part(self, part: int) -> dict[int, bytes]:
        """The rows of a partition: sequence number and payload."""

    @abstractmethod
    def make_lock(self, name: int, payload: bytes) -> None:
        """Create a row by LWT, if it does not exist yet."""

    @abstractmethod
    def read_lock(self, name: int) -> bytes | None:
        """The payload of a row written by LWT, read at the serial level."""

    def prepare(self, job: Job) -> int:
        """Partitions for slices, and the contended row."""
        self.make_lock(HOT_NAME, b"first")
        for part in range(int(job["parts"])):
            for first in range(0, PREPARED_ROWS, 100):
                self.write_part(-part, [(seq, next(self._payload)) for seq in range(first, first + 100)])
        return int(job["parts"]) * PREPARED_ROWS

    def run(self, job: Job) -> Ran:
        """One window of one kind."""
        self.kind, self.rows = RequestKind(job["kind"]), int(job["rows"])
        self._acknowledged = []
        self.tally = Tally(float(job["seconds"]), int(job["requests_max"]))
        self.drive(int(job["in_flight"]))
        return self.tally.end()

    def report(self) -> ClientReport:
        """Percentiles; and a sample of the acknowledged writes is read back."""
        if not self.tally.requests:
            raise Bug("no request was answered", first_error=self.tally.first_error or "none")
        return self.tally.summarize(self._check_receipts())

    # The subject of the next request; either contender calls one of these per request.

    def next_insert(self) -> tuple[int, int, bytes]:
        """Partition, sequence number, payload."""
        part, seq = divmod(next(self._singles), SINGLES_A_PART)
        return part, seq, next(self._payload)

    def next_part(self) -> int:
        """A fresh partition."""
        return next(self._parts)

    def next_batch(self) -> list[tuple[int, bytes]]:
        """Sequence numbers and payloads of a partition's rows."""
        return [(seq, next(self._payload)) for seq in range(self.rows)]

    def next_packed(self) -> bytes:
        """Many messages in one payload."""
        return next(self._packed)

    def next_slice(self) -> tuple[int, int]:
        """A prepared partition, and where to begin in it."""
        return -self._choice.randrange(PREPARED_PARTS), self._choice.randrange(PREPARED_ROWS - self.rows)

    def acknowledged(self, key: int, what: bytes | int) -> None:
        """Keep a receipt: a key and its payload, or a partition and how many rows it has at least."""
        self._acknowledged.append((key, what))

    def check_slice(self, result: int, first_seq: int, wanted_seq: int) -> int:
        """The number of rows, if they are the requested ones."""
        if result != self.rows or first_seq != wanted_seq:
            raise Bug("a slice differs from the request", rows=result, asked=self.rows)
        return result

    def _check_receipts(self) -> int:
        if self.kind is RequestKind.LWT_HOT:
            self._require(HOT_NAME, self.read_lock(HOT_NAME) in {what for _, what in self._acknowledged})
            return 1
        sample = self._choice.sample(self._acknowledged, min(RECEIPTS_MAX, len(self._acknowledged)))
        for key, what in sample:
            if self.kind is RequestKind.LWT_DISTINCT:
                self._require(key, self.read_lock(key) == what)
            elif isinstance(what, int):
                self._require(key, self.read_part(key).keys() >= set(range(what)))
            else:
                self._require(key, what in self.read_part(key).values())
        return len(sample)

    def _require(self, key: int, holds: bool) -> None:
        if not holds:
            raise Bug("an acknowledged write is missing", kind=self.kind, key=key)
