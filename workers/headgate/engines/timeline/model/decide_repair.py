"""The decisions of repair: which parts are due for which scan, and the action for a row that no reader has read. The
prose and its argument are docs/internals/protocols/repair.md; keep the two in step.

Pure: times in microseconds, parts as numbers. It does not know tables, places or the catalogue.

Invariants: a scan is due only once no row that it has to find can still be on its way; scans of a lane run in the
order of its parts, so one number represents them all; all restamped rows of a lineage go to one place at a time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from headgate.engines.timeline.model.decide_place import decide_shard

MINUTE_US = 60_000_000
HOUR_US = 60 * MINUTE_US
SHORT_OUTAGE_US = 15 * MINUTE_US
LONG_OUTAGE_US = 4 * HOUR_US
RECORD_US = 7 * 24 * HOUR_US
"""The record of passed rows is kept for this time after the last scan is due, with any retention: rows outlive it
where the retention was lowered, and would all seem late."""
CHECKS = (1, 2, 3, 4)
"""The first is of all parts, the others of those where something was announced to come late."""
LAST_CHECK = 4
"""At all replicas: nothing lands after it."""
ASK_ALL_EVERY_US = HOUR_US
"""Unless a quorum shows something to check."""
EVERYTHING = 1 << 62
"""A cursor beyond every part: its lane holds nothing that this scan has not covered, and never will."""


@dataclass(frozen=True)
class CheckTerms:
    """How long after the end of a part each scan of it is due."""

    part_us: int
    skew_us: int
    delays_us: tuple[int, ...]

    @classmethod
    def of(
        cls, *, part_us: int, skew_us: int, late_write_us: int, hint_window_us: int, gc_grace_us: int
    ) -> CheckTerms:
        """A later scan is never due before an earlier one, with any settings of a queue."""
        wanted = (
            late_write_us,
            SHORT_OUTAGE_US,
            max(LONG_OUTAGE_US, hint_window_us + HOUR_US),
            max(hint_window_us, gc_grace_us),
        )
        return cls(part_us, skew_us, tuple(max(wanted[: check + 1]) for check in range(len(wanted))))

    def base_us(self, part: int, sure_us: int | None) -> int:
        """The time from which scans of a part count: its end, or the end of all writing to its generation."""
        end_us = (part + 1) * self.part_us
        return end_us if sure_us is None else min(end_us, sure_us + self.skew_us)

    def due_us(self, part: int, check: int, sure_us: int | None) -> int:
        """When a scan of a part is due."""
        return self.base_us(part, sure_us) + self.delays_us[check - 1]

    def due_below(self, check: int, sure_us: int | None, now_us: int) -> int:
        """The first part that is not due for a scan yet: all below it are."""
        counted_us = now_us - self.delays_us[check - 1]
        if sure_us is not None and sure_us + self.skew_us <= counted_us:
            return EVERYTHING
        return max(0, counted_us // self.part_us)

    @property
    def record_us(self) -> int:
        """The minimum time that the record of passed rows is kept, from its writing on."""
        return self.delays_us[-1] + RECORD_US

    def distinguishable_from_us(self, now_us: int) -> int:
        """The first part for which the record certainly lists the passed rows: they were passed after its end, and
        recorded then."""
        return max(0, (now_us - self.record_us + HOUR_US) // self.part_us)


@dataclass(frozen=True, slots=True)
class Stretch:
    """Parts of a lane that are due for one scan: from `start` on, below `end`."""

    check: int
    start: int
    end: int


def decide_next_stretch(
    check: int, cursors: Mapping[int, int], *, due_below: int, passed_below: int, strongest: int
) -> Stretch | None:
    """The parts for this scan. `strongest` is the part up to which a later scan has just run, which counts for all
    before it. A row that may still be read is not late: the lane's position is a bound too."""
    start = max(cursors.get(check, 0), strongest)
    end = min(due_below, passed_below)
    return Stretch(check, start, end) if start < end else None


def cursors_moved(check: int, up_to: int, cursors: Mapping[int, int]) -> dict[int, int]:
    """The cursors that move after a scan of all parts below one: its own, and those of the earlier scans of announced
    parts. The first scan is of other parts too."""
    covered = [each for each in CHECKS if CHECKS[0] < each <= check] or [check]
    return {each: up_to for each in covered if cursors.get(each, 0) < up_to}


class Where(Enum):
    """Where a late row goes."""

    ITS_LANE = "its own lane"
    NOW = "the generation of now"
    NOWHERE = "nowhere yet"
    """Its generation is written no more, and its lane may still be read: the owner drains it soon."""


def decide_place(*, generation: int, writable: int, is_retired: bool) -> Where:
    """The place of a row of this generation, if a put for its due time would go to `writable`."""
    if generation == writable:
        return Where.ITS_LANE
    return Where.NOW if is_retired else Where.NOWHERE


class LateRowStep(Enum):
    """The action for a row whose lineage has a place."""

    DONE = "done"
    WRITE = "write it there"
    """Again, perhaps; or a restamped row of the lineage, where that place may have been passed."""
    FIX_AGAIN = "fix another place"
    WAIT = "wait"


@dataclass(frozen=True, slots=True)
class Fixed:
    """The facts about the place of a lineage."""

    is_this_row: bool
    """The late row itself is at that place: its copy was late too."""
    is_passed: bool
    """The owner of that lane has passed it, or one of its family."""
    is_there: bool
    is_ahead: bool
    """Its lane's position is before it: the owner reads it, or the first scan of its part, which comes after that."""
    is_retired: bool
    is_writable: bool
    """A put of now goes to its generation."""


def decide_step(fixed: Fixed) -> LateRowStep:
    """The action for a lineage's place."""
    if fixed.is_passed:
        return LateRowStep.DONE
    if fixed.is_this_row:
        return LateRowStep.FIX_AGAIN
    if fixed.is_there and fixed.is_ahead:
        return LateRowStep.DONE
    if fixed.is_retired:
        return LateRowStep.FIX_AGAIN
    return LateRowStep.WRITE if fixed.is_writable else LateRowStep.WAIT


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
        by_shard.setdefault(decide_shard(group, shards) if group else shard, []).append(index)
    last = by_shard.pop(shard, None)
    if last is not None:
        by_shard[shard] = last
    return by_shard
