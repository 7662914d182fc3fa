"""Twins: rows that were stamped anew because their write was not acknowledged in time. All of a family carry the
place that was stamped first; of a family one row is handed out (docs/protocols/timeline.md, "Put" and "Once").

Which one was chosen in this tenure is remembered, and so is which one an earlier owner had begun with, as its record
tells. What earlier owners passed is read from the record of the part where the first place lies, however old.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable
from uuid import UUID

PARTS_MAX = 64


class Families:
    """What one tenure of a lane has met."""

    def __init__(self, part_of: Callable[[UUID], int], read_passed: Callable[[int], Awaitable[set[UUID]]]) -> None:
        self._part_of = part_of
        self._read_passed = read_passed
        self._chosen: OrderedDict[int, dict[UUID, UUID]] = OrderedDict()
        self._passed: OrderedDict[int, set[UUID]] = OrderedDict()

    async def choose(self, first: UUID, due: UUID) -> bool:
        """Whether the row at `due` is the one of its family that is handed out; the first to ask is."""
        part = self._part_of(first)
        chosen = self._chosen.get(part, {}).get(first)
        if chosen is not None:
            return chosen == due
        if due != first and first in await self._passed_in(part):
            return False
        self.begun(first, due)
        return True

    def begun(self, first: UUID, due: UUID) -> None:
        """This row of the family is being handed out, or was by the owner before."""
        part = self._part_of(first)
        self._chosen.setdefault(part, {})[first] = due
        self._chosen.move_to_end(part)
        while len(self._chosen) > PARTS_MAX:
            self._chosen.popitem(last=False)

    def passed(self, part: int, ids: Iterable[UUID]) -> None:
        """This tenure passed these rows of a part, or rows of the families named after them."""
        if part in self._passed:
            self._passed[part].update(ids)

    async def _passed_in(self, part: int) -> set[UUID]:
        if part not in self._passed:
            self._passed[part] = await self._read_passed(part)
            while len(self._passed) > PARTS_MAX:
                self._passed.popitem(last=False)
        return self._passed[part]
