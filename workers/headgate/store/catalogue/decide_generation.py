"""Generations of shards (rule R6): how the number of shards changes while producers write.
The argument is in docs/internals/protocols/generations.md.

Pure: times are passed in, in microseconds. It knows neither the catalogue's columns nor any engine.

Invariants: numbers grow by one; at most one change is under way; a generation counts as still written until `sure`
and the clock difference have passed. So a reader that reads it to its end misses nothing that was written on old
knowledge.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from headgate.errors import Bug, Conflict
from headgate.expiry import SECOND_US, Promise, others_may_act, others_may_act_after

NOTICE_US = 60 * SECOND_US
"""The maximum age of a process's knowledge of the catalogue, counted from the start of its read."""


class ChangeUnderWay(Conflict):
    """The number of shards is being changed already."""


class GenerationBroken(Bug):
    """An impossible generation."""


@dataclass(frozen=True)
class Generation:
    """A number of shards, and from when on it is written."""

    number: int
    shards: int
    from_us: int = 0

    def __post_init__(self) -> None:
        if self.number < 1 or self.shards < 1:
            raise GenerationBroken(number=self.number, shards=self.shards)


@dataclass(frozen=True)
class Window:
    """A generation with its end: the facts that an engine needs in order to write to it, to read it, and to leave
    it."""

    number: int
    shards: int
    from_us: int
    until_us: int | None
    """Producers write to the next one from this time on; None as long as none is announced."""
    sure_us: int | None
    """Nobody writes to it any more from this time on (plus the clock difference); None while that is not known."""


@dataclass(frozen=True)
class Generations:
    """The one in force, the one that is announced, and earlier ones that are not retired yet, oldest first."""

    current: Generation
    next: Generation | None = None
    sure_us: int | None = None
    """When the current one is written no more; None until the announcement is known to have been made."""
    earlier: tuple[Window, ...] = ()

    def __post_init__(self) -> None:
        if self.next is None and self.sure_us is not None:
            raise GenerationBroken("A generation cannot end without a next one", number=self.current.number)
        if self.next is not None and self.next.number != self.current.number + 1:
            raise GenerationBroken(
                "Generation numbers must grow by one", number=self.current.number, next=self.next.number
            )

    def windows(self) -> Iterator[Window]:
        """All that may hold messages, oldest first."""
        yield from self.earlier
        until_us = self.next.from_us if self.next else None
        yield Window(self.current.number, self.current.shards, self.current.from_us, until_us, self.sure_us)
        if self.next:
            yield Window(self.next.number, self.next.shards, self.next.from_us, None, None)


def first(shards: int) -> Generations:
    return Generations(Generation(1, shards))


def shards_in_force(generations: Generations) -> int:
    """The number that was requested last."""
    return (generations.next or generations.current).shards


def decide_next(generations: Generations, shards: int, *, now_us: int, skew_us: int) -> Generation | None:
    """The generation to announce; None if there are that many shards already. ChangeUnderWay: once that one is over.

    It starts late enough that every process that reads the catalogue in time knows of it before.
    """
    if shards_in_force(generations) == shards:
        return None
    if generations.next is not None:
        raise ChangeUnderWay(
            to=generations.next.shards,
            remedy="apply again once it is over",
            sure=generations.sure_us is not None,
            left_s=_left_s(generations, now_us, skew_us),
        )
    return Generation(generations.current.number + 1, shards, now_us + NOTICE_US + 2 * skew_us)


def _left_s(generations: Generations, now_us: int, skew_us: int) -> int | str:
    if generations.sure_us is None:
        return "unknown"
    return max(0, others_may_act_after(generations.sure_us, skew_us) - now_us) // SECOND_US + 1


def decide_sure(announced: Generation, *, acknowledged_us: int, skew_us: int) -> int:
    """The time from which nobody writes to the generation before.

    `acknowledged_us` is a time at which the announcement is known to exist: that of its acknowledgement, or that of
    the answer to a serial read that returned it. A process that read the catalogue before knows the old one for
    `NOTICE_US` more. Two clock differences count: of the reader against the announcer, and of the waiting process
    against the reader.
    """
    return max(announced.from_us, acknowledged_us + NOTICE_US + 2 * skew_us)


def is_over(generations: Generations, *, now_us: int, skew_us: int) -> bool:
    """Whether nobody writes the current generation any more.

    A producer takes the old one until its own clock shows the beginning of the next, which is `sure` when that is
    late; so the clocks' difference is waited for on top of it.
    """
    if generations.sure_us is None:
        return False
    return others_may_act(generations.sure_us, now_us=now_us, skew_us=skew_us)


def turned(generations: Generations) -> Generations:
    """After a change is over: the next is the current one, and the one before waits to be retired."""
    if generations.next is None or generations.sure_us is None:
        raise GenerationBroken("No change that could be over", number=generations.current.number)
    old = generations.current
    window = Window(old.number, old.shards, old.from_us, generations.next.from_us, generations.sure_us)
    return Generations(generations.next, earlier=(*generations.earlier, window))


def retired(generations: Generations, number: int) -> Generations:
    """Without an earlier generation that holds nothing any more."""
    left = tuple(window for window in generations.earlier if window.number != number)
    if len(left) == len(generations.earlier):
        raise GenerationBroken("Not an earlier generation", number=number)
    return replace(generations, earlier=left)


def written_at(generations: Generations, time_us: int) -> Generation:
    """The one that a producer writes to, for messages due at that time."""
    if generations.next is not None and time_us >= generations.next.from_us:
        return generations.next
    return generations.current


def knowledge(read_started_us: int) -> Promise:
    """How long a process may rely on its read of the catalogue: checked before it sends, and at the answer."""
    return Promise(read_started_us, NOTICE_US)
