"""The non-empty parts of a generation, as one reader knows them (attack A13).

A message due up to a time T was acknowledged before T, and its index row before that: so an index read that *began at
or after* T returns all subs that matter up to T. A read of a day settles every part that ended before the start of
the read - 2 maxClockSkew for good; later parts are read each time.

All lanes of a process share one. Callers in the same turn of the event loop share one read: it starts when that turn
is over, and so after the T of each of them. A read that has started is never joined. Empty lanes ask together
(`find_arrivals`): where the index names nothing in a part, no lane of the generation has anything due in it up to T.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from dataclasses import dataclass

from headgate.engines.context import Host
from headgate.engines.timeline.model.layout import day_of, parts_of_day
from headgate.engines.timeline.model.settings import TimelineSettings
from headgate.process.background_tasks import SharedWork
from headgate.process.live import Live
from headgate.store.model.statements import Select
from headgate.store.model.types import Value

DAYS_MAX = 16
PARTS_AT_ONCE = 4
"""After a pause of more parts than this between two questions of the empty lanes, they read on by themselves."""
PARTS_MAX = 256
"""Parts whose observed contents are cached."""


@dataclass(frozen=True)
class _Day:
    read_us: int
    subs: dict[int, tuple[int, ...]]


@dataclass(frozen=True)
class _Quiet:
    """In these parts nothing is due up to a time."""

    from_part: int
    until_us: int


class PartIndex:
    """The index of one generation, read by one process."""

    def __init__(self, host: Host, settings: Live[TimelineSettings], generation: int) -> None:
        self._host = host
        self._settings = settings
        self._generation = generation
        self._days: OrderedDict[int, _Day] = OrderedDict()
        self._known_subs: OrderedDict[int, tuple[int, ...]] = OrderedDict()
        self._quiet: _Quiet | None = None
        self._asked = SharedWork[int, tuple[int, ...]]("index of parts")
        """Reads that start when this turn is over, by part."""

    async def subs(self, part: int) -> tuple[int, ...]:
        """The subs of a part, complete for all that was acknowledged before this is called."""
        day = self._days.get(day_of(part, self._settings.now.part_us))
        if day is not None and self._is_closed(part, day.read_us):
            return day.subs.get(part, ())
        return await self._asked.run(part, lambda: self._read(part))

    def known_subs(self, part: int) -> tuple[int, ...]:
        """The known subs of the part, though it may have others by now: index rows outlive their part."""
        return self._known_subs.get(part, ())

    # ---- for all empty lanes together

    async def find_arrivals(self, ahead_us: int) -> bool:
        """Whether the index names something in a part of now, or of the time since it was asked before; also in one
        that begins within `ahead_us`. If not, nothing is due in these parts up to the start of this call."""
        now_us, part_us = self._host.now_us(), self._settings.now.part_us
        last = now_us // part_us
        if self.known_subs(last):  # and it stays named
            self._quiet = None
            return True
        quiet = self._quiet
        if quiet is not None and last - quiet.until_us // part_us > PARTS_AT_ONCE:
            quiet = None
        first = last if quiet is None else quiet.until_us // part_us
        ahead = (now_us + ahead_us) // part_us
        subs = await asyncio.gather(*(self.subs(part) for part in range(first, ahead + 1)))
        self._quiet = None if any(subs) else _Quiet(first if quiet is None else quiet.from_part, now_us)
        return self._quiet is None

    def quiet_until_us(self, part: int) -> int | None:
        """The time up to which nothing is due from a part on, by the latest `find_arrivals`; None: not known."""
        quiet = self._quiet
        return None if quiet is None or part < quiet.from_part else quiet.until_us

    async def _read(self, part: int) -> tuple[int, ...]:
        """Starts one turn after its first caller; from then on nobody joins it."""
        self._asked.forget(part)
        rows = await self._host.store.read(
            Select(self._settings.now.tables.parts, {**self._day_key(part), "part": part}, ["sub"])
        )
        subs = tuple(row.sub for row in rows)
        if subs:
            self._known_subs[part] = subs
            while len(self._known_subs) > PARTS_MAX:
                self._known_subs.popitem(last=False)
        return subs

    async def next_part(self, part: int, last: int) -> int:
        """The first part from `part` on that holds something or may; `last` when none before it does."""
        while part < last:
            number = day_of(part, self._settings.now.part_us)
            day = await self._day(number, part)
            for each in range(part, min(last, parts_of_day(number, self._settings.now.part_us).stop)):
                if each in day.subs or not self._is_closed(each, day.read_us):
                    return each
            part = parts_of_day(number, self._settings.now.part_us).stop
        return last

    def _is_closed(self, part: int, read_us: int) -> bool:
        """Whether a read that started then settles this part for good."""
        return (part + 1) * self._settings.now.part_us <= read_us - 2 * self._settings.now.skew_us

    async def _day(self, number: int, part: int) -> _Day:
        known = self._days.get(number)
        if known is not None and self._is_closed(part, known.read_us):
            return known
        read_us = self._host.now_us()
        rows = await self._host.store.read(
            Select(self._settings.now.tables.parts, self._day_key(part), ["part", "sub"])
        )
        subs: dict[int, tuple[int, ...]] = {}
        for row in rows:
            subs[row.part] = (*subs.get(row.part, ()), row.sub)
        day = self._days[number] = _Day(read_us, subs)
        self._days.move_to_end(number)
        while len(self._days) > DAYS_MAX:
            self._days.popitem(last=False)
        return day

    def _day_key(self, part: int) -> dict[str, Value]:
        return {
            "queue": self._settings.now.queue,
            "generation": self._generation,
            "day": day_of(part, self._settings.now.part_us),
        }
