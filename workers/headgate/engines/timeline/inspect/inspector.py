"""The operator's requests to the lanes of a timeline queue: positions, backlog, and the order to stop an owner. Plain
reads, but for the stop, which is an LWT.
"""

from __future__ import annotations

from headgate.engines.context import Host
from headgate.engines.contract import LaneReport, Stats
from headgate.engines.lanes.balance.decide_shares import LaneObservation, Watch
from headgate.engines.lanes.lane_name import LaneName, format_lane, parse_lane
from headgate.engines.timeline.inspect.stats import stats
from headgate.engines.timeline.lanes.lane_snapshot import LaneView, first_unsettled_us, list_lane_views
from headgate.engines.timeline.lanes.timeline_lanes import lane_of
from headgate.engines.timeline.model.settings import TimelineSettings
from headgate.store.model.positions import position_at, time_us_of


class TimelineInspector:
    """`QueueInspector` of a timeline queue."""

    def __init__(self, host: Host, settings: TimelineSettings) -> None:
        self._host = host
        self._settings = settings
        self._watch = Watch(settings.lease.touch_us)
        self._observed: dict[LaneName, tuple[int, int, bool]] = {}

    @property
    def lanes(self) -> int:
        """Of all generations that may hold messages."""
        return sum(each.shards for each in self._settings.generations)

    async def read_to_us(self) -> int:
        """The lowest position of a lane that is not retired."""
        views = await list_lane_views(self._host, self._settings, {})
        times_us = (time_us_of(position_at(view.position)) for view in views if not view.state.is_retired)
        return min(times_us, default=self._host.now_us())

    async def count(self) -> Stats:
        """The backlog, from the tables."""
        return await stats(self._host, self._settings, {})

    async def inspect(self) -> list[LaneReport]:
        """A lane is judged by its progress since the check before."""
        views = await list_lane_views(self._host, self._settings, {})
        return [await self._judge(view) for view in views if not view.state.is_retired]

    async def stop(self, lane: str, epoch: int) -> None:
        """By an LWT on the lane's row."""
        await lane_of(self._host, self._settings, parse_lane(lane)).stop(epoch)

    async def _judge(self, view: LaneView) -> LaneReport:
        name, state = (view.generation, view.shard), view.state
        now_us = self._host.now_us()
        as_before = (state.epoch, state.progress, state.lock is not None)
        stands = self._observed.get(name) == as_before
        self._observed[name] = as_before
        due_us = await first_unsettled_us(self._host, self._settings, view) if stands else None
        observation = LaneObservation(
            name, now_us, state.lock is not None, state.epoch, state.progress, state.touched_us, due_us
        )
        return LaneReport(
            format_lane(name),
            state.epoch,
            leased=state.lock is not None,
            suspicious=self._watch.is_suspicious(observation),
            unprocessed=self._watch.is_unprocessed(observation),
            due_us=due_us,
        )
