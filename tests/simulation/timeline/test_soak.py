"""A day of a timeline queue, in virtual time. `python -m dev.simulate --soak --seeds 10` runs more of them."""

from __future__ import annotations

import pytest

from tests.simulation.timeline.soak import live


@pytest.mark.slow
def test_in_a_day_of_faults_and_quiet_every_invariant_holds_and_nothing_grows() -> None:
    ended = live(1)
    assert ended.problem is None, f"{ended.describe()}\n\nagain, with its history: make simulate OF=soak SEED=1"
