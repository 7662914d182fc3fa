"""Facts that each node of the home data center reports about itself: its clock, how long it keeps hints, and whether
it stores expirations after 2038.

Each query goes to that very node: `system_views` is local to a node. Only nodes of the home data center are
coordinators of Headgate's writes (rule R5), and the coordinator keeps a hint.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping

from headgate.errors import HeadgateError, Unavailable
from headgate.store.cassandra.store import CassandraStore, Coordinator
from headgate.store.clock.clock_state import READING_RESOLUTION_US
from headgate.store.model.consistency import Consistency

HINTS_WITHIN_S = 5.0
MODE_WITHIN_S = 2.0
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


async def _read_settings(
    store: CassandraStore, node: Coordinator, names: tuple[str, ...], within_s: float
) -> Mapping[str, str | None]:
    """Its current settings, including changes at run time."""
    text = f"SELECT name, value FROM system_views.settings WHERE name IN ({', '.join(['%s'] * len(names))})"  # noqa: S608 - markers
    rows = await store.cql(text, names, within_s=within_s, consistency=Consistency.ONE, at=node)
    return {row.name: row.value for row in rows}


class CassandraTimes:
    """The clocks of the nodes, one by one, as rule R1 needs them (`NodeTimes`).

    `current_timestamp()` is the node's wall clock. `now()` is not: it creates a uuid above the last one, and so
    continues to count where the clock was set back.
    """

    def __init__(self, store: CassandraStore) -> None:
        self._store = store

    def coordinators(self) -> Mapping[str, bool]:
        """By address."""
        return {node.address: node.up for node in self._store.coordinators()}

    async def ask_time(self, coordinator: str, within_s: float) -> int:
        """Microseconds, cut to milliseconds."""
        node = next((each for each in self._store.coordinators() if each.address == coordinator), None)
        if node is None:
            raise Unavailable("The node no longer exists", node=coordinator)
        rows = await self._store.cql(
            "SELECT to_unix_timestamp(current_timestamp()) AS now FROM system.local",
            consistency=Consistency.ONE,
            at=node,
            within_s=within_s,
        )
        return int(rows[0].now) * READING_RESOLUTION_US

    def exclude(self, coordinators: frozenset[str]) -> None:
        """From now on no request goes to these nodes."""
        self._store.exclude(coordinators)


class CassandraHintWindows:
    """How long each node keeps hints for others."""

    def __init__(self, store: CassandraStore) -> None:
        self._store = store

    async def read(self) -> Mapping[str, int]:
        """By address, in µs. Raises where one of them does not report it."""
        nodes = self._store.coordinators()
        windows = await asyncio.gather(*(self._ask(node) for node in nodes))
        return {node.address: window_us for node, window_us in zip(nodes, windows, strict=True)}

    async def _ask(self, node: Coordinator) -> int:
        if not node.up:
            raise HintWindowUnknown(
                node=node.address, remedy="the node is down; the collector waits until it is back"
            )
        names = ("max_hint_window", "max_hint_window_in_ms")
        settings = await _read_settings(self._store, node, names, HINTS_WITHIN_S)
        for name in names:
            window_us = window_us_of(name, settings.get(name))
            if window_us is not None:
                return window_us
        raise HintWindowUnknown(node=node.address, remedy="check that the role may read system_views.settings")


def window_us_of(name: str, value: str | None) -> int | None:
    """A duration as Cassandra writes it (`3h`, `10800000ms`), or of the older name in milliseconds."""
    match = re.fullmatch(r"(\d+)\s*([a-zµ]*)", (value or "").strip())
    if match is None:
        return None
    unit = match[2] or ("ms" if name.endswith("_in_ms") else "")
    return None if unit not in _UNITS_US else int(int(match[1]) * _UNITS_US[unit])


async def keeps_past_2038(store: CassandraStore) -> bool:
    """True if every node reports that its storage is no longer that of Cassandra 4.

    A node that does not answer, or may not be read, counts as old: then this process rejects the write, with a
    reason, rather than a server.
    """
    modes = await asyncio.gather(*(_mode_of(store, node) for node in store.coordinators()))
    return bool(modes) and all(mode and mode != "CASSANDRA_4" for mode in modes)


async def _mode_of(store: CassandraStore, node: Coordinator) -> str | None:
    name = "storage_compatibility_mode"
    try:
        return (await _read_settings(store, node, (name,), MODE_WITHIN_S)).get(name)
    except HeadgateError:
        return None
