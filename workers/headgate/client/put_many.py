"""Puts many messages from any source: read a chunk at a time, with an outcome for each message.

Chunks are put side by side, `CHUNKS_IN_FLIGHT` of them. A chunk with a group or a once key is put alone, so that the
messages of a group stay in order; it is as large as all chunks in flight. The source is never read further ahead.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Coroutine, Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from headgate.client.model.outgoing import Put, encode_put
from headgate.client.model.payloads import Payload
from headgate.engines.contract import NewMessage
from headgate.errors import HeadgateError, InvalidRequest, Unavailable
from headgate.process.background_tasks import start_task

CHUNK_MESSAGES = 2_000
CHUNK_BYTES = 1024 * 1024
CHUNKS_IN_FLIGHT = 4
TOGETHER = 20
"""Messages that are encoded in one go; CHUNK_MESSAGES is a multiple of it."""
READ_AHEAD_MAX = CHUNK_MESSAGES * CHUNKS_IN_FLIGHT
"""Messages that were read from the source and have no outcome yet."""
FAILURES_SHOWN = 3

Source = Iterable[Put | Payload] | AsyncIterable[Put | Payload]
Outcome = str | HeadgateError
F = TypeVar("F")


@dataclass(frozen=True, slots=True)
class PutResult:
    """The outcome for one message of a `put_each`."""

    index: int
    """The position of the message in its source, from 0."""
    id: str | None
    """None: the message is not known to be put."""
    error: HeadgateError | None = None


@dataclass(frozen=True, slots=True)
class PutFailure:
    """A message that is not known to be put."""

    index: int
    """The position of the message in its source, from 0."""
    message: Put | Payload
    """As the source gave it, to be put again."""
    error: HeadgateError


class PutManyFailed(Unavailable):
    """Some messages of put_many are not put."""

    def __init__(self, ids: Sequence[str | None], failures: Sequence[PutFailure]) -> None:
        shown = "; ".join(f"message {each.index}: {each.error}" for each in failures[:FAILURES_SHOWN])
        super().__init__(
            remedy="put the messages of .failures again",
            put=len(ids) - len(failures),
            failed=len(failures),
            first=shown,
        )
        self.ids = list(ids)
        """Of each message its id, in the order of the source. None: the message failed."""
        self.failures = list(failures)


@dataclass(slots=True)
class Chunk:
    first: int
    """The index of the first one."""
    sources: list[Put | Payload]
    messages: list[NewMessage]
    """Those that could be encoded."""
    unfit: dict[int, HeadgateError]
    """The others, by their index in the chunk."""
    is_ordered: bool
    """Whether it waits for the chunks before it, and those after it wait for it."""

    def join(self, outcomes: list[Outcome]) -> list[Outcome]:
        if not self.unfit:
            return outcomes
        rest = iter(outcomes)
        return [self.unfit[at] if at in self.unfit else next(rest) for at in range(len(self.sources))]


class ChunkBuilder:
    def __init__(self, now_us: Callable[[], int]) -> None:
        self._now_us = now_us
        self._next = 0
        self._begin()

    def _begin(self) -> None:
        self._at_us = self._now_us()
        self._bytes = 0
        self._chunk = Chunk(self._next, [], [], {}, is_ordered=False)

    def add(self, sources: Sequence[Put | Payload]) -> Chunk | None:
        """Add some messages; the chunk, if it is full now."""
        chunk, at_us = self._chunk, self._at_us
        try:
            messages = [encode_put(source, at_us) for source in sources]
        except InvalidRequest:
            messages = self._add_fit(sources)
        chunk.sources += sources
        chunk.messages += messages
        self._bytes += sum([len(message.payload) for message in messages])
        if any([message.group is not None or message.once is not None for message in messages]):  # noqa: C419 - half the time
            chunk.is_ordered = True
        share = CHUNKS_IN_FLIGHT if chunk.is_ordered else 1
        is_full = len(chunk.sources) >= share * CHUNK_MESSAGES or self._bytes >= share * CHUNK_BYTES
        return self.take() if is_full else None

    def _add_fit(self, sources: Sequence[Put | Payload]) -> list[NewMessage]:
        messages: list[NewMessage] = []
        for index, source in enumerate(sources, len(self._chunk.sources)):
            try:
                messages.append(encode_put(source, self._at_us))
            except InvalidRequest as unfit:
                self._chunk.unfit[index] = unfit
        return messages

    def take(self) -> Chunk | None:
        chunk = self._chunk
        if not chunk.sources:
            return None
        self._next += len(chunk.sources)
        self._begin()
        return chunk


def read_chunks(source: Iterable[Put | Payload], now_us: Callable[[], int]) -> Iterator[Chunk]:
    """The chunks of a source. Where the source raises, what it gave before comes first."""
    if isinstance(source, str | bytes | Put) or not isinstance(source, Iterable):
        raise InvalidRequest(
            "The messages of put_many must be an iterable",
            remedy="put one message with put",
            given=type(source).__name__,
        )
    builder = ChunkBuilder(now_us)
    some: list[Put | Payload] = []
    try:
        if isinstance(source, list | tuple):
            for first in range(0, len(source), TOGETHER):
                if (chunk := builder.add(source[first : first + TOGETHER])) is not None:
                    yield chunk
            source = ()
        for each in source:
            some.append(each)
            if len(some) == TOGETHER:
                chunk, some = builder.add(some), []
                if chunk is not None:
                    yield chunk
    except Exception:
        builder.add(some)
        if (chunk := builder.take()) is not None:
            yield chunk
        raise
    builder.add(some)
    if (chunk := builder.take()) is not None:
        yield chunk


async def read_chunks_async(source: Source, now_us: Callable[[], int]) -> AsyncGenerator[Chunk]:
    if not isinstance(source, AsyncIterable):
        for chunk in read_chunks(source, now_us):
            yield chunk
            await asyncio.sleep(0)
        return
    builder = ChunkBuilder(now_us)
    try:
        async for each in source:
            if (full := builder.add([each])) is not None:
                yield full
    except Exception:
        if (rest := builder.take()) is not None:
            yield rest
        raise
    if (rest := builder.take()) is not None:
        yield rest


Piece = tuple[Chunk, list[Outcome]]
"""A chunk with the outcome of each of its messages."""


class _Window(Generic[F]):
    """The chunks in flight, in the order of the source. A chunk stays in flight until its outcome was passed on."""

    def __init__(self, put: Callable[[Chunk], F]) -> None:
        self.pending: deque[tuple[Chunk, F]] = deque()
        self._put = put

    def add(self, chunk: Chunk) -> Iterator[tuple[Chunk, F]]:
        """Begin a chunk; the chunks to wait for before it and after it."""
        if chunk.is_ordered:
            yield from self.rest()
        self.pending.append((chunk, self._put(chunk)))
        yield from self.rest(0 if chunk.is_ordered else CHUNKS_IN_FLIGHT - 1)

    def rest(self, most: int = 0) -> Iterator[tuple[Chunk, F]]:
        """The oldest chunks, until no more than `most` are in flight."""
        while len(self.pending) > most:
            yield self.pending[0]
            self.pending.popleft()


async def put_chunks(
    chunks: AsyncGenerator[Chunk], put: Callable[[Chunk], Coroutine[Any, Any, list[Outcome]]]
) -> AsyncGenerator[Piece]:
    """Put chunks side by side; their outcomes in the order of the source. Where the source raises, the outcomes of
    what it gave before come first."""
    window = _Window(lambda chunk: start_task("chunk of put_many", put(chunk)))
    failure: Exception | None = None
    try:
        while True:
            try:
                chunk = await anext(chunks)
            except StopAsyncIteration:
                break
            except Exception as error:  # of the source: it is raised after the outcomes of what came before
                failure = error
                break
            for begun, task in window.add(chunk):
                yield begun, await task
        for begun, task in window.rest():
            yield begun, await task
        if failure is not None:
            raise failure
    finally:
        for _, task in window.pending:
            if not task.cancel() and not task.cancelled():
                task.exception()  # it has been seen: another one was raised
        await chunks.aclose()


def put_chunks_waiting(chunks: Iterator[Chunk], put: Callable[[Chunk], Future[list[Outcome]]]) -> Iterator[Piece]:
    """The same for the blocking SDK: the source is read in its caller's thread, and `put` begins a put elsewhere."""
    window = _Window(put)
    failure: Exception | None = None
    try:
        while True:
            try:
                chunk = next(chunks)
            except StopIteration:
                break
            except Exception as error:  # of the source: it is raised after the outcomes of what came before
                failure = error
                break
            for begun, future in window.add(chunk):
                yield begun, future.result()
        for begun, future in window.rest():
            yield begun, future.result()
        if failure is not None:
            raise failure
    finally:
        for _, future in window.pending:
            future.cancel()


def results_of(chunk: Chunk, outcomes: Sequence[Outcome]) -> Iterator[PutResult]:
    for index, outcome in enumerate(outcomes, chunk.first):
        if isinstance(outcome, str):
            yield PutResult(index, outcome)
        else:
            yield PutResult(index, None, outcome)


class Collected:
    def __init__(self) -> None:
        self.ids: list[str | None] = []
        self.failures: list[PutFailure] = []

    def add(self, chunk: Chunk, outcomes: Sequence[Outcome]) -> None:
        if all([type(outcome) is str for outcome in outcomes]):  # noqa: C419 - half the time
            self.ids += outcomes  # type: ignore[arg-type]  # all are ids
            return
        for source, outcome in zip(chunk.sources, outcomes, strict=True):
            if isinstance(outcome, str):
                self.ids.append(outcome)
            else:
                self.failures.append(PutFailure(len(self.ids), source, outcome))
                self.ids.append(None)

    def check(self) -> list[str]:
        """The ids. If no message was put: the first error; if some were: PutManyFailed."""
        if not self.failures:
            return self.ids  # type: ignore[return-value]  # each has its id
        if len(self.failures) == len(self.ids):
            raise self.failures[0].error
        raise PutManyFailed(self.ids, self.failures)

    def note(self, error: Exception) -> None:
        """Add to an error of the source what was put before it."""
        if self.ids:
            put = len(self.ids) - len(self.failures)
            error.add_note(f"put_many has put {put} of the {len(self.ids)} messages before the error.")


async def collect_outcomes(pieces: AsyncGenerator[Piece]) -> list[str]:
    collected = Collected()
    try:
        async with aclosing(pieces) as opened:
            async for chunk, outcomes in opened:
                collected.add(chunk, outcomes)
    except Exception as error:
        collected.note(error)
        raise
    return collected.check()


def collect_outcomes_waiting(pieces: Iterator[Piece]) -> list[str]:
    collected = Collected()
    try:
        for chunk, outcomes in pieces:
            collected.add(chunk, outcomes)
    except Exception as error:
        collected.note(error)
        raise
    return collected.check()
