"""A counter as an application uses it: comfortable calls over one handle.

    views = await p.counter("shop/page-views")
    await views.add("home", 1)
    await views.value("home")

The arguments of an update and the form of a value depend on the type (headgate/counters/types/). This module knows
neither Cassandra nor how the catalogue is read.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from headgate.client.catalogue.opened import CLOSE_WITHIN_S, Opened, is_over, patience
from headgate.client.catalogue.process_context import ProcessContext
from headgate.client.model.times import Span, span_us, time_us_from
from headgate.client.model.values import CollectReport, build_collect_report
from headgate.counters.collect.collector import Collector, PassReport
from headgate.counters.counter import STALENESS_S_MAX, CounterHandle
from headgate.counters.model.decide_life import decide_stamp_us
from headgate.counters.model.decide_passes import PassHistory
from headgate.counters.model.decide_tokens import Token
from headgate.counters.model.settings import CounterSettings
from headgate.counters.types.contract import CounterType, Json
from headgate.errors import InvalidRequest, OperationRefused, Unavailable
from headgate.expiry import SECOND_US
from headgate.process.live import Live
from headgate.store.catalogue.entry import Entry
from headgate.store.clock.clock import ClockNotTrusted
from headgate.store.model.deadline import Deadline

REPEAT_S = 0.2


class TypesDiffer(InvalidRequest):
    """Values of different types cannot be combined."""


@dataclass(frozen=True)
class CachedValue:
    """A value, and its maximum age: updates acknowledged longer ago are included."""

    value: Any
    age_s: float


class CounterState:
    """The state of a key at one time: to show, to combine with that of other keys or counters, and to keep as
    bytes."""

    __slots__ = ("kind", "state")

    def __init__(self, kind: CounterType[Any, Any], state: Any) -> None:
        self.kind = kind
        self.state = state

    def value(self, **question: Any) -> Any:
        """As `Counter.value`."""
        return self.kind.value(self.state, question)

    def dump(self) -> bytes:
        """As it is stored; docs/internals/formats.md."""
        return self.kind.dump(self.state)

    def __or__(self, other: CounterState) -> CounterState:
        """Both together: of sums their sum, of audiences the union."""
        self._require_same(other)
        return CounterState(self.kind, self.kind.merge(self.state, other.state))

    def __and__(self, other: CounterState) -> CounterState:
        """Of audiences: the intersection."""
        return CounterState(self.kind, self._of_two("both", other)(self.state, other.state))

    def __sub__(self, other: CounterState) -> CounterState:
        """Of audiences: the members of this one that are not in the other."""
        return CounterState(self.kind, self._of_two("without", other)(self.state, other.state))

    def _of_two(self, name: str, other: CounterState) -> Callable[[Any, Any], Any]:
        self._require_same(other)
        method = getattr(self.kind, name, None)
        if method is None:
            raise TypesDiffer(
                "Values of this type only support merge", type=self.kind.name, remedy="use a counter of type audience"
            )
        return method  # type: ignore[no-any-return]  # a type of a user's own may have it as well

    def _require_same(self, other: CounterState) -> None:
        if self.kind.name != other.kind.name:
            raise TypesDiffer(one=self.kind.name, other=other.kind.name)

    def __repr__(self) -> str:
        return f"CounterState({self.kind.name}: {self.kind.value(self.state, {})!r})"


class Counter(Opened):
    """One counter, in one process. `await connection.counter("shop/page-views")` gives it."""

    _noun = "counter"

    def __init__(
        self,
        entry: Entry,
        handle: CounterHandle,
        process_context: ProcessContext,
        bound: Live[int],
        connection_is_usable: Callable[[], None],
    ) -> None:
        super().__init__(connection_is_usable)
        self.entry = entry
        """The last state that the catalogue reported."""
        self.handle = handle
        self._clock = process_context.clock
        self._hints = process_context.hints
        self._bound = bound
        self._stamp_us = 0

    # ---- its life

    @property
    def name(self) -> str:
        """`namespace/name`."""
        return self.handle.settings.name

    @property
    def kind(self) -> CounterType[Any, Any]:
        """Its type."""
        return self.handle.kind

    def renew(self, entry: Entry, settings: CounterSettings) -> None:
        """The result of a later read of the catalogue."""
        self.entry = entry
        self._bound.set(settings.skew_us)
        self.handle.live.set(settings)

    async def flush(self) -> None:
        """Return when all that was added before is written, or known not to be."""
        await self.handle.flush()

    async def _finish(self) -> None:
        try:
            await self.handle.close(CLOSE_WITHIN_S)
        finally:
            if self.ended is None:
                self.ended = OperationRefused("The counter was closed", counter=self.name)

    async def _freshen(self, limit: Deadline, deadline: Deadline | None) -> None:
        await self._clock.until_trusted(limit.left_s(asyncio.get_running_loop().time()), self._bound.now)
        self._require_usable()

    # ---- updates

    async def add(self, key: str, *arguments: Json, token: str | None = None) -> None:
        """Add to a key what its type takes; counted on a quorum of the home data centre when it returns.

        `Unknown` means that it may have been counted. With a token (`token()`) the update is retried for a while and
        counted once. You can repeat it too, with the same token, from any process, within `tokenWindow`.
        """
        if token is not None:
            return await self.update("add", key, *arguments, token=token)
        self._connection_is_usable()
        if self.ended is not None:
            raise self.ended
        if not isinstance(key, str):
            raise _no_key(key)
        handle = self.handle
        kind = handle.kind
        try:  # the way of most updates, with as few steps as can be
            at_us = self._next_stamp_us() if kind.is_dated else 0
            await handle.mutator.add(key, kind.parse("add", arguments, at_us))
        except ClockNotTrusted:
            await self._try_again(lambda: self._send("add", key, arguments, None))

    async def remove(self, key: str, *elements: Json, token: str | None = None) -> None:
        """Of a set: remove elements."""
        await self.update("remove", key, *elements, token=token)

    async def set(self, key: str, value: Json, *, token: str | None = None) -> None:
        """Of a register: overwrite the current value."""
        await self.update("set", key, value, token=token)

    async def update(self, verb: str, key: str, *arguments: Json, token: str | None = None) -> None:
        """Any update, by a verb of the type."""
        self._require_usable()
        try:
            await self._send(verb, key, arguments, token)
        except ClockNotTrusted:
            await self._try_again(lambda: self._send(verb, key, arguments, token))
        except Unavailable:
            if token is None:
                raise
            await self._repeat(lambda: self._send(verb, key, arguments, token))

    async def _repeat(self, work: Callable[[], Awaitable[None]]) -> None:
        """With a token: until it is known to be counted, for a while."""
        limit = patience()
        while True:
            await self.handle.host.store.pause(REPEAT_S)
            self._require_usable()
            try:
                return await work()
            except Unavailable:
                if is_over(limit):
                    raise

    def token(self, name: str | None = None) -> str:
        """A token for an update that was never sent before. Keep it, and pass it on with the update: the same token
        counts once. With a name of your own, keep the whole token all the same: it also holds the time."""
        return str(self.handle.new_token(name))

    def _send(self, verb: str, key: str, arguments: Sequence[Json], token: str | None) -> Awaitable[None]:
        handle, kind = self.handle, self.handle.kind
        if not isinstance(key, str):
            raise _no_key(key)
        if token is None:
            at_us = self._next_stamp_us() if kind.is_dated else 0
            return handle.mutator.add(key, kind.parse(verb, arguments, at_us))
        named = Token.parse(token)
        return handle.add(key, kind.parse(verb, arguments, named.time_us), named)

    def _next_stamp_us(self) -> int:
        self._stamp_us = decide_stamp_us(self.handle.host.now_us(), self._stamp_us)
        return self._stamp_us

    # ---- values

    async def value(
        self, /, key: str, *, since: datetime | None = None, until: datetime | None = None, **question: Any
    ) -> Any:
        """The value of a key: it includes all updates acknowledged before the call. A key without updates has the
        neutral value.

        With `since` or `until`: the updates of that time, by whole windows of the counter's finest grain (from the
        one that contains `since` up to the last one before `until`). `question` depends on the type: ranks=(0.5,
        0.99) for quantiles, limit=20 for topk.
        """
        return (await self.state(key, since=since, until=until)).value(**question)

    async def cached(self, /, key: str, *, staleness: Span = STALENESS_S_MAX, **question: Any) -> CachedValue:
        """The value with its age, as this process read it within this time. Default and maximum: one second."""
        staleness_s = span_us(staleness, "staleness") / SECOND_US
        if staleness_s > STALENESS_S_MAX:
            raise InvalidRequest(f"The staleness is at most {STALENESS_S_MAX} s", given=staleness)
        cached = await self._tried(lambda: self.handle.read_cached(_checked(key), staleness_s))
        return CachedValue(self.kind.value(cached.state, question), cached.age_s)

    async def values(self, /, keys: Iterable[str], **question: Any) -> dict[str, Any]:
        """The values of many keys."""
        wanted = [_checked(key) for key in keys]
        states = await self._tried(lambda: self.handle.read_many(wanted))
        return {key: self.kind.value(state, question) for key, state in states.items()}

    async def state(self, key: str, *, since: datetime | None = None, until: datetime | None = None) -> CounterState:
        """The state of the key, to combine with others: audiences by `&`, `|` and `-`, all types by `|`."""
        if since is None and until is None:
            return CounterState(self.kind, await self._tried(lambda: self.handle.read(_checked(key))))
        from_us, to_us = self._stretch(since, until)
        state = await self._tried(lambda: self.handle.read_between(_checked(key), from_us, to_us))
        return CounterState(self.kind, state)

    def _stretch(self, since: datetime | None, until: datetime | None) -> tuple[int, int]:
        """Whole windows of the finest grain around it."""
        settings = self.handle.settings
        if not settings.grains_us:
            raise InvalidRequest(
                "This counter has no windows",
                counter=self.name,
                remedy="read the value without since and until, or create a counter with spec.windows",
            )
        grain_us = min(settings.grains_us)
        now_us = self.handle.host.now_us()
        from_us = now_us - settings.retention_us if since is None else time_us_from(since, "since")
        to_us = now_us if until is None else time_us_from(until, "until")
        if from_us >= to_us:
            raise InvalidRequest("The time `since` must be before `until`", since=since, until=until)
        return from_us // grain_us * grain_us, -(-to_us // grain_us) * grain_us

    async def scan(self) -> AsyncIterator[tuple[str, CounterState]]:
        """Every key and its state, one page in memory at a time; not a consistent snapshot."""
        self._require_usable()
        async for key, state in self.handle.scan():
            yield key, CounterState(self.kind, state)

    # ---- the whole counter

    async def collect(self) -> CollectReport:
        """One pass of the collector over all keys, or the rest of the pass that is running. Repeating it is harmless,
        also in several processes. A key for which not all replicas answer is skipped and counted."""
        return build_collect_report(await self.run_collector())

    async def run_collector(self) -> PassReport:
        """As `collect`, with the collector's report, for the commands."""
        return await self._tried(self._collector().run)

    async def standing(self) -> PassHistory:
        """How far the collector has come, whichever process it ran in."""
        return await self._tried(self._collector().read_result)

    def _collector(self) -> Collector:
        if self._hints is None:
            raise OperationRefused("This connection has no Cassandra whose hint windows can be read")
        return Collector(self.handle.host, self.handle.live, self.kind, self._hints)


def _checked(key: str) -> str:
    if not isinstance(key, str):
        raise _no_key(key)
    return key


def _no_key(key: object) -> InvalidRequest:
    return InvalidRequest("A key must be a string", given=repr(key)[:60])
