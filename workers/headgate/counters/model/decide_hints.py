"""How long the nodes keep hints: the collector has to know it before it considers a shard final. Pure; the store
queries the nodes (`store/cassandra/node_queries.py`, or the simulation).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from headgate.errors import OperationRefused, Unavailable


class HintWindows(Protocol):
    """The query to the nodes."""

    async def read(self) -> Mapping[str, int]:
        """By node, in µs; Unavailable if one of them does not report it."""
        ...


class GcAfterTooShort(OperationRefused):
    """The setting gc.after is not longer than a node's hint window plus maxClockSkew: a late hint could be lost."""


class HintWindowsUnknown(Unavailable):
    """Not every node reports its hint window, so nothing can be considered final."""


def decide_hint_windows(windows_us: Mapping[str, int], *, after_us: int, skew_us: int) -> None:
    """Refuse to take shards for final while a hint of them may still be on its way."""
    for node, window_us in sorted(windows_us.items()):
        if after_us <= window_us + skew_us:
            raise GcAfterTooShort(
                node=node,
                hint_window_s=window_us / 1e6,
                gc_after_s=after_us / 1e6,
                remedy="raise spec.gc.after, or lower max_hint_window on that node",
            )
