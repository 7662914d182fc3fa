"""Which marks a producer owes the summary, so that a queue that sleeps is woken.
docs/internals/protocols/summary.md, "Marks".

Pure: due times of durable messages go in, marks to write come out. It knows neither tables nor queues.

Invariants: no delayed message is unmarked while it is the earliest known to this process; a mark is owed until it was
written; at most `PARTS_MAX` parts are remembered, the earliest (an owner marks what it leaves).
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
class LaterPart:
    """A message in this part is due, at this time at the earliest."""

    part: int
    due_us: int


Mark = LastPut | LaterPart


@dataclass
class Owed:
    """One producer's knowledge, and the part of it that is written."""

    part_us: int
    put_us: int = 0
    written_put_us: int = 0
    later: dict[int, int] = field(default_factory=dict)
    """The earliest time of each part ahead that has no mark."""
    written: dict[int, int] = field(default_factory=dict)
    """The time with which each part that is not over was marked."""

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

    def _add_later(self, due_us: int) -> None:
        part = due_us // self.part_us
        if due_us < self.written.get(part, due_us + 1) and due_us < self.later.get(part, due_us + 1):
            self.later[part] = due_us
            if len(self.later) > PARTS_MAX:
                del self.later[max(self.later)]

    def marks(self, now_us: int) -> list[Mark]:
        """The marks to write now."""
        self.written = {part: due for part, due in self.written.items() if (part + 1) * self.part_us > now_us}
        for part, due_us in list(self.later.items()):
            if due_us <= now_us:  # it was not the earliest, and is due by now: a mark of a put reports it as well
                del self.later[part]
                self.put_us = max(self.put_us, due_us)
        marks: list[Mark] = []
        if self.put_us > self.written_put_us:
            marks.append(LastPut(self.put_us))
        earliest_us = min(self.later.values(), default=None)
        stands_us = self._stands_us(now_us)
        if earliest_us is not None and (stands_us is None or earliest_us < stands_us):
            marks.append(LaterPart(earliest_us // self.part_us, earliest_us))
        return marks

    def is_written(self, mark: Mark) -> None:
        """This one is stored."""
        if isinstance(mark, LastPut):
            self.written_put_us = max(self.written_put_us, mark.due_us)
            return
        self.written[mark.part] = min(mark.due_us, self.written.get(mark.part, mark.due_us))
        if self.later.get(mark.part, 0) >= self.written[mark.part]:
            del self.later[mark.part]

    def next_us(self, now_us: int) -> int | None:
        """When the stored mark has passed, and another is owed; None: nothing is left to mark."""
        if not self.later:
            return None
        return self._stands_us(now_us) or now_us

    def _stands_us(self, now_us: int) -> int | None:
        return min((due_us for due_us in self.written.values() if due_us > now_us), default=None)
