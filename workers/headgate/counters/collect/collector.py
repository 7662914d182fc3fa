"""The collector: merges the final shards of each key into its tally, and deletes them. The prose is "Collecting" in
docs/internals/protocols/counters.md; the decisions are in decide_shards.py.

It is an optimisation: whenever a replica is unavailable, it waits. A pass visits the buckets one by one and their
keys in order, a page at a time. It records its progress, so that the next one, in any process, continues from that
point. Any number may run at once.

Invariants: a key is decided on by one read at ALL; `folded` comes from a read that had ended before that; nothing is
collected while a hint may still be on its way; a key that cannot be read at ALL is skipped and counted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from headgate.counters.collect.fold_minutes import Folded, Folder
from headgate.counters.model.decide_passes import (
    BucketMark,
    HintWindows,
    HintWindowsUnknown,
    PassHistory,
    decide_hint_windows,
    decide_next_pass,
    places_left,
)
from headgate.counters.model.decide_shards import (
    TALLY,
    Collection,
    bucket_of,
    cutoff_us,
    decide_collection,
    end_of,
    is_worth_collecting,
    last_id_of,
    tally_cell,
    whole_keys,
)
from headgate.counters.model.decide_tokens import first_unfolded_end_us
from headgate.counters.model.settings import CounterSettings
from headgate.counters.read.reading import Reader
from headgate.counters.types.contract import CounterType
from headgate.counters.write.part import CounterPart
from headgate.engines.context import Host
from headgate.errors import OperationRefused, Unavailable
from headgate.process.live import Live
from headgate.store.model.consistency import Consistency
from headgate.store.model.statements import Batch, Delete, Insert, Select, Slice, SliceBound, Update
from headgate.store.model.types import Value

PAGE_ROWS = 1_000
KEYS_AT_ONCE = 8
COLLECTED_AT_ONCE_MAX = 1_000
"""Shards of one key that one batch takes in: the oldest ones, so that the rest is as final as before."""
SKIPPED_IN_A_ROW_MAX = 20
"""After this many keys that could not be read at ALL, the rest of a pass would wait as long in vain."""
HINTS_KNOWN_US = 60_000_000


@dataclass
class PassReport:
    pass_us: int = 0
    keys: int = 0
    shards: int = 0
    expired: int = 0
    """Final shards that were met."""
    collected: int = 0
    """Shards that were merged into tallies."""
    skipped: int = 0
    """Keys that could not be read at ALL."""
    minutes: int = 0
    """Minutes of updates with tokens that were folded."""
    full: bool = False
    """Whether the pass of this run has now visited every key and skipped none."""
    refused: str | None = None
    waits: str | None = None
    """Why nothing was collected this time: a node did not report its hint window."""
    unreachable: bool = False
    """Whether it was broken off, since too many keys in a row could not be read at ALL."""
    buckets: int = 0


@dataclass
class _Run:
    report: PassReport
    in_a_row: int = 0
    """Keys that could not be read at ALL, since the last that could."""


@dataclass
class _Page:
    last: str | None
    more: bool
    keys: dict[str, list[int]] = field(default_factory=dict)
    tallied: set[str] = field(default_factory=set)
    shards: int = 0


class Collector(CounterPart):
    def __init__(
        self, host: Host, settings: Live[CounterSettings], kind: CounterType[Any, Any], hints: HintWindows
    ) -> None:
        super().__init__(host, settings, kind)
        self.reader = Reader(host, settings, kind)
        self.folder = Folder(host, settings, kind, self.reader)
        self._hints = hints
        self._hints_read_us: int | None = None

    # ---- one key

    async def collect(self, key: str) -> int:
        """Collect one key; returns the number of deleted shards. For a caller that has read it, and found more than
        one final shard."""
        await self._require_hint_windows()
        bucket = bucket_of(key, self.settings.buckets)
        folded, _ = await self.reader.read_marks(bucket)
        return await self._collect_key(bucket, key, folded)

    async def _collect_key(self, bucket: int, key: str, folded: int | None) -> int:
        """Batch after batch, until nothing in it is final. `folded` was read before."""
        gone = 0
        while True:
            now_us = self.host.now_us()
            rows, tokened = await self.reader.read_whole(bucket, key, COLLECTED_AT_ONCE_MAX + 1)
            cutoff = cutoff_us(now_us, self.settings.gc_after_us, first_unfolded_end_us(tokened, folded))
            if not is_worth_collecting(rows, cutoff):
                return gone
            collection = decide_collection(rows, cutoff)
            if collection is None:
                return gone
            await self.host.store.write(self._batch(bucket, key, collection))
            gone += collection.collected
            if len(rows.shards) < COLLECTED_AT_ONCE_MAX:
                return gone

    def _batch(self, bucket: int, key: str, collection: Collection) -> Batch:
        place = {**self.partition(bucket), "key": key}
        table, kind = self.settings.tables.shards, self.kind
        state = kind.dump(kind.forget(self.merged(collection.states), collection.forget_before_us))
        through = Slice("mutator", SliceBound(TALLY, False), SliceBound(last_id_of(collection.through_us), True))
        stamp_us = collection.timestamp_us
        cell = tally_cell(collection.through_us, state)
        return Batch(
            [
                Delete(table, place, timestamp_us=stamp_us, within=through),
                Insert(table, {**place, "mutator": TALLY, "state": cell}, timestamp_us=stamp_us),
            ]
        )

    # ---- all keys

    async def run(self) -> PassReport:
        """Continue the current pass, or start one. Rejections are in the report, and recorded."""
        report = PassReport()
        try:
            await self._require_hint_windows(fresh=True)
        except OperationRefused as refused:
            report.refused = str(refused)
            await self._note_refused(report.refused)
            return report
        except HintWindowsUnknown as error:
            # The part that needs no replica but a quorum: minutes are folded, and collectable keys are counted as
            # skipped. Nothing is recorded, so that the current pass continues where it was.
            report.waits = str(error)
            await self._visit(report, map(BucketMark, range(self.settings.buckets)))
            return report
        standing = await self.read_result()
        if standing.refused is not None:
            await self._note_refused(None)
        report.pass_us = decide_next_pass(standing, self.host.now_us(), self.settings.buckets)
        await self._visit(report, places_left(standing, report.pass_us, self.settings.buckets))
        if not report.unreachable:
            await self._close(report)
        return report

    async def _visit(self, report: PassReport, places: Iterable[BucketMark]) -> None:
        run = _Run(report)
        for place in places:
            await self._pass_bucket(run, place)
            if report.unreachable:
                return

    async def begin(self) -> int:
        """The current pass, or a new one, for callers that divide it by buckets. Refused, with the reason, where
        nothing may be collected."""
        await self._require_hint_windows(fresh=True)
        return decide_next_pass(await self.read_result(), self.host.now_us(), self.settings.buckets)

    async def run_share(self, pass_us: int, buckets: Iterable[int]) -> PassReport:
        await self._require_hint_windows()
        report, wanted = PassReport(pass_us=pass_us), frozenset(buckets)
        places = places_left(await self.read_result(), pass_us, self.settings.buckets)
        await self._visit(report, [place for place in places if place.bucket in wanted])
        return report

    async def end(self, pass_us: int) -> bool:
        """All shares of a pass are done: whether it was a full one, which is noted."""
        report = PassReport(pass_us=pass_us)
        await self._close(report)
        return report.full

    async def _close(self, report: PassReport) -> None:
        standing = await self.read_result()
        report.full = standing.is_full(report.pass_us, self.settings.buckets)
        if report.full:
            await self._update_passes({"full_us": report.pass_us}, report.pass_us)

    async def _pass_bucket(self, run: _Run, mark: BucketMark) -> None:
        """Its minutes first, so that they limit the final shards as little as possible; then its keys."""
        bucket, report = mark.bucket, run.report
        try:
            folded = await self.folder.fold(bucket)
        except Unavailable:
            folded = Folded(0, 0, 0, *await self.reader.read_marks(bucket))
        report.minutes += folded.minutes
        while not mark.done:
            page = await self._page(bucket, mark.after)
            before = replace(report)
            await self._collect_page(run, bucket, page, folded.folded)
            if report.unreachable:
                return
            mark = replace(
                mark,
                after=page.last,
                done=not page.more,
                keys=mark.keys + len(page.keys),
                shards=mark.shards + page.shards,
                expired=mark.expired + report.expired - before.expired - (report.collected - before.collected),
                skipped=mark.skipped + report.skipped - before.skipped,
            )
            if report.waits is None:
                await self._note(report.pass_us, mark)
        report.buckets += 1

    async def _page(self, bucket: int, after: str | None) -> _Page:
        """The next keys of a bucket, and the ends of their shards: enough to see where it is worth reading at ALL.

        By one replica. Where several differ, read repair would copy to one the ids of the others and not the states,
        so it would tear a batch that deletes shards and writes their tally."""
        select = Select(
            self.settings.tables.shards,
            self.partition(bucket),
            ("key", "mutator"),
            within=Slice("key", SliceBound(after, False)) if after is not None else None,
            limit=PAGE_ROWS,
            consistency=Consistency.ONE,
        )
        rows = [row for row in await self.host.store.read(select) if row.key is not None]
        last, more = whole_keys([row.key for row in rows], PAGE_ROWS)
        if last is None and more:
            last = rows[0].key
        page = _Page(last, more)
        for row in rows:
            if last is not None and row.key <= last:
                ends = page.keys.setdefault(row.key, [])
                if row.mutator == TALLY:
                    page.tallied.add(row.key)
                else:
                    ends.append(end_of(row.mutator))
                page.shards += 1
        return page

    async def _collect_page(self, run: _Run, bucket: int, page: _Page, folded: int | None) -> None:
        past = self.host.now_us() - self.settings.gc_after_us
        report = run.report
        worth = []
        for key, ends in page.keys.items():
            final = sum(end <= past for end in ends)
            report.expired += final
            if final > (key not in page.tallied):
                worth.append(key)
        report.keys += len(page.keys)
        report.shards += page.shards
        if report.waits is not None:
            report.skipped += len(worth)
            return
        for first in range(0, len(worth), KEYS_AT_ONCE):
            some = worth[first : first + KEYS_AT_ONCE]
            await asyncio.gather(*(self._try_key(run, bucket, key, folded) for key in some))
            if run.in_a_row > SKIPPED_IN_A_ROW_MAX:
                report.unreachable = True
                return

    async def _try_key(self, run: _Run, bucket: int, key: str, folded: int | None) -> None:
        report = run.report
        try:
            collected = await self._collect_key(bucket, key, folded)
            report.collected += collected  # not before the await: others add to it meanwhile
            run.in_a_row = 0
        except Unavailable:
            report.skipped += 1
            run.in_a_row += 1

    # ---- the record of passes

    async def read_result(self) -> PassHistory:
        rows = await self.host.store.read(Select(self.settings.tables.passes, {"counter": self.settings.counter}))
        return PassHistory.of(rows)

    async def _note(self, pass_us: int, mark: BucketMark) -> None:
        row = {"counter": self.settings.counter, "pass_us": pass_us, **asdict(mark)}
        await self.host.store.write(Insert(self.settings.tables.passes, row, timestamp_us=self.host.now_us()))

    async def _note_refused(self, why: str | None) -> None:
        await self._update_passes({"refused": why}, self.host.now_us())

    async def _update_passes(self, cells: Mapping[str, Value], stamp_us: int) -> None:
        counter = {"counter": self.settings.counter}
        await self.host.store.write(Update(self.settings.tables.passes, counter, cells, timestamp_us=stamp_us))

    async def _require_hint_windows(self, *, fresh: bool = False) -> None:
        now_us = self.host.now_us()
        if not fresh and self._hints_read_us is not None and now_us - self._hints_read_us < HINTS_KNOWN_US:
            return
        try:
            windows_us = await self._hints.read()
        except Unavailable as error:
            raise HintWindowsUnknown(str(error)) from error
        decide_hint_windows(windows_us, after_us=self.settings.gc_after_us, skew_us=self.settings.skew_us)
        self._hints_read_us = now_us
