"""The figures of the status: backlog, workers, and the counts of the last passes. They are rounded, so that a status
is not written for details: three digits above 1,000, ages in seconds below a minute, then to 5 %.

Pure. An unknown figure keeps its last value.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

from headgate.api.resources.counters import CounterResource
from headgate.api.values.units import format_duration_ms
from headgate.expiry import SECOND_US
from headgate.store.catalogue.entry import Entry
from headgate_operator.decide.children import ConsumerState
from headgate_operator.decide.maintenance import format_time
from headgate_operator.decide.ownership import is_ours
from headgate_operator.decide.scaling import known_figures
from headgate_operator.model.names import GROUP
from headgate_operator.model.plan import PartialPlan
from headgate_operator.model.world import DecisionMemory, LaneHealth, Passes, ResourceWorld, StoreView

DIGITS: Final = 3
AGE_STEP: Final = 1.05
MINUTE_S: Final = 60


def decide_stats(
    world: ResourceWorld, stands: Sequence[ConsumerState] | None, memory: DecisionMemory, now_us: int
) -> PartialPlan:
    resource = world.resource.parsed if world.resource else ()
    if isinstance(resource, tuple):
        return PartialPlan(memory)
    if isinstance(resource, CounterResource):
        return PartialPlan(memory, figures=_counted(world))
    fields: dict[str, Any] = {"selector": f"{GROUP}/queue={world.key.name}", **_load(world, now_us), **_passes(world)}
    entry = world.store.entry if isinstance(world.store, StoreView) else None
    if entry is not None and is_ours(world, entry):
        fields["lanes"] = _lanes(world, entry, now_us)
    if stands is not None:
        fields["consumers"] = [
            {"name": stand.name, "replicas": stand.replicas, "ready": stand.ready} for stand in stands
        ] or None
    return PartialPlan(memory, figures=fields)


def lanes_of(entry: Entry) -> int:
    """Those of all generations that are not retired."""
    return sum(window.shards for window in entry.generations.windows())


def rounded(number: float) -> int:
    whole = round(number)
    unit = 10 ** max(0, len(str(abs(whole))) - DIGITS)
    return round(whole / unit) * unit if abs(whole) >= 10**DIGITS else whole


def rounded_age_s(age_s: int) -> int:
    """Seconds below a minute, then the nearest of steps that are 5 % apart."""
    if age_s < MINUTE_S:
        return max(0, age_s)
    steps = round(math.log(age_s / MINUTE_S) / math.log(AGE_STEP))
    return round(MINUTE_S * AGE_STEP**steps)


def _load(world: ResourceWorld, now_us: int) -> dict[str, Any]:
    known = known_figures(world, now_us)
    if known is None:
        return {}
    fields: dict[str, Any] = {"inFlight": rounded(known.in_flight), "rate": rounded(known.rate)}
    behind = known.behind
    if behind is None and not known.awake:
        behind = 0
    if behind is not None:
        fields["backlog"] = rounded(behind)
    oldest_us = known.oldest_us
    age_s = None if oldest_us is None or not behind else rounded_age_s((now_us - oldest_us) // SECOND_US)
    fields["oldestAge"] = None if age_s is None else format_duration_ms(age_s * 1000)
    return fields


def _lanes(world: ResourceWorld, entry: Entry, now_us: int) -> dict[str, int]:
    known = known_figures(world, now_us)
    kept = world.status.get("lanes") or {}
    fields = {
        "total": lanes_of(entry),
        "leased": int(kept.get("leased") or 0),
        "stalled": int(kept.get("stalled") or 0),
    }
    if known is not None:
        fields["leased"] = known.leased
    if isinstance(world.lanes, LaneHealth):
        fields["stalled"] = len({one.lane for one in (*world.lanes.unprocessed, *world.lanes.suspicious)})
    return fields


def _passes(world: ResourceWorld) -> dict[str, Any]:
    passes = world.passes
    if not isinstance(passes, Passes) or passes.ended_us is None:
        return {}
    failed = passes.failed_runs > 0 or passes.problems > 0
    fields: dict[str, Any] = {
        "lastRun": format_time(passes.ended_us),
        "lastResult": "Failed" if failed else "Succeeded",
    }
    if passes.owed_us is not None:
        fields["oldestOwed"] = format_time(passes.owed_us)
    return {"repair": fields}


def _counted(world: ResourceWorld) -> dict[str, Any]:
    passes = world.passes
    if not isinstance(passes, Passes):
        return {}
    return {
        "keys": passes.keys,
        "shards": passes.shards,
        "expiredShards": passes.expired,
        "lastCollection": None if passes.ended_us is None else format_time(passes.ended_us),
    }
