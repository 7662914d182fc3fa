"""Checks the lanes of queues that may not be served: of candidates only, each 5 s, some at a time. The prose is
docs/internals/protocols/operator.md, "Health".

It judges as members do (headgate/engines/lanes/balance/decide_shares.py), as a member without room; the reaction to
it is decided elsewhere, and the stop is an effect of its own.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from headgate.engines.contract import LaneReport
from headgate.errors import HeadgateError
from headgate_operator.informers.work_queue import Class
from headgate_operator.model.names import Key
from headgate_operator.model.world import UNKNOWN, LaneHealth, LaneProblem, QueueLoad, Unread
from headgate_operator.observe.queue_stats import FigureBoard, FollowedQueue, Notify

log = logging.getLogger("headgate.operator")

POLL_EVERY_S: Final = 5.0
AT_ONCE: Final = 20
SECOND_US: Final = 1_000_000
STILL_US: Final = 30 * SECOND_US
FRESH_US: Final = 20 * SECOND_US


@dataclass
class _Known:
    lanes: LaneHealth | None = None
    idle_since_us: int | None = None
    """Since when nothing was settled although something is due."""


class Health:
    def __init__(self, board: FigureBoard, notify: Notify) -> None:
        self._board = board
        self._notify = notify
        self._known: dict[Key, _Known] = {}
        self._at_once = asyncio.Semaphore(AT_ONCE)

    def of(self, key: Key, now_us: int) -> LaneHealth | Unread:
        known = self._known.get(key)
        if known is None or known.lanes is None or now_us - known.lanes.at_us > FRESH_US:
            return UNKNOWN
        return known.lanes

    async def run(self) -> None:
        while True:
            await self.turn()
            await asyncio.sleep(POLL_EVERY_S)

    async def turn(self) -> None:
        followed = [each for each in self._board.all() if not each.has_nothing or self._was_bad(each.key)]
        self._known = {each.key: self._known.get(each.key, _Known()) for each in followed}
        wanted = [each for each in followed if self._is_candidate(each)]
        await asyncio.gather(*(self._inspect(each) for each in wanted))

    def _was_bad(self, key: Key) -> bool:
        """Whether a check is due that may find it healthy, though it has nothing any more."""
        known = self._known.get(key)
        return known is not None and known.lanes is not None and _is_bad(known.lanes)

    def _is_candidate(self, followed: FollowedQueue) -> bool:
        known, figures = self._known[followed.key], followed.figures
        if figures is None:
            return False
        if figures.awake and figures.rate == 0 and figures.behind:
            known.idle_since_us = known.idle_since_us or figures.at_us
        else:
            known.idle_since_us = None
        idle = known.idle_since_us is not None and figures.at_us - known.idle_since_us >= STILL_US
        short = figures.awake and figures.leased < followed.inspector.lanes
        return short or idle or figures.held > 0 or (known.lanes is not None and _is_bad(known.lanes))

    async def _inspect(self, followed: FollowedQueue) -> None:
        async with self._at_once:
            try:
                lanes = await followed.inspector.inspect()
            except HeadgateError as error:
                log.info("checking lanes failed", extra={"key": followed.key.path, "error": str(error)})
                return
            except Exception:  # the others are checked all the same
                log.exception("bug in a check of lanes, please report it", extra={"key": followed.key.path})
                return
        figures = followed.figures
        known = self._known.get(followed.key)
        if figures is None or known is None:
            return
        before, known.lanes = known.lanes, _build_lane_health(lanes, figures)
        if _bad(before) != _bad(known.lanes):
            self._notify(followed.key, Class.CHANGED)


def _build_lane_health(lanes: list[LaneReport], figures: QueueLoad) -> LaneHealth:
    def problems(which: Callable[[LaneReport], bool], why: str) -> tuple[LaneProblem, ...]:
        return tuple(_problem(lane, figures.at_us, why) for lane in lanes if which(lane))

    return LaneHealth(
        at_us=figures.at_us,
        total=len(lanes),
        leased=sum(lane.leased for lane in lanes),
        unprocessed=problems(lambda lane: lane.unprocessed, "it has no owner"),
        suspicious=problems(lambda lane: lane.suspicious, "its owner makes no progress"),
        held=(LaneProblem("", 0, f"{figures.held} of its lanes deliver nothing new"),) if figures.held else (),
    )


def _problem(lane: LaneReport, now_us: int, why: str) -> LaneProblem:
    waits_s = 0 if lane.due_us is None else max(0, now_us - lane.due_us) // SECOND_US
    return LaneProblem(lane.lane, lane.epoch, f"lane {lane.lane}: {why}, messages are due for {waits_s} s")


def _is_bad(lanes: LaneHealth) -> bool:
    return bool(lanes.unprocessed or lanes.suspicious or lanes.held)


def _bad(lanes: LaneHealth | None) -> tuple[frozenset[str], frozenset[str], bool]:
    if lanes is None:
        return frozenset(), frozenset(), False
    return (
        frozenset(each.lane for each in lanes.unprocessed),
        frozenset(each.lane for each in lanes.suspicious),
        bool(lanes.held),
    )
