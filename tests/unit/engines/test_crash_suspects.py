"""Groups of crash suspects halve until one is alone, and nothing else is charged."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from headgate.engines.crash_suspects import (
    GROUP_MAX,
    LEVEL_ALONE,
    DeliveredGroup,
    decide_group,
    group_max,
    is_charged,
    level_after_death,
    level_of_group,
)


def test_groups_halve_from_64_to_one() -> None:
    assert [64, 32, 16, 8, 4, 2, 1] == [group_max(level) for level in range(1, LEVEL_ALONE + 1)]
    assert [LEVEL_ALONE] == [level for level in range(LEVEL_ALONE + 1) if is_charged(level)]
    assert LEVEL_ALONE == level_after_death(LEVEL_ALONE)


@pytest.mark.parametrize("size", range(1, GROUP_MAX + 1))
def test_the_level_of_a_group_is_the_last_that_holds_it(size: int) -> None:
    level = level_of_group(size)
    assert group_max(level) >= size
    assert level == LEVEL_ALONE or group_max(level + 1) < size


def test_suspects_of_one_level_are_in_flight_together() -> None:
    assert decide_group(Counter(), Counter()) is None
    assert DeliveredGroup(3, 16, 3) == decide_group(Counter({1: 50, 3: 12}), Counter())
    assert DeliveredGroup(1, 14, 1) == decide_group(Counter({1: 50, 3: 12}), Counter({1: 50}))
    assert decide_group(Counter({3: 12}), Counter({1: 50})) is None
    assert decide_group(Counter({1: 50}), Counter({1: 64})) is None


def test_a_few_suspects_are_as_good_as_halved() -> None:
    assert DeliveredGroup(1, 64, LEVEL_ALONE) == decide_group(Counter({1: 1}), Counter())
    assert DeliveredGroup(1, 64, 5) == decide_group(Counter({1: 3}), Counter())


@pytest.mark.parametrize("seed", range(200))
def test_whichever_kill_their_process_they_alone_are_charged(seed: int) -> None:
    """A process delivers groups, and ends where a guilty message is among them; the next one continues."""
    rng = Random(seed)
    count = rng.randint(1, 300)
    guilty = set(rng.sample(range(count), rng.randint(1, min(3, count))))
    levels = dict.fromkeys(range(count), 1)
    charges: Counter[int] = Counter()
    deaths = 0
    while levels:
        group = decide_group(Counter(levels.values()), Counter())
        assert group is not None
        members = [each for each, level in levels.items() if level == group.level][: group.size]
        if not guilty & set(members):
            for each in members:
                del levels[each]
            continue
        deaths += 1
        for each in members:
            charges[each] += is_charged(group.delivered_as)
            levels[each] = level_after_death(group.delivered_as)
            if charges[each] == 2:
                del levels[each]
    assert dict.fromkeys(guilty, 2) == {each: charge for each, charge in charges.items() if charge}
    assert deaths <= len(guilty) * (LEVEL_ALONE + 1)
