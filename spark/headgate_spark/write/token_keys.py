"""Under which keys rows are written, so that a row that is written again is known: "Sink" in
docs/internals/protocols/spark.md.

Pure. A row is the values of its columns; the order of rows in a partition does not matter.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import blake2b

SCOPES = 64
"""Keys of one task are claimed in this many places: many of them at once, and no place grows too large."""


@dataclass(frozen=True)
class TaskName:
    """Which task of which batch writes."""

    query: str
    batch: int
    partition: int


@dataclass(frozen=True, slots=True)
class RowKey:
    """A once key, and its scope; no scope: by the key itself."""

    text: str
    scope: str | None


@dataclass
class RowKeys:
    """The keys of the rows of one task's partition, each row once."""

    task: TaskName
    _counts: defaultdict[bytes, int] = field(default_factory=lambda: defaultdict(int))

    def key_of(self, row: Sequence[object]) -> RowKey:
        """The key of the next row; of equal rows the first, the second and so on have keys of their own."""
        digest = hash_of(row)
        self._counts[digest] += 1
        task = self.task
        scope = f"spark {task.query} {task.batch} {task.partition} {digest[0] % SCOPES}"
        return RowKey(f"{task.batch} {task.partition} {digest.hex()} {self._counts[digest]}", scope)


def hash_of(row: Sequence[object]) -> bytes:
    """The digest that distinguishes a row from all different ones."""
    return blake2b(repr(tuple(row)).encode(), digest_size=16).digest()


def token_name(query: str, key: RowKey) -> str:
    """The name of a counter's token: short, for any key."""
    return blake2b(f"{query}\n{key.scope}\n{key.text}".encode(), digest_size=16).hexdigest()
