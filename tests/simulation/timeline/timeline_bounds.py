"""Bounds made so small that a life of a minute meets their edges: what is kept in memory, read, or open at a time.

Each bound is in or out by the seed, so that none hides another.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from types import ModuleType
from typing import Any
from unittest.mock import patch

from headgate.engines.lanes.log import settle_log
from headgate.engines.timeline.lanes import timeline_lanes
from headgate.engines.timeline.model import partitions
from headgate.engines.timeline.put import decide_row_ack, once, part_records
from headgate.engines.timeline.read import part_index, part_reader, passed_rows_log
from headgate.engines.timeline.repair import skip_settled

CONSTANTS: dict[str, tuple[ModuleType, dict[str, int]]] = {
    "pieces of a settle log": (settle_log, {"PIECE_BYTES_MAX": 300}),
    "parts that a producer knows": (partitions, {"PARTS_MAX": 3, "INDEXED_MAX": 3}),
    "samples of latencies": (decide_row_ack, {"SAMPLES_MAX": 16}),
    "parts that a lane passes": (passed_rows_log, {"PARTS_MAX": 3}),
    "rows of a sub": (partitions, {"SUB_ROWS_MAX": 20}),
    "parts that a reader knows": (part_index, {"PARTS_MAX": 2, "DAYS_MAX": 2}),
    "rows of a read": (part_reader, {"ROWS_MAX": 7}),
    "keys of a claim": (once, {"CLAIMED_AT_ONCE_MAX": 2, "SLOTS_AT_ONCE_MAX": 1}),
    "put counts": (part_records, {"COUNTS_EACH_MAX": 2, "COUNTS_AT_ONCE": 2}),
    "rows that repair skips": (skip_settled, {"ROWS_MAX": 5}),
}
SLOW_POLLS = "slow polls"
"""No bound: a day of virtual time costs a minute of CPU time so, and not ten."""
TERMS: dict[str, tuple[ModuleType, str, dict[str, float]]] = {
    SLOW_POLLS: (timeline_lanes, "DispatchTerms", {"poll_s_max": 10.0, "turn_s": 3.0}),
    "messages in flight": (timeline_lanes, "DeliveryTerms", {"in_flight_max": 8}),
    "read-ahead": (timeline_lanes, "DispatchTerms", {"read_ahead_bytes": 3_000, "slice_bytes": 1_000}),
}
READ_BUDGET = "bytes of all lanes"
READ_BUDGET_BYTES = 4_000
BOUNDS = (*CONSTANTS, *(name for name in TERMS if name != SLOW_POLLS), READ_BUDGET)


@contextmanager
def small_bounds(names: Collection[str]) -> Iterator[None]:
    """These bounds are small within; that of all lanes is the host's (`READ_BUDGET_BYTES`)."""
    with ExitStack() as stack:
        for name in sorted(names):
            if name in CONSTANTS:
                module, values = CONSTANTS[name]
                for constant, value in values.items():
                    stack.enter_context(patch.object(module, constant, value))
            elif name in TERMS:
                module, kind, values = TERMS[name]
                real: Callable[..., Any] = getattr(module, kind)
                stack.enter_context(patch.object(module, kind, partial(real, **values)))
        yield
