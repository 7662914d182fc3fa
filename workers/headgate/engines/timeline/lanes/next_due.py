"""The reports to the summary about the lanes of a timeline queue: the state of an owned lane, and the due time of the
queue's next message. The prose is docs/internals/protocols/summary.md.
"""

from __future__ import annotations

import asyncio
from functools import lru_cache

from headgate.engines.context import Host
from headgate.engines.lanes.dispatcher import Dispatcher
from headgate.engines.lanes.lane_name import LaneName
from headgate.engines.summary.decide_figures import LaneStand
from headgate.engines.timeline.model.layout import LATER_SUBS_FROM
from headgate.engines.timeline.model.settings import GenerationSettings, TimelineSettings
from headgate.engines.timeline.read.part_list import parts_from
from headgate.engines.timeline.read.source import TimelineSource
from headgate.store.model.positions import last_at, position_at, position_order, time_us_of
from headgate.store.model.statements import Select, Slice, SliceBound
from headgate.store.model.types import Value

PARTS_MAX = 32
"""The number of indexed parts that are inspected; if all their messages are cancelled, the next part counts
unread."""
KEYS_MAX = 64
UNREAD_AFTER_US = 5_000_000
"""A lane that is read only up to this long ago is not read up to now."""
SHARD_BITS = 32


def lane_status(name: LaneName, dispatcher: Dispatcher, now_us: int) -> LaneStand:
    """The state of an owned lane, from its books."""
    delivery_state = dispatcher.delivery_state
    hidden = delivery_state.in_flight + delivery_state.hidden_at(now_us)
    lowest = delivery_state.lowest_unsettled
    read_to = dispatcher.position.last if delivery_state.horizon is None else delivery_state.horizon
    at_head = dispatcher.position.at_head and read_to > _order_of(now_us - UNREAD_AFTER_US)
    return LaneStand(
        number=name[0] << SHARD_BITS | name[1],
        waiting=max(0, delivery_state.unsettled - hidden),
        in_flight=hidden,
        oldest_us=None if lowest is None else _time_us(lowest.order),
        answered=dispatcher.answered,
        is_held=delivery_state.is_held(),
        is_unread=not at_head,
        unreadable=unreadable_rows_of(dispatcher),
    )


def unreadable_rows_of(dispatcher: Dispatcher) -> int:
    """How many rows of an owned lane were set aside."""
    return dispatcher.source.unreadable_rows if isinstance(dispatcher.source, TimelineSource) else 0


async def next_due_us(host: Host, settings: TimelineSettings) -> int | None:
    """When the next message of the queue is due, from the index and the keys of its parts; None: there is none."""
    now_us = host.now_us()
    due_times = [await _next_of(host, settings, each, now_us) for each in settings.generations]
    return min((each for each in due_times if each is not None), default=None)


async def _next_of(host: Host, settings: TimelineSettings, generation: GenerationSettings, now_us: int) -> int | None:
    parts_read = 0
    async for part, subs in parts_from(host, settings, generation.number, now_us // settings.part_us):
        if parts_read >= PARTS_MAX:
            return part * settings.part_us
        parts_read += 1
        reads = [
            _first_of(
                host, settings, {"generation": generation.number, "part": part, "sub": sub, "shard": shard}, now_us
            )
            for sub in {0, *subs}
            for shard in range(generation.shards)
        ]
        due_times = [due_us for due_us in await asyncio.gather(*reads) if due_us is not None]
        if due_times:
            return min(due_times)
    return None


async def _first_of(host: Host, settings: TimelineSettings, place: dict[str, Value], now_us: int) -> int | None:
    """The first live row beyond now."""
    sub = place["sub"]
    table = settings.tables.later if isinstance(sub, int) and sub >= LATER_SUBS_FROM else settings.tables.work
    key: dict[str, Value] = {"queue": settings.queue, **place}
    within = Slice("due", SliceBound(last_at(now_us), False), None)
    columns = ("due", "cancelled", "moved")
    rows = await host.store.read(Select(table, key, columns, within=within, limit=KEYS_MAX))
    live = [row.due for row in rows if row.cancelled is None and row.moved is None]
    if live:
        return time_us_of(live[0])
    return time_us_of(rows[-1].due) if len(rows) == KEYS_MAX else None


@lru_cache(maxsize=1)
def _order_of(time_us: int) -> int:
    """Of the last position of that time: the same for all lanes of a process, which may be a thousand."""
    return position_order(last_at(time_us))


def _time_us(order: int) -> int:
    return time_us_of(position_at(order))
