"""Decisions about time (rule R1): the time, whether it can be trusted, and the nodes that may be coordinators. The
prose is in docs/internals/protocols/clocks.md; the I/O is in clock.py.

It knows no system clock and no server: readings of the machine's clocks and of the nodes' clocks are passed in, all
in microseconds.

Invariants:
- now is boot time and an offset, and never goes backwards, whatever happens to the wall clock;
- trusted means: within half of `max_skew_us`, less half of the round trip, of every node used as coordinator, and
  these are more than half of the known ones: so any two trusted processes share one, and differ by the whole at most;
- a pause, a step or age ends the trust at the next reading, and only a check that started afterwards restores it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import Enum

from headgate.expiry import SECOND_US, Promise

READING_RESOLUTION_US = 1_000
"""Cassandra reports its time in whole milliseconds."""


@dataclass(frozen=True)
class Instant:
    """Two clocks of this machine, read at the same time: one that counts sleep and is never set, and the wall
    clock."""

    boot_us: int
    wall_us: int

    @property
    def wall_offset_us(self) -> int:
        """Constant as long as nobody sets the wall clock, and this machine is not stopped from outside."""
        return self.wall_us - self.boot_us


@dataclass(frozen=True)
class Bounds:
    """How far clocks may differ, and how long a comparison is good for."""

    max_skew_us: int = 500_000
    ask_every_us: int = 60 * SECOND_US
    ask_again_us: int = SECOND_US
    probe_every_us: int = 4 * SECOND_US
    """Half of a lease's default ttl."""
    trusted_for_us: int = 120 * SECOND_US
    turn_gap_us_max: int = SECOND_US
    narrowest_us: int | None = None
    """The narrowest bound that any caller in this process needs, where that is less than `max_skew_us`."""

    @property
    def step_us_max(self) -> int:
        """A larger change of wall against boot time needs a check.

        A second at most; less where the bound is narrow. A machine that was stopped for half a second with both its
        clocks, and only had its wall clock corrected, is half a second late without any other sign of it.
        """
        return min(SECOND_US, self.narrowest_skew_us // 4)

    @property
    def narrowest_skew_us(self) -> int:
        return self.max_skew_us if self.narrowest_us is None else self.narrowest_us

    def serving(self, max_skew_us: int) -> Bounds:
        """These bounds, and one more from `require`."""
        narrowest_us = min(self.narrowest_skew_us, max_skew_us)
        return replace(self, max_skew_us=max(self.max_skew_us, max_skew_us), narrowest_us=narrowest_us)


@dataclass(frozen=True)
class ClockReading:
    """A node's time, and this machine's boot time before the query and after the answer."""

    node: str
    sent_boot_us: int
    answered_boot_us: int
    node_us: int

    @property
    def round_trip_us(self) -> int:
        """The round trip; half of it is the uncertainty of the reading."""
        return self.answered_boot_us - self.sent_boot_us

    @property
    def uncertainty_us(self) -> int:
        """Half of the round trip, and half of the step in which the node counts."""
        return (self.round_trip_us + READING_RESOLUTION_US + 1) // 2

    def difference_us(self, offset_us: int) -> int:
        """By how much the node is ahead of boot time and this offset, at best knowledge."""
        ours_twice = self.sent_boot_us + self.answered_boot_us + 2 * offset_us
        return (2 * self.node_us + READING_RESOLUTION_US - ours_twice) // 2


class NodeClockStatus(Enum):
    WITHIN = "within"
    BEYOND = "beyond"
    UNCLEAR = "unclear"
    """It did not answer, or so slowly that the answer is too uncertain."""


@dataclass(frozen=True)
class Finding:
    node: str
    standing: NodeClockStatus
    difference_us: int = 0
    uncertainty_us: int = 0

    @property
    def worst_us(self) -> int:
        return abs(self.difference_us) + self.uncertainty_us


class Doubt(Enum):
    """Why the clocks have to be compared before anything is owned, acknowledged or sent."""

    NEVER_ASKED = "the clock was not yet compared with Cassandra's"
    PAUSED = "this process was paused"
    STEPPED = "the wall clock was set, or this machine was stopped"
    MOVED = "this host's clock and a node's have moved against each other"


@dataclass(frozen=True)
class Check:
    """The last comparison that ended."""

    started_boot_us: int
    findings: tuple[Finding, ...]
    asked: frozenset[str]

    @property
    def within(self) -> tuple[Finding, ...]:
        """The nodes that may be coordinators."""
        return tuple(finding for finding in self.findings if finding.standing is NodeClockStatus.WITHIN)

    @property
    def agrees(self) -> bool:
        """Whether more than half of the known nodes are within: then any two processes that agree share one."""
        return 2 * len(self.within) > len(self.findings)

    def finding_of(self, node: str) -> Finding | None:
        """That of one of the nodes that may be coordinators."""
        return next((finding for finding in self.within if finding.node == node), None)

    @property
    def farthest(self) -> Finding:
        """The coordinator with the largest difference; it exists where the nodes agree."""
        return max(self.within, key=lambda each: each.worst_us)

    @property
    def worst(self) -> Finding | None:
        """The one to be named when they do not agree: the farthest of those beyond, else one that is unclear."""
        outside = [finding for finding in self.findings if finding.standing is not NodeClockStatus.WITHIN]
        return max(outside, key=lambda each: (each.standing is NodeClockStatus.BEYOND, each.worst_us), default=None)


@dataclass(frozen=True)
class ClockState:
    offset_us: int
    wall_offset_us: int
    turned_boot_us: int
    doubt: Doubt | None
    doubted_boot_us: int
    doubted_by_us: int = 0
    check: Check | None = None
    pauses: int = 0
    steps: int = 0


@dataclass(frozen=True)
class ClockProblem:
    """Why the time cannot be trusted, in one line: the cause, the node, the difference."""

    problem: str
    node: str | None = None
    by_us: int | None = None
    bound_us: int | None = None
    remedy: str | None = None


TOO_LONG_AGO = "the last comparison with Cassandra's clock is too old"
TOO_SLOWLY = "a node answered too slowly to compare clocks within maxClockSkew"
TOO_FEW = "too few nodes answered fast enough to compare clocks"
BEYOND_BOUND = "this host's clock and a node's differ too much"
SEE_TO_THE_NETWORK = "check that the node is up and the network is fast enough for maxClockSkew"
SET_THE_CLOCKS = "synchronize this host and the nodes with NTP or chrony"


def begin(instant: Instant) -> ClockState:
    """At first the wall clock is taken as it is, and nothing is owned before it was checked."""
    offset_us, boot_us = instant.wall_offset_us, instant.boot_us
    return ClockState(offset_us, offset_us, boot_us, Doubt.NEVER_ASKED, boot_us)


def notice(state: ClockState, instant: Instant, bounds: Bounds) -> ClockState:
    """At every use: was this process paused, or the wall clock set? The same object when nothing was."""
    gap_us = instant.boot_us - state.turned_boot_us
    if gap_us > bounds.turn_gap_us_max:
        doubted = _doubted(state, Doubt.PAUSED, instant, gap_us)
        return replace(doubted, turned_boot_us=instant.boot_us, pauses=state.pauses + 1)
    step_us = instant.wall_offset_us - state.wall_offset_us
    if abs(step_us) > bounds.step_us_max:
        doubted = _doubted(state, Doubt.STEPPED, instant, step_us)
        return replace(doubted, wall_offset_us=instant.wall_offset_us, steps=state.steps + 1)
    return state


def turn(state: ClockState, instant: Instant, bounds: Bounds) -> ClockState:
    """Once per turn of the loop: the check of `notice`, and a record of the turn."""
    return replace(notice(state, instant, bounds), turned_boot_us=instant.boot_us)


def _doubted(state: ClockState, doubt: Doubt, instant: Instant, by_us: int) -> ClockState:
    """A doubt is as old as its latest cause: a check that started before it cannot end it."""
    return replace(state, doubt=doubt, doubted_boot_us=instant.boot_us, doubted_by_us=by_us)


def is_check_due(state: ClockState, instant: Instant, up: Iterable[str], bounds: Bounds) -> bool:
    """A check is due at start, at any doubt, and every minute. It is due soon while nodes disagree, or one is up that
    was not queried, or the measured error is too wide for a caller in this process: that may have been a slow
    answer."""
    if state.doubt is not None or state.check is None:
        return True
    unasked = set(up) - state.check.asked
    serves_all = state.check.agrees and state.check.farthest.worst_us <= bounds.narrowest_skew_us // 2
    pause_us = bounds.ask_every_us if serves_all and not unasked else bounds.ask_again_us
    return instant.boot_us - state.check.started_boot_us >= pause_us


def decide_probe(state: ClockState, instant: Instant, turns: int, bounds: Bounds) -> str | None:
    """The node to ask for one reading now; none while a full check is due, or where none is within.

    A machine that was stopped with both its clocks shows it by nothing but the nodes' clocks. One node a turn is
    enough: it differs from all of them.
    """
    check = state.check
    if check is None or state.doubt is not None or not check.within:
        return None
    if instant.boot_us - check.started_boot_us < bounds.probe_every_us:
        return None
    return check.within[turns % len(check.within)].node


def probed(state: ClockState, reading: ClockReading, instant: Instant, bounds: Bounds) -> ClockState:
    """After the reading of a probe: in doubt where the difference to that node has changed by a step for sure since
    the last check. It proves nothing else: a node that differs, and always did, has been judged."""
    earlier = None if state.check is None else state.check.finding_of(reading.node)
    if earlier is None or state.doubt is not None:
        return state
    moved_us = reading.difference_us(state.offset_us) - earlier.difference_us
    if abs(moved_us) - reading.uncertainty_us - earlier.uncertainty_us <= bounds.step_us_max:
        return state
    return _doubted(state, Doubt.MOVED, instant, moved_us)


def excluded(state: ClockState, known: Iterable[str]) -> frozenset[str]:
    """The nodes that may not be coordinators. None as long as too few agree: then nothing is owned anyhow, and the
    correct ones cannot be determined."""
    if state.check is None or not state.check.agrees:
        return frozenset()
    return frozenset(known) - {finding.node for finding in state.check.within}


def now_us(state: ClockState, instant: Instant, given_us: int) -> int:
    """The time: boot time and the offset, but never less than was given before."""
    return max(given_us, instant.boot_us + state.offset_us)


def judge(reading: ClockReading, offset_us: int, bound_us: int) -> Finding:
    """Within the bound for sure, beyond it for sure, or unclear."""
    difference_us, uncertainty_us = reading.difference_us(offset_us), reading.uncertainty_us
    standing = NodeClockStatus.UNCLEAR
    if abs(difference_us) + uncertainty_us <= bound_us:
        standing = NodeClockStatus.WITHIN
    elif abs(difference_us) - uncertainty_us > bound_us:
        standing = NodeClockStatus.BEYOND
    return Finding(reading.node, standing, difference_us, uncertainty_us)


def conclude(
    state: ClockState,
    *,
    started: Instant,
    ended: Instant,
    readings: Mapping[str, ClockReading | None],
    given_us: int,
    bounds: Bounds,
) -> ClockState:
    """Judge all nodes by the offset in use; if they disagree, by the wall clock of now: it may have been set right.

    A time already given can be ahead of either: it is judged too, since callers see it until the clock caught up.
    """
    state = notice(state, ended, bounds)
    offsets = (state.offset_us, ended.wall_offset_us)
    asked = frozenset(node for node, reading in readings.items() if reading is not None)
    checks = [
        Check(started.boot_us, _judge_all(readings, max(offset_us, given_us - ended.boot_us), bounds), asked)
        for offset_us in offsets
    ]
    chosen = 1 if not checks[0].agrees and checks[1].agrees else 0
    settled = state.doubted_boot_us <= started.boot_us
    return replace(
        state,
        offset_us=offsets[chosen],
        wall_offset_us=ended.wall_offset_us if settled else state.wall_offset_us,
        check=checks[chosen],
        doubt=None if settled else state.doubt,
    )


def _judge_all(readings: Mapping[str, ClockReading | None], offset_us: int, bounds: Bounds) -> tuple[Finding, ...]:
    return tuple(
        judge(reading, offset_us, bounds.max_skew_us // 2) if reading else Finding(node, NodeClockStatus.UNCLEAR)
        for node, reading in sorted(readings.items())
    )


def find_clock_problem(
    state: ClockState, instant: Instant, bounds: Bounds, max_skew_us: int | None = None
) -> ClockProblem | None:
    """Why nothing may be owned, acknowledged or sent now; None if it may. The bound can be narrower than usual."""
    check = state.check
    if check is None or state.doubt is not None:
        return ClockProblem((state.doubt or Doubt.NEVER_ASKED).value, by_us=state.doubted_by_us or None)
    bound_us = min(bounds.max_skew_us, bounds.max_skew_us if max_skew_us is None else max_skew_us) // 2
    if not check.agrees:
        if check.worst is None:
            return ClockProblem("no node of the home data centre is known")
        if check.worst.standing is NodeClockStatus.BEYOND:
            return _beyond(check.worst, bound_us)
        return ClockProblem(TOO_FEW, node=check.worst.node, bound_us=bound_us, remedy=SEE_TO_THE_NETWORK)
    if not Promise(check.started_boot_us, bounds.trusted_for_us).still_holds(instant.boot_us):
        return ClockProblem(TOO_LONG_AGO, by_us=instant.boot_us - check.started_boot_us)
    farthest = check.farthest
    if farthest.worst_us <= bound_us:
        return None
    if abs(farthest.difference_us) - farthest.uncertainty_us > bound_us:
        return _beyond(farthest, bound_us)
    return ClockProblem(TOO_SLOWLY, farthest.node, farthest.worst_us, bound_us, SEE_TO_THE_NETWORK)


def _beyond(finding: Finding, bound_us: int) -> ClockProblem:
    return ClockProblem(BEYOND_BOUND, finding.node, finding.difference_us, bound_us, SET_THE_CLOCKS)


@dataclass(frozen=True, slots=True)
class Trust:
    """The validity of a state while it stays the same: `find_clock_problem` computed once instead of at every use."""

    until_boot_us: int
    """Before this time there is no trouble, except for callers with a narrower bound."""
    bound_us_min: int
    """Nor for any caller whose bound is at least this."""


def trust(state: ClockState, bounds: Bounds) -> Trust | None:
    """None where the time is not to be relied on at all."""
    check = state.check
    if check is None or state.doubt is not None or not check.agrees:
        return None
    worst_us = check.farthest.worst_us
    if worst_us > bounds.max_skew_us // 2:
        return None
    until = Promise(check.started_boot_us, bounds.trusted_for_us)
    return Trust(until.silent_after_us, 2 * worst_us)


def best_reading(readings: Iterable[ClockReading]) -> ClockReading | None:
    """Of several readings of a node the most precise: the one with the shortest round trip."""
    return min(readings, key=lambda reading: reading.round_trip_us, default=None)
