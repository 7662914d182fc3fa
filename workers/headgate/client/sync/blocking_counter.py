"""A counter without async: the same calls, each of which blocks. Concurrent updates of several threads share a
write."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from typing import Any

from headgate.client.counter import CachedValue, Counter, CounterState
from headgate.client.model.times import Span
from headgate.client.model.values import CollectReport
from headgate.client.sync.background import BackgroundLoop
from headgate.counters.counter import STALENESS_S_MAX
from headgate.counters.types.contract import Json


class SyncCounter:
    """One counter, whose calls block."""

    def __init__(self, counter: Counter, running: Callable[[], BackgroundLoop]) -> None:
        self.counter = counter
        self._running = running

    @property
    def name(self) -> str:
        """`namespace/name`."""
        return self.counter.name

    # ---- generated from `Counter` by `python -m dev.sync_sdk`

    def flush(self) -> None:
        """Return when all that was added before is written, or known not to be."""
        self._running().run(self.counter.flush())

    def add(self, key: str, *arguments: Json, token: str | None = None) -> None:
        """Add to a key what its type takes; counted on a quorum of the home data centre when it returns.

        `Unknown` means that it may have been counted. With a token (`token()`) the update is retried for a while and
        counted once. You can repeat it too, with the same token, from any process, within `tokenWindow`."""
        self._running().run(self.counter.add(key, *arguments, token=token))

    def remove(self, key: str, *elements: Json, token: str | None = None) -> None:
        """Of a set: remove elements."""
        self._running().run(self.counter.remove(key, *elements, token=token))

    def set(self, key: str, value: Json, *, token: str | None = None) -> None:
        """Of a register: overwrite the current value."""
        self._running().run(self.counter.set(key, value, token=token))

    def update(self, verb: str, key: str, *arguments: Json, token: str | None = None) -> None:
        """Any update, by a verb of the type."""
        self._running().run(self.counter.update(verb, key, *arguments, token=token))

    def token(self, name: str | None = None) -> str:
        """A token for an update that was never sent before. Keep it, and pass it on with the update: the same token
        counts once. With a name of your own, keep the whole token all the same: it also holds the time."""
        return self._running().call(self.counter.token, name)

    def value(
        self, key: str, *, since: datetime | None = None, until: datetime | None = None, **question: Any
    ) -> Any:
        """The value of a key: it includes all updates acknowledged before the call. A key without updates has the
        neutral value.

        With `since` or `until`: the updates of that time, by whole windows of the counter's finest grain (from the
        one that contains `since` up to the last one before `until`). `question` depends on the type: ranks=(0.5,
        0.99) for quantiles, limit=20 for topk."""
        return self._running().run(self.counter.value(key, since=since, until=until, **question))

    def cached(self, key: str, *, staleness: Span = STALENESS_S_MAX, **question: Any) -> CachedValue:
        """The value with its age, as this process read it within this time. Default and maximum: one second."""
        return self._running().run(self.counter.cached(key, staleness=staleness, **question))

    def values(self, keys: Iterable[str], **question: Any) -> dict[str, Any]:
        """The values of many keys."""
        return self._running().run(self.counter.values(keys, **question))

    def state(self, key: str, *, since: datetime | None = None, until: datetime | None = None) -> CounterState:
        """The state of the key, to combine with others: audiences by `&`, `|` and `-`, all types by `|`."""
        return self._running().run(self.counter.state(key, since=since, until=until))

    def scan(self) -> Iterator[tuple[str, CounterState]]:
        """Every key and its state, one page in memory at a time; not a consistent snapshot."""
        return self._running().iterate(self.counter.scan())

    def collect(self) -> CollectReport:
        """One pass of the collector over all keys, or the rest of the pass that is running. Repeating it is harmless,
        also in several processes. A key for which not all replicas answer is skipped and counted."""
        return self._running().run(self.counter.collect())

    # ---- end of what is generated from `Counter`

    def __repr__(self) -> str:
        return f"SyncCounter({self.name})"
