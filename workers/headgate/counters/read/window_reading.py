"""All keys of one window in one bucket, merged: for callers that export a whole time series. One key is reading.py's.

Whole once the window is final (decide_rollup.py) and its bucket's minutes were folded; this module folds them first.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from typing import Any

from headgate.counters.model.decide_shards import whole_keys
from headgate.counters.model.decide_windows import GrainWindow
from headgate.counters.model.settings import CounterSettings
from headgate.counters.read.folding import Folder
from headgate.counters.read.reading import Reader
from headgate.counters.types.contract import CounterType
from headgate.engines.context import Host
from headgate.process.live import Live
from headgate.store.model.statements import Select, Slice, SliceBound
from headgate.store.model.types import Value

PAGE_ROWS = 500


class WindowReader:
    def __init__(self, host: Host, settings: CounterSettings, kind: CounterType[Any, Any]) -> None:
        self._host = host
        self._settings = settings
        self._kind = kind
        self._folder = Folder(host, Live(settings), kind, Reader(host, Live(settings), kind))

    async def keys(self, bucket: int, window: GrainWindow) -> AsyncIterator[tuple[str, Any]]:
        """Each key that was counted in it, in order, with its merged state; a page of them in memory at a time."""
        await self._folder.fold(bucket)
        place: dict[str, Value] = {
            "counter": self._settings.counter,
            "grain": window.grain_us,
            "start": window.start_us,
            "bucket": bucket,
        }
        after: str | None = None
        while True:
            within = Slice("key", SliceBound(after, False)) if after is not None else None
            rows = await self._read(place, within=within, limit=PAGE_ROWS)
            last, more = whole_keys([row.key for row in rows], PAGE_ROWS)
            if last is None and more:
                last = rows[0].key
                rows = await self._read({**place, "key": last})
            by_key: dict[str, list[bytes]] = {}
            for row in rows:
                if last is not None and row.key <= last:
                    by_key.setdefault(row.key, []).append(row.state)
            for key, states in by_key.items():
                yield key, self._merged(states)
            if not more:
                return
            after = last

    async def _read(self, place: dict[str, Value], **bounds: Any) -> list[Any]:
        select = Select(self._settings.tables.windows, place, ("key", "mutator", "state"), **bounds)
        return [row for row in await self._host.store.read(select) if row.state is not None]

    def _merged(self, states: Iterable[bytes]) -> Any:
        return self._kind.merge_all([self._kind.load(state) for state in states])
