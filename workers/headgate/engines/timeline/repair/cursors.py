"""Repair's cursors: the part up to which each scan of a lane has run, and when all replicas were last asked. The
prose is "The cursor" in docs/internals/protocols/repair.md.

Plain rows. Two repairers may overwrite each other, and a cursor may go back: then a scan runs again, and does
nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from headgate.engines.context import Host
from headgate.engines.timeline.model.decide_repair import CHECKS, LAST_CHECK, cursors_moved
from headgate.engines.timeline.model.layout import SECOND_US
from headgate.engines.timeline.model.settings import TimelineSettings
from headgate.store.model.statements import Batch, Insert, Select
from headgate.store.model.types import Value

KEPT_S = 90 * 86_400
"""The cursor of an idle queue is written again each hour."""
ROWS_AT_ONCE = 200


@dataclass
class LaneCursors:
    """Those of one lane."""

    up_to: dict[int, int] = field(default_factory=dict)
    asked_all_us: int = 0

    def advance(self, up_to: Mapping[int, int], at_us: int) -> None:
        """The cursors of some scans, as they were written at that time."""
        self.up_to |= up_to
        if LAST_CHECK in up_to:
            self.asked_all_us = at_us

    def lowest(self) -> int:
        """The part from which on some scan has not run."""
        return min(self.up_to.get(check, 0) for check in CHECKS)


class Cursors:
    """Those of one generation, as they were read; what is moved here is written."""

    def __init__(self, host: Host, settings: TimelineSettings, generation: int, shards: int) -> None:
        self._host = host
        self._settings = settings
        self._generation = generation
        self._written_us = 0
        self.lanes = {shard: LaneCursors() for shard in range(shards)}

    async def read(self) -> Cursors:
        """All of them, in one read."""
        columns = ("shard", "look", "up_to", "looked_us")
        for row in await self._host.store.read(Select(self._settings.tables.checks, self._key(), columns)):
            lane = self.lanes.get(row.shard)
            if lane is None or row.up_to is None:
                continue
            lane.advance({row.look: row.up_to}, row.looked_us or 0)
        return self

    def lowest(self) -> int:
        """The part from which on some scan of some lane has not run."""
        return min(lane.lowest() for lane in self.lanes.values())

    async def move_all(self, to: Mapping[int, int]) -> None:
        """No scan of these lanes has anything to find below one part."""
        await self.move(to, CHECKS[0])
        await self.move(to, LAST_CHECK)

    async def move(self, to: Mapping[int, int], check: int) -> None:
        """This scan of these lanes, and those that it covers, have run on all parts below one."""
        now_us = self._host.now_us()
        moved = {shard: cursors_moved(check, up_to, self.lanes[shard].up_to) for shard, up_to in to.items()}
        if check == LAST_CHECK:  # also where it stands, the time is noted
            for shard, of_lane in moved.items():
                of_lane.setdefault(check, self.lanes[shard].up_to.get(check, 0))
        rows = [row for shard, of_lane in moved.items() for row in self._rows(shard, of_lane, now_us)]
        for start in range(0, len(rows), ROWS_AT_ONCE):
            batch = rows[start : start + ROWS_AT_ONCE]
            await self._host.store.write(batch[0] if len(batch) == 1 else Batch(batch))
        for shard, of_lane in moved.items():
            self.lanes[shard].advance(of_lane, now_us)

    def _rows(self, shard: int, moved: Mapping[int, int], now_us: int) -> Iterator[Insert]:
        self._written_us = max(self._written_us + 1, now_us)
        ttl_s = min(KEPT_S, self._host.last_expiry_s - now_us // SECOND_US)
        for check, up_to in moved.items():
            values = {**self._key(), "shard": shard, "look": check, "up_to": up_to, "looked_us": now_us}
            yield Insert(self._settings.tables.checks, values, timestamp_us=self._written_us, ttl_s=ttl_s)

    def _key(self) -> dict[str, Value]:
        return {"queue": self._settings.queue, "generation": self._generation}
