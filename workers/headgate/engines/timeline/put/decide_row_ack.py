"""When the answer to a row counts. The meaning of a flush's answer for each of its rows: acknowledged, to restamp, to
resend, or unknown (rules R2 and R6; attacks A8, C3, E1). And how far ahead a producer stamps, so that answers come in
time: the safety lag in use (attack E1). The prose is "Put" in docs/internals/protocols/timeline.md.

Pure: times are passed in, in microseconds. It knows a row by its due time and its generation.

Invariants: an acknowledged row was durable before any reader could pass it, and is in a generation that was written
at that time by valid knowledge; a restamped row stays in the generation of its original. The lag is never below the
queue's safety lag nor above `LAG_US_MAX` (or the safety lag, where that is more); it falls by less than the time that
goes by, so now + lag never goes back; answers to writes that were sent before the last restamp do not double it.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum

from headgate.engines.timeline.model.decide_place import WrittenGeneration, generation_at
from headgate.expiry import Promise

LAG_US_MAX = 10_000_000
"""More than this is an outage: puts end as unknown then, which callers have to see."""
SAMPLES_MAX = 512
SAMPLE_US_MAX = 60_000_000
FALLS_BY = 8
"""The lag falls by an eighth of the time that goes by."""


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


# ---- the lag


@dataclass
class LatencyWindow:
    """Latencies of the last minute, the newest 512 at most, and their 99th percentile."""

    _by_age: deque[tuple[int, int]] = field(default_factory=deque)
    _by_size: list[int] = field(default_factory=list)

    def add(self, latency_us: int, now_us: int) -> None:
        """Take in one."""
        self._by_age.append((now_us, latency_us))
        insort(self._by_size, latency_us)
        while len(self._by_age) > SAMPLES_MAX or self._by_age[0][0] < now_us - SAMPLE_US_MAX:
            _, oldest_us = self._by_age.popleft()
            del self._by_size[bisect_left(self._by_size, oldest_us)]

    def p99_us(self) -> int:
        """The latency that one in a hundred exceeds; of a few, the longest."""
        return self._by_size[len(self._by_size) * 99 // 100] if self._by_size else 0


class Lag:
    """The lag of one producer of one queue. It leaves time for a write to be acknowledged before its due time less
    the clock difference: it grows at once with the write latency that this producer measures, doubles at a restamp,
    and falls slowly. A cluster that gets slow then delays messages, and does not increase its own load."""

    def __init__(self, safety_lag_us: int, skew_us: int, now_us: int) -> None:
        self._latencies = LatencyWindow()
        self._stood_us = safety_lag_us
        self._since_us = now_us
        self._restamped_us = 0
        self.restamps = 0
        self.set_terms(safety_lag_us, skew_us)

    def set_terms(self, safety_lag_us: int, skew_us: int) -> None:
        """The queue's setting, at first and after each change."""
        self._least_us = safety_lag_us
        self._most_us = max(safety_lag_us, LAG_US_MAX)
        self._skew_us = skew_us

    @property
    def most_us(self) -> int:
        """Its upper bound."""
        return self._most_us

    def in_use_us(self, now_us: int) -> int:
        """The lag for stamps at this time."""
        fallen_us = self._stood_us - max(0, now_us - self._since_us) // FALLS_BY
        return min(max(fallen_us, self._wanted_us()), self._most_us)

    def write_took(self, latency_us: int, now_us: int) -> None:
        """A write was answered, or abandoned, after this duration."""
        stands_us = self.in_use_us(now_us)
        self._latencies.add(latency_us, now_us)
        self._stand(max(stands_us, self._wanted_us()), now_us)

    def was_too_short(self, sent_us: int, now_us: int) -> None:
        """A flush that was sent at that time has to be restamped. Of those sent together one counts."""
        self.restamps += 1
        if sent_us >= self._restamped_us:
            self._restamped_us = now_us
            self._stand(self.in_use_us(now_us) * 2, now_us)

    def _stand(self, lag_us: int, now_us: int) -> None:
        self._stood_us = min(lag_us, self._most_us)
        self._since_us = max(self._since_us, now_us)

    def _wanted_us(self) -> int:
        return max(self._least_us, self._skew_us + 2 * self._latencies.p99_us())
