"""Inspects lanes that have another owner, or none. It finds those that nobody works, and stops owners whose loop
hangs, or whose lane has a later owner (docs/internals/protocols/balance.md).

Nothing in it is needed for safety, so plain reads are enough; a stop is an LWT, and never shortens a lease.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection
from typing import Any

from headgate.engines.context import Host
from headgate.engines.lanes.balance.decide_dual_owners import DualOwnership, decide_epoch_to_stop
from headgate.engines.lanes.balance.decide_shares import LaneObservation, Watch
from headgate.engines.lanes.lane_name import LaneName, format_lane
from headgate.engines.lanes.ownership.decide_lease import LaneState
from headgate.engines.lanes.ownership.engine_lanes import EngineLanes
from headgate.store.store import STORE_ERRORS

log = logging.getLogger("headgate.lanes")

CHECK_EVERY_S = 5.0
LANES_AT_ONCE = 8


class PeerMonitor:
    """One process's observations of other members' lanes."""

    def __init__(self, host: Host, lanes: EngineLanes[Any]) -> None:
        self.unprocessed: set[LaneName] = set()
        """Lanes that nobody has worked for long, with due work."""
        self.retired: set[LaneName] = set()
        self._stopped: dict[LaneName, int] = {}
        """The epochs that this process has ordered to stop."""
        self._stopped_epochs: dict[LaneName, int] = {}
        """The epochs that existed together with a later one, and were ordered to stop."""
        self._host = host
        self._lanes = lanes
        self._watch = Watch(lanes.lease.quiet_touch_us)
        self._progress: dict[LaneName, tuple[int, int, bool]] = {}
        self._checked_s: float | None = None

    async def check(self, lanes: Collection[LaneName]) -> None:
        """Inspect these, if it is time to; each for itself, so that an unreadable one hides no other."""
        now_s = asyncio.get_running_loop().time()
        if self._checked_s is not None and now_s - self._checked_s < CHECK_EVERY_S:
            return
        self._checked_s = now_s
        self.unprocessed &= set(lanes)
        names = sorted(lanes)
        for start in range(0, len(names), LANES_AT_ONCE):
            await asyncio.gather(*map(self._check_lane, names[start : start + LANES_AT_ONCE]))

    async def _check_lane(self, name: LaneName) -> None:
        try:
            state = await self._lanes.lane(name).inspect_state()
            if state is None:
                return
            if state.is_retired:
                self.retired.add(name)
                return
            await self._judge(name, state)
        except STORE_ERRORS:
            return

    async def _judge(self, name: LaneName, state: LaneState) -> None:
        now_us = self._host.now_us()
        as_before = (state.epoch, state.progress, state.lock is not None)
        stands = self._progress.get(name) == as_before
        self._progress[name] = as_before
        due_us = await self._lanes.first_due_us(name, state) if stands else None
        observation = LaneObservation(
            name, now_us, state.lock is not None, state.epoch, state.progress, state.touched_us, due_us
        )
        if self._watch.is_suspicious(observation):
            await self._stop(name, state.epoch)
        if self._watch.is_unprocessed(observation) or self._stopped.get(name) == state.epoch:
            self.unprocessed.add(name)
        else:
            self.unprocessed.discard(name)

    async def _stop(self, name: LaneName, epoch: int) -> None:
        """Once for each owner. Its lane is free for any member, of any share: it may be unable to take it again."""
        if self._stopped.get(name) == epoch or not await self._lanes.lane(name).stop(epoch):
            return
        self._stopped[name] = epoch
        fields = {"queue": self._lanes.queue_name, "lane": format_lane(name), "epoch": epoch}
        log.warning("emergency stop: the owner of a lane makes no progress", extra=fields)

    async def stop_earlier(self, dual: DualOwnership) -> None:
        """Order the earlier of two owners to stop, once. The owner by the lane's row is not affected."""
        if self._stopped_epochs.get(dual.lane, -1) >= dual.earlier:
            return
        lane = self._lanes.lane(dual.lane)
        state = await lane.read_state()
        epoch = None if state is None else decide_epoch_to_stop(dual, state.epoch)
        if state is None or epoch is None:
            return
        ordered = await (lane.stop(epoch) if epoch == state.epoch else lane.stop_earlier(epoch, state=state))
        self._stopped_epochs[dual.lane] = epoch
        if ordered:
            fields = {"queue": self._lanes.queue_name, "lane": format_lane(dual.lane), "epoch": epoch}
            log.error("emergency stop: a lane has two owners", extra=fields | {"later": dual.later})
