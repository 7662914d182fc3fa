"""The rows of the table `summary`: their places, and the statements that write them. Values in, statements out."""

from __future__ import annotations

from dataclasses import asdict
from uuid import UUID

from headgate.engines.summary.decide_figures import KEPT_S, Figures
from headgate.engines.summary.decide_marks import LastPut, Mark
from headgate.store.catalogue.tables import SUMMARY
from headgate.store.model.statements import Insert
from headgate.store.model.types import Value

SLICES = 16
SECOND_US = 1_000_000
LAST_PUT = UUID(int=0)
NEXT_DUE = UUID(int=1)
"""The mark of processes that put nothing: owners that leave, and repair."""
OUTLIVES_US = 3_600 * SECOND_US
TTL_S_MAX = 630_720_000


def slice_of(queue: UUID) -> int:
    """The slice that a queue is in. The ids of queues are random, so they spread."""
    return queue.int % SLICES


def key_of(queue: UUID, writer: UUID) -> dict[str, Value]:
    """The key of one row."""
    return {"slice": slice_of(queue), "queue": queue, "writer": writer}


def mark_statement(
    queue: UUID, writer: UUID, mark: Mark, *, retention_us: int, stamp_us: int, last_expiry_s: int
) -> Insert:
    """The write of a mark: the latest put wins, whichever process writes last, and the latest mark of a writer."""
    if isinstance(mark, LastPut):
        values = {**key_of(queue, LAST_PUT), "put_us": mark.due_us}
        end_us, timestamp_us = mark.due_us + retention_us, mark.due_us
    else:
        values = {**key_of(queue, writer), "due_us": mark.due_us, "until_us": mark.until_us}
        end_us, timestamp_us = mark.until_us + OUTLIVES_US, stamp_us
    ttl_s = min(-(-max(end_us - stamp_us, 0) // SECOND_US), TTL_S_MAX, last_expiry_s - stamp_us // SECOND_US)
    return Insert(SUMMARY, values, timestamp_us=timestamp_us, ttl_s=max(1, ttl_s))


def figures_statement(queue: UUID, writer: UUID, figures: Figures, *, at_us: int, stamp_us: int) -> Insert:
    """The write of an owner's row."""
    values: dict[str, Value] = {**key_of(queue, writer), **asdict(figures), "at_us": at_us}
    return Insert(SUMMARY, values, timestamp_us=stamp_us, ttl_s=KEPT_S)
