"""The meaning of a flush's answer for each of its rows: acknowledged, to restamp, to resend, or unknown (rules R2 and
R6; attacks A8, C3, E1). The prose is "Put" in docs/internals/protocols/timeline.md.

Pure. It knows a row by its due time and its generation.

Invariants: an acknowledged row was durable before any reader could pass it, and is in a generation that was written
at that time by valid knowledge; a restamped row stays in the generation of its original.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from headgate.engines.timeline.model.decide_flush import WrittenGeneration, generation_at
from headgate.expiry import Promise


@dataclass(frozen=True)
class KnownGenerations:
    """The generations as one read of the catalogue returned them, and how long they may be used."""

    generations: tuple[WrittenGeneration, ...]
    promise: Promise

    def holds(self, now_us: int) -> bool:
        """Whether it is fresh enough."""
        return self.promise.still_holds(max(now_us, self.promise.sent_us))

    def owner_of(self, due_us: int) -> int:
        """The generation of a due time."""
        return generation_at(self.generations, due_us).number


class WriteAnswer(Enum):
    """How the write of a flush ended."""

    DURABLE = "durable"
    UNKNOWN = "unknown"
    """It may be stored, or may still land."""
    NOTHING = "nothing was done"


class WriteOutcome(Enum):
    """The outcome of a row."""

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
    known: KnownGenerations

    def promise(self, skew_us: int) -> Promise:
        """The row may be acknowledged until then: a reader whose clock is ahead by the whole difference passes its
        due time."""
        return Promise.until(self.due_us, sent_us=self.sent_us, margin_us=skew_us)


def decide_write_outcome(
    row: Sent, answer: WriteAnswer, *, current: KnownGenerations, now_us: int, give_up_us: int, skew_us: int
) -> WriteOutcome:
    """The outcome of one row. `current` is the latest knowledge."""
    in_time = row.promise(skew_us).still_holds(now_us)
    if answer is WriteAnswer.DURABLE and in_time:
        sure = any(
            known.holds(now_us) and known.owner_of(row.due_us) == row.generation for known in (row.known, current)
        )
        return WriteOutcome.ACKNOWLEDGED if sure else WriteOutcome.GIVEN_UP
    if now_us >= give_up_us or not current.holds(now_us):
        return WriteOutcome.GIVEN_UP
    if in_time:
        return WriteOutcome.AGAIN if current.owner_of(row.due_us) == row.generation else WriteOutcome.GIVEN_UP
    return WriteOutcome.RESTAMP


def all_acknowledged(
    generations: Sequence[int],
    dues_us: Sequence[int],
    knowledge: Sequence[KnownGenerations],
    *,
    sent_us: int,
    now_us: int,
    skew_us: int,
) -> bool:
    """Whether durable rows, given by their generations, due times and knowledge, are all acknowledged: the usual
    case, decided at once. A generation owns one range of time, so the first and the last row represent the rest."""
    generation, known = generations[0], knowledge[0]
    if generations.count(generation) != len(generations) or any([each is not known for each in knowledge]):  # noqa: C419 - a third of the time
        return False
    return all(
        WriteOutcome.ACKNOWLEDGED
        is decide_write_outcome(
            Sent(generation, due_us, sent_us, known),
            WriteAnswer.DURABLE,
            current=known,
            now_us=now_us,
            give_up_us=now_us,
            skew_us=skew_us,
        )
        for due_us in {min(dues_us), max(dues_us)}
    )


def may_restamp(generation: int, due_us: int, *, current: KnownGenerations, now_us: int) -> bool:
    """Whether a restamped row due at that time may be written to the generation of its original."""
    return current.holds(now_us) and current.owner_of(due_us) == generation


def with_tail(rows: Sequence[Sent], fates: Sequence[WriteOutcome], ready_us: int) -> list[WriteOutcome]:
    """The outcomes of rows that hold groups. If one has to be restamped, so has every row that would precede it then:
    nothing of a group is acknowledged before messages that were put earlier."""
    if WriteOutcome.RESTAMP not in fates:
        return list(fates)
    return [
        WriteOutcome.RESTAMP if fate is not WriteOutcome.GIVEN_UP and row.due_us <= ready_us else fate
        for row, fate in zip(rows, fates, strict=True)
    ]
