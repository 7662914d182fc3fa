"""Updates with a token: each is a row of its own in its minute, so that sending it twice changes nothing. The prose
is "Tokens" in docs/internals/protocols/counters.md; the decisions are in decide_tokens.py.

Updates of one bucket and minute that arrive in the same turn of the loop, or during a write, share the next write.
Nothing is kept of them: a caller that gets an unknown outcome sends the update again, to any process.

Invariant: an update is acknowledged only when its row, the mark of its minute and the bucket's `tokened` are durable,
and that before the minute's close - 2 maxClockSkew (attack B5).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, NamedTuple

from headgate.counters.model.decide_shards import bucket_of
from headgate.counters.model.decide_tokens import Token, check_token, decide_last_foldable, silent_after_us
from headgate.counters.model.settings import CounterSettings
from headgate.counters.types.contract import CounterType
from headgate.counters.write.mutator import KEY_BYTES_MAX, KeyInvalid, MutatorClosed
from headgate.counters.write.part import FLUSH_ROWS_MAX, WRITE_WITHIN_S, Writer, acknowledge_callers, fail_callers
from headgate.engines.context import Host
from headgate.errors import Bug, HeadgateError, Unavailable
from headgate.process.live import Live
from headgate.store.model.shapes import insert_shape
from headgate.store.model.statements import Insert, RowsOf, Update, Write
from headgate.store.store import OutcomeUnknown

BucketMinute = tuple[int, int]
"""Bucket and minute."""


class TokenUnknown(OutcomeUnknown):
    """The update may have been counted, or may still be: send it again with the same token."""


class _Waiting(NamedTuple):
    key: str
    token: Token
    state: bytes
    future: asyncio.Future[None]


class TokenWriter(Writer):
    def __init__(self, host: Host, settings: Live[CounterSettings], kind: CounterType[Any, Any]) -> None:
        super().__init__(host, settings, kind, "updates with tokens")
        self._buffers: dict[BucketMinute, list[_Waiting]] = {}
        self._busy: set[BucketMinute] = set()
        self._marked: set[BucketMinute] = set()
        names = ("counter", "bucket", "minute", "key", "token", "state")
        self._token_shape = insert_shape(self.settings.tables.tokens, names, False)

    def has_waiting(self) -> bool:
        return bool(self._busy)

    def new_token(self, name: str | None = None) -> Token:
        now_us = self.host.now_us()
        return Token(now_us // 1_000_000, name if name is not None else self.host.uuid().hex).checked()

    def add(self, key: str, update: Any, token: Token) -> asyncio.Future[None]:
        future: asyncio.Future[None] = self._loop.create_future()
        try:
            if self._closed:
                raise MutatorClosed
            if not key or len(key.encode()) > KEY_BYTES_MAX:
                raise KeyInvalid(given=key[:60])
            self._check_early(token)
            state = self.kind.dump(self.kind.apply(self.kind.zero(), update))
        except Exception as error:  # a custom type may raise anything
            future.set_exception(error)
            return future
        place = bucket_of(key, self.settings.buckets), token.minute
        self._buffers.setdefault(place, []).append(_Waiting(key, token, state, future))
        if place not in self._busy:
            self._busy.add(place)
            self._loop.call_soon(self._begin, place)
        return future

    def _check_early(self, token: Token) -> None:
        """Where the time is not known, it is checked before the write is sent."""
        try:
            now_us = self.host.now_us()
        except Unavailable:
            return
        self._check(token, now_us)

    def _check(self, token: Token, now_us: int) -> None:
        settings = self.settings
        check_token(token, now_us=now_us, window_us=settings.token_window_us, skew_us=settings.skew_us)

    def _begin(self, place: BucketMinute) -> None:
        self._tasks.start(self._fly(place))

    async def _fly(self, place: BucketMinute) -> None:
        taken: list[_Waiting] = []
        try:
            while waiting := self._buffers.pop(place, None):
                for first in range(0, len(waiting), FLUSH_ROWS_MAX):
                    taken = [each for each in waiting[first : first + FLUSH_ROWS_MAX] if not each.future.done()]
                    if taken:
                        await self._land(place, taken)
        except BaseException as error:
            _fail_waiting([*taken, *self._buffers.pop(place, [])], TokenUnknown("Write aborted", error=repr(error)))
            raise
        finally:
            self._busy.discard(place)

    async def _land(self, place: BucketMinute, taken: Sequence[_Waiting]) -> None:
        try:
            self._check(taken[0].token, await self.read_trusted_us())  # time has passed, maybe much
            answers = await asyncio.gather(
                *(self.host.store.write(write, within_s=WRITE_WITHIN_S) for write in self._writes(place, taken)),
                return_exceptions=True,
            )
        except HeadgateError as error:
            _fail_waiting(taken, error)
            return
        for answer in answers:
            if isinstance(answer, Unavailable):  # another of the writes may have landed, so the outcome is unknown
                _fail_waiting(taken, TokenUnknown(last=answer.message))
                return
            if isinstance(answer, BaseException):
                _fail_waiting(taken, TokenUnknown("Write failed", cause=answer))
                raise Bug("Writing tokens failed", error=repr(answer)) from answer
        self._marked.add(place)
        await self._acknowledge(place, taken)

    async def _acknowledge(self, place: BucketMinute, taken: Sequence[_Waiting]) -> None:
        """If that may still be acknowledged: from the close on, its minute may be folded without it."""
        settings = self.settings
        try:
            now_us = await self.read_trusted_us()
        except Unavailable as error:
            _fail_waiting(taken, TokenUnknown(last=error.message))
            return
        if now_us >= silent_after_us(place[1], settings.token_window_us, settings.skew_us):
            _fail_waiting(taken, TokenUnknown("The token's minute was closed before the answer"))
            return
        acknowledge_callers(each.future for each in taken)

    def _writes(self, place: BucketMinute, taken: Sequence[_Waiting]) -> list[Write]:
        """The rows, and the marks that are not known to exist. Timestamps follow from the tokens and the minute: a
        repeated update writes the same."""
        bucket, minute = place
        tables, counter = self.settings.tables, self.settings.counter
        rows = RowsOf(
            self._token_shape,
            (counter, bucket, minute),
            [(each.key, str(each.token), each.state) for each in taken],
            [(max(1, each.token.time_us), None) for each in taken],
        )
        if place in self._marked:
            return [rows]
        partition = self.partition(bucket)
        now_us = self.host.now_us()
        self._forget_marks(now_us)
        return [
            rows,
            Insert(tables.minutes, {**partition, "minute": minute, "marked_us": now_us}, timestamp_us=now_us),
            Update(tables.shards, partition, {"tokened": minute}, timestamp_us=max(1, minute)),
        ]

    def _forget_marks(self, now_us: int) -> None:
        last = decide_last_foldable(now_us, self.settings.token_window_us, self.settings.skew_us)
        self._marked = {place for place in self._marked if place[1] > last}

    async def close(self, within_s: float = WRITE_WITHIN_S) -> None:
        """Take nothing more, and write pending updates."""
        self._closed = True
        await super().close(within_s)


def _fail_waiting(waiting: Sequence[_Waiting], error: BaseException) -> None:
    fail_callers([each.future for each in waiting], error)
