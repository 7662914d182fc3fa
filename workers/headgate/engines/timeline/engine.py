"""A timeline queue for its users: the engines' contract over the producer, the lanes of this process, and the store.

It holds lanes only while there are receives.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import groupby

from headgate.engines.context import Host, KnownQueue
from headgate.engines.contract import (
    PASS_US,
    Cancelled,
    Delivery,
    GenerationKeeper,
    LaneHolding,
    LaneOwner,
    MessageLocation,
    NackDelivery,
    NewMessage,
    Ownership,
    PassEnd,
    Peeked,
    Repaired,
    Settle,
    Settled,
    StampedPut,
    Stats,
)
from headgate.engines.lanes.balance.membership import Sharing
from headgate.engines.lanes.delivery.round_robin import Turns
from headgate.engines.lanes.delivery.rows import HandOut
from headgate.engines.lanes.dispatcher import Dispatcher, SettleRequest, deliver, take_suspects
from headgate.engines.lanes.lane_name import LaneName, format_lane
from headgate.engines.lanes.ownership.lane_set import LaneSet
from headgate.engines.receipts import receipts_of
from headgate.engines.timeline.inspect.locate import Finder
from headgate.engines.timeline.inspect.peek import peek
from headgate.engines.timeline.inspect.remark_waiting import mark_what_waits
from headgate.engines.timeline.inspect.repair_status import repair_standing
from headgate.engines.timeline.inspect.stats import stats
from headgate.engines.timeline.lanes.next_due import unreadable_rows_of
from headgate.engines.timeline.lanes.timeline_lanes import TimelineLanes, delivery_terms
from headgate.engines.timeline.model.settings import TimelineSettings
from headgate.engines.timeline.put.application_batch import stamp_put
from headgate.engines.timeline.put.cancel import Cancels
from headgate.engines.timeline.put.once import OncePuts
from headgate.engines.timeline.put.producer import DOUBT_PAUSE_S, Producer
from headgate.engines.timeline.put.row_sender import Sender
from headgate.engines.timeline.read.ended_places import see_to_late_copy
from headgate.engines.timeline.repair.repair import Repairer
from headgate.errors import HeadgateError, InvalidRequest, Unavailable
from headgate.process.background_tasks import BackgroundTasks
from headgate.process.live import Live
from headgate.store.model.deadline import Deadline
from headgate.store.store import REFUSALS, NotSent, OutcomeUnknown

LANES_MAX = 1_000
PURGE_TRIES = 5


class TimelineQueue:
    """One queue, for one process."""

    def __init__(
        self,
        host: Host,
        settings: TimelineSettings,
        *,
        read_us: int,
        dead_letters: TimelineSettings | None = None,
        dead_letter_host: Host | None = None,
        lanes_max: int = LANES_MAX,
        sharing: Sharing | None = None,
        summary: Host | None = None,
    ) -> None:
        self.host = host
        self._summary = summary
        """This process with the store of the catalogue's keyspace, which contains the summary; None: nothing is
        reported."""
        self.producer = Producer(host, settings, read_us=read_us, summary=summary)
        self._put_alone = self.producer.put_alone
        self._dead_letters: Live[Sender | None] = Live(None)
        if dead_letters is not None:  # its tables may lie in another keyspace, so on another host
            self._dead_letters.set(Sender(dead_letter_host or host, dead_letters, read_us=read_us, summary=summary))
        self._deliveries = Live(delivery_terms(settings, dead_letters=dead_letters is not None))
        self._closing = BackgroundTasks("close of a dead-letter sender")
        self._changed = asyncio.Event()
        self._engine_lanes = TimelineLanes(host, self.producer.sender, self._dead_letters, self._deliveries)
        self.lanes = LaneSet(
            host, self._engine_lanes, changed=self._changed, sharing=sharing, summary=summary, count=self._count
        )
        self._once = OncePuts(self.producer, see_to=see_to_late_copy)
        self._cancels = Cancels(self.producer)
        self._lanes_max = lanes_max
        self._turns = Turns()
        self._closed = False

    @property
    def settings(self) -> TimelineSettings:
        """Those in force."""
        return self.producer.sender.settings

    @property
    def dead_letters(self) -> Sender | None:
        """The sending side of the dead-letter queue; None where there is none."""
        return self._dead_letters.now

    def now_us(self) -> int:
        """The time of this process, while it is trusted."""
        return self.host.now_us()

    def settings_changed(
        self, settings: TimelineSettings, *, read_us: int, dead_letters: TimelineSettings | None = None
    ) -> None:
        """The result of a read of the catalogue, and its start; called at every read."""
        self.producer.settings_changed(settings, read_us=read_us)
        if self.dead_letters is not None and dead_letters is not None:
            self.dead_letters.settings_changed(dead_letters, read_us=read_us)
        self._update_terms()

    def dead_letters_changed(self, known: KnownQueue | None) -> None:
        """The result of a read of the catalogue for the dead-letter queue; None: there is none now."""
        before = self.dead_letters
        if before is not None and known is not None and before.settings.queue == known.settings.queue:
            before.settings_changed(known.settings, read_us=known.read_us)
            return
        sender = None
        if known is not None:
            sender = Sender(known.host, known.settings, read_us=known.read_us, summary=self._summary)
        self._dead_letters.set(sender)
        self._update_terms()
        if before is not None:
            self._closing.start(before.close())

    def _update_terms(self) -> None:
        self._deliveries.set(delivery_terms(self.settings, dead_letters=self.dead_letters is not None))

    async def leave(self) -> None:
        """A lane in which nothing is in flight need not wait for the others."""
        await self.lanes.leave()

    async def close(self) -> None:
        """Release the lanes, while their leases last; then write pending messages. Receivers stop waiting."""
        self._closed = True
        self._changed.set()
        try:
            await self.lanes.close()
        finally:
            await self.producer.close()
            if self.dead_letters is not None:
                await self.dead_letters.close()

    # ---- putting

    def put(self, messages: Sequence[NewMessage], *, deadline: Deadline | None = None) -> Awaitable[list[str]]:
        """Durable when it returns; the ids, in order. For a once key that is taken, its first id.

        Of a message by itself it is the very future that the flush answers: a coroutine around it would cost a fifth
        of all that such a put costs.
        """
        alone = self._put_alone(messages[0]) if len(messages) == 1 and deadline is None else None
        return self._put_several(messages, deadline) if alone is None else alone

    async def _put_several(self, messages: Sequence[NewMessage], deadline: Deadline | None) -> list[str]:
        try:
            if any([message.once is not None for message in messages]):  # noqa: C419 - half the time
                return await self._put_mixed(messages, deadline)
            return await self.producer.put(messages, deadline=deadline)
        except Unavailable as error:
            if _is_doubt(error):
                await asyncio.sleep(DOUBT_PAUSE_S)
            raise

    async def _put_mixed(self, messages: Sequence[NewMessage], deadline: Deadline | None) -> list[str]:
        """Runs with and without once keys, one after the other, so that groups stay in order."""
        self.producer.check(messages)
        ids: list[str] = []
        for has_key, run in groupby(messages, lambda message: message.once is not None):
            put = self._once.put if has_key else self.producer.put
            try:
                ids += await put(list(run), deadline=deadline)
            except (Unavailable, *REFUSALS) as error:
                if not ids:
                    raise
                raise OutcomeUnknown("Only the first of the messages are put", put=len(ids)) from error
        return ids

    async def put_each(
        self, messages: Sequence[NewMessage], *, deadline: Deadline | None = None
    ) -> list[str | HeadgateError]:
        """As `put`, with an outcome for each message: its id, or why it is not known to be durable."""
        if all([message.once is None for message in messages]):  # noqa: C419 - half the time
            outcomes = await self._put_run(messages, deadline, has_key=False)
        else:
            outcomes = []
            for has_key, run in groupby(messages, lambda message: message.once is not None):
                outcomes += await self._put_run(list(run), deadline, has_key=has_key)
        if any([type(outcome) is not str and _is_doubt(outcome) for outcome in outcomes]):  # noqa: C419
            await asyncio.sleep(DOUBT_PAUSE_S)
        return outcomes

    async def _put_run(
        self, messages: Sequence[NewMessage], deadline: Deadline | None, *, has_key: bool
    ) -> list[str | HeadgateError]:
        """Messages that all have once keys, or none of which has one. Once keys share their claims, so where a claim
        fails, each of their messages has that error."""
        try:
            if not has_key:
                return await self.producer.put_each(messages, deadline=deadline)
            self.producer.check(messages)
            return list(await self._once.put(messages, deadline=deadline))
        except InvalidRequest as error:
            refusals: dict[int, HeadgateError] = self.producer.find_refusals(messages)
            if not refusals:
                return [error] * len(messages)
        except HeadgateError as error:
            return [error] * len(messages)
        fit = [message for index, message in enumerate(messages) if index not in refusals]
        rest = iter(await self._put_run(fit, deadline, has_key=has_key) if fit else [])
        return [refusals[index] if index in refusals else next(rest) for index in range(len(messages))]

    def stamp_put(self, message: NewMessage, *, within_us: int) -> StampedPut:
        """A message for the application's own batch."""
        return stamp_put(self.producer, message, within_us=within_us)

    async def cancel(self, message_id: str) -> Cancelled:
        """Never deliver it, if that can still be promised."""
        return await self._cancels.cancel(message_id)

    async def reschedule(self, message_id: str, due_us: int) -> tuple[Cancelled, str | None]:
        """Deliver it at another time; returns the id under which it continues."""
        return await self._cancels.reschedule(message_id, due_us)

    # ---- receiving

    async def receive(self, limit: int, *, visibility_us: int | None = None, wait_us: int = 0) -> list[Delivery]:
        """Up to `limit` messages from the lanes of this process; waits at most `wait_us` for the first.

        Crash suspects come first, in groups that halve with each death of a process (attack D2).
        """
        self.lanes.want(self._lanes_max)
        visibility_us = self.settings.visibility_us if visibility_us is None else visibility_us
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + wait_us / 1_000_000
        while True:
            self._changed.clear()
            deliveries: list[Delivery] = []
            try:
                await self._receive_now(limit, visibility_us, deliveries)
                left_s = deadline_s - loop.time()
                if deliveries or left_s <= 0 or self._closed:
                    await asyncio.sleep(0)  # a receiver that calls again at once also yields to others
                    return deliveries
                within_s = min(left_s, self._until_next_timer_s())
            except asyncio.CancelledError:
                self._take_back(deliveries)
                raise
            except Unavailable:
                self._take_back(deliveries)
                await asyncio.sleep(DOUBT_PAUSE_S)
                raise
            with suppress(TimeoutError):
                async with asyncio.timeout(within_s):
                    await self._changed.wait()

    async def _receive_now(self, limit: int, visibility_us: int, deliveries: list[Delivery]) -> None:
        """Add deliveries of the lanes. The caller holds the list, so that it can return the messages collected before
        an error."""
        await deliver(self._take(limit, visibility_us), deliveries)

    def _take(self, limit: int, visibility_us: int) -> dict[Dispatcher, list[HandOut]]:
        """Messages of the lanes, crash suspects first, and then of each lane in its turn, so that none waits behind a
        busy one."""
        taken: dict[Dispatcher, list[HandOut]] = {}
        held = [each for each in self.lanes.held.values() if each.delivery_state.unsettled]
        if not held:
            return taken
        left = limit
        if any([each.delivery_state.has_suspects for each in held]):  # noqa: C419 - half the time
            taken = take_suspects(held, limit, visibility_us=visibility_us)
            left -= sum(map(len, taken.values()))
        order = self._turns.order(len(held))
        share = self._turns.share(limit, len(held))
        given = -1
        while given and left > 0:
            given = 0
            for place in order:
                got = held[place].take(min(share, left), visibility_us=visibility_us) if left > 0 else []
                if got:
                    taken.setdefault(held[place], []).extend(got)
                    given += len(got)
                    left -= len(got)
                    self._turns.gave(len(got), last=place, now_s=asyncio.get_running_loop().time())
        return taken

    def _until_next_timer_s(self) -> float:
        held = (each.delivery_state for each in self.lanes.held.values())
        next_us = min((each.next_timer_us for each in held if each.unsettled), default=2**62)
        return max(0.005, min(1.0, (next_us - self.host.now_us()) / 1_000_000))

    # ---- settling

    async def settle(self, settles: Sequence[Settle]) -> list[Settled]:
        """Durable when it returns, each for itself, in order. If this process no longer owns the lane: stale."""
        by_lane = self._by_lane(settles)
        if len(by_lane) == 1:
            ((name, (_, requests)),) = by_lane.items()
            return await self._settle_lane(name, requests)
        results = [Settled.STALE] * len(settles)
        by_name = await asyncio.gather(
            *(self._settle_lane(name, requests) for name, (_, requests) in by_lane.items())
        )
        for (places, _), of_lane in zip(by_lane.values(), by_name, strict=True):
            for place, result in zip(places, of_lane, strict=True):
                results[place] = result
        return results

    def _by_lane(self, settles: Sequence[Settle]) -> dict[LaneName, tuple[list[int], list[SettleRequest]]]:
        """The settles of each lane, and their places in the sequence."""
        by_lane: dict[LaneName, tuple[list[int], list[SettleRequest]]] = {}
        read = receipts_of(self.settings.queue, self.settings.receipt_key).read
        for place, settle in enumerate(settles):
            row, index = read(settle.receipt)
            places, requests = by_lane.setdefault(row.lane, ([], []))
            places.append(place)
            requests.append(SettleRequest(row.key, index, row.attempt, row.epoch, settle))
        return by_lane

    def _take_back(self, deliveries: Sequence[Delivery]) -> None:
        """Nobody will get these: they are ready again, and this attempt does not count."""
        by_lane = self._by_lane([NackDelivery(each.receipt, charged=False) for each in deliveries])
        for name, (_, requests) in by_lane.items():
            dispatcher = self.lanes.held.get(name)
            if dispatcher is not None:
                dispatcher.take_back(requests)

    async def _settle_lane(self, name: LaneName, requests: list[SettleRequest]) -> list[Settled]:
        dispatcher = self.lanes.held.get(name)
        return [Settled.STALE] * len(requests) if dispatcher is None else await dispatcher.settle(requests)

    async def owner_of(self, receipt: str) -> LaneOwner | None:
        """The process that can settle a delivery."""
        row, _ = receipts_of(self.settings.queue, self.settings.receipt_key).read(receipt)
        return await self.lanes.owner_of(row.lane)

    # ---- inspection

    async def peek(self, limit: int, *, from_us: int | None = None) -> list[Peeked]:
        """Live messages by due time, including delayed ones, without taking them."""
        return await peek(self.host, self.settings, self.lanes.held, limit, from_us=from_us)

    async def stats(self) -> Stats:
        """The contents of the queue, counted from small rows, and the progress of repair."""
        counted, repair = await asyncio.gather(self._count(), repair_standing(self.host, self.settings))
        return replace(counted, repair=repair)

    def ownership(self) -> Ownership:
        """The lanes of this process."""
        lanes = self.lanes
        return Ownership(
            tuple(
                LaneHolding(format_lane(name), held.lease_term.epoch, held.lease_term.promise.sent_us)
                for name, held in lanes.held.items()
            ),
            sharers=1 if lanes.sharing is None else lanes.sharing.sharers,
            stops=lanes.stops,
            dead_loops=tuple(reason for loop in lanes.loops if (reason := loop.why_dead()) is not None),
            unreadable_rows=sum(map(unreadable_rows_of, lanes.held.values())),
        )

    async def _count(self) -> Stats:
        return await stats(self.host, self.settings, self.lanes.held)

    async def where(self, message_id: str) -> MessageLocation:
        """The place of a message, and its state."""
        dead_letters = self.dead_letters
        dead_letter_place = None if dead_letters is None else (dead_letters.host, dead_letters.settings)
        return await Finder(self.host, self.settings, self.lanes.held, dead_letters=dead_letter_place).where(
            message_id
        )

    # ---- the whole queue

    async def purge(self, before_us: int | None = None) -> int:
        """Settle all messages put before that time, or before now, and none put after; returns that time.

        It returns when every lane's owner knows, or when there is none: nothing purged is delivered after that.
        """
        now_us = self.host.now_us()
        before_us = now_us if before_us is None else min(before_us, now_us)
        await asyncio.gather(*(self._purge_lane(name, before_us) for name in self._engine_lanes.names()))
        return before_us

    async def repair(self, *, keeper: GenerationKeeper | None = None, within_us: int = PASS_US) -> Repaired:
        """One pass over the owed work; returns at once if another process repairs. `keeper` is the access to the
        catalogue, for callers that have it: without it no generation is advanced."""
        sender, dead_letters = self.producer.sender, self.dead_letters
        repairer = Repairer(self.host, self.settings, sender, dead_letters=dead_letters, keeper=keeper)
        if await repairer.is_idle():
            return Repaired(PassEnd.DONE)
        done = await repairer.run(within_us=within_us)
        if done.end is not PassEnd.BUSY and sender.marks is not None:
            try:
                await mark_what_waits(self.host, self.settings, sender.marks)
            except HeadgateError as error:
                done = replace(done, problems=(*done.problems, f"the backlog mark could not be written: {error}"))
        return done

    async def _purge_lane(self, name: LaneName, before_us: int) -> None:
        lane = self._engine_lanes.lane(name)
        state = await lane.read_state()
        for _ in range(PURGE_TRIES):
            if state is None or state.purged_before_us >= before_us:
                break
            await lane.purge(before_us)  # its answer may be lost, and then another may have come between: check
            state = await lane.read_state()
        else:
            raise OutcomeUnknown(
                "A purge may not have reached every lane", remedy="purge again", lane=format_lane(name)
            )
        touched_us = state.touched_us if state is not None else 0
        while state is not None and state.lock is not None and state.touched_us <= touched_us:
            await asyncio.sleep(lane.terms.touch_us / 4_000_000)
            state = await lane.read_state()


def _is_doubt(error: object) -> bool:
    """Whether nothing can be put now, and the reason is not that a time limit ended."""
    return isinstance(error, Unavailable) and not isinstance(error, NotSent | OutcomeUnknown)
