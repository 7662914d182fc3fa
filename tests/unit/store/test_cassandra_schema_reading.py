"""The schema is read by two questions: what others do in between shows as what it is, and never as drift."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from headgate.store.cassandra import schema
from headgate.store.cassandra.schema import CassandraSchema, NotAgreed

TABLE = {
    "id": UUID(int=1),
    "gc_grace_seconds": 864_000,
    "default_time_to_live": 0,
    "comment": "",
    "compaction": {},
    "compression": {},
}
COLUMN = {"column_name": "p", "type": "uuid", "kind": "partition_key", "position": 0, "clustering_order": "none"}


class Server:
    """Answers the two questions in turn, from the state that it shows at that time."""

    def __init__(self, *shown: tuple[set[str], set[str]]) -> None:
        self.shown = list(shown)
        """The content of `tables` and of `columns`, read by read; the last one for ever."""
        self.checks = 0

    async def cql(self, text: str, values: Any = (), **_: Any) -> list[Any]:
        """The rows of the question."""
        tables, columns = self.shown[min(self.checks, len(self.shown) - 1)]
        if "system_schema.tables" in text:
            return [SimpleNamespace(table_name=name, **TABLE) for name in sorted(tables)]
        self.checks += 1
        return [SimpleNamespace(table_name=name, **COLUMN) for name in sorted(columns)]


def read(server: Server) -> dict[str, int]:
    """The tables as they are found, with the number of their columns."""
    result = asyncio.run(CassandraSchema(server).read_tables("k"))  # type: ignore[arg-type]  # as far as it is asked
    return {name: len(table.columns) for name, table in result.items()}


@pytest.mark.parametrize(
    ("shown", "result"),
    [
        ([({"a"}, {"a"})], {"a": 1}),
        ([({"a"}, {"a", "b"})], {"a": 1}),
        ([({"a", "b"}, {"a"}), ({"a", "b"}, {"a", "b"})], {"a": 1, "b": 1}),
        ([({"a", "b"}, {"a"}), ({"a"}, {"a"})], {"a": 1}),
    ],
    ids=["at rest", "made after the first question", "shown before its columns", "dropped in between"],
)
def test_a_table_is_found_whole_or_not_at_all(shown: list[Any], result: dict[str, int]) -> None:
    assert result == read(Server(*shown))


def test_a_table_that_never_shows_its_columns_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema, "AGREED_WITHIN_S", 0.0)
    with pytest.raises(NotAgreed, match=r"table=k\.b"):
        read(Server(({"a", "b"}, {"a"})))
