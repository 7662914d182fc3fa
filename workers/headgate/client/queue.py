"""A queue as an application uses it: comfortable calls over one engine, kept fresh by the connection.

A call that is not possible now because the clock or the knowledge of the catalogue is not trusted was not sent. It is
retried for `PATIENCE_S`, so a process that was paused continues by itself. This module knows neither Cassandra nor
how the catalogue is read.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from datetime import datetime
from typing import Any, Protocol, TypeVar

from headgate.client.batching import WITHIN_S, Batches, PutStatements
from headgate.client.directory import Found
from headgate.client.ground import Bound
from headgate.client.message import Message
from headgate.client.moments import SECOND_US, Span, moment_of, moment_us, span_us
from headgate.client.outgoing import Put, message_of
from headgate.client.payloads import Payload
from headgate.client.redriving import Filter, RedriveResult, redrive
from headgate.engines.contract import (
    Ack,
    Attributes,
    Cancelled,
    Delivery,
    Peeked,
    Repaired,
    Settle,
    Settled,
    Stats,
    Whereabouts,
)
from headgate.engines.contract import Message as Sent
from headgate.engines.timeline.batched import Batched, BatchedPuts
from headgate.engines.timeline.engine import TimelineQueue
from headgate.engines.timeline.repair import PASS_US, GenerationKeeper
from headgate.engines.timeline.sender import KnowledgeTooOld
from headgate.errors import HeadgateError, Refused, SpecError
from headgate.store.catalogue_entry import Entry
from headgate.store.clocks import ClockNotTrusted
from headgate.telemetry.spans import producer_spans
from headgate.telemetry.tracing import is_traced

T = TypeVar("T")

log = logging.getLogger("headgate.client")

PATIENCE_S = 10.0
WAIT_S = 10.0
CLOSE_WITHIN_S = 15.0
REPAIR_S = PASS_US / SECOND_US
LIMIT = 10
LIMIT_MAX = 10_000
ITERATION_WAIT_S = 20.0


class ConnectionClosed(Refused):
    """The connection was closed."""


class ConnectionOfAnotherProcess(Refused):
    """A connection does not survive a fork: open one in the child."""


class ConnectionOfAnotherLoop(Refused):
    """A connection belongs to the event loop that opened it."""


class Upkeep(Protocol):
    """The interface that a queue needs of its connection."""

    def require_usable(self) -> None:
        """Refuse in another process, on another loop, and after the end."""
        ...

    async def freshen(self, queue: Queue, within_s: float) -> None:
        """Check the clock and read the catalogue now, and return when both are current; else raise the reason."""
        ...

    def generations_of(self, queue: Queue) -> GenerationKeeper:
        """The way to the queue's generations in the catalogue."""
        ...

    def now_us(self) -> int:
        """The time."""
        ...

    async def queue(self, name: str) -> Queue:
        """Another queue of the connection."""
        ...

    @property
    def batches(self) -> Batches | None:
        """The facts about the application's own batches; None where they are not supported."""
        ...


class Queue:
    """One queue, in one process. `await connection.queue("shop/emails")` gives it."""

    def __init__(self, found: Found, engine: TimelineQueue, upkeep: Upkeep, bound: Bound) -> None:
        self.found = found
        self.bound = bound
        self.engine = engine
        """The engine behind it: the worker runtime shares its lanes through this."""
        self.ended: HeadgateError | None = None
        """Why it cannot be used any more: it was deleted."""
        self._upkeep = upkeep
        self._ending: asyncio.Task[None] | None = None

    # ---- its life

    def end(self, why: HeadgateError) -> None:
        """It is gone: every later call raises the reason."""
        if self.ended is None:
            self.ended = why
            log.warning("%s", why)
            self._ending = asyncio.get_running_loop().create_task(self._close())

    async def close(self) -> None:
        """Write pending messages, release the lanes. The connection does it when it is closed."""
        if self._ending is None:
            self._ending = asyncio.get_running_loop().create_task(self._close())
        await self._ending

    async def _close(self) -> None:
        try:
            await asyncio.wait_for(self.engine.close(), CLOSE_WITHIN_S)
        except (HeadgateError, TimeoutError) as error:
            log.warning("%s was not closed cleanly, its lane leases will expire: %r", self.name, error)

    @property
    def name(self) -> str:
        """`namespace/name`."""
        return self.found.settings.name

    @property
    def entry(self) -> Entry:
        """The last state that the catalogue reported."""
        return self.found.entry

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
        attributes: Attributes | None = None,
    ) -> str:
        """Put one message, and return its id: durable on a quorum of the home data centre by then.

        Bytes go as they are. A text, a model, a dataclass, or any other value that pydantic writes as JSON is
        encoded, and `content-type` names the form.
        Messages of one group come one after the other. The same `once` key makes one message within onceWindow.
        """
        traced = is_traced()
        if (
            type(payload) is bytes
            and not traced
            and delay is None
            and deliver_at is None
            and group is None
            and once is None
            and once_scope is None
            and attributes is None
        ):
            self._require_usable()  # as `_put` does, without a coroutine of its own: most puts are these
            plain = [Sent(payload)]
            try:
                return (await self.engine.put(plain))[0]
            except (ClockNotTrusted, KnowledgeTooOld):
                return (await self._try_again(lambda: self.engine.put(plain)))[0]
        put = Put(payload, delay, deliver_at, group, once, once_scope, attributes or {})
        if traced:
            return (await self._put_traced([put]))[0]
        return (await self._put([message_of(put, self.now_us())]))[0]

    async def put_many(self, messages: Iterable[Put | Payload]) -> list[str]:
        """Put many at once: payloads, or `Put` where one needs more than a payload. Their ids, in order."""
        puts = [each if isinstance(each, Put) else Put(each) for each in messages]
        if is_traced():
            return await self._put_traced(puts)
        now_us = self.now_us()
        return await self._put([message_of(each, now_us) for each in puts])

    async def _put_traced(self, puts: Sequence[Put]) -> list[str]:
        """Put them in the caller's trace: in a span of their own where OpenTelemetry has a current one."""
        spans = producer_spans()
        now_us = self.now_us()
        if spans is None:
            return await self._put([message_of(each, now_us) for each in puts])
        with spans.sending(self.name, len(puts)) as span:
            message_ids = await self._put([message_of(each, now_us) for each in puts])
            span.sent(message_ids)
            return message_ids

    async def _put(self, messages: Sequence[Sent]) -> list[str]:
        self._require_usable()
        try:
            return await self.engine.put(messages)
        except (ClockNotTrusted, KnowledgeTooOld):
            return await self._try_again(lambda: self.engine.put(messages))

    async def put_statements(
        self,
        batch: Any,
        message: Put | Payload,
        *,
        delay: Span | None = None,
        deliver_at: datetime | None = None,
        group: str | None = None,
        attributes: Attributes | None = None,
        within: Span = WITHIN_S,
        tables: Iterable[str] = (),
    ) -> PutStatements:
        """Add a message to a LOGGED batch of the application's own (a BatchStatement of the driver). The application
        then sends it: its write and its message happen together or not at all. A once key cannot be claimed in a
        batch. `within` is the time until the batch is answered; `tables` names tables (`shop.orders`) that cannot be
        read from the batch. Call `check()` on the result right before the batch is sent: it raises the reason not to
        send it.
        """
        batches = self._upkeep.batches
        if batches is None:
            raise Refused("this connection has no Cassandra that could execute a batch")
        within_us = span_us(within, "within")
        put = message
        if not isinstance(put, Put):
            put = Put(message, delay, deliver_at, group, attributes=attributes or {})
        puts = BatchedPuts(self.engine.producer)
        await batches.learn(batch, tables)

        async def stamp() -> Batched:
            return puts.stamp(message_of(put, self.now_us()), within_us=within_us)

        batched = await self._tried(stamp)
        batches.add(batch, self.entry.place.keyspace, batched.statements)
        return PutStatements(batch, batched, puts=puts, batches=batches, usable=self._require_usable)

    async def cancel(self, message_id: str) -> bool:
        """Whether it will never be delivered. False: too late, it may have been."""
        return await self._tried(lambda: self.engine.cancel(message_id)) is Cancelled.CANCELLED

    async def reschedule(
        self, message_id: str, *, delay: Span | None = None, deliver_at: datetime | None = None
    ) -> tuple[bool, str | None]:
        """Deliver it at another time: whether the old time is cancelled, and the id under which it continues.

        (False, None): too late, nothing changed. (False, id): it comes at the old time, the new one, or both.
        """
        if (delay is None) == (deliver_at is None):
            raise SpecError("a reschedule needs exactly one due time", remedy="pass delay or deliver_at")
        if deliver_at is not None:
            due_us = moment_us(deliver_at, "deliver_at")
        else:
            due_us = self.now_us() + span_us(0 if delay is None else delay, "delay")
        cancelled, new_id = await self._tried(lambda: self.engine.reschedule(message_id, due_us))
        return cancelled is Cancelled.CANCELLED, new_id

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

    async def receive_deliveries(self, limit: int, *, visibility_us: int | None, wait_us: int) -> list[Delivery]:
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

    async def settle(self, settles: Sequence[Settle]) -> list[Settled]:
        """Ack, Nack and Extend by receipt: each for itself, durable when it returns, in order."""
        self._require_usable()
        return await self.engine.settle(settles)

    async def ack(self, messages: Iterable[Message]) -> list[Settled]:
        """These are done; how each ended, in order."""
        return await self.settle([Ack(message.receipt) for message in messages])

    # ---- inspection

    async def peek(self, limit: int = LIMIT, *, since: datetime | None = None) -> list[Peeked]:
        """Live messages by due time, including delayed ones, without taking them: from the oldest unsettled message
        on, or from a given time."""
        limit = _checked_limit(limit)
        from_us = None if since is None else moment_us(since, "since")
        return await self._tried(lambda: self.engine.peek(limit, from_us=from_us))

    async def stats(self) -> Stats:
        """The contents of the queue: ready, in flight, delayed; and each of its lanes."""
        return await self._tried(self.engine.stats)

    async def where(self, message_id: str) -> Whereabouts:
        """The state of a message, and its place."""
        return await self._tried(lambda: self.engine.where(message_id))

    # ---- the whole queue

    async def repair(self, *, within: Span = REPAIR_S) -> Repaired:
        """One pass of repair: it restamps late writes, advances generations and deletes finished ones. It is harmless
        to run twice. If another process repairs the queue, it reports that at once."""
        within_us = span_us(within, "within")
        keeper = self._upkeep.generations_of(self)
        return await self._tried(lambda: self.engine.repair(keeper=keeper, within_us=within_us))

    async def purge(self, *, before: datetime | None = None) -> datetime:
        """Settle all messages that were put before a given time, or before now; returns that time."""
        before_us = None if before is None else moment_us(before, "before")
        if before_us is not None and before_us > self.now_us():
            raise SpecError("a purge needs an enqueue time in the past", before=before)
        return moment_of(await self._tried(lambda: self.engine.purge(before_us)))

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

    def _require_usable(self) -> None:
        self._upkeep.require_usable()
        if self.ended is not None:
            raise self.ended

    async def _tried(self, work: Callable[[], Awaitable[T]]) -> T:
        self._require_usable()
        try:
            return await work()
        except (ClockNotTrusted, KnowledgeTooOld):
            return await self._try_again(work)

    async def _try_again(self, work: Callable[[], Awaitable[T]]) -> T:
        """Nothing of it was sent, or it would have ended otherwise: once all is fit again it is done as if new."""
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + PATIENCE_S
        while True:
            await self._upkeep.freshen(self, max(deadline_s - loop.time(), 0.0))
            self._require_usable()
            try:
                return await work()
            except (ClockNotTrusted, KnowledgeTooOld):
                if loop.time() >= deadline_s:
                    raise

    def __repr__(self) -> str:
        return f"Queue({self.name})"


def _checked_limit(limit: int) -> int:
    if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= LIMIT_MAX:
        raise SpecError(f"limit must be a number from 1 to {LIMIT_MAX}", given=limit)
    return limit


def require_process(pid: int) -> None:
    """Refuse a child of the process that opened the connection."""
    if os.getpid() != pid:
        raise ConnectionOfAnotherProcess(opened_in=pid, used_in=os.getpid())
