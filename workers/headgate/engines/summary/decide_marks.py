"""Which marks a producer owes the summary, so that a queue that sleeps is woken.
docs/internals/protocols/summary.md, "Marks".

Pure: due times of durable messages go in, marks to write come out. It knows neither tables nor queues.

Invariants: no delayed message is unmarked while it is the earliest known to this process; a mark is owed until it was
written; a mark that is overwritten is owed again, or its part is reported as a put before; at most `PARTS_MAX`
parts are remembered, the earliest (an owner marks what it leaves).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

AT_ONCE_US = 5_000_000
"""A message that is due this soon wakes readers at once: it is not worth a mark of its own."""
PARTS_MAX = 10_000


@dataclass(frozen=True)
class LastPut:
    """A message was put that a reader meets when it has read up to this time."""

    due_us: int


@dataclass(frozen=True)
class LaterMark:
    """A message is due at this time, and perhaps more until the other, which is the end of its part."""

    due_us: int
    until_us: int


Mark = LastPut | LaterMark


@dataclass
class Owed:
    """One producer's knowledge, and the part of it that is written."""

    part_us: int
    put_us: int = 0
    written_put_us: int = 0
    later: dict[int, int] = field(default_factory=dict)
    """The earliest time of each part ahead that has no mark, by the part's end."""
    standing: LaterMark | None = None
    """The mark in this producer's row."""

    def add(self, dues_us: Sequence[int], *, sent_us: int) -> None:
        """These are durable."""
        at_once_us = sent_us + AT_ONCE_US
        latest_us = max(dues_us)
        if latest_us <= at_once_us:
            self.put_us = max(self.put_us, latest_us)
            return
        for due_us in dues_us:
            if due_us <= at_once_us:
                self.put_us = max(self.put_us, due_us)
            else:
                self._add_later(due_us)

    def mark_of(self, due_us: int) -> LaterMark:
        """The mark of the part in which a message is due."""
        return LaterMark(due_us, (due_us // self.part_us + 1) * self.part_us)

    def _add_later(self, due_us: int) -> None:
        until_us, standing = self.mark_of(due_us).until_us, self.standing
        is_marked = standing is not None and standing.until_us == until_us and standing.due_us <= due_us
        if is_marked or until_us <= self.put_us:
            return
        if due_us < self.later.get(until_us, due_us + 1):
            self.later[until_us] = due_us
            if len(self.later) > PARTS_MAX:
                del self.later[max(self.later)]

    def marks(self, now_us: int) -> list[Mark]:
        """The marks to write now, in this order."""
        for until_us, due_us in list(self.later.items()):
            if due_us <= now_us:  # it was not the earliest, and is due by now: a mark of a put reports it as well
                del self.later[until_us]
                self.put_us = max(self.put_us, due_us)
        if self.later and self.standing is not None and self.standing.due_us <= now_us:
            self.put_us = max(self.put_us, self.standing.until_us)
            self.standing = None
        marks: list[Mark] = []
        if self.put_us > self.written_put_us:
            marks.append(LastPut(self.put_us))
        if self.later and (self.standing is None or min(self.later) <= self.standing.until_us):
            until_us = min(self.later)
            marks.append(LaterMark(self.later[until_us], until_us))
        return marks

    def is_written(self, mark: Mark) -> None:
        """This one is stored."""
        if isinstance(mark, LastPut):
            self.written_put_us = max(self.written_put_us, mark.due_us)
            return
        overwritten, self.standing = self.standing, mark
        if self.later.get(mark.until_us, 0) >= mark.due_us:
            del self.later[mark.until_us]
        if overwritten is not None:
            self._add_later(overwritten.due_us)

    def next_us(self, now_us: int) -> int | None:
        """When the time of the stored mark has come, and another is owed; None: nothing is left to mark."""
        if not self.later:
            return None
        return now_us if self.standing is None else self.standing.due_us
