"""Lives of a counter under random faults: as many as some seconds of CPU time allow, and never too few.

`make simulate` runs many more: `python -m dev.simulate --of counters`.
"""

from __future__ import annotations

import time
from itertools import count

import pytest

from tests.simulation.counters.counter_weather import live

SHARES = 2
CPU_S = 8 / SHARES
SEEDS_MIN = 16 // SHARES


@pytest.mark.parametrize("share", range(SHARES))
def test_whatever_the_weather_every_update_of_a_counter_counts_once(share: int) -> None:
    began_s = time.process_time()
    for number, seed in enumerate(count(share, SHARES)):
        if number >= SEEDS_MIN and time.process_time() - began_s > CPU_S:
            return
        ended = live(seed)
        again = f"again, with its history: python -m dev.simulate --of counters --seed {seed}"
        assert ended.problem is None, f"{ended.describe()}\n\n{again}"


def test_the_same_seed_gives_the_same_life_of_a_counter_byte_for_byte() -> None:
    assert live(2, statements=True) == live(2, statements=True)
