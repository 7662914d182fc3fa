"""The SDK without async: the same calls, each of which blocks. For threads, scripts, and frameworks without an event
loop.

    with headgate.connect_sync() as p:
        q = p.queue("shop/emails")
        q.put({"to": "you"})

It decides nothing: every call is one of `Headgate` or `Queue`, run on a loop in the background. Any thread may call,
and concurrent puts share a write.
"""

from __future__ import annotations

import threading
from collections.abc import AsyncIterable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from types import TracebackType
from typing import Any, Unpack

from headgate.client.catalogue.application_batch import WITHIN_S, BatchPut
from headgate.client.connection import NAMESPACE, SKEW_S, Headgate, NotConnected, connect
from headgate.client.message import Message, Received, reason_of
from headgate.client.model.outgoing import Put
from headgate.client.model.payloads import Payload
from headgate.client.model.settle_commands import SettleCommand
from headgate.client.model.times import Span
from headgate.client.model.values import (
    MessageStatus,
    PeekedMessage,
    QueueStats,
    QueueSummary,
    RepairReport,
    RescheduleResult,
)
from headgate.client.put_many import (
    Piece,
    PutResult,
    Source,
    collect_outcomes_waiting,
    put_chunks_waiting,
    read_chunks,
    results_of,
)
from headgate.client.queue import ITERATION_WAIT_S, LIMIT, REPAIR_S, WAIT_S, ConnectionClosed, Queue
from headgate.client.redriving import Filter, RedriveResult
from headgate.client.sync.background import BackgroundLoop, close_at_end, was_closed
from headgate.client.sync.blocking_counter import SyncCounter
from headgate.engines.contract import Attributes, Settled
from headgate.store.cassandra.settings import ConnectionOptions


class SyncHeadgate:
    """A connection whose calls block. `connect_sync()` creates it."""

    def __init__(self, connection: Headgate) -> None:
        self.connection = connection
        self._lock = threading.Lock()
        self._background: BackgroundLoop | None = None
        self._closed = False

    def open(self) -> SyncHeadgate:
        """Connect. `with` does it."""
        with self._lock:
            if self._closed:
                raise ConnectionClosed
            if self._background is None:
                background = BackgroundLoop("headgate")
                try:
                    background.run(self.connection.open())
                except BaseException:
                    background.stop()
                    raise
                self._background = background
                close_at_end(self)
        return self

    def close(self) -> None:
        """Write pending messages, release lanes, disconnect. `with` does it, and so does the end of the process."""
        with self._lock:
            background, self._closed = self._background, True
            if background is None:
                return
            self._background = None
        try:
            background.run(self.connection.close())
        finally:
            background.stop()
            was_closed(self)

    def __enter__(self) -> SyncHeadgate:
        return self.open()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def queue(self, name: str) -> SyncQueue:
        """The queue of that name (`namespace/name`)."""
        background = self._running()
        return SyncQueue(background.run(self.connection.queue(name)), self)

    def queues(self, namespace: str | None = None) -> list[str]:
        """As `Headgate.queues`."""
        return self._running().run(self.connection.queues(namespace))

    def counter(self, name: str, *, memory_bytes: int | None = None) -> SyncCounter:
        """As `Headgate.counter`."""
        background = self._running()
        return SyncCounter(background.run(self.connection.counter(name, memory_bytes=memory_bytes)), self._running)

    def counters(self, namespace: str | None = None) -> list[str]:
        """The names of all counters, or of those in one namespace."""
        return self._running().run(self.connection.counters(namespace))

    def overview(self, namespace: str | None = None) -> list[QueueSummary]:
        """As `Headgate.overview`."""
        return self._running().run(self.connection.overview(namespace))

    def _running(self) -> BackgroundLoop:
        background = self._background
        if background is None:
            raise ConnectionClosed if self._closed else NotConnected
        return background


class SyncQueue:
    """One queue, whose calls block."""

    def __init__(self, queue: Queue, connection: SyncHeadgate) -> None:
        self.queue = queue
        self._connection = connection

    @property
    def name(self) -> str:
        """`namespace/name`."""
        return self.queue.name

    def put(
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
        """As `Queue.put`."""
        return self._background.run(
            self.queue.put(
                payload,
                delay=delay,
                deliver_at=deliver_at,
                group=group,
                once=once,
                once_scope=once_scope,
                attributes=attributes,
            )
        )

    def put_many(self, messages: Source) -> list[str]:
        """As `Queue.put_many`. An iterable is read in the calling thread, an async iterable in the connection's."""
        if isinstance(messages, AsyncIterable):
            return self._background.run(self.queue.put_many(messages))
        return collect_outcomes_waiting(self._put_chunks(messages))

    def put_each(self, messages: Iterable[Put | Payload]) -> Iterator[PutResult]:
        """As `Queue.put_each`, of an iterable, which is read in the calling thread."""
        for chunk, outcomes in self._put_chunks(messages):
            yield from results_of(chunk, outcomes)

    def _put_chunks(self, messages: Iterable[Put | Payload]) -> Iterator[Piece]:
        background = self._background
        chunks = read_chunks(messages, self.queue.now_us)
        return put_chunks_waiting(chunks, lambda chunk: background.begin(self.queue.put_chunk(chunk)))

    def add_to_batch(
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
    ) -> SyncBatchPut:
        """As `Queue.add_to_batch`."""
        put = self._background.run(
            self.queue.add_to_batch(
                batch,
                message,
                delay=delay,
                deliver_at=deliver_at,
                group=group,
                attributes=attributes,
                within=within,
                tables=tables,
            )
        )
        return SyncBatchPut(put, self._connection)

    def receive(
        self, limit: int = LIMIT, *, wait: Span = WAIT_S, visibility: Span | None = None
    ) -> list[SyncMessage]:
        """As `Queue.receive`."""
        messages = self._background.run(self.queue.receive(limit, wait=wait, visibility=visibility))
        return [SyncMessage(each, self._connection) for each in messages]

    def __iter__(self) -> Iterator[SyncMessage]:
        """Messages one by one, forever."""
        while True:
            yield from self.receive(1, wait=ITERATION_WAIT_S)

    def settle(self, commands: Sequence[SettleCommand]) -> list[Settled]:
        """As `Queue.settle`."""
        return self._background.run(self.queue.settle(commands))

    def ack(self, messages: Iterable[SyncMessage]) -> list[Settled]:
        """These are done; how each ended, in order."""
        return self._background.run(self.queue.ack([each.message for each in messages]))

    def cancel(self, message_id: str) -> bool:
        """As `Queue.cancel`."""
        return self._background.run(self.queue.cancel(message_id))

    def reschedule(
        self, message_id: str, *, delay: Span | None = None, deliver_at: datetime | None = None
    ) -> RescheduleResult:
        """As `Queue.reschedule`."""
        return self._background.run(self.queue.reschedule(message_id, delay=delay, deliver_at=deliver_at))

    def peek(self, limit: int = LIMIT, *, since: datetime | None = None) -> list[PeekedMessage]:
        """As `Queue.peek`."""
        return self._background.run(self.queue.peek(limit, since=since))

    def stats(self) -> QueueStats:
        """As `Queue.stats`."""
        return self._background.run(self.queue.stats())

    def where(self, message_id: str) -> MessageStatus:
        """As `Queue.where`."""
        return self._background.run(self.queue.where(message_id))

    def repair(self, *, within: Span = REPAIR_S) -> RepairReport:
        """As `Queue.repair`."""
        return self._background.run(self.queue.repair(within=within))

    def purge(self, *, before: datetime | None = None) -> datetime:
        """As `Queue.purge`."""
        return self._background.run(self.queue.purge(before=before))

    def redrive(
        self,
        *,
        ids: Iterable[str] | None = None,
        matching: Filter | None = None,
        to: str | None = None,
        limit: int | None = None,
    ) -> RedriveResult:
        """As `Queue.redrive`."""
        return self._background.run(self.queue.redrive(ids=ids, matching=matching, to=to, limit=limit))

    @property
    def _background(self) -> BackgroundLoop:
        return self._connection._running()

    def __repr__(self) -> str:
        return f"SyncQueue({self.name})"


class SyncBatchPut:
    """A message that was added to a batch, whose check waits."""

    def __init__(self, put: BatchPut, connection: SyncHeadgate) -> None:
        self.id = put.id
        self.until = put.until
        self._put = put
        self._connection = connection

    def check(self) -> None:
        """As `BatchPut.check`."""

        async def check() -> None:
            self._put.check()

        self._connection._running().run(check())


class SyncMessage(Received):
    """One delivery of one message, whose settling blocks. As a context manager it is acknowledged at the end:

    with message:
        send(message.json())
    """

    __slots__ = ("_connection", "message")

    def __init__(self, message: Message, connection: SyncHeadgate) -> None:
        super().__init__(message.delivery)
        self.message = message
        self._connection = connection

    def ack(self) -> None:
        """It is done."""
        self._connection._running().run(self.message.ack())

    def nack(self, delay: Span = 0, *, reason: str = "") -> None:
        """The handler failed: retry after this delay, or move to the dead-letter queue after too many receives."""
        self._connection._running().run(self.message.nack(delay, reason=reason))

    def reject(self, reason: str = "") -> None:
        """The message can never succeed: move it to the dead-letter queue at once; without one, deliver it again."""
        self._connection._running().run(self.message.reject(reason))

    def extend(self, visibility: Span) -> None:
        """It takes longer: keep it hidden this long from now."""
        self._connection._running().run(self.message.extend(visibility))

    def __enter__(self) -> SyncMessage:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.ack()
        else:
            self.nack(reason=reason_of(error))


def connect_sync(
    environment: Mapping[str, str] | str | None = None,
    *,
    namespace: str = NAMESPACE,
    name: str | None = None,
    max_clock_skew: Span = SKEW_S,
    session: Any = None,
    **options: Unpack[ConnectionOptions],
) -> SyncHeadgate:
    """As `connect`, with calls that wait."""
    connection = connect(
        environment, namespace=namespace, name=name, max_clock_skew=max_clock_skew, session=session, **options
    )
    return SyncHeadgate(connection)
