"""Reads the summary: the figures of all queues in one read per slice, or those of one queue. It decides nothing, and
knows queues by their ids alone. docs/internals/protocols/summary.md.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from typing import Any
from uuid import UUID

from headgate.engines.summary.decide_figures import Figures, OwnersRow, fresh
from headgate.engines.summary.decide_marks import LaterMark
from headgate.engines.summary.rows import NEXT_DUE, SLICES, key_of, slice_of
from headgate.store.catalogue.tables import SUMMARY
from headgate.store.model.statements import Select
from headgate.store.store import Store

FIGURES = tuple(field.name for field in fields(Figures))
LATER_FIGURES = ("unreadable",)
"""Owners of an earlier release do not write these: they count as 0."""
COLUMNS = ("queue", "writer", "put_us", "due_us", "until_us", *FIGURES, "at_us")


@dataclass(frozen=True)
class QueueFigures:
    """The summary of one queue. Without workers, `backlog` is not known."""

    backlog: int | None = None
    in_flight: int = 0
    oldest_us: int | None = None
    rate: float = 0.0
    workers: int = 0
    lanes: int = 0
    held: int = 0
    unreadable: int = 0
    """Rows that were set aside, since their stored bytes cannot be read."""
    put_us: int | None = None
    """A reader that has read up to this time has read all messages put for immediate delivery."""
    later: tuple[LaterMark, ...] = ()

    def wakes(self, slept_us: int, *, now_us: int) -> bool:
        """Whether a queue whose lanes are read up to `slept_us` has a due message by now, as far as marks show."""
        if self.put_us is not None and self.put_us > slept_us:
            return True
        return any(mark.due_us <= now_us and mark.until_us > slept_us for mark in self.later)

    def next_due_us(self, now_us: int) -> int | None:
        """The next due time of delayed messages, as far as marks show."""
        return min((mark.due_us for mark in self.later if mark.due_us > now_us), default=None)


async def read_summary(store: Store, *, now_us: int) -> dict[UUID, QueueFigures]:
    """All queues in the table."""
    slices = await asyncio.gather(*(store.read(Select(SUMMARY, {"slice": each}, COLUMNS)) for each in range(SLICES)))
    by_queue: dict[UUID, list[Any]] = {}
    for row in (row for rows in slices for row in rows):
        by_queue.setdefault(row.queue, []).append(row)
    return {queue: combined(rows, now_us=now_us) for queue, rows in by_queue.items()}


async def read_of_queue(store: Store, queue: UUID) -> list[Any]:
    """The rows of one queue."""
    return list(await store.read(Select(SUMMARY, {"slice": slice_of(queue), "queue": queue}, COLUMNS)))


async def read_next_mark(store: Store, queue: UUID) -> LaterMark | None:
    """The mark that leaving owners and repair share."""
    rows = await store.read(Select(SUMMARY, key_of(queue, NEXT_DUE), ("due_us", "until_us")))
    return next(iter(_marks_of(rows)), None)


def owners_of(rows: Iterable[Any]) -> list[OwnersRow]:
    """The rows of owners among those of a queue."""
    return [
        OwnersRow(row.writer, row.at_us, Figures(**{name: getattr(row, name) or 0 for name in FIGURES}))
        for row in rows
        if row.at_us is not None and None not in [getattr(row, name) for name in FIGURES if name not in LATER_FIGURES]
    ]


def combined(rows: Iterable[Any], *, now_us: int) -> QueueFigures:
    """The figures of one queue from its rows."""
    rows = list(rows)
    owners = [row.figures for row in fresh(owners_of(rows), now_us)]
    oldest = [each for owner in owners for each in (owner.oldest_us, owner.total_oldest_us) if each]
    return QueueFigures(
        backlog=max(sum(each.backlog for each in owners), *(each.total for each in owners)) if owners else None,
        in_flight=sum(each.in_flight for each in owners),
        oldest_us=min(oldest, default=None),
        rate=round(sum(each.rate for each in owners), 1),
        workers=len(owners),
        lanes=sum(each.lanes for each in owners),
        held=sum(each.held for each in owners),
        unreadable=sum(each.unreadable for each in owners),
        put_us=max((row.put_us for row in rows if row.put_us is not None), default=None),
        later=tuple(sorted(_marks_of(rows), key=lambda mark: mark.due_us)),
    )


def _marks_of(rows: Iterable[Any]) -> Iterator[LaterMark]:
    return (LaterMark(row.due_us, row.until_us) for row in rows if None not in (row.due_us, row.until_us))
