"""Takes a free lane of a timeline queue and resumes its work: a dispatcher with its source, for one tenure.

It does not know the reason for this lane, nor its later use.
"""

from __future__ import annotations

from dataclasses import dataclass

from headgate.engines.context import Host
from headgate.engines.lanes.decide_lease import LaneState
from headgate.engines.lanes.dispatcher import Dispatcher, DispatchTerms
from headgate.engines.lanes.lease import Lane
from headgate.engines.lanes.poll_schedule import Beat
from headgate.engines.lanes.rows import DeliveryTerms
from headgate.engines.timeline.model.lane_rows import lane_key
from headgate.engines.timeline.model.settings import TimelineSettings
from headgate.engines.timeline.put.row_sender import Sender
from headgate.engines.timeline.read.part_index import PartIndex
from headgate.engines.timeline.read.source import TimelineSource

RECEIVES_WITHOUT_END = 2**31

LaneName = tuple[int, int]
"""Generation and shard."""


@dataclass(frozen=True)
class InCommon:
    """The shared parts of a generation's lanes in one process."""

    index: PartIndex
    beat: Beat


def lane_of(host: Host, settings: TimelineSettings, name: LaneName) -> Lane:
    """The control row of a lane."""
    return Lane(host, settings.tables.lanes, lane_key(settings, *name), settings.lease)


async def take_up(
    lane: Lane,
    state: LaneState,
    settings: TimelineSettings,
    name: LaneName,
    *,
    sender: Sender,
    dead_letters: Sender | None,
    groups_held: bool = False,
    common: InCommon | None = None,
) -> tuple[Dispatcher, TimelineSource] | None:
    """Take a lane in the state that was read, and start to read it; None where it was not free. On its own it has an
    index and a beat of its own."""
    lease_term = await lane.take(state)
    if lease_term is None:
        return None
    generation, shard = name
    source = TimelineSource(
        lane.host,
        settings,
        sender,
        dead_letters,
        generation=generation,
        shard=shard,
        lease_term=lease_term,
        index=None if common is None else common.index,
    )
    terms = dispatch_terms(settings, dead_letters=dead_letters is not None)
    beat = None if common is None else common.beat
    try:
        dispatcher = await Dispatcher.start(
            lane.host, lane, source, terms, lease_term, state, groups_held=groups_held, beat=beat
        )
    except Exception:  # another process may be able to work it, and need not wait for the lease to expire
        await lane.release(lease_term, last=state.last, reach=state.reach, clean=lease_term.clean)
        raise
    return dispatcher, source


def dispatch_terms(settings: TimelineSettings, *, dead_letters: bool) -> DispatchTerms:
    """A queue's settings for deliveries."""
    return DispatchTerms(
        DeliveryTerms(
            max_receives=settings.max_receives if dead_letters else RECEIVES_WITHOUT_END,
            hold_us_max=settings.lease.ttl_s * 1_000_000,
            remembered_us=settings.lease.promise(0).silent_after_us,
            dead_letters=dead_letters,
        )
    )
