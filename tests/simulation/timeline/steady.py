"""One seed, one steady life of a timeline queue (steady_plan.py), by the actors and the judge of the weather."""

from __future__ import annotations

from tests.simulation.timeline.steady_plan import steady_plan_of
from tests.simulation.timeline.timeline_weather import Ended, live_by


def live(seed: int, *, statements: bool = False) -> Ended:
    """Run one seed."""
    return live_by(steady_plan_of(seed), statements=statements)
