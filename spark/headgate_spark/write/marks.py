"""Reads and sets the mark of a query's batch, by LWT. decide_marks.py interprets it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from headgate.errors import Conflict
from headgate.store.catalogue.tables import BULK_MARKS
from headgate.store.model.consistency import Consistency
from headgate.store.model.statements import InsertIfAbsent, Select, UpdateIf, is_
from headgate.store.model.types import Value
from headgate.store.store import Store
from headgate_spark.write.decide_marks import Mark, decide_mark

KEPT_S = 400 * 86_400
TRIES = 50


class MarkContended(Conflict):
    """Too many tasks set the mark of one query at once."""


@dataclass(frozen=True)
class BatchMarks:
    store: Store
    """Of the catalogue's keyspace."""
    subject: UUID
    new_uuid: Callable[[], UUID]

    async def begin(self, query: str, mine: Mark, *, remembered_us: int, skew_us: int) -> Mark:
        """The mark of this batch, set by its first task; refused where the batch may not be written."""
        for _ in range(TRIES):
            known = await self._read(query)
            mark = decide_mark(known, mine, remembered_us=remembered_us, skew_us=skew_us)
            if mark is not None:
                return mark
            await self._set(query, known, mine)
        raise MarkContended(query=query, batch=mine.batch)

    async def _read(self, query: str) -> Mark | None:
        key: dict[str, Value] = {"id": self.subject, "query": query}
        columns = ("batch", "begun_us", "key_column")
        rows = await self.store.read(Select(BULK_MARKS, key, columns, consistency=Consistency.SERIAL))
        return Mark(rows[0].batch, rows[0].begun_us, rows[0].key_column) if rows else None

    async def _set(self, query: str, known: Mark | None, mine: Mark) -> None:
        """Applied or not, a read determines it."""
        key: dict[str, Any] = {"id": self.subject, "query": query}
        to: dict[str, Any] = {"batch": mine.batch, "begun_us": mine.begun_us, "key_column": mine.key_column}
        attempt = self.new_uuid()
        if known is None:
            await self.store.decide(InsertIfAbsent(BULK_MARKS, {**key, **to}, attempt=attempt, ttl_s=KEPT_S))
            return
        conditions = (is_("batch", known.batch), is_("begun_us", known.begun_us))
        await self.store.decide(UpdateIf(BULK_MARKS, key, to, *conditions, attempt=attempt, ttl_s=KEPT_S))
