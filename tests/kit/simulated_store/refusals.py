"""Statements that the ring refuses for a while: of one table, of one client, or all, as where rights are revoked.

A coordinator checks rights before it does anything, and for each statement of a batch: what is refused is not done.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from headgate.errors import HeadgateError, OperationRefused
from headgate.store.model.statements import Batch, BatchIf
from tests.kit.simulated_store.scanning import RangeCommand


@dataclass(frozen=True, eq=False)
class Refusal:
    """What is refused; None: any. `error` is the answer."""

    table: str | None
    client: str | None
    error: HeadgateError

    def concerns(self, client: str, statement: Any) -> bool:
        """Whether it refuses that statement of that client."""
        return self.client in (None, client) and (self.table is None or self.table in tables_of(statement))


NOT_ALLOWED = OperationRefused("Cassandra's role may not do this")


def tables_of(statement: Any) -> Iterator[str]:
    """The names of the tables that a statement reads or writes."""
    if isinstance(statement, RangeCommand):
        statement = statement.scan
    for each in statement.statements if isinstance(statement, Batch | BatchIf) else (statement,):
        yield each.shape.table.name
