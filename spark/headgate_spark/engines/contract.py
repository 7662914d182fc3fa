"""What an engine brings to the source: a plan of splits, and the batches of one.

It is given an open queue of the SDK, on the loop of this process; what it returns from `plan` is pickled and read by
another process.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa

from headgate.client.queue import Queue
from headgate_spark.decide_range import Wanted
from headgate_spark.jobs.decide_batch import Pick


@dataclass(frozen=True)
class Request:
    """What is read of a queue, and how."""

    state: str
    wanted: Wanted
    columns: tuple[str, ...]
    messages_per_split: int


class EngineScan(Protocol):
    """Reading a queue of one engine in bulk."""

    async def plan(self, queue: Queue, request: Request) -> Sequence[Any]:
        """Splits, each a value that can be pickled."""
        ...

    def read(self, queue: Queue, request: Request, split: Any) -> AsyncIterator[pa.RecordBatch]:
        """The messages of one split."""
        ...

    def read_picked(
        self, queue: Queue, request: Request, lane: str, picks: Sequence[Pick]
    ) -> AsyncIterator[pa.RecordBatch]:
        """Exactly these messages of a lane, whatever became of them since."""
        ...

    async def pass_over(self, queue: Queue, lane: str) -> None:
        """Where nobody works the lane: move its position over what is settled."""
        ...
