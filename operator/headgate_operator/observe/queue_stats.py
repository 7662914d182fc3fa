"""Backlogs of all queues of the operator, from the slices of the summary, which are read in turn. The prose is
docs/internals/protocols/operator.md, "Scaling".

It reads four slices each 375 ms in one request, so all of them in 1.5 s without a burst, for each connection by
itself. A queue without workers **sleeps**: its lanes are read once, and from then on only marks wake it. At the
wake-up its backlog is counted in the background, and counted again while it has no workers. Keys of queues that
changed are queued, and the decision is made by the reconciler.

Figures that were not read for `KNOWN_S` are unknown. Survives: a slice that cannot be read (its queues stay as they
were; the others are read alone then).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Final
from uuid import UUID

from headgate.engines.contract import QueueInspector
from headgate.engines.registry import engine_record
from headgate.engines.summary.reading import COLUMNS, QueueFigures, combined
from headgate.engines.summary.rows import SLICES, slice_of
from headgate.errors import Bug, HeadgateError
from headgate.process.background_tasks import end_task, start_task
from headgate.process.live import Live
from headgate.store.catalogue.entry import Entry, EntryState
from headgate.store.catalogue.tables import SUMMARY
from headgate.store.model.statements import Select
from headgate_operator.informers.work_queue import Class
from headgate_operator.model.names import Key
from headgate_operator.model.world import UNKNOWN, QueueLoad, Unread
from headgate_operator.store.sessions import OpenSession, Sessions

log = logging.getLogger("headgate.operator")

TURN_S: Final = 1.5
TOGETHER: Final = 4
"""Slices read in one request: the request costs more than the content of a slice."""
KNOWN_S: Final = 15.0
SECOND_US: Final = 1_000_000
NOTIFY_EVERY_US: Final = 2_500_000
LANE_READS_AT_ONCE: Final = 20
READ_AGAIN_US: Final = 30 * SECOND_US
"""The interval of checks whether lanes of an awake queue without workers moved all the same."""
COUNT_AGAIN_S: Final = 10.0
"""The time after which the backlog of a queue without workers is counted again."""
RECOUNT_S: Final = 60.0
"""The same where there is no sign of either: some fell due, or a bulk job took some of them."""
COUNT_RESTS: Final = 20
"""The pause after a count, as a multiple of its duration."""
WITHIN_S: Final = 2.0
JUDGED_AT_ONCE: Final = 50
"""Queues after which other tasks of the event loop have a turn: a slice may hold a thousand queues."""
BUG_PAUSE_S: Final = 5.0

Notify = Callable[[Key, Class], None]


@dataclass
class FollowedQueue:
    key: Key
    digest: str
    entry: Entry
    inspector: QueueInspector
    figures: QueueLoad | None = None
    read_us: int = 0
    """When it was read last; `figures` may be older."""
    notified: QueueLoad | None = None
    notified_us: int = 0
    slept_us: int | None = None
    slept_at_us: int = 0
    counted: int | None = None
    counted_oldest_us: int | None = None
    counted_at: tuple[int | None, int | None] | None = None
    """Which mark of a put stood when it was counted, and up to where lanes had been read."""
    count_again_s: float = 0.0
    """Until then it is not counted again, whatever came."""
    recount_s: float = 0.0
    """From then on it is, even if nothing came."""
    background: asyncio.Task[None] | None = None
    has_nothing: bool = False
    """It was found, and reported, that there are neither marks nor owners."""


class FigureBoard:
    def __init__(self, sessions: Sessions, notify: Notify) -> None:
        self._sessions = sessions
        self._notify = notify
        self._followed: dict[Key, FollowedQueue] = {}
        self._slices: dict[tuple[str, int], dict[UUID, FollowedQueue]] = {}
        self._readers: dict[str, asyncio.Task[None]] = {}
        self._at_once = asyncio.Semaphore(LANE_READS_AT_ONCE)
        self._reported: dict[str, int] = {}
        """Slices whose failed read was logged, by connection."""

    # ---- followed queues

    async def follow(self, key: Key, reached: OpenSession, entry: Entry) -> None:
        """This queue is ours, and its entry is as it was read now. One that is new is read at once, so that its first
        status need not be written twice."""
        if entry.state is not EntryState.ACTIVE:
            self.forget(key)
            return
        known = self._followed.get(key)
        if known is not None and known.entry == entry and known.digest == reached.digest:
            return
        if known is not None and (known.entry.id, known.digest) == (entry.id, reached.digest):
            known.entry, known.inspector = entry, _inspector_of(reached, entry)
            return
        self.forget(key)
        followed = FollowedQueue(key, reached.digest, entry, _inspector_of(reached, entry))
        self._followed[key] = followed
        self._slices.setdefault((reached.digest, slice_of(entry.id)), {})[entry.id] = followed
        self._read_from(reached)
        with suppress(HeadgateError):
            rows = await reached.store.read(
                Select(SUMMARY, {"slice": slice_of(entry.id), "queue": entry.id}, COLUMNS), within_s=WITHIN_S
            )
            now_us = reached.process_context.clock.now_us()
            self._judge(followed, combined(rows, now_us=now_us), now_us, notify=False)

    def forget(self, key: Key) -> None:
        known = self._followed.pop(key, None)
        if known is None:
            return
        if known.background is not None:
            known.background.cancel()
        of_slice = self._slices.get((known.digest, slice_of(known.entry.id)), {})
        if of_slice.get(known.entry.id) is known:
            del of_slice[known.entry.id]

    # ---- what is known

    def of(self, key: Key, now_us: int) -> QueueLoad | Unread:
        """As read last; UNKNOWN if that is too long ago."""
        known = self._followed.get(key)
        if known is None or known.figures is None or now_us - known.read_us > KNOWN_S * SECOND_US:
            return UNKNOWN
        return replace(known.figures, at_us=known.read_us)

    def all(self) -> Iterable[FollowedQueue]:
        return list(self._followed.values())

    # ---- reading

    def _read_from(self, reached: OpenSession) -> None:
        task = self._readers.get(reached.digest)
        if task is None or task.done():
            task = start_task("figures", self._read(reached.digest))
            self._readers[reached.digest] = task

    async def _read(self, digest: str) -> None:
        """All slices in turn, some at a time, as long as anybody is followed there."""
        loop = asyncio.get_running_loop()
        first, next_s = 0, loop.time()
        while any(followed.digest == digest for followed in self._followed.values()):
            numbers = [each for each in range(first, first + TOGETHER) if self._slices.get((digest, each))]
            try:
                if numbers and not await self._read_slices(digest, numbers) and len(numbers) > 1:
                    await asyncio.gather(*(self._read_slices(digest, [each]) for each in numbers))
            except Exception:  # the other slices are read all the same
                log.exception("bug in reading the summary, please report it", extra={"slices": numbers})
                next_s = loop.time() + BUG_PAUSE_S
            first = (first + TOGETHER) % SLICES
            next_s = max(next_s + TURN_S / SLICES * TOGETHER, loop.time())
            await asyncio.sleep(next_s - loop.time())

    async def _read_slices(self, digest: str, numbers: Sequence[int]) -> bool:
        reached = self._sessions.of(digest)
        if reached is None:
            return False
        selects = [Select(SUMMARY, {"slice": number}, COLUMNS) for number in numbers]
        try:
            rows = await reached.store.read_together(selects, within_s=WITHIN_S)
            now_us = reached.process_context.clock.now_us()
        except HeadgateError as error:
            if digest not in self._reported and len(numbers) == 1:
                self._reported[digest] = numbers[0]
                log.warning("reading the summary failed", extra={"error": str(error)})
            return False
        if self._reported.get(digest) in numbers:
            del self._reported[digest]
        by_queue: dict[UUID, list[Any]] = {}
        for row in rows:
            by_queue.setdefault(row.queue, []).append(row)
        judged = 0
        for id_, followed in [each for number in numbers for each in self._slices[digest, number].items()]:
            if id_ not in by_queue and followed.has_nothing:
                followed.read_us = now_us
                continue
            judged += 1
            if judged % JUDGED_AT_ONCE == 0:
                await asyncio.sleep(0)
            if self._followed.get(followed.key) is followed:  # it may have gone meanwhile
                self._judge_by_itself(followed, by_queue.get(id_, ()), now_us)
        return True

    def _judge_by_itself(self, followed: FollowedQueue, rows: Sequence[Any], now_us: int) -> None:
        """A fault in one queue's rows does not affect other queues."""
        try:
            self._judge(followed, combined(rows, now_us=now_us), now_us)
        except Exception:
            log.exception("bug in judging figures, please report it", extra={"key": followed.key.path})

    def _judge(self, followed: FollowedQueue, stats: QueueFigures, now_us: int, *, notify: bool = True) -> None:
        awake = self._is_awake(followed, stats, now_us)
        if awake is None:
            return
        figures = QueueLoad(
            at_us=now_us,
            backlog=stats.backlog,
            counted=None if stats.backlog is not None else followed.counted,
            in_flight=stats.in_flight,
            oldest_us=stats.oldest_us if stats.backlog is not None else followed.counted_oldest_us,
            rate=stats.rate,
            owners=stats.workers,
            leased=stats.lanes,
            held=stats.held,
            unreadable=stats.unreadable,
            awake=awake,
            later=stats.later,
        )
        followed.figures, followed.read_us = figures, now_us
        if figures.awake and figures.owners == 0 and _count_is_due(followed, stats):
            self._begin(followed, self._count(followed, (stats.put_us, followed.slept_us)))
        if notify:
            self._notify_if_changed(followed, figures, now_us)
        else:  # for a caller that waits for it right now
            followed.notified, followed.notified_us = figures, now_us
        followed.has_nothing = _is_nothing(figures) and _is_nothing(followed.notified)

    def _is_awake(self, followed: FollowedQueue, stats: QueueFigures, now_us: int) -> bool | None:
        """None: it is being read."""
        if stats.workers > 0:
            followed.slept_us = None
            _forget_count(followed)
            return True
        if stats.put_us is None and not stats.later:
            followed.slept_us = None
            _forget_count(followed)
            return False
        stale = now_us - followed.slept_at_us > READ_AGAIN_US
        if followed.slept_us is None:
            self._begin(followed, self._read_lanes(followed, now_us, stats))
            return None
        awake = stats.wakes(followed.slept_us, now_us=now_us)
        if awake and stale:
            self._begin(followed, self._read_lanes(followed, now_us, stats))
        if not awake:
            _forget_count(followed)
        return awake

    def _notify_if_changed(self, followed: FollowedQueue, figures: QueueLoad, now_us: int) -> None:
        notified = followed.notified
        if notified is None or _turned(notified) != _turned(figures):
            urgency = Class.CHANGED if notified is not None or figures.awake else Class.NEW
        elif _plain(notified) != _plain(figures) and now_us - followed.notified_us >= NOTIFY_EVERY_US:
            urgency = Class.NEW
        else:
            return
        followed.notified, followed.notified_us = figures, now_us
        self._notify(followed.key, urgency)

    # ---- in the background

    def _begin(self, followed: FollowedQueue, work: Any) -> None:
        """One thing at a time for each queue."""
        if followed.background is not None and not followed.background.done():
            work.close()
            return
        followed.background = start_task(f"reading of {followed.key.path}", work)

    async def _read_lanes(self, followed: FollowedQueue, now_us: int, stats: QueueFigures) -> None:
        """Then what was found can be judged at once."""
        async with self._at_once:
            try:
                slept_us = await followed.inspector.read_to_us()
            except HeadgateError as error:
                log.info("reading lanes failed", extra={"key": followed.key.path, "error": str(error)})
                return
        first, followed.slept_us, followed.slept_at_us = followed.slept_us is None, slept_us, now_us
        followed.background = None
        if first:
            self._judge(followed, stats, now_us)

    async def _count(self, followed: FollowedQueue, stands: tuple[int | None, int | None]) -> None:
        loop = asyncio.get_running_loop()
        async with self._at_once:
            began_s = loop.time()
            try:
                counted = await followed.inspector.count()
            except HeadgateError as error:
                log.info("counting the backlog failed", extra={"key": followed.key.path, "error": str(error)})
                followed.count_again_s = followed.recount_s = loop.time() + COUNT_AGAIN_S
                return
        rest_s = (loop.time() - began_s) * COUNT_RESTS
        followed.count_again_s = loop.time() + max(COUNT_AGAIN_S, rest_s)
        followed.recount_s = loop.time() + max(RECOUNT_S, rest_s)
        followed.counted, followed.counted_oldest_us = counted.backlog, counted.oldest_due_us
        followed.counted_at = stands
        self._notify(followed.key, Class.CHANGED)

    async def stop(self) -> None:
        tasks = [*self._readers.values(), *(each.background for each in self._followed.values() if each.background)]
        self._readers.clear()
        await end_task(*tasks)


def _count_is_due(followed: FollowedQueue, stats: QueueFigures) -> bool:
    """Whether what was counted, if anything was, is not what is there by now."""
    moved = followed.counted_at != (stats.put_us, followed.slept_us)
    return asyncio.get_running_loop().time() >= (followed.count_again_s if moved else followed.recount_s)


def _forget_count(followed: FollowedQueue) -> None:
    """The queue has workers, or nothing is due: the next count runs at once."""
    followed.counted = followed.counted_oldest_us = followed.counted_at = None
    followed.count_again_s = followed.recount_s = 0.0


_NOTHING: Final = QueueLoad(at_us=0)


def _is_nothing(figures: QueueLoad | None) -> bool:
    return figures is not None and replace(figures, at_us=0) == _NOTHING


def _turned(figures: QueueLoad) -> tuple[bool, ...]:
    """Changes that queue the key at once."""
    return (
        figures.awake,
        bool(figures.behind),
        figures.in_flight > 0,
        figures.held > 0,
        figures.owners > 0,
        figures.unreadable > 0,
    )


def _plain(figures: QueueLoad) -> tuple[Any, ...]:
    """Changes that queue the key soon; a backlog does so repeatedly, since it grows older."""
    waits = figures.at_us if figures.oldest_us is not None and figures.awake else 0
    later = figures.later[:1]
    return (
        figures.backlog, figures.counted, figures.in_flight, figures.rate, figures.owners, figures.leased,
        figures.held, later, waits,
    )  # fmt: skip


def _inspector_of(reached: OpenSession, entry: Entry) -> QueueInspector:
    record, process = engine_record(entry), reached.process_context
    settings = record.settings_of(entry, process.data_center)
    if record.inspect is None:
        raise Bug("The engine of the queue has no inspector", queue=entry.name)
    return record.inspect(process.host_of(entry.place.keyspace, Live(settings.skew_us)), settings)
