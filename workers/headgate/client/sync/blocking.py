"""The SDK without async: the same calls, each of which blocks. For threads, scripts, and frameworks without an event
loop.

    with headgate.connect_sync() as p:
        q = p.queue("shop/emails")
        q.put({"to": "you"})

It decides nothing: every call is one of `Headgate`, `Queue`, `Counter` or `Message`, run on a loop in the background.
Any thread may call, and concurrent puts and updates share a write. `waiting` makes most calls out of those, with
their signatures and texts. The others wrap a result, or read an iterable in the calling thread.
"""

from __future__ import annotations

import threading
from collections.abc import AsyncIterable, Callable, Coroutine, Iterable, Iterator, Mapping
from datetime import datetime
from functools import wraps
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, TypeVar, Unpack

from headgate.client.catalogue.application_batch import WITHIN_S, BatchPut
from headgate.client.catalogue.opened import ConnectionClosed
from headgate.client.connection import NAMESPACE, SKEW_S, Headgate, NotConnected, connect
from headgate.client.counter import Counter, CounterState
from headgate.client.message import Message, Received, reason_of
from headgate.client.model.outgoing import Put
from headgate.client.model.payloads import Payload
from headgate.client.model.times import Span
from headgate.client.put_many import (
    Piece,
    PutResult,
    Source,
    collect_outcomes_waiting,
    put_chunks_waiting,
    read_chunks,
    results_of,
)
from headgate.client.queue import ITERATION_WAIT_S, LIMIT, WAIT_S, Queue, deadline_of
from headgate.client.sync.background import BackgroundLoop, close_at_end, was_closed
from headgate.engines.contract import Attributes, Settled
from headgate.store.cassandra.settings import ConnectionOptions
from headgate.store.model.deadline import Deadline

P = ParamSpec("P")
T = TypeVar("T")


def waiting(call: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]) -> Callable[Concatenate[Any, P], T]:
    """A call of an asynchronous class as one that blocks: the same signature, types and text."""

    @wraps(call)
    def wait(own: Any, /, *arguments: P.args, **options: P.kwargs) -> T:
        loop: BackgroundLoop = own._background
        return loop.run(call(own._asynchronous, *arguments, **options))

    return wait


class SyncHeadgate:
    """A connection whose calls block. `connect_sync()` creates it."""

    def __init__(self, connection: Headgate) -> None:
        self.connection = self._asynchronous = connection
        self._lock = threading.Lock()
        self._loop: BackgroundLoop | None = None
        self._closed = False

    def open(self) -> SyncHeadgate:
        """Connect. `with` does it."""
        with self._lock:
            if self._closed:
                raise ConnectionClosed
            if self._loop is None:
                background = BackgroundLoop("headgate")
                try:
                    background.run(self.connection.open())
                except BaseException:
                    background.stop()
                    raise
                self._loop = background
                close_at_end(self.close)
        return self

    def close(self) -> None:
        """Write pending messages, release lanes, disconnect. `with` does it, and so does the end of the process."""
        with self._lock:
            background, self._closed = self._loop, True
            if background is None:
                return
            self._loop = None
        try:
            background.run(self.connection.close())
        finally:
            background.stop()
            was_closed(self.close)

    def __enter__(self) -> SyncHeadgate:
        return self.open()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def queue(self, name: str) -> SyncQueue:
        """As `Headgate.queue`."""
        return SyncQueue(self._background.run(self.connection.queue(name)), self)

    def counter(self, name: str, *, memory_bytes: int | None = None) -> SyncCounter:
        """As `Headgate.counter`."""
        return SyncCounter(self._background.run(self.connection.counter(name, memory_bytes=memory_bytes)), self)

    queues = waiting(Headgate.queues)
    counters = waiting(Headgate.counters)
    overview = waiting(Headgate.overview)

    @property
    def _background(self) -> BackgroundLoop:
        background = self._loop
        if background is None:
            raise ConnectionClosed if self._closed else NotConnected
        return background


async def _deadline_of(limit: Span | None) -> Deadline | None:
    """On the clock of the connection's loop, which another thread cannot read."""
    return deadline_of(limit)


class SyncQueue:
    """One queue, whose calls block."""

    def __init__(self, queue: Queue, connection: SyncHeadgate) -> None:
        self.queue = self._asynchronous = queue
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
        adding = self.queue.add_to_batch(
            batch,
            message,
            delay=delay,
            deliver_at=deliver_at,
            group=group,
            attributes=attributes,
            within=within,
            tables=tables,
        )
        return SyncBatchPut(self._background.run(adding), self._connection)

    def receive(
        self, limit: int = LIMIT, *, wait: Span = WAIT_S, visibility: Span | None = None
    ) -> list[SyncMessage]:
        """As `Queue.receive`."""
        received = self._background.run(self.queue.receive(limit, wait=wait, visibility=visibility))
        return [SyncMessage(each, self._connection) for each in received]

    def ack(self, messages: Iterable[SyncMessage]) -> list[Settled]:
        """As `Queue.ack`."""
        return self._background.run(self.queue.ack([each.message for each in messages]))

    put = waiting(Queue.put)
    cancel = waiting(Queue.cancel)
    reschedule = waiting(Queue.reschedule)
    settle = waiting(Queue.settle)
    peek = waiting(Queue.peek)
    stats = waiting(Queue.stats)
    where = waiting(Queue.where)
    repair = waiting(Queue.repair)
    purge = waiting(Queue.purge)
    redrive = waiting(Queue.redrive)

    @property
    def _background(self) -> BackgroundLoop:
        return self._connection._background

    def __repr__(self) -> str:
        return f"SyncQueue({self.name})"


class SyncCounter:
    """One counter, whose calls block."""

    def __init__(self, counter: Counter, connection: SyncHeadgate) -> None:
        self.counter = self._asynchronous = counter
        self._connection = connection

    @property
    def name(self) -> str:
        """`namespace/name`."""
        return self.counter.name

    def token(self, name: str | None = None) -> str:
        """As `Counter.token`."""
        return self._background.call(self.counter.token, name)

    def scan(self) -> Iterator[tuple[str, CounterState]]:
        """As `Counter.scan`."""
        return self._background.iterate(self.counter.scan())

    flush = waiting(Counter.flush)
    add = waiting(Counter.add)
    remove = waiting(Counter.remove)
    set = waiting(Counter.set)
    update = waiting(Counter.update)
    value = waiting(Counter.value)
    cached = waiting(Counter.cached)
    values = waiting(Counter.values)
    state = waiting(Counter.state)
    collect = waiting(Counter.collect)

    @property
    def _background(self) -> BackgroundLoop:
        return self._connection._background

    def __repr__(self) -> str:
        return f"SyncCounter({self.name})"


class SyncBatchPut:
    """A message that was added to a batch, whose check waits."""

    def __init__(self, put: BatchPut, connection: SyncHeadgate) -> None:
        self.id = put.id
        self.until = put.until
        self._put = put
        self._connection = connection

    def check(self) -> None:
        """As `BatchPut.check`."""
        self._connection._background.call(self._put.check)


class SyncMessage(Received):
    """One delivery of one message, whose settling blocks. As a context manager it is acknowledged at the end:

    with message:
        send(message.json())
    """

    __slots__ = ("_asynchronous", "_connection", "message")

    def __init__(self, message: Message, connection: SyncHeadgate) -> None:
        super().__init__(message.delivery)
        self.message = self._asynchronous = message
        self._connection = connection

    ack = waiting(Message.ack)
    nack = waiting(Message.nack)
    reject = waiting(Message.reject)
    extend = waiting(Message.extend)

    @property
    def _background(self) -> BackgroundLoop:
        return self._connection._background

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
