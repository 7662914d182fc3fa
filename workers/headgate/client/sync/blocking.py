"""The SDK without async: the same calls, each of which blocks. For threads, scripts, and frameworks without an event
loop.

    with headgate.connect_sync() as p:
        q = p.queue("shop/emails")
        q.put({"to": "you"})

It decides nothing: every call is one of `Headgate` or `Queue`, run on a loop in the background. Any thread may call,
and concurrent puts share a write. Most calls are generated from those (dev/sync_sdk.py); the rest is written by hand.
"""

from __future__ import annotations

import threading
from collections.abc import AsyncIterable, Callable, Iterable, Iterator, Mapping, Sequence
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
from headgate.client.queue import ITERATION_WAIT_S, LIMIT, REPAIR_S, WAIT_S, ConnectionClosed, Queue, deadline_of
from headgate.client.redriving import Filter, RedriveResult
from headgate.client.sync.background import BackgroundLoop, close_at_end, was_closed
from headgate.client.sync.blocking_counter import SyncCounter
from headgate.engines.contract import Attributes, Settled
from headgate.store.cassandra.settings import ConnectionOptions
from headgate.store.model.deadline import Deadline


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

    # ---- generated from `Headgate` by `python -m dev.sync_sdk`

    def queue(self, name: str) -> SyncQueue:
        """The queue of that name (`namespace/name`); the same object each time, until it was deleted."""
        return SyncQueue(self._running().run(self.connection.queue(name)), self)

    def queues(self, namespace: str | None = None) -> list[str]:
        """The names of all queues, or of those in one namespace; without deleted ones."""
        return self._running().run(self.connection.queues(namespace))

    def counter(self, name: str, *, memory_bytes: int | None = None) -> SyncCounter:
        """The counter of that name (`namespace/name`); the same object each time, until it was deleted.

        `memory_bytes` is the maximum memory of its states in this process. Default: 64 MiB. Beyond that, keys without
        recent updates are evicted, and read back when they are updated."""
        return SyncCounter(
            self._running().run(self.connection.counter(name, memory_bytes=memory_bytes)), self._running
        )

    def counters(self, namespace: str | None = None) -> list[str]:
        """The names of all counters, or of those in one namespace; without deleted ones."""
        return self._running().run(self.connection.counters(namespace))

    def overview(self, namespace: str | None = None) -> list[QueueSummary]:
        """The figures of all queues, or of those in one namespace: from the summary, in a few small reads.
        `Queue.stats()` is exact, and costs more."""
        return self._running().run(self.connection.overview(namespace))

    # ---- end of what is generated from `Headgate`

    def _running(self) -> BackgroundLoop:
        background = self._background
        if background is None:
            raise ConnectionClosed if self._closed else NotConnected
        return background


async def _deadline_of(limit: Span | None) -> Deadline | None:
    """On the clock of the connection's loop, which another thread cannot read."""
    return deadline_of(limit)


class SyncQueue:
    """One queue, whose calls block."""

    def __init__(self, queue: Queue, connection: SyncHeadgate) -> None:
        self.queue = queue
        self._connection = connection

    @property
    def name(self) -> str:
        """`namespace/name`."""
        return self.queue.name

    def put_many(self, messages: Source, *, timeout: Span | None = None) -> list[str]:
        """As `Queue.put_many`. An iterable is read in the calling thread, an async iterable in the connection's."""
        if isinstance(messages, AsyncIterable):
            return self._background.run(self.queue.put_many(messages, timeout=timeout))
        deadline = self._background.run(_deadline_of(timeout))
        return collect_outcomes_waiting(self._put_chunks(messages, deadline))

    def put_each(self, messages: Iterable[Put | Payload], *, timeout: Span | None = None) -> Iterator[PutResult]:
        """As `Queue.put_each`, of an iterable, which is read in the calling thread."""
        for chunk, outcomes in self._put_chunks(messages, timeout):
            yield from results_of(chunk, outcomes)

    def _put_chunks(self, messages: Iterable[Put | Payload], limit: Deadline | Span | None) -> Iterator[Piece]:
        background = self._background
        chunks = read_chunks(messages, self.queue.now_us)
        return put_chunks_waiting(chunks, lambda chunk: background.begin(self.queue.put_chunk(chunk, limit)))

    def __iter__(self) -> Iterator[SyncMessage]:
        """Messages one by one, forever."""
        while True:
            yield from self.receive(1, wait=ITERATION_WAIT_S)

    # ---- generated from `Queue` by `python -m dev.sync_sdk`

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
        timeout: Span | None = None,
    ) -> str:
        """Put one message, and return its id: durable on a quorum of the home data centre by then.

        Bytes are unchanged. A string, a model, a dataclass, or any other value that pydantic writes as JSON is
        encoded, and `content-type` names the form. Messages of one group come one after the other. The same `once`
        key creates one message within onceWindow.

        After `timeout` it raises NotSent if the message was not sent, and then it will not be; else OutcomeUnknown.
        Any other error means that the message is not stored."""
        return self._background.run(
            self.queue.put(
                payload,
                delay=delay,
                deliver_at=deliver_at,
                group=group,
                once=once,
                once_scope=once_scope,
                attributes=attributes,
                timeout=timeout,
            )
        )

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
        """Add a message to a LOGGED batch of the application (a BatchStatement of the driver), which the application
        sends: its write and the message happen together or not at all, as with a transactional outbox. The message
        cannot have a once key. `within` is the time until the batch is answered. `tables` names tables
        (`shop.orders`) that the batch does not show. Call `check()` of the result right before you send the batch: it
        raises if the batch must not be sent."""
        return SyncBatchPut(
            self._background.run(
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
            ),
            self._connection,
        )

    def cancel(self, message_id: str) -> bool:
        """Whether the message will never be delivered. False: it is too late, the message may have been delivered.

        A message can be cancelled until about a second before it is due (the queue's safety lag and the bound on
        clocks), so one that was put without a delay cannot. A second cancel of one message returns True again."""
        return self._background.run(self.queue.cancel(message_id))

    def reschedule(
        self, message_id: str, *, delay: Span | None = None, deliver_at: datetime | None = None
    ) -> RescheduleResult:
        """Deliver the message at another time: the outcome, and the id that the message has from now on."""
        return self._background.run(self.queue.reschedule(message_id, delay=delay, deliver_at=deliver_at))

    def receive(
        self, limit: int = LIMIT, *, wait: Span = WAIT_S, visibility: Span | None = None
    ) -> list[SyncMessage]:
        """Up to `limit` messages, waiting at most `wait` for the first. From the first call on this process shares
        the queue's lanes; closing the connection gives them back."""
        return [
            SyncMessage(each, self._connection)
            for each in self._background.run(self.queue.receive(limit, wait=wait, visibility=visibility))
        ]

    def settle(self, commands: Sequence[SettleCommand]) -> list[Settled]:
        """Settle by receipts with the commands of `headgate.settle`: each by itself, durable when the call returns.
        The outcomes are in the order of the commands."""
        return self._background.run(self.queue.settle(commands))

    def ack(self, messages: Iterable[SyncMessage]) -> list[Settled]:
        """These are done; how each ended, in order."""
        return self._background.run(self.queue.ack([each.message for each in messages]))

    def peek(self, limit: int = LIMIT, *, since: datetime | None = None) -> list[PeekedMessage]:
        """Live messages in the order in which they are due, also delayed ones, without receiving them. The first is
        the oldest that is not settled, or the first that is due at `since` or later."""
        return self._background.run(self.queue.peek(limit, since=since))

    def stats(self) -> QueueStats:
        """The number of messages that are ready, in flight and delayed, and the state of each lane."""
        return self._background.run(self.queue.stats())

    def where(self, message_id: str) -> MessageStatus:
        """The state of a message, and the places where it is stored."""
        return self._background.run(self.queue.where(message_id))

    def repair(self, *, within: Span = REPAIR_S) -> RepairReport:
        """One pass of repair: it rewrites late writes, and completes and leaves generations. Repeating it is
        harmless. While another process repairs the queue, the call returns at once with that outcome."""
        return self._background.run(self.queue.repair(within=within))

    def purge(self, *, before: datetime | None = None) -> datetime:
        """Settle all messages that were put before a given time, or before now; returns that time."""
        return self._background.run(self.queue.purge(before=before))

    def redrive(
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
        return self._background.run(
            self.queue.redrive(ids=ids, matching=matching, to=to, limit=limit, on_moved=on_moved)
        )

    # ---- end of what is generated from `Queue`

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
        self._connection._running().call(self._put.check)


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

    # ---- generated from `Message` by `python -m dev.sync_sdk`

    def ack(self) -> None:
        """Acknowledge it. StaleReceipt if another delivery was recorded since, Unknown if the outcome cannot be
        determined."""
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

    # ---- end of what is generated from `Message`

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
