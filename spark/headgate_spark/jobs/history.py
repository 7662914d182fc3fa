"""Jobs that read history, and take nothing: replay, export and rollup. One piece of the range after the other:

    note which (planned) -> read, transform, write -> note that it is written (committed) -> publish -> note the end

Each piece is some of the range's parts, so planning reads the index of the range and nothing else. An export
continues where the last one ended. A killed replay resumes, and a finished one starts again.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame

from headgate.store.catalogue.bulk_log import BulkLog, BulkRow, Stage
from headgate_spark.engines.contract import HistorySplit
from headgate_spark.jobs.show_progress import JobProgress
from headgate_spark.jobs.sinks import BatchName, BatchSink, scope_us_of
from headgate_spark.process.worker_connection import WorkerConnection

PARTS_A_PIECE = 60


@dataclass(frozen=True)
class HistoryJob:
    """One run, on the resources that run.py opens."""

    connection: WorkerConnection
    log: BulkLog
    sink: BatchSink
    progress: JobProgress
    splits: Callable[[int, int], Sequence[HistorySplit]]
    """The pieces of a range of time, found without reading their messages."""
    messages: Callable[[Sequence[HistorySplit]], DataFrame]
    """The messages of these, after predicate and handler."""
    from_us: int
    until_us: int
    goes_on: bool
    """Whether it begins where the last run ended, which an export does."""
    parts_a_piece: int | None = None

    def run(self) -> None:
        row = self.connection.run(self.log.take())
        memo = dict(row.memo)
        if row.stage is Stage.COMMITTED:
            row = self._published(row, memo)
        else:
            self.sink.clear()
        memo, row = self._begun(row)
        while (after := self._piece(row, memo)) is not None:
            row = after
        memo |= {"is_over": True, "at_us": memo["until_us"]}
        self.connection.run(self.log.finish(row, memo))

    def _begun(self, row: BulkRow) -> tuple[dict[str, Any], BulkRow]:
        """The range of this run: that of the one before where it was not over, or from where it ended."""
        memo = dict(row.memo)
        if memo.get("is_over", True):
            begin_us = max(self.from_us, int(memo.get("at_us", 0))) if self.goes_on else self.from_us
            memo = {"at_us": begin_us, "until_us": max(begin_us, self.until_us), "is_over": False}
        if row.stage is Stage.IDLE:
            row = self.connection.run(self.log.finish(row, memo))
        return memo, row

    def _piece(self, row: BulkRow, memo: dict[str, Any]) -> BulkRow | None:
        """The next one; None where there is none. A started one keeps its end and its number: its keys identify the
        part that is put already."""
        began_s = time.monotonic()
        begun = json.loads(row.plan) if row.stage is Stage.PLANNED else None
        splits = self.splits(int(memo["at_us"]), int(begun["end_us"] if begun else memo["until_us"]))
        if begun is None:
            splits = first_parts(
                [split for split in splits if split.from_us < split.until_us], self.parts_a_piece or PARTS_A_PIECE
            )
            if not splits:
                return None
        messages = self.messages(splits)
        if begun is None:
            begun = {"end_us": max(split.until_us for split in splits), "scope_us": self._scope_us(messages, splits)}
            row = self.connection.run(self.log.plan(row, json.dumps(begun).encode()))
        name = BatchName(row.number, f"{row.number}-{row.driver}", int(begun["scope_us"]))
        written = self.sink.write(messages, name)
        row = self.connection.run(self.log.commit(row, json.dumps({**begun, "attempt": name.attempt}).encode()))
        row = self._published(row, memo)
        self.progress.batch(written, 0, 0, time.monotonic() - began_s)
        return row

    def _scope_us(self, messages: DataFrame, splits: Sequence[HistorySplit]) -> int:
        """Only where once keys are claimed does it matter how dense the messages lie."""
        if not self.sink.redoes:
            return 0
        span_us = max(split.until_us for split in splits) - min(split.from_us for split in splits)
        return scope_us_of(messages.count(), span_us, len({split.lane for split in splits}))

    def _published(self, row: BulkRow, memo: dict[str, Any]) -> BulkRow:
        plan = json.loads(row.plan)
        self.sink.publish(row.number, plan["attempt"])
        memo["at_us"] = plan["end_us"]
        return self.connection.run(self.log.finish(row, memo))


def first_parts(splits: Sequence[HistorySplit], parts: int) -> Sequence[HistorySplit]:
    """Those of this many parts, the first ones."""
    wanted = sorted({split.where for split in splits})[:parts]
    return [split for split in splits if wanted and split.where <= wanted[-1]]
