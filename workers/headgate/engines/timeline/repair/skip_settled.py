"""Moves the position of a lane without an owner over settled rows: otherwise the settles of bulk jobs would be read
repeatedly from the same position (docs/internals/protocols/spark.md, "Source: a stream").

It is a lease term like any other, and a short one: take, read the record and then the rows, record the passed rows,
and release the lane with its position moved. It delivers nothing.

Invariants: `last` moves over rows all of whose messages are settled, none left out, and only once their ids are in
`passed`; all of it within the lease, or the lane is left as it was.
"""

from __future__ import annotations

from headgate.engines.context import Host
from headgate.engines.lanes.delivery.rows import LaneRow
from headgate.engines.lanes.lane_name import LaneName
from headgate.engines.lanes.log.settle_log_format import Facts, RowFacts, bits_of, merge_facts
from headgate.engines.timeline.lanes.timeline_lanes import lane_of
from headgate.engines.timeline.put.row_sender import Sender
from headgate.engines.timeline.read.source import TimelineSource
from headgate.errors import Unavailable
from headgate.process.live import Live

SLICE_BYTES = 1024 * 1024
ROWS_MAX = 20_000
"""Of one turn: reading them takes less than a lease lasts."""


async def pass_over_settled(host: Host, sender: Sender, name: LaneName) -> bool:
    """Whether the position of the lane was moved."""
    lane = lane_of(host, sender.settings, name)
    state = await lane.read_state()
    if state is None or state.is_retired or state.lock is not None or state.reserved is not None:
        return False
    lease_term = await lane.take(state)
    if lease_term is None:
        return False
    generation, shard = name
    source = TimelineSource(host, sender, Live(None), generation=generation, shard=shard, lease_term=lease_term)
    last, read_to = source.order_of(state.last), source.order_of(state.read_to)
    passed: list[LaneRow] = []
    try:
        passed = await _settled_rows(source, last)
        if passed:
            await source.write_passed(passed)
        if not lease_term.may_act(host.now_us()):
            passed = []
    except Unavailable:
        passed = []
    moved_to = passed[-1].order if passed else last
    released = await lane.release(
        lease_term,
        last=source.stored(moved_to) if passed else state.last,
        read_to=source.stored(max(read_to, moved_to)) if passed else state.read_to,
    )
    return released and bool(passed)


async def _settled_rows(source: TimelineSource, last: int) -> list[LaneRow]:
    """The rows above the position, up to the first of which something is not settled."""
    facts: Facts = {}
    passed: list[LaneRow] = []
    after, more = last, True
    while more and len(passed) < ROWS_MAX:
        merge_facts(facts, await source.recall(after))
        piece = await source.read(after, bytes_max=SLICE_BYTES)
        elsewhere = source.settled_elsewhere(piece.rows, facts)
        for row in piece.rows:
            settled = row.settled | facts.get(row.key, RowFacts()).settled | elsewhere.get(row.key, 0)
            if settled != bits_of(0, row.count):
                return passed
            passed.append(row)
        after, more = piece.reached, piece.more
    return passed
