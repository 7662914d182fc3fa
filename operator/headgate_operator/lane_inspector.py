"""The operator's requests to the lanes of a timeline queue: positions, backlog, and the order to stop an owner.

Plain reads, but for the stop, which is an LWT. It is the only file of the operator that knows this engine; another
engine joins with a file of its own.
"""

from __future__ import annotations

from dataclasses import dataclass

from headgate.engines.context import Host
from headgate.engines.contract import Stats
from headgate.engines.lanes.balance.decide_shares import LaneName, LaneObservation, Watch
from headgate.engines.timeline.inspect.stats import stats
from headgate.engines.timeline.lanes.lane_snapshot import LaneView, first_unsettled_us, list_lane_views
from headgate.engines.timeline.lanes.lane_taking import lane_of
from headgate.engines.timeline.model.from_catalogue import settings_of
from headgate.engines.timeline.model.settings import TimelineSettings
from headgate.process.live import Live
from headgate.store.catalogue.entry import Entry
from headgate.store.model.positions import position_at, time_us_of
from headgate_operator.sessions import OpenSession

ENGINE = "timeline"


@dataclass(frozen=True)
class LaneReport:
    """One lane, seen."""

    name: LaneName
    epoch: int
    leased: bool
    unprocessed: bool
    suspicious: bool
    due_us: int | None


class LaneInspector:
    """Checks of one queue, from one process that holds none of its lanes."""

    def __init__(self, reached: OpenSession, entry: Entry) -> None:
        self.entry = entry
        self.settings: TimelineSettings = settings_of(entry, data_center=reached.process_context.data_center)
        self._host: Host = reached.process_context.host_of(entry.place.keyspace, Live(self.settings.skew_us))
        self._watch = Watch(self.settings.lease.touch_us)
        self._observed: dict[LaneName, tuple[int, int, bool]] = {}

    @property
    def lanes(self) -> int:
        """Of all generations that may hold messages."""
        return sum(each.shards for each in self.settings.generations)

    async def read_to_us(self) -> int:
        """Up to here every lane has been read: what sleeps was worked until then."""
        views = await list_lane_views(self._host, self.settings, {})
        return min((_time_us(view) for view in views if not view.state.is_retired), default=self._host.now_us())

    async def count(self) -> Stats:
        """The backlog, from the tables."""
        return await stats(self._host, self.settings, {})

    async def inspect(self) -> list[LaneReport]:
        """Check each lane that is not retired; the results of several checks are remembered."""
        views = await list_lane_views(self._host, self.settings, {})
        return [await self._judge(view) for view in views if not view.state.is_retired]

    async def stop(self, name: LaneName, epoch: int) -> None:
        """Order the owner of that epoch to stop (attack E3); it never shortens a lease."""
        await lane_of(self._host, self.settings, name).stop(epoch)

    async def _judge(self, view: LaneView) -> LaneReport:
        name, state = (view.generation, view.shard), view.state
        now_us = self._host.now_us()
        as_before = (state.epoch, state.progress, state.lock is not None)
        stands = self._observed.get(name) == as_before
        self._observed[name] = as_before
        due_us = await first_unsettled_us(self._host, self.settings, view) if stands else None
        observation = LaneObservation(
            name, now_us, state.lock is not None, state.epoch, state.progress, state.touched_us, due_us
        )
        return LaneReport(
            name,
            state.epoch,
            leased=state.lock is not None,
            suspicious=self._watch.is_suspicious(observation),
            unprocessed=self._watch.is_unprocessed(observation),
            due_us=due_us,
        )


def lane_word(name: LaneName) -> str:
    """A lane as conditions and plans name it: generation/shard."""
    return f"{name[0]}/{name[1]}"


def lane_named(word: str) -> LaneName:
    """The other way."""
    generation, _, shard = word.partition("/")
    return int(generation), int(shard)


def _time_us(view: LaneView) -> int:
    return time_us_of(position_at(view.position))
