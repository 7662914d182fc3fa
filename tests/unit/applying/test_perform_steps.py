"""Steps on a schema that is there: what stands is not asked for again, which could need rights that nobody has."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from headgate.applying.decide_steps import CreateKeyspace
from headgate.applying.perform_steps import StepPerformer
from headgate.store.model.table import Keyspace
from headgate.store.schema import ActualKeyspace

KEYSPACE = Keyspace("headgate", (("dc1", 3),))
THERE = ActualKeyspace("headgate", "NetworkTopologyStrategy", {"dc1": 3})


class Schema:
    """A server that has one keyspace or none, and notes what it was asked to change."""

    def __init__(self, result: ActualKeyspace | None) -> None:
        self.keyspace = result
        self.changes: list[str] = []

    async def read_keyspace(self, name: str) -> ActualKeyspace | None:
        return self.keyspace if name == KEYSPACE.name else None

    async def change(self, cql: str) -> None:
        self.changes.append(cql)


@pytest.mark.parametrize(("result", "asked"), [(THERE, 0), (None, 1)], ids=["there", "missing"])
def test_a_keyspace_is_asked_for_only_where_it_is_missing(result: ActualKeyspace | None, asked: int) -> None:
    schema, nobody = Schema(result), cast(Any, None)
    performer = StepPerformer(cast(Any, schema), catalogue=nobody, store_in=nobody)
    asyncio.run(performer.perform(CreateKeyspace(KEYSPACE)))
    assert [CreateKeyspace(KEYSPACE).cql] * asked == schema.changes
