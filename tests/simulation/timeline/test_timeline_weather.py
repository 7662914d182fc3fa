"""Lives of a timeline queue under random faults: as many as some seconds of CPU time allow, and never too few.

`make simulate` runs many more.
"""

from __future__ import annotations

import time
from itertools import count

import pytest

from tests.simulation.timeline.timeline_weather import live

SHARES = 2
"""Seeds are shared out among this number of tests, so that both cores of a machine have a share."""
CPU_S = 16
LONG_CPU_S = 600
SEEDS_MIN = 50 // SHARES


@pytest.mark.parametrize("cpu_s", [CPU_S, pytest.param(LONG_CPU_S, marks=pytest.mark.slow)])
@pytest.mark.parametrize("share", range(SHARES))
def test_whatever_the_weather_every_invariant_holds(share: int, cpu_s: float) -> None:
    began_s = time.process_time()
    for number, seed in enumerate(count(share, SHARES)):
        if number >= SEEDS_MIN and time.process_time() - began_s > cpu_s / SHARES:
            return
        ended = live(seed)
        assert ended.problem is None, f"{ended.describe()}\n\nagain, with its history: make simulate SEED={seed}"


def test_the_same_seed_gives_the_same_life_byte_for_byte() -> None:
    assert live(3, statements=True) == live(3, statements=True)
