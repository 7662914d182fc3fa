"""Steady lives of a timeline queue: what can be handed out does not wait, and no structure grows.

`make simulate OF=steady` runs many more.
"""

from __future__ import annotations

import pytest

from tests.simulation.timeline.steady import live

SEEDS = (2, 3, 10, 13, 15)
"""An even load with groups; long handlers under refusals; delays; cancelled calls; large messages."""
LONG_SEEDS = range(100, 200)


@pytest.mark.parametrize("seed", [*SEEDS, *(pytest.param(seed, marks=pytest.mark.slow) for seed in LONG_SEEDS)])
def test_nothing_waits_while_a_consumer_asks_and_nothing_grows(seed: int) -> None:
    ended = live(seed)
    assert ended.problem is None, (
        f"{ended.describe()}\n\nagain, with its history: make simulate OF=steady SEED={seed}"
    )
