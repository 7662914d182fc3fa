"""Repair's access to the catalogue: the process that repairs a queue advances and deletes its generations.

Any process may do it (docs/internals/protocols/repair.md): the step follows from the stored state, and each
step is an LWT on the read state.
"""

from __future__ import annotations

from collections.abc import Callable

from headgate.store.catalogue.catalogue import Catalogue
from headgate.store.catalogue.entry import Entry


class CatalogueGenerations:
    """The generations of one queue. `GenerationKeeper` of an engine."""

    def __init__(self, catalogue: Catalogue, entry: Entry, skew_us: Callable[[], int]) -> None:
        self._catalogue = catalogue
        self._entry = entry
        self._skew_us = skew_us

    async def make_sure(self) -> None:
        await self._catalogue.turn(self._entry, skew_us=self._skew_us())

    async def retire(self, number: int) -> None:
        await self._catalogue.retire(self._entry, number)
