"""The content of the replicas' disks, from above: no process can know this, and reading it costs no messages.

By this a scenario knows when all is drained, and what is left, without asking the code that it tests.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any
from uuid import UUID

from headgate.engines.packed_row import PackedRun, unpack
from headgate.engines.timeline.model.layout import DAYS, MessagePlace, RowPlace, id_text
from headgate.engines.timeline.model.settings import TimelineSettings
from headgate.engines.timeline.read.passed_rows import decode_passed
from headgate.store.memory.rows import Row, merge_rows
from headgate.store.model.positions import position_order, time_us_of
from headgate.store.model.table import Table
from tests.kit.simulated_store import Cluster


@dataclass(frozen=True)
class StoredRow:
    """A row of messages, as all disks together have it."""

    place: RowPlace
    packed: bytes | None
    cancelled: bool
    moved: bool
    replicas: int
    """How many have it."""

    @cached_property
    def run(self) -> PackedRun | None:
        """Its messages; None where they have expired."""
        return unpack(self.packed) if self.packed is not None else None

    @property
    def family(self) -> UUID:
        """The due id that its family is named by."""
        replaces = None if self.run is None else self.run.replaces
        return self.place.due if replaces is None else MessagePlace.from_bytes(replaces).row.due

    @property
    def ids(self) -> list[str]:
        """The ids of its messages."""
        if self.run is None:
            return []
        given = self.run.message_id or [b""] * len(self.run)
        return [id_text(each or MessagePlace(self.place, index).to_bytes()) for index, each in enumerate(given)]


@dataclass(frozen=True)
class StoredLane:
    """The control row of a lane."""

    generation: int
    shard: int
    epoch: int
    last: UUID
    read_to: UUID
    purged_before_us: int
    attempt: UUID | None

    @property
    def is_retired(self) -> bool:
        """Whether nobody ever takes it again."""
        return self.epoch < 0


class Disks:
    """The disks of a ring, as one queue's tables use them."""

    def __init__(self, cluster: Cluster, settings: TimelineSettings) -> None:
        self._cluster = cluster
        self._settings = settings

    def rows(self) -> Iterator[StoredRow]:
        """All rows of messages that live on any disk, in no order."""
        now_s = self._now_s()
        for table in (self._settings.tables.work, self._settings.tables.later):
            for partition, row, replicas in self._merged(table):
                _, generation, _, sub, shard = partition
                due: Any = row.clustering[0]
                yield StoredRow(
                    RowPlace(generation, sub, shard, due),
                    _value(row, "run", now_s),
                    row.value("cancelled", now_s) is not None,
                    row.value("moved", now_s) is not None,
                    replicas,
                )

    def announced(self) -> set[tuple[int, int, int]]:
        """Generation, part and sub of all that the index names and announces as late."""
        now_s = self._now_s()
        late = {
            (partition[1], *row.clustering)
            for partition, row, _ in self._merged(self._settings.tables.parts)
            if row.value("late_us", now_s) is not None
        }
        return late & self.indexed()

    def indexed(self) -> set[tuple[int, int, int]]:
        """Generation, part and sub of all that the index names: its row and that of its day are each on some disk."""
        now_s = self._now_s()
        matches = {
            (partition[1], partition[2], row.clustering)
            for partition, row, _ in self._merged(self._settings.tables.parts)
            if row.value("put_us", now_s) is not None
        }
        days = {(generation, clustering[0]) for generation, day, clustering in matches if day == DAYS}
        return {(generation, *clustering) for generation, day, clustering in matches if (generation, day) in days}

    def lanes(self) -> Iterator[StoredLane]:
        """All lanes."""
        now_s = self._now_s()
        for partition, row, _ in self._merged(self._settings.tables.lanes):
            _, generation, shard = partition
            if row.value("epoch", now_s) is not None:
                yield StoredLane(
                    generation,
                    shard,
                    _value(row, "epoch", now_s),
                    _value(row, "last", now_s),
                    _value(row, "read_to", now_s),
                    _value(row, "purged_before", now_s) or 0,
                    _value(row, "attempt", now_s),
                )

    def undrained(self, before_us: int) -> list[StoredRow]:
        """The rows due before a given time that their lane has not passed."""
        lanes = {(lane.generation, lane.shard): lane for lane in self.lanes()}
        return [row for row in self.rows() if time_us_of(row.place.due) < before_us and not _is_passed(row, lanes)]

    def late(self) -> Iterator[StoredRow]:
        """The rows of messages that their lane has passed and no owner of it has met, nor another of their family: it
        is repair that brings them."""
        now_s = self._now_s()
        met: dict[tuple[int, int], set[UUID]] = {}
        for partition, row, _ in self._merged(self._settings.tables.passed):
            _, generation, shard, _ = partition
            ids: bytes | None = _value(row, "ids", now_s)
            if ids is not None:
                met.setdefault((generation, shard), set()).update(decode_passed(ids))
        lanes = {(lane.generation, lane.shard): lane for lane in self.lanes()}
        for row in self.rows():
            known = met.get((row.place.generation, row.place.shard), set())
            if row.cancelled or row.moved or row.place.due in known or not _is_passed(row, lanes):
                continue
            if row.run is not None and row.family not in known:
                yield row

    def unknown(self) -> list[StoredRow]:
        """The late rows of whose family no row is above the position of its lane either."""
        late = list(self.late())
        above = {row.family for row in self.undrained(2**62)} if late else set()
        return [row for row in late if row.family not in above]

    def _merged(self, table: Table) -> Iterator[tuple[tuple[Any, ...], Row, int]]:
        entries: dict[tuple[bytes, Any], tuple[tuple[Any, ...], Row, int]] = {}
        for node in self._cluster.nodes.values():
            for key, held in node.replica.tables.get(table.name, {}).items():
                if held.values[0] != self._settings.queue:
                    continue
                for row_key, row in held.partition.rows.items():
                    values, known, replicas = entries.get((key, row_key), (held.values, row, 0))
                    entries[key, row_key] = (values, merge_rows(known, row), replicas + 1)
        return iter(entries.values())

    def _now_s(self) -> int:
        return min(node.now_s for node in self._cluster.nodes.values())


def _value(row: Row, name: str, now_s: int) -> Any:
    return row.value(name, now_s)


def _is_passed(row: StoredRow, lanes: dict[tuple[int, int], StoredLane]) -> bool:
    lane = lanes.get((row.place.generation, row.place.shard))
    if lane is None:
        return False
    return lane.is_retired or position_order(row.place.due) <= position_order(lane.last)
