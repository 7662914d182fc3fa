"""The lanes of a timeline queue for one process: which there are, and what the engine does with each
(`engines/lanes/ownership/engine_lanes.py`)."""

from __future__ import annotations

from collections.abc import Collection
from uuid import UUID

from headgate.engines.context import Host
from headgate.engines.lanes.delivery.rows import DeliveryTerms
from headgate.engines.lanes.dispatcher import Dispatcher, DispatchTerms
from headgate.engines.lanes.lane_name import LaneName
from headgate.engines.lanes.ownership.decide_lease import LaneState, LeaseTerm, LeaseTerms
from headgate.engines.lanes.ownership.engine_lanes import Work
from headgate.engines.lanes.ownership.lease import Lane
from headgate.engines.summary.decide_figures import LaneStand
from headgate.engines.timeline.lanes.decide_retire import is_over, lanes_before
from headgate.engines.timeline.lanes.lane_snapshot import LaneView, first_unsettled_us
from headgate.engines.timeline.lanes.make_lanes import make_lanes
from headgate.engines.timeline.lanes.next_due import lane_status, next_due_us
from headgate.engines.timeline.lanes.retire_lane import Closing
from headgate.engines.timeline.model.lane_rows import lane_key
from headgate.engines.timeline.model.layout import SECOND_US
from headgate.engines.timeline.model.settings import GenerationSettings, TimelineSettings
from headgate.engines.timeline.put.row_sender import Sender
from headgate.engines.timeline.read.part_index import PartIndex
from headgate.engines.timeline.read.source import TimelineSource
from headgate.process.live import Live

RECEIVES_WITHOUT_END = 2**31
POLL_OF_LAG = 0.8
POLL_EVERY_S_MAX = 2.0
"""Also where the safety lag is longer: rows of later parts and of other processes' batches come as well."""


class TimelineLanes:
    """An `EngineLanes`: a lane is a shard of a generation."""

    def __init__(
        self, host: Host, sender: Sender, dead_letters: Live[Sender | None], deliveries: Live[DeliveryTerms]
    ) -> None:
        self.terms = DispatchTerms(deliveries)
        self._host = host
        self._sender = sender
        self._dead_letters = dead_letters
        self._indexes: dict[int, PartIndex] = {}
        """One for all lanes of a generation."""

    @property
    def _settings(self) -> TimelineSettings:
        return self._sender.settings

    @property
    def queue(self) -> UUID:
        """Its id."""
        return self._settings.queue

    @property
    def queue_name(self) -> str:
        """Its name in logs."""
        return self._settings.name

    @property
    def lease(self) -> LeaseTerms:
        """How long a lane is leased."""
        return self._settings.lease

    def names(self) -> list[LaneName]:
        """Each shard of each generation that may hold messages."""
        return [(each.number, shard) for each in self._settings.generations for shard in range(each.shards)]

    def lane(self, name: LaneName) -> Lane:
        """The control row of a lane."""
        return lane_of(self._host, self._settings, name)

    async def make(self, name: LaneName) -> bool:
        """All lanes of its generation, unless it is the first one, which is created with its queue."""
        generation = self._generation(name)
        if generation is None or not generation.from_us:
            return False
        await make_lanes(self._host, self._settings, generation)
        return True

    def source(self, name: LaneName, lease_term: LeaseTerm) -> TimelineSource:
        """The rows of a lane for the length of a lease term."""
        generation, shard = name
        index = self._indexes.get(generation)
        if index is None:
            index = self._indexes[generation] = PartIndex(self._host, self._sender.live, generation)
        return TimelineSource(
            self._host,
            self._sender,
            self._dead_letters,
            generation=generation,
            shard=shard,
            lease_term=lease_term,
            index=index,
        )

    def engine_work(self, name: LaneName, dispatcher: Dispatcher, source: TimelineSource) -> Work | None:
        """The owner of a lane of a generation that is no longer written closes it."""
        generation = self._generation(name)
        settings = self._settings
        if generation is None or not is_over(generation, now_us=self._host.now_us(), skew_us=settings.skew_us):
            return None
        return Closing(self._host, self._sender, dispatcher, source, generation=generation, shard=name[1]).run()

    @property
    def arrivals_every_s(self) -> float:
        """An index row is durable when its message is, and that is a lag before it is due. So a poll that is shorter
        than the lag by what an answer takes delays nothing."""
        lag_s = self._settings.safety_lag_us / SECOND_US
        return min(max(POLL_OF_LAG * lag_s, self.terms.poll_s_max), POLL_EVERY_S_MAX)

    async def find_arrivals(self, empty: Collection[LaneName]) -> Collection[LaneName]:
        """Those of the generations for which the index names something now."""
        ahead_us = round(self.arrivals_every_s * SECOND_US)
        named: set[int] = set()
        for number in {name[0] for name in empty}:
            index = self._indexes.get(number)
            if index is not None and await index.find_arrivals(ahead_us):
                named.add(number)
        return [name for name in empty if name[0] in named]

    def lanes_before(self, name: LaneName) -> list[LaneName]:
        """Those of earlier generations."""
        return lanes_before(self._settings.generations, name[0])

    async def first_due_us(self, name: LaneName, state: LaneState) -> int | None:
        """When its oldest unsettled row was due."""
        generation, shard = name
        return await first_unsettled_us(self._host, self._settings, LaneView(generation, shard, state, None))

    async def announce_next_due(self) -> None:
        """Mark the due time of the queue's next message in the summary, if this process reports there."""
        if self._sender.marks is None:
            return
        due_us = await next_due_us(self._host, self._settings)
        if due_us is not None:
            await self._sender.marks.announce_later(due_us)

    def stand(self, name: LaneName, dispatcher: Dispatcher, now_us: int) -> LaneStand:
        """The state of an owned lane for the summary."""
        return lane_status(name, dispatcher, now_us)

    def _generation(self, name: LaneName) -> GenerationSettings | None:
        return next((each for each in self._settings.generations if each.number == name[0]), None)


def lane_of(host: Host, settings: TimelineSettings, name: LaneName) -> Lane:
    """The control row of a lane."""
    return Lane(host, settings.tables.lanes, lane_key(settings, *name), settings.lease)


def delivery_terms(settings: TimelineSettings, *, dead_letters: bool) -> DeliveryTerms:
    """A queue's settings for deliveries."""
    return DeliveryTerms(
        max_receives=settings.max_receives if dead_letters else RECEIVES_WITHOUT_END,
        hold_us_max=settings.lease.ttl_s * 1_000_000,
        remembered_us=settings.lease.promise(0).silent_after_us,
        dead_letters=dead_letters,
    )


def lanes_with(host: Host, sender: Sender, dead_letters: Sender | None) -> TimelineLanes:
    """For one piece of work, with the dead-letter queue of now."""
    terms = delivery_terms(sender.settings, dead_letters=dead_letters is not None)
    return TimelineLanes(host, sender, Live(dead_letters), Live(terms))
