"""How long each node of the home data center keeps hints for others, as the node itself reports: its current setting,
including changes at run time.

Only nodes of the home data center are coordinators of Headgate's writes (rule R5), and the coordinator keeps a hint.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from typing import Any

from headgate.errors import Unavailable
from headgate.store.cassandra.store import CassandraStore, Coordinator
from headgate.store.model.consistency import Consistency

ASK_WITHIN_S = 5.0
_NAMES = ("max_hint_window", "max_hint_window_in_ms")
_UNITS_US = {
    "d": 86_400_000_000,
    "h": 3_600_000_000,
    "m": 60_000_000,
    "s": 1_000_000,
    "ms": 1_000,
    "us": 1,
    "µs": 1,
    "ns": 0.001,
}


class HintWindowUnknown(Unavailable):
    """A node does not report how long it keeps hints, so nothing can be considered final."""


class CassandraHintWindows:
    """Queries the nodes."""

    def __init__(self, store: CassandraStore) -> None:
        self._store = store

    async def read(self) -> Mapping[str, int]:
        """By address, in µs. Raises where one of them does not report it."""
        nodes = self._store.coordinators()
        windows = await asyncio.gather(*(self._ask(node) for node in nodes))
        return {node.address: window_us for node, window_us in zip(nodes, windows, strict=True)}

    async def _ask(self, node: Coordinator) -> int:
        """`system_views` is local to a node: this query goes to that very node."""
        if not node.up:
            raise HintWindowUnknown(
                node=node.address, remedy="the node is down; the collector waits until it is back"
            )
        rows: list[Any] = await self._store.cql(
            "SELECT name, value FROM system_views.settings WHERE name IN (%s, %s)",
            _NAMES,
            within_s=ASK_WITHIN_S,
            consistency=Consistency.ONE,
            at=node,
        )
        settings = {row.name: row.value for row in rows}
        for name in _NAMES:
            window_us = window_us_of(name, settings.get(name))
            if window_us is not None:
                return window_us
        raise HintWindowUnknown(node=node.address, remedy="check that the role may read system_views.settings")


def window_us_of(name: str, value: str | None) -> int | None:
    """A duration as Cassandra writes it (`3h`, `10800000ms`), or of the older name in milliseconds."""
    if value is None:
        return None
    match = re.fullmatch(r"(\d+)\s*([a-zµ]*)", value.strip())
    if match is None:
        return None
    unit = match[2] or ("ms" if name.endswith("_in_ms") else "")
    return None if unit not in _UNITS_US else int(int(match[1]) * _UNITS_US[unit])
