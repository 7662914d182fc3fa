"""What the mark of a query's batch says to a task that is about to write it ("The mark of a batch" in
docs/internals/protocols/spark.md). Pure.

Invariant: a task writes only while every key that any task of the batch has claimed is still remembered.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from headgate.errors import Refused

ANSWER_US = 30_000_000
"""A put that is begun so long before keys are forgotten is answered, or refused, before that."""


class BatchTooOld(Refused):
    """The batch was begun so long ago that some of its keys may be forgotten: written again it could be twice."""


class BatchPassed(Refused):
    """The query has gone on to a later batch: this is a task of the past."""


class KeysDiffer(Refused):
    """The batch was begun with another keyColumn: its messages would not be known again."""


@dataclass(frozen=True)
class Mark:
    """The latest batch of a query."""

    batch: int
    begun_us: int
    key_column: str = ""


class Step(Enum):
    """What comes next."""

    SET = "set"
    WRITE = "write"


def next_step(seen: Mark | None, mine: Mark, *, remembered_us: int, skew_us: int) -> Step:
    """What a task does that is about to write now, at `mine.begun_us`; refused where it could write twice."""
    if seen is None or seen.batch < mine.batch:
        return Step.SET
    if seen.batch > mine.batch:
        raise BatchPassed(batch=mine.batch, latest=seen.batch)
    if seen.key_column != mine.key_column:
        raise KeysDiffer(
            at_first=seen.key_column or "(none)", now=mine.key_column or "(none)", remedy="continue with the first"
        )
    require_remembered(seen, now_us=mine.begun_us, remembered_us=remembered_us, skew_us=skew_us)
    return Step.WRITE


def require_remembered(mark: Mark, *, now_us: int, remembered_us: int, skew_us: int) -> None:
    """Refuse to write what was begun longer ago than keys are remembered."""
    if now_us > mark.begun_us + remembered_us - 2 * skew_us - ANSWER_US:
        raise BatchTooOld(
            batch=mark.batch,
            begun_s_ago=(now_us - mark.begun_us) // 1_000_000,
            window_s=remembered_us // 1_000_000,
            remedy="start with another checkpoint (or option query); compare with the output of the batch",
        )
