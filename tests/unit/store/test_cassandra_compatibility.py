"""Expiry after 2038 is kept only where every node supports it."""

from __future__ import annotations

import asyncio
from collections import namedtuple
from typing import Any

import pytest

from headgate.errors import OperationRefused, Unavailable
from headgate.store.cassandra.node_queries import keeps_past_2038
from headgate.store.cassandra.store import Coordinator

Setting = namedtuple("Setting", "name value")


class Nodes:
    """Nodes that answer, each in its own way."""

    def __init__(self, *answers: str | Exception | None) -> None:
        self.answers = {f"10.0.0.{number}": answer for number, answer in enumerate(answers)}

    def coordinators(self) -> tuple[Coordinator, ...]:
        """All of them, up."""
        return tuple(Coordinator(address, "dc1", "r1", True) for address in self.answers)

    async def cql(self, text: str, names: tuple[str, ...], *, at: Coordinator, **_: Any) -> list[Any]:
        """The answer of this one."""
        assert "system_views.settings" in text
        assert ("storage_compatibility_mode",) == names
        answer = self.answers[at.address]
        if isinstance(answer, Exception):
            raise answer
        return [] if answer is None else [Setting("storage_compatibility_mode", answer)]


@pytest.mark.parametrize(
    ("answers", "kept"),
    [
        (("NONE",), True),
        (("NONE", "UPGRADING", "NONE"), True),
        (("CASSANDRA_4",), False),
        (("NONE", "CASSANDRA_4", "NONE"), False),
        (("NONE", Unavailable("no answer")), False),
        (("NONE", OperationRefused("the role may not ask")), False),
        (("NONE", None), False),
        ((), False),
    ],
)
def test_it_is_kept_where_every_node_of_the_data_centre_reports_it(answers: tuple[Any, ...], kept: bool) -> None:
    assert kept == asyncio.run(keeps_past_2038(Nodes(*answers)))  # type: ignore[arg-type]  # as far as it is asked
