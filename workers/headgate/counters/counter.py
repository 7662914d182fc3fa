"""One counter in one process: the interface of the SDK, the gateway and tools.

    counter = CounterHandle(host, settings, hints=...)
    await counter.add("home", update)                              counted, durably
    await counter.add("home", update, token=counter.new_token())   counted once, however often it is sent
    await counter.read("home")                                     includes updates acknowledged before it

Updates and states are those of the counter's type (`types/contract.py`): the caller parses and formats values.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass
from typing import Any

from headgate.counters.collect.collector import Collector
from headgate.counters.model.decide_passes import HintWindows
from headgate.counters.model.decide_shards import KeyRows
from headgate.counters.model.decide_tokens import Token
from headgate.counters.model.settings import CounterSettings
from headgate.counters.read.reading import Reader
from headgate.counters.types.contract import CounterType
from headgate.counters.types.registry import type_of
from headgate.counters.write.mutator import Mutator
from headgate.counters.write.tokens import TokenWriter
from headgate.engines.context import Host
from headgate.errors import HeadgateError
from headgate.expiry import SECOND_US
from headgate.process.background_tasks import BackgroundTasks, start_task
from headgate.process.live import Live

STALENESS_S_MAX = 1.0
CACHED_MAX = 10_000
READS_AT_ONCE = 32
COLLECTIONS_WAITING_MAX = 1_000
COLLECT_AGAIN_US = 10 * SECOND_US
"""After a write that failed: the missing parts are requested separately."""


@dataclass(frozen=True, slots=True)
class CachedState:
    state: Any
    age_s: float


class CounterHandle:
    """One counter. It belongs to the event loop that runs when it is created."""

    def __init__(
        self,
        host: Host,
        settings: CounterSettings,
        *,
        hints: HintWindows | None = None,
        kind: CounterType[Any, Any] | None = None,
    ) -> None:
        """Without `hints` nothing is collected after a read: passes do it."""
        self.host = host
        self.live = live = Live(settings)
        """Its settings, for all its parts: fields that may change are set when the catalogue was read again."""
        self.kind = kind or type_of(settings.kind)
        self.mutator = Mutator(host, live, self.kind)
        self.tokens = TokenWriter(host, live, self.kind)
        self.reader = Reader(host, live, self.kind)
        self._collector = Collector(host, live, self.kind, hints) if hints is not None else None
        self._cached: OrderedDict[str, tuple[int, asyncio.Future[Any]]] = OrderedDict()
        self._to_collect: dict[str, None] = {}
        self._collecting = BackgroundTasks("collection after reads")
        self._collect_from_us = 0

    @property
    def settings(self) -> CounterSettings:
        """As the catalogue was last read."""
        return self.live.now

    # ---- updates

    def add(self, key: str, update: Any, token: Token | str | None = None) -> asyncio.Future[None]:
        """Count an update. Done when it is durable; else Unavailable (not counted), Unknown (may be counted: repeat
        it only with a token) or Refused."""
        if token is None:
            return self.mutator.add(key, update)
        return self.tokens.add(key, update, token if isinstance(token, Token) else Token.parse(token))

    def new_token(self, name: str | None = None) -> Token:
        return self.tokens.new_token(name)

    # ---- values

    async def read(self, key: str) -> Any:
        """The state of a key: it includes all updates acknowledged before the start of this call."""
        state = await self.reader.read(key)
        self._may_collect(key, state.rows)
        return state.state

    async def read_cached(self, key: str, staleness_s: float = STALENESS_S_MAX) -> CachedState:
        """The same, but it may have this age, a second at most (or the duration of one read, where that is longer).
        Concurrent reads share one."""
        began_us = self.host.now_us()  # a pause of the machine counts as well, so no other clock will do
        oldest_us = began_us - round(min(staleness_s, STALENESS_S_MAX) * SECOND_US)
        for _ in range(2):
            read_us, reading = self._shared_read(key, oldest_us)
            state = await asyncio.shield(reading)
            now_us = self.host.now_us()
            if read_us >= began_us or now_us - read_us <= STALENESS_S_MAX * SECOND_US:
                break
            oldest_us = began_us  # it was under way at this start, and took too long
        return CachedState(state, (now_us - read_us) / SECOND_US)

    def _shared_read(self, key: str, oldest_us: int) -> tuple[int, asyncio.Future[Any]]:
        known = self._cached.get(key)
        if known is None or known[0] < oldest_us or _failed(known[1]):
            known = self._cached[key] = (self.host.now_us(), start_task("cached read", self.read(key)))
            self._cached.move_to_end(key)
            if len(self._cached) > CACHED_MAX:
                self._cached.popitem(last=False)
        return known

    async def read_many(self, keys: Iterable[str]) -> dict[str, Any]:
        wanted = list(dict.fromkeys(keys))
        states_read: dict[str, Any] = {}
        for first in range(0, len(wanted), READS_AT_ONCE):
            some = wanted[first : first + READS_AT_ONCE]
            states = await asyncio.gather(*(self.read(key) for key in some))
            states_read.update(zip(some, states, strict=True))
        return states_read

    async def scan(self) -> AsyncIterator[tuple[str, Any]]:
        """All keys and their states, bucket after bucket, a page of them in memory at a time."""
        for bucket in range(self.settings.buckets):
            async for page in self.reader.pages(bucket):
                for key, state in page.items():
                    yield key, state.state

    async def read_between(self, key: str, from_us: int, to_us: int) -> Any:
        return await self.reader.read_between(key, from_us, to_us)

    # ---- collecting after reads

    def _may_collect(self, key: str, rows: KeyRows) -> None:
        """After a read that met more than one final shard; one key after the other, and no more than a bound wait."""
        if self._collector is None or len(rows.shards) < 2:
            return
        try:
            now_us = self.host.now_us()
        except HeadgateError:
            return
        past = now_us - self.settings.gc_after_us
        if now_us < self._collect_from_us or sum(shard.end_us <= past for shard in rows.shards) < 2:
            return
        if len(self._to_collect) >= COLLECTIONS_WAITING_MAX:
            return
        self._to_collect[key] = None
        if not self._collecting:
            self._collecting.start(self._collect_some(now_us))

    async def _collect_some(self, began_us: int) -> None:
        while self._to_collect and self._collector is not None:
            key = next(iter(self._to_collect))
            try:
                await self._collector.collect(key)
            except HeadgateError:
                self._to_collect.clear()  # it waits: a read that comes some time later, or a pass, tries again
                self._collect_from_us = began_us + COLLECT_AGAIN_US
                return
            finally:
                self._to_collect.pop(key, None)

    # ---- the end

    async def flush(self) -> None:
        await asyncio.gather(self.mutator.flush(), self.tokens.flush())

    async def close(self, within_s: float = 10.0) -> None:
        """Write pending updates; writes with an unknown outcome by then are abandoned, and their callers are
        notified."""
        await self._collecting.stop()
        await asyncio.gather(self.mutator.close(within_s), self.tokens.close(within_s))


def _failed(read: asyncio.Future[Any]) -> bool:
    return read.done() and (read.cancelled() or read.exception() is not None)
