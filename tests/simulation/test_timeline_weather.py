"""Lives of a timeline queue under random faults; `make simulate` runs many more seeds."""

from __future__ import annotations

import pytest

from tests.simulation.timeline_weather import live


@pytest.mark.parametrize("seed", range(24))
def test_whatever_the_weather_all_that_was_acknowledged_is_settled_once(seed: int) -> None:
    ended = live(seed)
    assert ended.problem is None, f"{ended.problem}\nagain: make simulate SEED={seed}"


def test_the_same_seed_gives_the_same_life_byte_for_byte() -> None:
    assert live(3) == live(3)
