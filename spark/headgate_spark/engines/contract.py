"""The interface of an engine for the source: a plan of splits, and the batches of one.

It gets an open queue of the SDK, on the loop of this process. The result of `plan` is pickled and read by another
process.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa

from headgate.client.queue import Queue
from headgate_spark.decide_range import ReadRange
from headgate_spark.jobs.decide_batch import Pick


@dataclass(frozen=True)
class ScanRequest:
    """The part of a queue to read, and its form."""

    state: str
    wanted: ReadRange
    columns: tuple[str, ...]
    messages_per_split: int


class EngineScan(Protocol):
    """Reading a queue of one engine in bulk."""

    async def plan(self, queue: Queue, request: ScanRequest) -> Sequence[Any]:
        """Splits, each a value that can be pickled."""
        ...

    def read(self, queue: Queue, request: ScanRequest, split: Any) -> AsyncIterator[pa.RecordBatch]:
        """The messages of one split."""
        ...

    def read_picked(
        self, queue: Queue, request: ScanRequest, lane: str, picks: Sequence[Pick]
    ) -> AsyncIterator[pa.RecordBatch]:
        """Exactly these messages of a lane, whatever their state now."""
        ...

    async def pass_over(self, queue: Queue, lane: str) -> None:
        """Where the lane has no owner: move its position over settled rows."""
        ...
