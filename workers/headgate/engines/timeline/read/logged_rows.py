"""The rows that the settle log of a lane names, and that its owner is yet to read.

A row that was started and has expired is in no read any more, though restamped rows of its family may still come. Its
owner passes it as it passes any other row, so that the family is known by the record of passed rows. Pure.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from uuid import UUID

from headgate.engines.lanes.delivery.rows import LaneRow
from headgate.engines.lanes.log.settle_log_format import bits_of
from headgate.engines.timeline.model.layout import SECOND_US, RowPlace
from headgate.engines.timeline.model.row import ROW_MESSAGES_MAX
from headgate.engines.timeline.read.reading import ROW_MEMORY_BYTES, RowContent, family_of
from headgate.store.model.positions import position_at, position_order, time_us_of

_ALL = bits_of(0, ROW_MESSAGES_MAX)


class LoggedRows:
    """Keys of rows, by the second that they are due in: a settle log may name hundreds of thousands, and almost all
    of them are read."""

    def __init__(self) -> None:
        self._keys: dict[int, set[bytes]] = {}
        self._seconds: list[int] = []

    def add(self, key: bytes, due: UUID) -> None:
        """The settle log names this row."""
        second = time_us_of(due) // SECOND_US
        if second not in self._keys:
            self._keys[second] = set()
            insort(self._seconds, second)
        self._keys[second].add(key)

    def forget(self, up_to: int) -> None:
        """The lane was read up to this order; only whole seconds leave."""
        count = bisect_left(self._seconds, _second_of(up_to))
        for second in self._seconds[:count]:
            del self._keys[second]
        del self._seconds[:count]

    def between(self, after: int, up_to: int) -> list[tuple[int, bytes]]:
        """Those above one order, up to another, each with its own order."""
        first, last = bisect_left(self._seconds, _second_of(after)), bisect_right(self._seconds, _second_of(up_to))
        keys = [key for second in self._seconds[first:last] for key in self._keys[second]]
        return [(order, key) for key in keys if after < (order := position_order(family_of(key)[0])) <= up_to]


def expired_row(key: bytes, order: int, *, generation: int, shard: int, part_us: int) -> LaneRow:
    """A row that the settle log names and that is not stored any more: there is nothing of it to deliver."""
    due, first = family_of(key)
    place = RowPlace(generation, int.from_bytes(key[:2], "big"), shard, due)
    return LaneRow(
        key,
        order,
        ROW_MESSAGES_MAX,  # however many it had
        ROW_MEMORY_BYTES,
        RowContent(place, None, first, 0),
        place.part(part_us),
        settled=_ALL,
    )


def _second_of(order: int) -> int:
    return time_us_of(position_at(order)) // SECOND_US
