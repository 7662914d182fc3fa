"""What the answer to a flush means for each of its rows: acknowledged, to be stamped anew, to be sent again, or not
known (rules R2 and R6; attacks A8, C3, E1). The prose is "Put" in docs/internals/protocols/timeline.md.

Pure. It knows a row by its due moment and its generation.

Invariants: what is acknowledged was durable before any reader could pass it, and lies in a generation that was
written at that moment by knowledge that still held; a twin stays in the generation of what it replaces.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from headgate.engines.timeline.decide_flush import Written, generation_at
from headgate.expiry import Promise


@dataclass(frozen=True)
class Known:
    """The generations as one read of the catalogue told them, and for how long that may be gone by."""

    generations: tuple[Written, ...]
    promise: Promise

    def holds(self, now_us: int) -> bool:
        """Whether it is fresh enough."""
        return self.promise.still_holds(max(now_us, self.promise.sent_us))

    def owner_of(self, due_us: int) -> int:
        """The generation that a due moment belongs to."""
        return generation_at(self.generations, due_us).number


class Answer(Enum):
    """How the write of a flush ended."""

    DURABLE = "durable"
    UNKNOWN = "unknown"
    """It may be there, or may still land."""
    NOTHING = "nothing was done"


class Fate(Enum):
    """What becomes of a row."""

    ACKNOWLEDGED = "acknowledged"
    RESTAMP = "restamp"
    AGAIN = "again"
    """Its place is still good: the same write once more."""
    GIVEN_UP = "given up"


@dataclass(frozen=True, slots=True)
class Sent:
    """A row that was sent: by which knowledge, when, and when it is due."""

    generation: int
    due_us: int
    sent_us: int
    known: Known

    def promise(self, skew_us: int) -> Promise:
        """The row may be acknowledged until then: a reader ahead by the whole difference passes its due moment."""
        return Promise.until(self.due_us, sent_us=self.sent_us, margin_us=skew_us)


def judge(row: Sent, answer: Answer, *, current: Known, now_us: int, give_up_us: int, skew_us: int) -> Fate:
    """The fate of one row. `current` is the freshest knowledge there is."""
    in_time = row.promise(skew_us).still_holds(now_us)
    if answer is Answer.DURABLE and in_time:
        sure = any(
            known.holds(now_us) and known.owner_of(row.due_us) == row.generation for known in (row.known, current)
        )
        return Fate.ACKNOWLEDGED if sure else Fate.GIVEN_UP
    if now_us >= give_up_us or not current.holds(now_us):
        return Fate.GIVEN_UP
    if in_time:
        return Fate.AGAIN if current.owner_of(row.due_us) == row.generation else Fate.GIVEN_UP
    return Fate.RESTAMP


def all_acknowledged(
    generations: Sequence[int],
    dues_us: Sequence[int],
    knowledge: Sequence[Known],
    *,
    sent_us: int,
    now_us: int,
    skew_us: int,
) -> bool:
    """Whether durable rows, told by their generations, due moments and knowledge, are all acknowledged: the usual
    case, decided at once. A generation owns one stretch of time, so the first and the last row speak for the rest."""
    generation, known = generations[0], knowledge[0]
    if generations.count(generation) != len(generations) or any([each is not known for each in knowledge]):  # noqa: C419 - a third of the time
        return False
    return all(
        Fate.ACKNOWLEDGED
        is judge(
            Sent(generation, due_us, sent_us, known),
            Answer.DURABLE,
            current=known,
            now_us=now_us,
            give_up_us=now_us,
            skew_us=skew_us,
        )
        for due_us in {min(dues_us), max(dues_us)}
    )


def may_twin(generation: int, due_us: int, *, current: Known, now_us: int) -> bool:
    """Whether a twin due at that moment may be written to the generation of what it replaces."""
    return current.holds(now_us) and current.owner_of(due_us) == generation


def with_tail(rows: Sequence[Sent], fates: Sequence[Fate], ready_us: int) -> list[Fate]:
    """The fates of rows that hold groups. If one has to be stamped anew, so has all that would come before it then:
    nothing of a group is acknowledged before what was put earlier."""
    if Fate.RESTAMP not in fates:
        return list(fates)
    return [
        Fate.RESTAMP if fate is not Fate.GIVEN_UP and row.due_us <= ready_us else fate
        for row, fate in zip(rows, fates, strict=True)
    ]
