"""Marks the backlog of a queue again: for a repairer, since a producer may have died before its mark was written, and
marks of an unread queue expire in time. The prose is docs/internals/protocols/summary.md, "Marks".

It takes nothing, and rewrites an existing mark unchanged.
"""

from __future__ import annotations

import asyncio

from headgate.engines.context import Host
from headgate.engines.summary.marks import Marks
from headgate.engines.timeline.lanes.lane_snapshot import first_unsettled_us, list_lane_views
from headgate.engines.timeline.lanes.next_due import next_due_us
from headgate.engines.timeline.model.settings import TimelineSettings


async def mark_what_waits(host: Host, settings: TimelineSettings, marks: Marks) -> None:
    """Marks of the due messages in lanes without an owner, and of the next delayed message. That one is read first: a
    message that falls due meanwhile is found by one of the two."""
    later_us = await next_due_us(host, settings)
    views = await list_lane_views(host, settings, {})
    free = [view for view in views if view.state.lock is None and not view.state.is_retired]
    first_times = await asyncio.gather(*(first_unsettled_us(host, settings, view) for view in free))
    waiting = [due_us for due_us in first_times if due_us is not None]
    if waiting:
        await marks.announce_put(max(waiting))
    if later_us is not None:
        await marks.announce_later(later_us)
