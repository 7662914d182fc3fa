"""The lease of a lane against the simulated store: the rights of an owner of before."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from headgate.engines.contract import Ack, NewMessage, Settled
from headgate.engines.lanes.log.settle_log import Piece
from headgate.engines.lanes.ownership.decide_lease import LaneState, LeaseTerm, RenewalResult
from headgate.engines.lanes.ownership.lease import Lane
from headgate.engines.timeline.model.lane_rows import lane_key
from headgate.errors import Unavailable
from headgate.store.model.positions import first_at, position_order
from tests.simulation.timeline.timeline_puts import SECOND, Client, Queue, simulate
from tests.simulation.timeline.timeline_workers import WORKED, Consumer, DeliveryLog, lanes_ready


def lane_of(queue: Queue, client: Client) -> Lane:
    """The first lane of the queue, for one process."""
    return Lane(client.host, queue.settings.tables.lanes, lane_key(queue.settings, 1, 0), queue.settings.lease)


async def taken(client: Client, lane: Lane) -> tuple[LaneState, LeaseTerm]:
    """The lane as it was read, and the lease term that began with its taking."""
    state = await client.process.start(lane.read_state())
    assert state is not None
    lease_term = await client.process.start(lane.take(state))
    assert lease_term is not None
    return state, lease_term


def test_attack_D6_a_touch_of_an_earlier_tenure_moves_nothing_back() -> None:
    async def scenario(queue: Queue) -> None:
        await lanes_ready(queue)
        early, late = queue.client("early"), queue.client("late")
        first, second = lane_of(queue, early), lane_of(queue, late)
        _, lease_term = await taken(early, first)
        await asyncio.sleep(12)
        free = await late.process.start(second.read_state())
        assert free is not None and free.lock is None
        owner = await late.process.start(second.take(free))
        assert owner is not None and owner.epoch == lease_term.epoch + 1
        moved = first_at(late.process.clock.wall_us())
        touched, owner, _ = await late.process.start(second.touch(owner, last=moved, read_to=moved, progress=1))
        assert RenewalResult.RENEWED is touched
        old = first_at(1_000_000)
        touched, _, _ = await early.process.start(first.touch(lease_term, last=old, read_to=old, progress=9))
        assert touched in (RenewalResult.TOO_LATE, RenewalResult.LOST)
        now = await late.process.start(second.read_state())
        assert now is not None
        assert (owner.lock, position_order(moved)) == (now.lock, position_order(now.last))

    simulate(scenario, settings=WORKED)


def test_a_touch_that_was_given_up_and_comes_after_later_ones_moves_nothing_back() -> None:
    async def scenario(queue: Queue) -> None:
        await lanes_ready(queue)
        client = queue.client("owner")
        lane = lane_of(queue, client)
        _, lease_term = await taken(client, lane)
        earlier_us = client.process.clock.wall_us()
        await asyncio.sleep(2)
        newer = first_at(client.process.clock.wall_us())
        touched, lease_term, _ = await client.process.start(
            lane.touch(lease_term, last=newer, read_to=newer, progress=2)
        )
        assert RenewalResult.RENEWED is touched
        late = Lane(replace(client.host, now_us=lambda: earlier_us), lane.table, lane.key, lane.terms)
        as_it_was = replace(lease_term, promise=lane.terms.promise(earlier_us))
        older = first_at(1_000_000)
        await client.process.start(late.touch(as_it_was, last=older, read_to=older, progress=1))
        now = await client.process.start(lane.read_state())
        assert now is not None
        assert (position_order(newer), 2) == (position_order(now.last), now.progress)

    simulate(scenario, settings=WORKED)


def test_attack_C4_a_stop_is_obeyed_at_the_next_touch_and_shortens_no_lease() -> None:
    async def scenario(queue: Queue) -> None:
        await lanes_ready(queue)
        owner, other = queue.client("owner"), queue.client("other")
        mine, theirs = lane_of(queue, owner), lane_of(queue, other)
        _, lease_term = await taken(owner, mine)
        assert await other.process.start(theirs.stop(lease_term.epoch))
        stopped = await other.process.start(theirs.read_state())
        assert stopped is not None and stopped.lock == lease_term.lock
        assert await other.process.start(theirs.take(stopped)) is None
        local = first_at(owner.process.clock.wall_us())
        touched, _, _ = await owner.process.start(mine.touch(lease_term, last=local, read_to=local, progress=1))
        assert RenewalResult.STOPPED is touched

    simulate(scenario, settings=WORKED)


def test_a_lane_is_not_taken_as_it_was_before_a_release_that_landed_late() -> None:
    """To the coordinator that shows it, the lock has ended; to the one that applies the release, it has not."""

    async def scenario(queue: Queue) -> None:
        await lanes_ready(queue)
        owner, other = queue.client("owner"), queue.client("other")
        mine, theirs = lane_of(queue, owner), lane_of(queue, other)
        _, lease_term = await taken(owner, mine)
        shown = await other.process.start(theirs.read_state())
        assert shown is not None
        await asyncio.sleep(1)
        reached = first_at(owner.process.clock.wall_us())
        assert await owner.process.start(mine.release(lease_term, last=reached, read_to=reached))
        assert await other.process.start(theirs.take(replace(shown, lock=None))) is None
        shown = await other.process.start(theirs.read_state())
        assert shown is not None and shown.read_to == reached
        assert await other.process.start(theirs.take(shown)) is not None

    simulate(scenario, settings=WORKED)


def test_a_process_whose_clock_is_in_doubt_releases_its_lanes_and_can_be_followed_at_once() -> None:
    """It ends after a long pause: what it owned must not stay locked, nor its end fail, for want of a clock."""

    async def scenario(queue: Queue) -> None:
        await lanes_ready(queue)
        owner, other = queue.client("owner"), queue.client("other")
        mine, theirs = lane_of(queue, owner), lane_of(queue, other)
        _, lease_term = await taken(owner, mine)

        def in_doubt() -> int:
            raise Unavailable("The clock is in doubt in this test")

        doubting = Lane(replace(owner.host, now_us=in_doubt), mine.table, mine.key, mine.terms)
        last = first_at(1_000_000)
        assert await owner.process.start(doubting.release(lease_term, last=last, read_to=last))
        free = await other.process.start(theirs.read_state())
        assert free is not None and free.lock is None
        assert await other.process.start(theirs.take(free)) is not None

    simulate(scenario, settings=WORKED)


def test_a_lane_is_not_taken_as_it_was_before_a_range_was_reserved() -> None:
    async def scenario(queue: Queue) -> None:
        await lanes_ready(queue)
        taker, job = queue.client("taker"), queue.client("job")
        lane, reserving = lane_of(queue, taker), lane_of(queue, job)
        free = await taker.process.start(lane.read_state())
        assert free is not None
        up_to = first_at(taker.process.clock.wall_us())
        assert await job.process.start(reserving.lend(b"range", free, up_to=up_to))
        assert await taker.process.start(lane.take(free)) is None, "the range would be handed out"
        assert await job.process.start(reserving.end_reservation(b"range"))
        assert await taker.process.start(lane.take(free)) is None, "what the job has settled would not be read"

    simulate(scenario, settings=WORKED)


def test_a_tenure_counts_as_begun_from_the_answer_to_its_taking() -> None:
    """Until then the lane may have been another's: the request may have waited for its lock to run out."""

    async def scenario(queue: Queue) -> None:
        await lanes_ready(queue)
        client = queue.client("owner")
        lane = lane_of(queue, client)
        lanes = await client.process.start(lane.read_state())
        assert lanes is not None
        sent_us = client.process.clock.wall_us()
        client.store.answers_late_s = 2.0
        lease_term = await client.process.start(lane.take(lanes))
        assert lease_term is not None
        assert sent_us + 2 * SECOND <= lease_term.since_us <= client.process.clock.wall_us()
        assert lease_term.promise.sent_us == sent_us, "trust counts from the request"

    simulate(scenario, settings=WORKED)


def test_attack_D4_a_settle_acknowledged_after_the_lease_is_not_confirmed() -> None:
    async def scenario(queue: Queue) -> None:
        await lanes_ready(queue)
        client = queue.client("producer")
        await client.process.start(queue.put(client, NewMessage(b"one")))
        consumer = Consumer(queue, "worker", DeliveryLog())

        async def settle_late() -> list[Settled]:
            engine = await consumer.open()
            result = await engine.receive(5, wait_us=20 * SECOND, visibility_us=60 * SECOND)
            assert 1 == len(result)
            held = next(each for each in engine.lanes.held.values() if each.delivery_state.in_flight)
            write = held.source.write_record

            async def slow(pieces: Sequence[Piece[Any]]) -> None:
                await write(pieces)
                over = held.lane.terms.promise(consumer.process.clock.wall_us() - 60 * SECOND)
                held.lease_term = replace(held.lease_term, promise=over)

            held.source.write_record = slow  # type: ignore[method-assign]
            return await engine.settle([Ack(result[0].receipt)])

        assert [Settled.UNKNOWN] == await consumer.process.start(settle_late())

    simulate(scenario, settings=WORKED)


def test_a_lane_that_was_never_made_is_not_made_by_a_taking() -> None:
    async def scenario(queue: Queue) -> None:
        client = queue.client("early")
        lane = lane_of(queue, client)
        assert await client.process.start(lane.read_state()) is None
        assert not await client.process.start(lane.stop(0))
        assert await client.process.start(lane.read_state()) is None

    simulate(scenario, settings=WORKED)


def test_attack_D6_a_retired_lane_is_never_taken_again() -> None:
    async def scenario(queue: Queue) -> None:
        await lanes_ready(queue)
        early, late = queue.client("early"), queue.client("late")
        first, second = lane_of(queue, early), lane_of(queue, late)
        lanes, lease_term = await taken(early, first)
        end = first_at(early.process.clock.wall_us())
        assert not await early.process.start(first.lend(b"a range", lanes, up_to=end)), "it has another owner by now"
        owned = await early.process.start(first.read_state())
        assert owned is not None
        assert await early.process.start(first.lend(b"a range", owned, up_to=end))
        assert not await early.process.start(first.retire(lease_term, last=end))
        assert await early.process.start(first.end_reservation(b"a range"))
        assert await early.process.start(first.retire(lease_term, last=end))
        left = await late.process.start(second.read_state())
        assert left is not None
        assert (True, None, position_order(end)) == (left.is_retired, left.lock, position_order(left.last))
        assert await late.process.start(second.take(left)) is None
        assert await late.process.start(second.take(lanes)) is None
        touched, _, _ = await early.process.start(first.touch(lease_term, last=end, read_to=end, progress=1))
        assert RenewalResult.LOST is touched
        assert not await early.process.start(first.retire(lease_term, last=first_at(1_000_000)))
        assert left == await late.process.start(second.read_state())

    simulate(scenario, settings=WORKED)
