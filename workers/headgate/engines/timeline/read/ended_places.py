"""Copies at places in a generation that ended before they were written.

A copy's place is fixed before it is written (rule R7), and its writer may be another owner, much later. By then the
generation of the place may be no longer written, its lane retired, and repair's last scan over. So the writer of such
a copy inspects the lane afterwards. As long as the position is before the place, its owner reads the copy, or repair
does, which scans only behind the position. Nobody maintains a retired lane: then the copy is restamped as repair
would do it, if it was not passed.

No two lanes wait for each other by this: a copy is due after its original, so a lane waits only for one whose
position is above its own.
"""

from __future__ import annotations

from headgate.engines.lanes.ownership.lease import Lane
from headgate.engines.timeline.model.lane_rows import lane_key
from headgate.engines.timeline.model.layout import RowPlace
from headgate.engines.timeline.model.repair_report import LateRowOutcome
from headgate.engines.timeline.put.row_sender import Sender
from headgate.engines.timeline.read.restamp_late_rows import LateRows, PassedLane
from headgate.errors import Unavailable
from headgate.store.model.consistency import Consistency
from headgate.store.model.positions import is_after


class LaneNotRetired(Unavailable):
    """A copy is behind the position of a lane that is not retired yet: whether it was read is known then."""


async def see_to_late_copy(sender: Sender, place: RowPlace) -> None:
    """A copy was written to a place that may have no reader: it was read, found or moved elsewhere when this
    returns."""
    host, settings = sender.host, sender.settings
    key = lane_key(settings, place.generation, place.shard)
    state = await Lane(host, settings.tables.lanes, key, settings.lease).read_state()
    if state is None or (not state.is_retired and is_after(place.due, state.last)):
        return
    late_rows = LateRows(host, settings, sender)
    passed = await late_rows.read_passed(place.generation, place.shard, place.part(settings.part_us))
    if passed.among({place.due}):
        return
    if not state.is_retired:
        raise LaneNotRetired(queue=settings.name, generation=place.generation, shard=place.shard)
    lane = PassedLane(place.generation, place.shard, state.is_retired, state.purged_before_us)
    outcome = await late_rows.put_again(lane, place, consistency=Consistency.LOCAL_QUORUM)
    if outcome is LateRowOutcome.WAITS:
        raise LaneNotRetired(queue=settings.name, generation=place.generation, shard=place.shard)
