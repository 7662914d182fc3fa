"""The queue of keys that want to be reconciled. The prose is docs/internals/protocols/operator.md, "Work queue".

It knows neither what a key means nor what is done about it. Level-triggered: it holds keys and never events, so it
can lose none by being full. Invariants:

- a key waits at most once, and is worked by one reconciler at a time; added while it is worked, it is worked again;
- a more urgent class overtakes; some reconcilers take `changed` alone, so a resync never delays a fresh change;
- of the takes of the others every eighth is the oldest of the lowest class that waits, so that none starves;
- no key waits while a reconciler is idle that may take it: taking one wakes the next reconciler for the rest.

Time is the event loop's, virtual in the simulation; randomness is passed in.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import IntEnum
from heapq import heapify, heappop, heappush
from random import Random
from typing import Final

from headgate.telemetry.metrics import Histogram, Registry
from headgate_operator.model.names import Key

KEYS_MAX: Final = 100_000
LOWEST_EVERY: Final = 8
RETRY_S: Final = 1.0
RETRY_S_MAX: Final = 300.0
RETRY_JITTER: Final = 0.2
DEADLINES_SPARE: Final = 1_000
"""The number of outdated due times that are kept before they are swept out."""
TICK_S: Final = 0.001
"""uvloop's timers count milliseconds, and one that is due in less is called at once, again and again."""
NAME: Final = "headgate"
"""The value of the label `name` of its metrics."""


class Class(IntEnum):
    """How urgent a key is; a lower number goes first."""

    CHANGED = 0
    """A spec, a wake-up."""
    CHILD = 1
    """A child of it changed: by the thousand, when a thousand are created."""
    NEW = 2
    """Never reconciled; or a due time of its last plan has come."""
    FAILED = 3
    RESYNC = 4


@dataclass
class _Waiting:
    """A key that waits, since when, and how urgently."""

    class_: Class
    since_s: float


@dataclass
class _Worked:
    """A key that is being worked, and whether it has to be worked again."""

    began_s: float
    class_: Class
    again: Class | None = None


class WorkQueue:
    """Keys by class. All of its methods belong to one event loop."""

    def __init__(
        self, *, rng: Random, registry: Registry | None = None, keys_max: int = KEYS_MAX, settle: bool = False
    ) -> None:
        self._rng = rng
        self._keys_max = keys_max
        self._waiting: dict[Key, _Waiting] = {}
        self._lines: dict[Class, dict[Key, None]] = {each: {} for each in Class}
        self._worked: dict[Key, _Worked] = {}
        self._later: dict[Key, tuple[float, Class]] = {}
        self._deadlines: list[tuple[float, int, Key]] = []
        self._deadlines_set = 0
        self._timer: asyncio.Handle | None = None
        self._timer_at_s = 0.0  # kept here: uvloop's handle of a call that is due at once has no time
        self._failures: dict[Key, int] = {}
        self._takes = 0
        self._getters: list[tuple[bool, asyncio.Future[None]]] = []
        self._held = settle
        self._ended = asyncio.Event()
        self.resync_owed = False
        """A key was refused since the queue was full: all keys have to be reconciled once there is room."""
        self._metrics = _Metrics(registry or Registry(), self)

    def begin_resync(self) -> None:
        """All keys are being added: a key that is refused from now on needs another resync."""
        self.resync_owed = False

    # ---- what is to be done

    def add(self, key: Key, class_: Class) -> None:
        """Have it reconciled soon. Of several classes the most urgent counts."""
        worked = self._worked.get(key)
        if worked is not None:
            worked.again = class_ if worked.again is None else min(worked.again, class_)
            self._metrics.adds.add()
            return
        waiting = self._waiting.get(key)
        if waiting is not None:
            if class_ < waiting.class_:
                del self._lines[waiting.class_][key]
                waiting.class_ = class_
                self._lines[class_][key] = None
                self._wake()
            return
        if len(self._waiting) >= self._keys_max:
            self.resync_owed = True
            return
        self._waiting[key] = _Waiting(class_, self._now_s())
        self._lines[class_][key] = None
        self._metrics.adds.add()
        self._wake()

    def add_in(self, key: Key, seconds: float, class_: Class = Class.NEW) -> None:
        """The same after a while; of several due times the earliest counts."""
        due_s = self._now_s() + max(seconds, 0.0)
        planned = self._later.get(key)
        if planned is not None and planned[0] <= due_s:
            return
        self._later[key] = (due_s, class_)
        self._deadlines_set += 1
        heappush(self._deadlines, (due_s, self._deadlines_set, key))
        if len(self._deadlines) > 2 * len(self._later) + DEADLINES_SPARE:
            self._drop_deadlines()
        self._set_timer(due_s)

    def retry(self, key: Key) -> float:
        """It failed: again after a pause that doubles with each failure. The pause, in seconds."""
        failures = self._failures[key] = self._failures.get(key, 0) + 1
        pause_s = min(RETRY_S * 2.0 ** min(failures - 1, 30), RETRY_S_MAX)
        pause_s *= 1 + self._rng.uniform(-RETRY_JITTER, RETRY_JITTER)
        self._metrics.retries.add()
        self.add_in(key, pause_s, Class.FAILED)
        return pause_s

    def forget(self, key: Key) -> None:
        """It went well: the next failure is its first again."""
        self._failures.pop(key, None)

    def failures(self, key: Key) -> int:
        """How often it has failed in a row."""
        return self._failures.get(key, 0)

    def release(self) -> None:
        """Let keys be taken, where the queue was made to hold them until all watches have listed: they wait from now
        on, however long that took."""
        self._held = False
        now_s = self._now_s()
        for waiting in self._waiting.values():
            waiting.since_s = now_s
        self._wake()

    # ---- taking keys

    async def get(self, *, reserved: bool = False) -> Key:
        """The next key, which is this caller's until `done`; `reserved` takes the class `changed` alone."""
        while True:
            key = self._next(reserved=reserved)
            if key is not None:
                self._wake()  # for the rest: the reconciler that was woken may not be allowed to take it
                return key
            future = asyncio.get_running_loop().create_future()
            self._getters.append((reserved, future))
            try:
                await future
            except asyncio.CancelledError:
                self._wake()  # it may have been woken for a key that another is to have now
                raise
            finally:
                self._getters = [each for each in self._getters if each[1] is not future]

    def done(self, key: Key) -> None:
        """It has been worked, well or not."""
        worked = self._worked.pop(key)
        self._ended.set()
        self._metrics.work.observe(self._now_s() - worked.began_s)
        if worked.again is not None:
            self.add(key, worked.again)

    async def until_none_is_worked(self) -> None:
        """Wait until every key that was taken is done."""
        while self._worked:
            self._ended.clear()
            await self._ended.wait()

    def class_of(self, key: Key) -> Class:
        """Of a key that is being worked: the class under which it was taken."""
        return self._worked[key].class_

    def is_urgent(self, key: Key) -> bool:
        """Whether somebody waits for what is decided about it now."""
        worked = self._worked.get(key)
        return worked is None or worked.class_ is Class.CHANGED or worked.again is Class.CHANGED

    # ---- how it stands

    def __len__(self) -> int:
        return len(self._waiting)

    def __contains__(self, key: object) -> bool:
        return key in self._waiting or key in self._worked or key in self._later

    def is_idle(self) -> bool:
        """Whether no key waits and no reconcile is under way; later due times do not count."""
        return not self._waiting and not self._worked

    def next_due_in_s(self) -> float | None:
        """The time when the next waiting key falls due."""
        deadlines = [due_s for due_s, _ in self._later.values()]
        return min(deadlines) - self._now_s() if deadlines else None

    def longest_waiting_s(self, class_: Class) -> float:
        """For how long the oldest key of a class has waited for a reconciler."""
        if self._held or not self._lines[class_]:
            return 0.0
        return self._now_s() - min(self._waiting[key].since_s for key in self._lines[class_])

    def work_s(self) -> Iterator[float]:
        """For how long each key has been worked so far."""
        now_s = self._now_s()
        return (now_s - worked.began_s for worked in self._worked.values())

    # ---- within

    def _next(self, *, reserved: bool) -> Key | None:
        line = self._line(reserved=reserved)
        if line is None:
            return None
        key = next(iter(line))
        del line[key]
        waiting = self._waiting.pop(key)
        now_s = self._now_s()
        self._worked[key] = _Worked(now_s, waiting.class_)
        self._later.pop(key, None)  # the present decision names the next due time
        self._metrics.queued.observe(now_s - waiting.since_s)
        return key

    def _line(self, *, reserved: bool) -> dict[Key, None] | None:
        if self._held:
            return None
        if reserved:
            return self._lines[Class.CHANGED] or None
        filled = [line for line in self._lines.values() if line]
        if not filled:
            return None
        self._takes += 1
        return filled[-1] if self._takes % LOWEST_EVERY == 0 else filled[0]

    def _wake(self) -> None:
        """Wake one getter that may take something: a reserved one first where a change waits."""
        if self._held:
            return
        changed = bool(self._lines[Class.CHANGED])
        if not changed and not self._waiting:
            return
        for may in (True, False) if changed else (False,):
            for reserved, future in self._getters:
                if reserved is may and not future.done():
                    future.set_result(None)
                    return

    def _drop_deadlines(self) -> None:
        """Only the present due time of a key counts: a key with many decisions leaves many outdated ones."""
        self._deadlines = [(due_s, number, key) for number, (key, (due_s, _)) in enumerate(self._later.items())]
        self._deadlines_set = len(self._deadlines)
        heapify(self._deadlines)

    def _set_timer(self, at_s: float) -> None:
        if self._timer is not None:
            if self._timer_at_s <= at_s:
                return
            self._timer.cancel()
        self._timer_at_s = at_s
        self._timer = asyncio.get_running_loop().call_at(at_s, self._fall_due)

    def _fall_due(self) -> None:
        self._timer = None
        now_s = self._now_s()
        while self._deadlines and self._deadlines[0][0] <= now_s + 1e-6:
            due_s, _, key = heappop(self._deadlines)
            planned = self._later.get(key)
            if planned is not None and planned[0] == due_s:
                del self._later[key]
                self.add(key, planned[1])
        if self._deadlines:
            self._set_timer(max(self._deadlines[0][0], now_s + TICK_S))

    def _now_s(self) -> float:
        return asyncio.get_running_loop().time()


class _Metrics:
    """As controller-runtime names them."""

    def __init__(self, registry: Registry, queue: WorkQueue) -> None:
        def reading(name: str, help_text: str, read: Callable[[], float]) -> None:
            registry.reading(f"workqueue_{name}", help_text, ("name",), lambda: [((NAME,), read())])

        def histogram(name: str, help_text: str) -> Histogram:
            return registry.histogram(f"workqueue_{name}", help_text, "name").of(NAME)

        self.adds = registry.counter("workqueue_adds", "Keys added to the work queue.", "name").of(NAME)
        self.retries = registry.counter("workqueue_retries", "Keys that failed and are retried.", "name").of(NAME)
        self.queued = histogram("queue_duration_seconds", "How long keys wait in the work queue.")
        self.work = histogram("work_duration_seconds", "How long reconciles take.")
        reading("depth", "Keys in the work queue.", lambda: len(queue))
        reading(
            "unfinished_work_seconds", "Total time so far of the reconciles under way.", lambda: sum(queue.work_s())
        )
        reading(
            "longest_running_processor_seconds",
            "Time so far of the longest reconcile under way.",
            lambda: max(queue.work_s(), default=0.0),
        )
