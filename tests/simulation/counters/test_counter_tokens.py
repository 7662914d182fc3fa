"""Updates with a token count once: sent again by any process within the window, folded by anybody, read meanwhile."""

from __future__ import annotations

import asyncio

import pytest

from headgate.counters.model.decide_tokens import Token, TokenAhead, TokenInvalid, TokenTooOld
from headgate.counters.write.tokens import TokenUnknown
from tests.kit.simulated_world import ProcessState
from tests.simulation.counters.counter_life import SECOND
from tests.simulation.counters.counter_scenes import (
    DAY_S,
    SETTINGS,
    TOKEN_WINDOW_S,
    UNTIL_FOLDED_S,
    Scene,
    at_every_step,
    ends_in_error,
    play,
)


def test_an_update_sent_by_many_processes_within_the_window_counts_once() -> None:
    async def scenario(scene: Scene) -> None:
        token = str(scene.actor("first").counter.new_token("order 1"))
        for number in range(8):
            assert await scene.actor(f"sender {number}").add(1, token=token)
            await scene.world.sleep(TOKEN_WINDOW_S / 9)
            assert await scene.value() == 1
        await scene.world.sleep(UNTIL_FOLDED_S)
        await scene.actor("folder").fold()
        assert await scene.value() == 1

    play(scenario)


def test_killed_at_every_step_an_update_is_sent_again_by_another_and_counts_once() -> None:
    async def scenario(scene: Scene, step: int) -> bool:
        first = scene.actor("first")
        token = str(first.counter.new_token("order 1"))
        first.process.kill_before_step(step)
        first.process.start(first._add(1, "home", token))
        await scene.world.sleep(2)
        struck = first.process.state is ProcessState.DEAD
        assert await scene.actor("second").add(1, token=token)
        assert await scene.value() == 1
        await scene.world.sleep(UNTIL_FOLDED_S)
        await scene.actor("folder").fold()
        assert await scene.value() == 1
        return struck

    assert at_every_step(scenario) > 3


def test_past_the_window_a_repetition_is_refused_as_nobody_can_report() -> None:
    async def scenario(scene: Scene) -> None:
        writer = scene.actor("writer")
        token = writer.counter.new_token("order 1")
        assert await writer.add(1, token=token)
        await scene.world.sleep(UNTIL_FOLDED_S)
        assert type(await ends_in_error(writer.add(1, token=token))) is TokenTooOld
        assert await scene.value() == 1

    play(scenario)


def test_tokens_of_a_clock_that_is_ahead_or_of_nobody_are_refused() -> None:
    async def scenario(scene: Scene) -> None:
        writer = scene.actor("writer")
        ahead = Token(writer.now_us() // SECOND + 10, "order 1")
        assert type(await ends_in_error(writer.add(1, token=ahead))) is TokenAhead
        for text in ("order 1", "", "123-order", "0000000000-", f"{0:010d}-" + "x" * 300, "\u0660" * 10 + "-x"):
            assert type(await ends_in_error(writer.add(1, token=text))) in (TokenInvalid, TokenTooOld)
        assert await scene.value() == 0

    play(scenario)


def test_without_a_quorum_an_update_is_unknown_and_counts_once_when_it_is_sent_again() -> None:
    async def scenario(scene: Scene) -> None:
        writer = scene.actor("writer")
        token = writer.counter.new_token("order 1")
        scene.world.network.lose("answer", count=1000)
        assert not await writer.add(1, token=token)
        scene.world.network.calm()
        assert await scene.value() == 1
        assert await scene.actor("another").add(1, token=token)
        assert await scene.value() == 1

    play(scenario)


def test_an_unknown_update_is_reported_as_such() -> None:
    async def scenario(scene: Scene) -> None:
        writer = scene.actor("writer")
        scene.world.network.lose("answer", count=1000)
        token = writer.counter.new_token("order 1")
        error = await writer.process.start(ends_in_error(_added(writer.counter.add("home", 1, token))))
        assert type(error) is TokenUnknown

    play(scenario)


async def _added(future: asyncio.Future[None]) -> None:
    await future


def test_the_same_token_in_two_keys_is_two_updates() -> None:
    async def scenario(scene: Scene) -> None:
        writer = scene.actor("writer")
        token = writer.counter.new_token("order 1")
        assert await writer.add(1, "a", token)
        assert await writer.add(2, "b", token)
        assert (await scene.value("a"), await scene.value("b")) == (1, 2)

    play(scenario)


def test_folders_side_by_side_and_collectors_and_readers_change_nothing() -> None:
    async def scenario(scene: Scene) -> None:
        writer = scene.actor("writer")
        expected = 0
        for number in range(30):
            assert await writer.add(1 << number, token=writer.counter.new_token(f"order {number}"))
            expected |= 1 << number
            await scene.world.sleep(7)
        await scene.world.sleep(UNTIL_FOLDED_S)
        folders = [scene.actor(f"folder {number}") for number in range(4)]
        readers = [scene.actor(f"reader-{number}") for number in range(4)]

        async def read_on(reader: object) -> None:
            for _ in range(40):
                assert await reader.counter.read("home") == expected  # type: ignore[attr-defined]

        await asyncio.gather(
            *(folder.fold() for folder in folders), *(reader.process.start(read_on(reader)) for reader in readers)
        )
        assert await scene.value() == expected
        await scene.world.sleep(2 * DAY_S)
        await asyncio.gather(*(folder.collect() for folder in folders))
        assert await scene.value() == expected

    for seed in range(5):
        play(scenario, seed=seed)


def test_rows_of_folded_minutes_go_an_hour_later_and_no_sooner() -> None:
    async def scenario(scene: Scene) -> None:
        writer, folder = scene.actor("writer"), scene.actor("folder")
        assert await writer.add(1, token=writer.counter.new_token("order 1"))
        await scene.world.sleep(UNTIL_FOLDED_S)
        for wait_s, left in ((0, 1), (3000, 1), (601, 0)):
            await scene.world.sleep(wait_s)
            await folder.fold()
            assert _token_rows(scene) == left
        assert await scene.value() == 1

    play(scenario)


def _token_rows(scene: Scene) -> int:
    node = scene.cluster.nodes["n1"]
    held = node.replica.tables.get(SETTINGS.tables.tokens.name, {})
    return sum(row.is_live(node.now_s) for each in held.values() for row in each.partition.rows.values())


@pytest.mark.parametrize("folded", [False, True], ids=["before the fold", "after it"])
def test_a_scan_meets_keys_that_have_updates_with_tokens_alone(folded: bool) -> None:
    async def scenario(scene: Scene) -> None:
        writer = scene.actor("writer")
        for number in range(40):
            assert await writer.add(number + 1, f"k{number:02}", writer.counter.new_token("order"))
            if number % 3 == 0:
                assert await writer.add(1000, f"k{number:02}")
        if folded:
            await scene.world.sleep(UNTIL_FOLDED_S)
            await scene.actor("folder").fold()

        async def scan() -> dict[str, int]:
            return {key: state async for key, state in scene.actor("reader").counter.scan()}

        observation = await scene.actor("reader").process.start(scan())
        assert observation == {f"k{number:02}": number + 1 + 1000 * (number % 3 == 0) for number in range(40)}

    play(scenario, buckets=3)


def test_windows_hold_updates_with_tokens_before_and_after_the_fold() -> None:
    async def scenario(scene: Scene) -> None:
        writer, reader = scene.actor("writer"), scene.actor("reader")
        grain = 20 * SECOND
        start = (writer.now_us() // grain + 3) * grain
        await scene.world.sleep((start - writer.now_us()) / SECOND)
        for number in range(6):
            assert await writer.add(1 << number, token=writer.counter.new_token(f"order {number}"))
            await scene.world.sleep(10)

        async def output() -> list[int]:
            return [
                await reader.process.start(reader.counter.read_between("home", start + n * grain, start + m * grain))
                for n, m in ((0, 1), (1, 2), (2, 3), (0, 3))
            ]

        assert await output() == [3, 12, 48, 63]
        await scene.world.sleep(UNTIL_FOLDED_S)
        await scene.actor("folder").fold()
        assert await output() == [3, 12, 48, 63]
        await scene.world.sleep(4000)
        await scene.actor("folder").fold()
        assert await output() == [3, 12, 48, 63]

    play(scenario, grains_us=(20 * SECOND,))
