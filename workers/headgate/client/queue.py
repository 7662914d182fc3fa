"""A queue as an application uses it: comfortable calls over one engine, kept fresh by the connection.

This module knows neither Cassandra nor how the catalogue is read.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import aclosing, contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any, Protocol

from headgate.client.catalogue.application_batch import WITHIN_S, BatchPut
from headgate.client.catalogue.opened import CLOSE_WITHIN_S, NOT_FIT, Opened, is_over, patience
from headgate.client.catalogue.queue_record import QueueRecord
from headgate.client.message import Message
from headgate.client.model.outgoing import Put, build_message, build_plain_message, message_of
from headgate.client.model.payloads import Payload
from headgate.client.model.settle_commands import SettleCommand, build_settles
from headgate.client.model.times import Span, datetime_of, span_us, time_us_from
from headgate.client.model.values import (
    MessageStatus,
    PeekedMessage,
    QueueStats,
    RepairReport,
    RescheduleResult,
    build_peeked,
    build_repair_report,
    build_reschedule_result,
    build_stats,
    build_status,
)
from headgate.client.put_many import (
    Chunk,
    Outcome,
    PutResult,
    Source,
    collect_outcomes,
    put_chunks,
    read_chunks_async,
    results_of,
)
from headgate.client.redriving import Filter, RedriveResult, redrive
from headgate.engines import contract
from headgate.errors import HeadgateError, InvalidRequest, OperationRefused, Unavailable
from headgate.expiry import SECOND_US
from headgate.process.live import Live
from headgate.store.catalogue.entry import Entry
from headgate.store.clock.clock import ClockNotTrusted
from headgate.store.model.deadline import Deadline
from headgate.store.store import NotSent
from headgate.telemetry.tracing import OpenSpan, is_traced, producer_spans, with_trace

if TYPE_CHECKING:  # the driver is imported when a connection is opened
    from headgate.store.cassandra.batches import CassandraBatches

WAIT_S = 10.0
REPAIR_S = contract.PASS_US / SECOND_US
LIMIT = 10
LIMIT_MAX = 10_000
ITERATION_WAIT_S = 20.0


class Upkeep(Protocol):
    def require_usable(self) -> None:
        """Refuse in another process, on another loop, and after the end."""

    async def freshen(self, queue: Queue, within_s: float) -> None:
        """Check the clock and read the catalogue now, and return when both are current; else raise the reason."""

    def generations_of(self, queue: Queue) -> contract.GenerationKeeper: ...

    def now_us(self) -> int: ...

    async def queue(self, name: str) -> Queue: ...

    @property
    def batches(self) -> CassandraBatches | None:
        """The facts about the application's own batches; None where they are not supported."""


class Queue(Opened):
    """One queue, in one process. `await connection.queue("shop/emails")` gives it."""

    _noun = "queue"

    def __init__(self, record: QueueRecord, engine: contract.Engine, upkeep: Upkeep, bound: Live[int]) -> None:
        super().__init__(upkeep.require_usable)
        self.record = record
        self.bound = bound
        self.engine = engine
        """The engine behind it: the worker runtime shares its lanes through this."""
        self._upkeep = upkeep

    async def _finish(self) -> None:
        await asyncio.wait_for(self.engine.close(), CLOSE_WITHIN_S)

    @property
    def name(self) -> str:
        """`namespace/name`."""
        return self.record.settings.name

    @property
    def entry(self) -> Entry:
        """The last state that the catalogue reported."""
        return self.record.entry

    def now_us(self) -> int:
        """The time by the process's clock."""
        return self._upkeep.now_us()

    # ---- putting

    async def put(
        self,
        payload: Payload,
        *,
        delay: Span | None = None,
        deliver_at: datetime | None = None,
        group: str | None = None,
        once: str | None = None,
        once_scope: str | None = None,
        attributes: contract.Attributes | None = None,
        timeout: Span | None = None,  # noqa: ASYNC109 - `asyncio.timeout` does not report whether it was sent
    ) -> str:
        """Put one message, and return its id: durable on a quorum of the home data centre by then.

        Bytes are unchanged. A string, a model, a dataclass, or any other value that pydantic writes as JSON is
        encoded, and `content-type` names the form. Messages of one group come one after the other. The same `once`
        key creates one message within onceWindow.

        After `timeout` it raises NotSent if the message was not sent, and then it will not be; else OutcomeUnknown.
        Any other error means that the message is not stored.
        """
        traced = is_traced()
        if (
            delay is None
            and not traced
            and deliver_at is None
            and group is None
            and once is None
            and once_scope is None
            and attributes is None
            and timeout is None
        ):
            self._require_usable()  # as `_put` does, without a coroutine of its own: most puts are these
            plain = [build_plain_message(payload)]
            try:
                return (await self.engine.put(plain))[0]
            except NOT_FIT:
                return (await self._try_again(lambda: self.engine.put(plain)))[0]
        deadline = deadline_of(timeout)
        with self._sending(1, traced) as span:
            message = build_message(payload, self.now_us(), delay, deliver_at, group, once, once_scope, attributes)
            if traced:
                _carry_trace([message])
            message_id = await self._put(message, deadline)
            if span is not None:
                span.sent([message_id])
            return message_id

    async def put_many(
        self,
        messages: Source,
        *,
        timeout: Span | None = None,  # noqa: ASYNC109 - `asyncio.timeout` does not report whether it was sent
    ) -> list[str]:
        """Put many messages from an iterable or an async iterable: payloads, or `Put` where one needs more than a
        payload. The ids, in the order of the source.

        Each message stands for itself: one that fails does not stop the others. If some fail, PutManyFailed lists the
        ids and the failures. If all fail, the first error is raised. The source is read in chunks, at most
        `READ_AHEAD_MAX` messages ahead; the ids of all messages are kept, which `put_each` avoids. `timeout` is for
        the whole call: messages that were not sent by then fail with NotSent.
        """
        deadline = deadline_of(timeout)
        chunks = read_chunks_async(messages, self.now_us)
        return await collect_outcomes(put_chunks(chunks, lambda chunk: self.put_chunk(chunk, deadline)))

    async def put_each(
        self,
        messages: Source,
        *,
        timeout: Span | None = None,  # noqa: ASYNC109 - `asyncio.timeout` does not report whether it was sent
    ) -> AsyncIterator[PutResult]:
        """As `put_many`, in constant memory: the outcome of each message as soon as it is known, in the order of the
        source. A message that fails has an error in its result; nothing is raised for it. `timeout` is for each
        message, from the time when it was read."""
        chunks = read_chunks_async(messages, self.now_us)
        outcomes = put_chunks(chunks, lambda chunk: self.put_chunk(chunk, deadline_of(timeout)))
        async with aclosing(outcomes) as pieces:
            async for chunk, of_chunk in pieces:
                for result in results_of(chunk, of_chunk):
                    yield result

    async def put_chunk(self, chunk: Chunk, limit: Deadline | Span | None = None) -> list[Outcome]:
        """The outcome of each message of a chunk, in a span of its own where OpenTelemetry has a current one."""
        deadline, traced = deadline_of(limit), is_traced()
        with self._sending(len(chunk.sources), traced) as span:
            if traced:
                _carry_trace(chunk.messages)
            outcomes = chunk.join(await self._put_outcomes(chunk.messages, deadline))
            if span is not None:
                span.sent([each for each in outcomes if isinstance(each, str)])
                failures = [each for each in outcomes if not isinstance(each, str)]
                if failures:
                    span.failed(str(failures[0]))
            return outcomes

    @contextmanager
    def _sending(self, count: int, traced: bool) -> Iterator[OpenSpan | None]:
        """A span around a put, where OpenTelemetry has a current one."""
        spans = producer_spans() if traced else None
        if spans is None:
            yield None
            return
        with spans.sending(self.name, count) as span:
            yield span

    async def _put_outcomes(
        self, messages: Sequence[contract.NewMessage], deadline: Deadline | None
    ) -> list[Outcome]:
        """Messages that were not sent, since the clock or the catalogue was not fit, are put again."""
        self._require_usable()
        if not messages:
            return []
        outcomes = await self.engine.put_each(messages, deadline=deadline)
        limit = deadline or patience()
        while unsent := _unsent_of(outcomes):
            if deadline is None and is_over(limit):
                break
            try:
                await self._freshen(limit, deadline)
            except HeadgateError as error:
                return [error if isinstance(each, NOT_FIT) else each for each in outcomes]
            again = await self.engine.put_each([messages[at] for at in unsent], deadline=deadline)
            for at, outcome in zip(unsent, again, strict=True):
                outcomes[at] = outcome
        return outcomes

    async def _put(self, message: contract.NewMessage, deadline: Deadline | None) -> str:
        self._require_usable()
        try:
            return (await self.engine.put([message], deadline=deadline))[0]
        except NOT_FIT:
            return (await self._try_again(lambda: self.engine.put([message], deadline=deadline), deadline))[0]

    async def add_to_batch(
        self,
        batch: Any,
        message: Put | Payload,
        *,
        delay: Span | None = None,
        deliver_at: datetime | None = None,
        group: str | None = None,
        attributes: contract.Attributes | None = None,
        within: Span = WITHIN_S,
        tables: Iterable[str] = (),
    ) -> BatchPut:
        """Add a message to a LOGGED batch of the application (a BatchStatement of the driver), which the application
        sends: its write and the message happen together or not at all, as with a transactional outbox. The message
        cannot have a once key. `within` is the time until the batch is answered. `tables` names tables
        (`shop.orders`) that the batch does not show. Call `check()` of the result right before you send the batch: it
        raises if the batch must not be sent.
        """
        batches = self._upkeep.batches
        if batches is None:
            raise OperationRefused("This connection has no Cassandra that could execute a batch")
        within_us = span_us(within, "within")
        put = message
        if not isinstance(put, Put):
            put = Put(message, delay, deliver_at, group, attributes=attributes or {})
        await batches.learn(batch, tables)

        async def stamp() -> contract.StampedPut:
            return self.engine.stamp_put(message_of(put, self.now_us()), within_us=within_us)

        stamped = await self._tried(stamp)
        batches.add(batch, self.entry.place.keyspace, stamped.statements)
        return BatchPut(batch, stamped, batches=batches, usable=self._require_usable)

    async def cancel(self, message_id: str) -> bool:
        """Whether the message will never be delivered. False: it is too late, the message may have been delivered.

        A message can be cancelled until about a second before it is due (the queue's safety lag and the bound on
        clocks), so one that was put without a delay cannot. A second cancel of one message returns True again.
        """
        return await self._tried(lambda: self.engine.cancel(message_id)) is contract.Cancelled.CANCELLED

    async def reschedule(
        self, message_id: str, *, delay: Span | None = None, deliver_at: datetime | None = None
    ) -> RescheduleResult:
        """Deliver the message at another time: the outcome, and the id that the message has from now on."""
        if (delay is None) == (deliver_at is None):
            raise InvalidRequest("A reschedule needs exactly one due time", remedy="pass delay or deliver_at")
        if deliver_at is not None:
            due_us = time_us_from(deliver_at, "deliver_at")
        else:
            due_us = self.now_us() + span_us(0 if delay is None else delay, "delay")
        cancelled, new_id = await self._tried(lambda: self.engine.reschedule(message_id, due_us))
        return build_reschedule_result(cancelled, new_id)

    # ---- receiving

    async def receive(
        self, limit: int = LIMIT, *, wait: Span = WAIT_S, visibility: Span | None = None
    ) -> list[Message]:
        """Up to `limit` messages, waiting at most `wait` for the first. From the first call on this process shares
        the queue's lanes; closing the connection gives them back.
        """
        wait_us = span_us(wait, "wait")
        visibility_us = None if visibility is None else span_us(visibility, "visibility")
        given = await self.receive_deliveries(limit, visibility_us=visibility_us, wait_us=wait_us)
        return [Message(each, self) for each in given]

    async def receive_deliveries(
        self, limit: int, *, visibility_us: int | None, wait_us: int
    ) -> list[contract.Delivery]:
        """The same as the engine returns them: for callers that settle by receipts, like the worker runtime."""
        limit = _checked_limit(limit)
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + wait_us / SECOND_US
        while True:
            left_us = max(0, round((deadline_s - loop.time()) * SECOND_US))
            self._require_usable()
            try:
                given = await self.engine.receive(limit, visibility_us=visibility_us, wait_us=left_us)
            except ClockNotTrusted:
                self._require_usable()
                await self._upkeep.freshen(self, max(deadline_s - loop.time(), 1.0))
                continue
            if not given:
                self._require_usable()
            return given

    async def __aiter__(self) -> AsyncIterator[Message]:
        """Messages one by one, forever. A returned message is in flight in the loop: nothing is taken ahead."""
        while True:
            for message in await self.receive(1, wait=ITERATION_WAIT_S):
                yield message

    # ---- settling

    async def settle(self, commands: Sequence[SettleCommand]) -> list[contract.Settled]:
        """Settle by receipts with the commands of `headgate.settle`: each by itself, durable when the call returns.
        The outcomes are in the order of the commands."""
        self._require_usable()
        return await self.engine.settle(build_settles(commands))

    async def ack(self, messages: Iterable[Message]) -> list[contract.Settled]:
        """These are done; how each ended, in order."""
        self._require_usable()
        return await self.engine.settle([contract.Ack(message.receipt) for message in messages])

    # ---- inspection

    async def peek(self, limit: int = LIMIT, *, since: datetime | None = None) -> list[PeekedMessage]:
        """Live messages in the order in which they are due, also delayed ones, without receiving them. The first is
        the oldest that is not settled, or the first that is due at `since` or later."""
        return [build_peeked(each) for each in await self.read_peeked(limit, since=since)]

    async def stats(self) -> QueueStats:
        """The number of messages that are ready, in flight and delayed, and the state of each lane."""
        return build_stats(await self.read_stats())

    async def where(self, message_id: str) -> MessageStatus:
        """The state of a message, and the places where it is stored."""
        return build_status(await self.read_location(message_id))

    # The same as the engine has them, for the commands: they print and store microseconds.

    async def read_peeked(self, limit: int = LIMIT, *, since: datetime | None = None) -> list[contract.Peeked]:
        """As `peek`."""
        limit = _checked_limit(limit)
        from_us = None if since is None else time_us_from(since, "since")
        return await self._tried(lambda: self.engine.peek(limit, from_us=from_us))

    async def read_stats(self) -> contract.Stats:
        """As `stats`."""
        return await self._tried(self.engine.stats)

    async def read_location(self, message_id: str) -> contract.MessageLocation:
        """As `where`."""
        return await self._tried(lambda: self.engine.where(message_id))

    # ---- the whole queue

    async def repair(self, *, within: Span = REPAIR_S) -> RepairReport:
        """One pass of repair: it rewrites late writes, and completes and leaves generations. Repeating it is
        harmless. While another process repairs the queue, the call returns at once with that outcome."""
        return build_repair_report(await self.run_repair(within=within))

    async def run_repair(self, *, within: Span = REPAIR_S) -> contract.Repaired:
        """As `repair`, with the engine's report, for the commands."""
        within_us = span_us(within, "within")
        keeper = self._upkeep.generations_of(self)
        return await self._tried(lambda: self.engine.repair(keeper=keeper, within_us=within_us))

    async def purge(self, *, before: datetime | None = None) -> datetime:
        """Settle all messages that were put before a given time, or before now; returns that time."""
        before_us = None if before is None else time_us_from(before, "before")
        if before_us is not None and before_us > self.now_us():
            raise InvalidRequest("A purge needs an enqueue time in the past", before=before)
        return datetime_of(await self._tried(lambda: self.engine.purge(before_us)))

    async def redrive(
        self,
        *,
        ids: Iterable[str] | None = None,
        matching: Filter | None = None,
        to: str | None = None,
        limit: int | None = None,
        on_moved: Callable[[int], None] | None = None,
    ) -> RedriveResult:
        """Move the messages of this dead-letter queue back into their source queues, each once: all that is in it
        now, these ids, those that `matching` accepts, or up to `limit`. `to` names another target; `on_moved` is
        called with the number of messages of each step."""
        return await redrive(
            self._upkeep, self.name, ids=ids, matching=matching, to=to, limit=limit, on_moved=on_moved
        )

    # ---- within

    async def _freshen(self, limit: Deadline, deadline: Deadline | None) -> None:
        """Return when all is fit again; at the caller's deadline raise NotSent."""
        try:
            await self._upkeep.freshen(self, limit.left_s(asyncio.get_running_loop().time()))
            self._require_usable()
        except Unavailable as error:
            if deadline is None:
                raise
            raise NotSent("The time limit ended before the message was sent", last=error.message) from error


def deadline_of(limit: Deadline | Span | None) -> Deadline | None:
    """The deadline of a call that begins now and may take this long; None: it has none."""
    if limit is None or isinstance(limit, Deadline):
        return limit
    return Deadline.after(span_us(limit, "timeout") / SECOND_US, now_s=asyncio.get_running_loop().time())


def _unsent_of(outcomes: Sequence[Outcome]) -> list[int]:
    return [
        index for index, outcome in enumerate(outcomes) if type(outcome) is not str and isinstance(outcome, NOT_FIT)
    ]


def _carry_trace(messages: Iterable[contract.NewMessage]) -> None:
    for message in messages:
        message.attributes = with_trace(message.attributes)


def _checked_limit(limit: int) -> int:
    if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= LIMIT_MAX:
        raise InvalidRequest(f"The limit must be a number from 1 to {LIMIT_MAX}", given=limit)
    return limit
