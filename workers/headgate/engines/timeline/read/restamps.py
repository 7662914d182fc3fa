"""Restamped rows: rows that were stamped again because their write was not acknowledged in time. All of a lineage
carry the place that was stamped first; one row of a lineage is delivered (docs/internals/protocols/timeline.md, "Put"
and "Once").

The row chosen in this lease term is remembered, and so is the row that an earlier owner had started, from its
record. Of
several records the one of the latest lease term counts. If an earlier one was durable in time, its successor read
it and
continued with the same row; if it became durable later, it answered nobody. Rows that earlier owners passed are read
from the record of the part of the first place, of any age.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable
from uuid import UUID

PARTS_MAX = 64


class Families:
    """The rows that one lease term of a lane has read; or an inspection outside any lease term: epoch 0."""

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
        self._chosen_by: dict[int, dict[int, int]] = {}
        """The lease term whose record chose the row of a lineage, where there is one."""
        self._latest: tuple[int, dict[int, int]] | None = None
        self._passed: OrderedDict[int, set[UUID]] = OrderedDict()

    def choose_first(self, part: int, first: UUID) -> bool:
        """The same of the row that a family is named after: nothing of it has to be read."""
        families = self._of_part(part)
        due = first.int
        return families.setdefault(due, due) == due

    async def choose(self, first: UUID, due: UUID) -> bool:
        """Whether the row at `due` is the delivered one of its lineage; the first caller's is."""
        part = self._part_of(first)
        chosen = self._chosen.get(part, {}).get(first.int)
        if chosen is not None:
            return chosen == due.int
        if due != first and first in await self._passed_in(part):
            return False
        self._of_part(part)[first.int] = due.int
        return True

    def begun(self, first: UUID, due: UUID, *, epoch: int) -> None:
        """This row of the lineage is being delivered, or was in that lease term."""
        part = self._part_of(first)
        families = self._of_part(part)
        chosen_by = self._chosen_by.setdefault(part, {})
        chosen_in = chosen_by.get(first.int, self._epoch if first.int in families else 0)
        if epoch >= chosen_in:
            families[first.int] = due.int
            chosen_by[first.int] = epoch

    def _of_part(self, part: int) -> dict[int, int]:
        """The lineages named after rows of a part, and the chosen row of each; all given by their numbers."""
        if self._latest is not None and self._latest[0] == part:
            return self._latest[1]
        families = self._chosen.setdefault(part, {})
        self._chosen.move_to_end(part)
        while len(self._chosen) > PARTS_MAX:
            oldest, _ = self._chosen.popitem(last=False)
            self._chosen_by.pop(oldest, None)
        self._latest = part, families
        return families

    def passed(self, part: int, ids: Iterable[UUID]) -> None:
        """This lease term passed these rows of a part, or rows of the lineages named after them."""
        if part in self._passed:
            self._passed[part].update(ids)

    async def _passed_in(self, part: int) -> set[UUID]:
        if part not in self._passed:
            self._passed[part] = await self._read_passed(part)
            while len(self._passed) > PARTS_MAX:
                self._passed.popitem(last=False)
        return self._passed[part]
