"""Twins: rows that were stamped anew because their write was not acknowledged in time. All of a family carry the
place that was stamped first; of a family one row is handed out (docs/internals/protocols/timeline.md, "Put" and
"Once").

Which one was chosen in this tenure is remembered, and so is which one an earlier owner had begun with, as its record
tells. Of several records the one of the latest tenure counts: what was durable in time of an earlier one its
successor read, and went on with the same row; what became durable later answered nobody. What earlier owners passed
is read from the record of the part where the first place lies, however old.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable
from uuid import UUID

PARTS_MAX = 64


class Families:
    """What one tenure of a lane has met; or who only looks, which is nobody's tenure: epoch 0."""

    def __init__(
        self,
        part_of: Callable[[UUID], int],
        read_passed: Callable[[int], Awaitable[set[UUID]]],
        *,
        epoch: int = 0,
    ) -> None:
        self._part_of = part_of
        self._read_passed = read_passed
        self._epoch = epoch
        self._chosen: OrderedDict[int, dict[int, int]] = OrderedDict()
        self._told_by: dict[int, dict[int, int]] = {}
        """The tenure by whose record a family was chosen, where it was one."""
        self._latest: tuple[int, dict[int, int]] | None = None
        self._passed: OrderedDict[int, set[UUID]] = OrderedDict()

    def choose_first(self, part: int, first: UUID) -> bool:
        """The same of the row that a family is named after: nothing of it has to be read."""
        families = self._of_part(part)
        due = first.int
        return families.setdefault(due, due) == due

    async def choose(self, first: UUID, due: UUID) -> bool:
        """Whether the row at `due` is the one of its family that is handed out; the first to ask is."""
        part = self._part_of(first)
        chosen = self._chosen.get(part, {}).get(first.int)
        if chosen is not None:
            return chosen == due.int
        if due != first and first in await self._passed_in(part):
            return False
        self._of_part(part)[first.int] = due.int
        return True

    def begun(self, first: UUID, due: UUID, *, epoch: int) -> None:
        """This row of the family is being handed out, or was in that tenure."""
        part = self._part_of(first)
        families = self._of_part(part)
        told_by = self._told_by.setdefault(part, {})
        chosen_in = told_by.get(first.int, self._epoch if first.int in families else 0)
        if epoch >= chosen_in:
            families[first.int] = due.int
            told_by[first.int] = epoch

    def _of_part(self, part: int) -> dict[int, int]:
        """The families named after rows of a part, and the row that was chosen of each; all told by their numbers."""
        if self._latest is not None and self._latest[0] == part:
            return self._latest[1]
        families = self._chosen.setdefault(part, {})
        self._chosen.move_to_end(part)
        while len(self._chosen) > PARTS_MAX:
            oldest, _ = self._chosen.popitem(last=False)
            self._told_by.pop(oldest, None)
        self._latest = part, families
        return families

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
