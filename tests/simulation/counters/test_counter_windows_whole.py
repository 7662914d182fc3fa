"""A window that is read whole, key by key in pages, gives the same result as reading its keys one by one."""

from __future__ import annotations

import pytest

from headgate.counters.collect import fold_minutes
from headgate.counters.collect.fold_minutes import WindowReader
from headgate.counters.model.decide_windows import window_at
from tests.simulation.counters.counter_life import KIND, SECOND
from tests.simulation.counters.counter_scenes import UNTIL_FOLDED_S, Scene, play

MINUTE = 60 * SECOND


@pytest.mark.parametrize("page_rows", [2, 3, 500])
def test_every_key_comes_once_with_all_its_mutators_and_its_tokens(
    page_rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fold_minutes, "WINDOW_PAGE_ROWS", page_rows)

    async def scenario(scene: Scene) -> None:
        reader = scene.actor("reader")
        begin_us = window_at(reader.now_us(), MINUTE).end_us
        await scene.world.sleep((begin_us - reader.now_us()) / SECOND + 1)
        for number in range(5):
            writer = scene.actor(f"writer {number}")
            for key in ("about", "home", "zoo")[: 1 + number % 3]:
                assert await writer.add(1 << number, key)
        tokener = scene.actor("writer 0")
        assert await tokener.add(100, "token", tokener.counter.new_token())
        await scene.world.sleep(UNTIL_FOLDED_S)
        whole = WindowReader(reader.host, scene.settings, KIND)
        window = window_at(begin_us, MINUTE)

        async def read() -> dict[str, int]:
            result: dict[str, int] = {}
            async for key, state in whole.keys(0, window):
                assert key not in result
                result[key] = int(KIND.value(state, {}))
            return result

        result = await reader.process.start(read())
        assert ["about", "home", "token", "zoo"] == list(result)
        for key, value in result.items():
            one = await reader.process.start(reader.counter.read_between(key, window.start_us, window.end_us))
            assert (key, int(KIND.value(one, {}))) == (key, value)
        assert {"about": 31, "home": 2 + 4 + 16, "token": 100, "zoo": 4} == result

    play(scenario, grains_us=(MINUTE,))
