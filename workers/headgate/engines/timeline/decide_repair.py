"""What repair decides: which parts are due for which look, and what becomes of a row that was met by nobody.
The prose and its argument are docs/internals/protocols/repair.md; keep the two in step.

Pure: moments in microseconds, parts as numbers. It does not know tables, places or the catalogue.

Invariants: a look is due only once nothing that it is there to find can still be on its way; looks of a lane are
taken in the order of its parts, so one number tells them all; a family of rows goes to one place at a time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from headgate.engines.timeline.decide_flush import shard_of_group

MINUTE_US = 60_000_000
HOUR_US = 60 * MINUTE_US
SHORT_OUTAGE_US = 15 * MINUTE_US
LONG_OUTAGE_US = 4 * HOUR_US
RECORD_US = 7 * 24 * HOUR_US
"""For so long after the last look is due the record of passed rows is kept, whatever the retention: rows outlive it
where the retention was lowered, and would all look late."""
LOOKS = (1, 2, 3, 4)
LAST_LOOK = 4
"""At all replicas: nothing lands after it."""
EVERYTHING = 1 << 62
"""A cursor beyond every part: its lane holds nothing that this look has not seen, nor ever will."""


@dataclass(frozen=True)
class LookTerms:
    """How long after a part is over each look at it is due."""

    part_us: int
    skew_us: int
    delays_us: tuple[int, ...]

    @classmethod
    def of(
        cls, *, part_us: int, skew_us: int, late_write_us: int, hint_window_us: int, gc_grace_us: int
    ) -> LookTerms:
        """Never is a later look due before an earlier one, whatever a queue is set to."""
        wanted = (
            late_write_us,
            SHORT_OUTAGE_US,
            max(LONG_OUTAGE_US, hint_window_us + HOUR_US),
            max(hint_window_us, gc_grace_us),
        )
        return cls(part_us, skew_us, tuple(max(wanted[: look + 1]) for look in range(len(wanted))))

    def base_us(self, part: int, sure_us: int | None) -> int:
        """The moment from which looks at a part count: its end, or the end of all writing to its generation."""
        end_us = (part + 1) * self.part_us
        return end_us if sure_us is None else min(end_us, sure_us + self.skew_us)

    def due_us(self, part: int, look: int, sure_us: int | None) -> int:
        """When a look at a part is due."""
        return self.base_us(part, sure_us) + self.delays_us[look - 1]

    def due_below(self, look: int, sure_us: int | None, now_us: int) -> int:
        """The first part that is not due for a look yet: all below it are."""
        counted_us = now_us - self.delays_us[look - 1]
        if sure_us is not None and sure_us + self.skew_us <= counted_us:
            return EVERYTHING
        return max(0, counted_us // self.part_us)

    @property
    def record_us(self) -> int:
        """How long the record of what was passed is kept at least, from its writing on."""
        return self.delays_us[-1] + RECORD_US

    def told_from(self, now_us: int) -> int:
        """The first part of which it is sure that the record tells what was passed: it was passed after its end, and
        recorded then."""
        return max(0, (now_us - self.record_us + HOUR_US) // self.part_us)

    def is_looked_at_again(self, part: int, sure_us: int | None, now_us: int) -> bool:
        """Whether the last look at a part is certainly still to come, by whatever clock a repairer goes."""
        return now_us + MINUTE_US + self.skew_us < self.due_us(part, LAST_LOOK, sure_us)


@dataclass(frozen=True, slots=True)
class Stretch:
    """Parts of a lane that are due for one look: from `start` on, below `end`."""

    look: int
    start: int
    end: int


def next_stretch(
    look: int, cursors: Mapping[int, int], *, due_below: int, passed_below: int, strongest: int
) -> Stretch | None:
    """What this look has to be taken at; `strongest` is up to where a later look has just been taken, which counts
    for all before it. Nothing is late that may still be read: the lane's position bounds it too."""
    start = max(cursors.get(look, 0), strongest)
    end = min(due_below, passed_below)
    return Stretch(look, start, end) if start < end else None


def cursors_moved(look: int, up_to: int, cursors: Mapping[int, int]) -> dict[int, int]:
    """The cursors that move when a look was taken at all parts below one: its own, and those of the looks before."""
    return {each: up_to for each in LOOKS if each <= look and cursors.get(each, 0) < up_to}


class Where(Enum):
    """Where a late row goes."""

    ITS_LANE = "its own lane"
    NOW = "the generation of now"
    NOWHERE = "nowhere yet"
    """Its generation is written no more, and its lane may still be read: the owner drains it soon."""


def where_to(*, generation: int, writable: int, is_retired: bool) -> Where:
    """Where a row of this generation goes, if a put for its due moment would go to `writable`."""
    if generation == writable:
        return Where.ITS_LANE
    return Where.NOW if is_retired else Where.NOWHERE


class Step(Enum):
    """What to do about a row whose family has a place."""

    DONE = "done"
    WRITE = "write it there"
    """Again, perhaps; or a twin that names the family, where that place may have been passed."""
    FIX_ANEW = "fix another place"
    WAIT = "wait"


@dataclass(frozen=True, slots=True)
class Fixed:
    """What is known of the place that a family has."""

    is_this_row: bool
    """The late row itself lies at that place: its copy was late too."""
    is_passed: bool
    """The owner of that lane has passed it, or one of its family."""
    is_there: bool
    is_looked_at_again: bool
    is_retired: bool
    is_writable: bool
    """A put of now goes to its generation."""


def step_for(fixed: Fixed) -> Step:
    """What to do about a family's place. A row that is there is read by its lane's owner, or found by a look at its
    own part, if there is one to come."""
    if fixed.is_passed:
        return Step.DONE
    if fixed.is_this_row:
        return Step.FIX_ANEW
    if fixed.is_there and fixed.is_looked_at_again:
        return Step.DONE
    if fixed.is_retired:
        return Step.FIX_ANEW
    return Step.WRITE if fixed.is_writable else Step.WAIT


def is_purged(put_us: Sequence[int], purged_before_us: int) -> bool:
    """Whether all messages of a row were first put before the purge of its lane (attack D10)."""
    return max(put_us) < purged_before_us


def shares(groups: Sequence[bytes] | None, messages: int, *, shard: int, shards: int | None) -> dict[int, list[int]]:
    """The indexes of a row's messages by the shard that each goes to, `shard` being that of its place, which comes
    last. Where the number of shards changes, groups part; `shards` is None where it does not."""
    if groups is None or shards is None:
        return {shard: list(range(messages))}
    by_shard: dict[int, list[int]] = {}
    for index, group in enumerate(groups):
        by_shard.setdefault(shard_of_group(group, shards) if group else shard, []).append(index)
    last = by_shard.pop(shard, None)
    if last is not None:
        by_shard[shard] = last
    return by_shard
