"""The action of a task that is about to write, from the mark of its query's batch ("The mark of a batch" in
docs/internals/protocols/spark.md). Pure.

Invariant: a task writes only while every key that any task of the batch has claimed is still remembered.
"""

from __future__ import annotations

from dataclasses import dataclass

from headgate.errors import OperationRefused

ANSWER_US = 30_000_000
"""A put that starts this long before keys expire is answered, or rejected, before that."""


class BatchTooOld(OperationRefused):
    """The batch is too old: some of its keys may have expired, and writing it again could be twice."""


class BatchPassed(OperationRefused):
    """The query has continued to a later batch: this task is outdated."""


class KeysDiffer(OperationRefused):
    """The batch started with another keyColumn: its messages would not be recognized."""


@dataclass(frozen=True)
class Mark:
    """The latest batch of a query."""

    batch: int
    begun_us: int
    key_column: str = ""


def decide_mark(known: Mark | None, mine: Mark, *, remembered_us: int, skew_us: int) -> Mark | None:
    """The mark under which a task writes that starts at `mine.begun_us`; None where it has to set its own first.
    Refused where it could write twice."""
    if known is None or known.batch < mine.batch:
        return None
    if known.batch > mine.batch:
        raise BatchPassed(batch=mine.batch, latest=known.batch)
    if known.key_column != mine.key_column:
        raise KeysDiffer(
            at_first=known.key_column or "(none)", now=mine.key_column or "(none)", remedy="continue with the first"
        )
    require_remembered(known, now_us=mine.begun_us, remembered_us=remembered_us, skew_us=skew_us)
    return known


def require_remembered(mark: Mark, *, now_us: int, remembered_us: int, skew_us: int) -> None:
    """Refuse to write a batch that started longer ago than keys are kept."""
    if now_us > mark.begun_us + remembered_us - 2 * skew_us - ANSWER_US:
        raise BatchTooOld(
            batch=mark.batch,
            begun_s_ago=(now_us - mark.begun_us) // 1_000_000,
            window_s=remembered_us // 1_000_000,
            remedy="start with another checkpoint (or option query); compare with the output of the batch",
        )
