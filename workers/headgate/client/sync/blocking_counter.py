"""A counter without async: the same calls, each of which blocks. Concurrent updates of several threads share a
write."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from datetime import datetime
from typing import Any

from headgate.client.counter import CachedValue, Counter, CounterState
from headgate.client.model.times import Span
from headgate.client.model.values import CollectReport
from headgate.client.sync.background import BackgroundLoop
from headgate.counters.counter import STALENESS_S_MAX
from headgate.counters.types.contract import Json

SCANNED_AT_ONCE = 500


class SyncCounter:
    """One counter, whose calls block."""

    def __init__(self, counter: Counter, running: Callable[[], BackgroundLoop]) -> None:
        self.counter = counter
        self._running = running

    @property
    def name(self) -> str:
        """`namespace/name`."""
        return self.counter.name

    def add(self, key: str, *arguments: Json, token: str | None = None) -> None:
        """As `Counter.add`."""
        self._running().run(self.counter.add(key, *arguments, token=token))

    def remove(self, key: str, *elements: Json, token: str | None = None) -> None:
        """As `Counter.remove`."""
        self._running().run(self.counter.remove(key, *elements, token=token))

    def set(self, key: str, value: Json, *, token: str | None = None) -> None:
        """As `Counter.set`."""
        self._running().run(self.counter.set(key, value, token=token))

    def update(self, verb: str, key: str, *arguments: Json, token: str | None = None) -> None:
        """As `Counter.update`."""
        self._running().run(self.counter.update(verb, key, *arguments, token=token))

    def token(self, name: str | None = None) -> str:
        """As `Counter.token`."""

        async def made() -> str:
            return self.counter.token(name)

        return self._running().run(made())

    def value(
        self, key: str, *, since: datetime | None = None, until: datetime | None = None, **question: Any
    ) -> Any:
        """As `Counter.value`."""
        return self._running().run(self.counter.value(key, since=since, until=until, **question))

    def cached(self, key: str, *, staleness: Span = STALENESS_S_MAX, **question: Any) -> CachedValue:
        """As `Counter.cached`."""
        return self._running().run(self.counter.cached(key, staleness=staleness, **question))

    def values(self, keys: Iterable[str], **question: Any) -> dict[str, Any]:
        """As `Counter.values`."""
        return self._running().run(self.counter.values(keys, **question))

    def state(self, key: str, *, since: datetime | None = None, until: datetime | None = None) -> CounterState:
        """As `Counter.state`."""
        return self._running().run(self.counter.state(key, since=since, until=until))

    def scan(self) -> Iterator[tuple[str, CounterState]]:
        """As `Counter.scan`."""
        scanning = self.counter.scan()
        while some := self._running().run(_next_of(scanning)):
            yield from some

    def collect(self) -> CollectReport:
        """As `Counter.collect`."""
        return self._running().run(self.counter.collect())

    def flush(self) -> None:
        """As `Counter.flush`."""
        self._running().run(self.counter.flush())

    def __repr__(self) -> str:
        return f"SyncCounter({self.name})"


async def _next_of(scanning: AsyncIterator[tuple[str, CounterState]]) -> list[tuple[str, CounterState]]:
    page: list[tuple[str, CounterState]] = []
    async for each in scanning:
        page.append(each)
        if len(page) == SCANNED_AT_ONCE:
            break
    return page
