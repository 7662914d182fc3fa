"""Lives of an operator under random faults: as many as some seconds of CPU time allow, and never too few.

`make simulate OF=operator` runs many more.
"""

from __future__ import annotations

import time
from itertools import count

import pytest

from tests.simulation.operator.operator_weather import live

SHARES = 2
"""Seeds are shared out among this number of tests, so that both cores of a machine have a share."""
CPU_S = 12 / SHARES
SEEDS_MIN = 12 // SHARES


@pytest.mark.parametrize("share", range(SHARES))
def test_whatever_the_weather_the_end_is_as_without_it(share: int) -> None:
    began_s = time.process_time()
    for number, seed in enumerate(count(share, SHARES)):
        if number >= SEEDS_MIN and time.process_time() - began_s > CPU_S:
            return
        ended = live(seed)
        assert ended.problem is None, f"{ended.describe()}\n\nagain: make simulate OF=operator SEED={seed}"


def test_the_same_seed_gives_the_same_life_of_an_operator() -> None:
    assert live(3) == live(3)
