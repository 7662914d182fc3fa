"""Values: all that counts of a key, merged. The prose is "Reading" in docs/internals/protocols/counters.md.

A read of a key is one unpaged slice at LOCAL_QUORUM. If its bucket has updates with tokens that are not folded, those
are read next, and then the slice again. It never writes, and knows neither updates nor the meaning of a state.

Invariants: `folded` is trusted only if a read returned it that had ended before the dependent read started: a slice
is not a snapshot, and one replica may return a fold whose shards another has not yet returned (attack B4). A minute's
updates count by its shard where the slice shows one or the tally covers it, and by their rows elsewhere."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headgate.counters.model.decide_shards import KeyRows, bucket_of, rows_of_key, whole_keys
from headgate.counters.model.decide_tokens import KEPT_US, MINUTE_US, Token, fold_end_us, fold_id, latest
from headgate.counters.model.decide_windows import GrainWindow, decide_windows
from headgate.counters.model.settings import CounterSettings
from headgate.counters.types.contract import CounterType
from headgate.counters.write.part import CounterPart
from headgate.engines.context import Host
from headgate.errors import Unavailable
from headgate.process.live import Live
from headgate.store.model.consistency import Consistency
from headgate.store.model.statements import Select, Slice, SliceBound
from headgate.store.model.table import Table
from headgate.store.model.types import Value

PAGE_ROWS = 500
WHOLE = ("key", "mutator", "state")
"""All of a row. Every read of shards by more than one replica requests it: read repair repairs the requested columns,
and nothing else. A read of ids alone would copy a batch's deletions to a replica, and not its tally."""
WHOLE_AND_MARKS = (*WHOLE, "folded", "tokened")
MINUTES_AT_ONCE = 32
"""Where more than that are not folded, their marks are read first."""
READS_AT_ONCE = 32
READ_US_MAX = KEPT_US // 2
READS_TRIED_MAX = 3


class ReadTooSlow(Unavailable):
    """A read took too long: rows it needed may have been deleted meanwhile."""


@dataclass(frozen=True, slots=True)
class KeyState:
    state: Any
    rows: KeyRows


KeyRowsAndTokens = tuple[KeyRows, Sequence[bytes]]
"""The shards of a key, and its updates with tokens that no shard has."""


@dataclass(frozen=True, slots=True)
class _Span:
    """Which keys: one, or a stretch of them."""

    key: str | None = None
    after: str | None = None
    up_to: str | None = None

    def select(
        self, table: Table, partition: dict[str, Value], names: tuple[str, ...], limit: int | None = None
    ) -> Select:
        if self.key is not None:
            return Select(table, {**partition, "key": self.key}, names, limit=limit)
        lower = SliceBound(self.after, False) if self.after is not None else None
        upper = SliceBound(self.up_to, True) if self.up_to is not None else None
        within = Slice("key", lower, upper) if lower or upper else None
        return Select(table, partition, names, within=within, limit=limit)


@dataclass(frozen=True, slots=True)
class _SpanRows:
    rows: dict[str, list[tuple[bytes, bytes]]]
    keys: list[str]
    folded: int | None
    tokened: int | None


class Reader(CounterPart):
    def __init__(self, host: Host, settings: Live[CounterSettings], kind: CounterType[Any, Any]) -> None:
        super().__init__(host, settings, kind)
        self._folded: dict[int, int] = {}
        """By bucket: the highest `folded` of all reads that have ended."""

    # ---- totals

    async def read(self, key: str) -> KeyState:
        bucket = bucket_of(key, self.settings.buckets)
        span_rows = await self._read_span(bucket, _Span(key=key))
        return self._state_of(*span_rows.get(key, (rows_of_key(()), ())))

    async def pages(self, bucket: int) -> AsyncIterator[dict[str, KeyState]]:
        """All keys of a bucket in their order, some at a time; each is read whole."""
        after: str | None = None
        while True:
            page, after, more = await self._page(bucket, after)
            yield {key: self._state_of(*each) for key, each in page.items()}
            if not more:
                return

    def _state_of(self, rows: KeyRows, tokens: Sequence[bytes]) -> KeyState:
        return KeyState(self.merged([*rows.states(), *tokens]), rows)

    async def _page(self, bucket: int, after: str | None) -> tuple[dict[str, KeyRowsAndTokens], str | None, bool]:
        """The next keys; one with more rows than a page is read by itself."""
        known = self._folded.get(bucket)
        first = await self._slice(bucket, _Span(after=after), limit=PAGE_ROWS)
        last, more = whole_keys(first.keys, PAGE_ROWS)
        if last is None and more:
            last = first.keys[0]
            return await self._read_span(bucket, _Span(key=last)), last, True
        span = _Span(after=after, up_to=last if more else None)
        whole = {key: rows for key, rows in first.rows.items() if last is not None and key <= last}
        span_rows = await self._with_tokens(bucket, span, known, _SpanRows(whole, [], first.folded, first.tokened))
        return span_rows, last, more

    async def _read_span(self, bucket: int, span: _Span) -> dict[str, KeyRowsAndTokens]:
        known = self._folded.get(bucket)
        return await self._with_tokens(bucket, span, known, await self._slice(bucket, span))

    async def _with_tokens(
        self, bucket: int, span: _Span, known: int | None, first: _SpanRows
    ) -> dict[str, KeyRowsAndTokens]:
        """The counted part: the slice alone, where all updates with tokens are known to be in it."""
        for _ in range(READS_TRIED_MAX):
            folded = latest((known, first.folded))
            if first.folded is not None:
                self._folded[bucket] = max(first.folded, self._folded.get(bucket, first.folded))
            if first.tokened is None or (known is not None and first.tokened <= known):
                return {key: (rows_of_key(rows), ()) for key, rows in first.rows.items()}
            began_us = self.host.now_us()
            tokens = await self._read_tokens(bucket, span, await self._minutes(bucket, folded, first.tokened))
            second = await self._slice(bucket, span)
            if self.host.now_us() - began_us < READ_US_MAX:
                return _combined(second.rows, tokens)
            known, first = folded, second
        raise ReadTooSlow(tried=READS_TRIED_MAX)

    async def _slice(self, bucket: int, span: _Span, limit: int | None = None) -> _SpanRows:
        """Rows and static cells. A slice of keys without rows shows no static cells either: they are read
        separately."""
        rows = await self.host.store.read(
            span.select(self.settings.tables.shards, self.partition(bucket), WHOLE_AND_MARKS, limit)
        )
        cells: dict[str, list[tuple[bytes, bytes]]] = {}
        keys = []
        for row in rows:
            if row.key is not None and row.state is not None:
                cells.setdefault(row.key, []).append((row.mutator, row.state))
                keys.append(row.key)
        folded, tokened = (rows[0].folded, rows[0].tokened) if rows else await self.read_marks(bucket)
        return _SpanRows(cells, keys, folded, tokened)

    async def read_marks(self, bucket: int) -> tuple[int | None, int | None]:
        """`folded` and `tokened`."""
        select = Select(self.settings.tables.shards, self.partition(bucket), WHOLE_AND_MARKS, limit=1)
        rows = await self.host.store.read(select)
        return (rows[0].folded, rows[0].tokened) if rows else (None, None)

    # ---- updates with tokens

    async def read_minutes(self, bucket: int, *, after: int | None, up_to: int) -> list[int]:
        """Those that may hold something, in order, by their marks."""
        lower = SliceBound(after, False) if after is not None else None
        within = Slice("minute", lower, SliceBound(up_to, True))
        select = Select(self.settings.tables.minutes, self.partition(bucket), ("minute",), within=within)
        return [row.minute for row in await self.host.store.read(select)]

    async def _minutes(self, bucket: int, folded: int | None, tokened: int) -> list[int]:
        if folded is not None and tokened - folded <= MINUTES_AT_ONCE:
            return list(range(folded + 1, tokened + 1))
        return await self.read_minutes(bucket, after=folded, up_to=tokened)

    async def _read_tokens(self, bucket: int, span: _Span, minutes: Sequence[int]) -> dict[int, Sequence[Any]]:
        """By minute its rows, in the order of tokens."""
        table, partition = self.settings.tables.tokens, self.partition(bucket)
        read, names = self.host.store.read, ("key", "token", "state")
        by_minute: dict[int, Sequence[Any]] = {}
        for first in range(0, len(minutes), READS_AT_ONCE):
            some = minutes[first : first + READS_AT_ONCE]
            selects = [span.select(table, {**partition, "minute": minute}, names) for minute in some]
            by_minute.update(zip(some, await asyncio.gather(*map(read, selects)), strict=True))
        return by_minute

    # ---- windows

    async def read_between(self, key: str, from_us: int, to_us: int) -> Any:
        """The updates counted in [from, to): at whole windows of the finest grain."""
        windows = decide_windows(from_us, to_us, self.settings.grains_us)
        bucket = bucket_of(key, self.settings.buckets)
        known = self._folded.get(bucket)
        folded, tokened = await self.read_marks(bucket)
        tokens: dict[int, Sequence[Any]] = {}
        if tokened is not None and (known is None or tokened > known):
            began_us = self.host.now_us()
            minutes = [
                minute
                for minute in await self._minutes(bucket, latest((known, folded)), tokened)
                if from_us - MINUTE_US < minute * MINUTE_US < to_us
            ]
            tokens = await self._read_tokens(bucket, _Span(key=key), minutes)
            if self.host.now_us() - began_us >= READ_US_MAX:
                raise ReadTooSlow(tried=1)
        states: list[bytes] = []
        for first in range(0, len(windows), READS_AT_ONCE):
            some = windows[first : first + READS_AT_ONCE]
            for each in await asyncio.gather(*(self._read_window(bucket, key, each, tokens) for each in some)):
                states += each
        return self.merged(states)

    async def _read_window(
        self, bucket: int, key: str, window: GrainWindow, tokens: Mapping[int, Sequence[Any]]
    ) -> list[bytes]:
        """Its shards, and the updates with tokens that it holds and no shard does yet."""
        place = {**self.partition(bucket, (window.grain_us, window.start_us)), "key": key}
        rows = await self.host.store.read(Select(self.settings.tables.windows, place, ("mutator", "state")))
        mutators = {row.mutator for row in rows}
        states = [row.state for row in rows]
        for minute, updates in tokens.items():
            if fold_id(minute) not in mutators:
                states += [
                    each.state
                    for each in updates
                    if window.start_us <= Token.parse(each.token).time_us < window.end_us
                ]
        return states

    # ---- for folding and collecting

    async def read_whole(self, bucket: int, key: str, limit: int) -> tuple[KeyRows, int | None]:
        """All rows of a key (the oldest, past a limit) at ALL, sent once: a read that decides. And `tokened`."""
        whole, names = {**self.partition(bucket), "key": key}, ("mutator", "state", "tokened")
        select = Select(self.settings.tables.shards, whole, names, limit=limit, consistency=Consistency.ALL)
        answer = await self.host.store.attempt(select, self.host.store.attempt_s)
        tokened = answer.rows[0].tokened if answer.rows else None
        return rows_of_key((row.mutator, row.state) for row in answer.rows if row.state is not None), tokened


def _combined(
    rows: Mapping[str, Sequence[tuple[bytes, bytes]]], tokens: Mapping[int, Sequence[Any]]
) -> dict[str, KeyRowsAndTokens]:
    """The slice, and the minutes that it does not show as their shard."""
    whole = {key: rows_of_key(key_rows) for key, key_rows in rows.items()}
    token_states: dict[str, list[bytes]] = {}
    for minute, updates in tokens.items():
        end_us, mutator = fold_end_us(minute), fold_id(minute)
        for each in updates:
            of_key = whole.get(each.key)
            if of_key is None or not of_key.covers(end_us, mutator):
                token_states.setdefault(each.key, []).append(each.state)
    keys = sorted({*whole, *token_states}, key=str.encode)
    return {key: (whole.get(key) or rows_of_key(()), token_states.get(key, ())) for key in keys}
