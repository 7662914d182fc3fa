"""Collecting never changes a value: batches sent repeatedly, collectors side by side, ties, unavailable nodes."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from random import Random

import pytest

from headgate.counters.collect.collector import SKIPPED_IN_A_ROW_MAX, Collector
from headgate.counters.counter import COLLECT_AGAIN_US
from headgate.counters.model.decide_passes import DAY_US
from headgate.counters.model.decide_shards import TALLY
from headgate.errors import Unavailable
from headgate.process.live import Live
from headgate.store.model.consistency import Consistency
from headgate.store.model.statements import Batch
from tests.kit.simulated_store import Settings
from tests.kit.simulated_world import ProcessState
from tests.simulation.counters.counter_life import KIND, SECOND, SimulatedHints
from tests.simulation.counters.counter_scenes import (
    GC_AFTER_S,
    SETTINGS,
    UNTIL_FINAL_S,
    UNTIL_FOLDED_S,
    Scene,
    at_every_step,
    play,
)


def test_final_shards_become_one_tally_and_the_value_stays() -> None:
    async def scenario(scene: Scene) -> None:
        await scene.shards(1, 2, 4, 8)
        assert await scene.actor("collector").collect() == 0
        await scene.world.sleep(UNTIL_FINAL_S)
        assert await scene.actor("collector").collect() == 4
        assert scene.rows("n1") == [TALLY]
        assert await scene.value() == 15

    play(scenario)


def test_the_batches_of_collectors_sent_a_thousand_times_in_any_order_change_nothing() -> None:
    """All batches that were ever sent, again and again, late and in any order, while others count and collect."""

    async def scenario(scene: Scene) -> None:
        sent: list[Batch] = []
        expected = 0
        own = Random("interleaving")
        for turn in range(5):
            numbers = [1 << (4 * turn + each) for each in range(4)]
            await scene.shards(*numbers)
            expected += sum(numbers)
            await scene.world.sleep(UNTIL_FINAL_S)
            collector = scene.actor(f"collector {turn}")
            keep = collector.store.write

            async def write(statement: object, *, within_s: float | None = None, keep: object = keep) -> None:
                if isinstance(statement, Batch):
                    sent.append(statement)
                await keep(statement, within_s=within_s)  # type: ignore[operator]

            collector.store.write = write  # type: ignore[method-assign, assignment]
            await collector.collect()
            again = scene.actor(f"sender {turn}")
            for _ in range(200):
                level = own.choice((Consistency.ONE, Consistency.LOCAL_QUORUM))
                batch = own.choice(sent)
                await again.store.attempt(Batch(batch.statements, consistency=level), 5)
            assert await scene.value() == expected
            if own.random() < 0.5:
                scene.forget_tombstones()
                assert await scene.value() == expected
        assert len(sent) == 5

    play(scenario)


def test_collectors_side_by_side_with_updates_and_readers_change_nothing() -> None:
    async def scenario(scene: Scene) -> None:
        expected = 0
        for turn in range(3):
            numbers = [1 << (5 * turn + each) for each in range(5)]
            await scene.shards(*numbers)
            expected += sum(numbers)
            await scene.world.sleep(UNTIL_FINAL_S)
            collectors = [scene.actor(f"collector {number}") for number in range(5)]
            values = await asyncio.gather(
                *(each.collect() for each in collectors), *(scene.value() for _ in range(10))
            )
            assert set(values[5:]) == {expected}
            assert await scene.value() == expected

    for seed in range(5):
        play(scenario, seed=seed)


def test_mutators_that_end_at_one_time_are_all_counted() -> None:
    """The batch has a timestamp above all ends, so that none of the ties decides anything."""

    async def scenario(scene: Scene) -> None:
        at_us = scene.actor("writer").now_us()
        for number in range(6):
            writer = scene.actor(f"writer {number}")
            writer.host.__dict__["now_us"] = lambda: at_us
            assert await writer.add(1 << number)
        await scene.world.sleep(UNTIL_FINAL_S)
        collectors = [scene.actor(f"collector {number}") for number in range(3)]
        await asyncio.gather(*(each.collect() for each in collectors))
        assert await scene.value() == 63
        assert scene.shards_left() == 0

    play(scenario)


def test_collectors_whose_clocks_differ_by_the_bound_disagree_on_what_is_final_and_harm_nothing() -> None:
    async def scenario(scene: Scene) -> None:
        for number in range(10):
            await scene.shards(1 << number)
        ahead, behind = scene.actor("ahead"), scene.actor("behind")
        ahead.process.clock.step(0.25)
        behind.process.clock.step(-0.25)
        await scene.world.sleep(UNTIL_FINAL_S - 10)
        for _ in range(40):
            await asyncio.gather(ahead.collect(), behind.collect())
            assert await scene.value() == 1023
            await scene.world.sleep(0.4)
        assert scene.shards_left() == 0

    play(scenario)


def test_killed_at_every_step_a_collector_has_changed_nothing() -> None:
    async def scenario(scene: Scene, step: int) -> bool:
        await scene.shards(1, 2, 4)
        await scene.world.sleep(UNTIL_FINAL_S)
        first = scene.actor("first")
        first.process.kill_before_step(step)
        first.process.start(first.collector.run())
        await scene.world.sleep(10)
        assert await scene.value() == 7
        report = await scene.actor("second").process.start(scene.actor("second").collector.run())
        assert report.full or first.process.state is not ProcessState.DEAD
        assert await scene.value() == 7
        assert scene.rows("n1") == [TALLY]
        return first.process.state is ProcessState.DEAD

    assert at_every_step(scenario) > 8


def test_without_all_replicas_keys_are_skipped_and_counted_and_collected_later() -> None:
    async def scenario(scene: Scene) -> None:
        for key in ("a", "b"):
            await scene.shards(1, 2, key=key)
        await scene.world.sleep(UNTIL_FINAL_S)
        scene.world.network.cut("n2", ["n1", "n3", "collector"])  # each reported its hint window before
        collector = scene.actor("collector")
        report = await collector.process.start(collector.collector.run())
        assert (report.skipped, report.collected, report.full) == (2, 0, False)
        assert (await scene.value("a"), await scene.value("b")) == (3, 3)
        scene.world.network.heal()
        await scene.world.sleep(10)
        report = await collector.process.start(collector.collector.run())
        assert (report.skipped, report.collected, report.full) == (0, 4, True)
        assert (await scene.value("a"), await scene.value("b")) == (3, 3)

    play(scenario)


def test_a_pass_that_cannot_read_at_all_gives_up_and_continues_there_later() -> None:
    async def scenario(scene: Scene) -> None:
        keys = [f"k{number:02}" for number in range(3 * SKIPPED_IN_A_ROW_MAX)]
        for number in (1, 2):
            writer = scene.actor(f"writer {number}")
            for key in keys:
                assert await writer.add(number, key)
        await scene.world.sleep(UNTIL_FINAL_S)
        scene.world.network.cut("n2", ["n1", "n3", "collector"])  # each reported its hint window before
        collector = scene.actor("collector")
        report = await collector.process.start(collector.collector.run())
        assert report.unreachable
        assert not report.full
        assert report.skipped < len(keys)
        scene.world.network.heal()
        await scene.world.sleep(10)
        report = await collector.process.start(collector.collector.run())
        assert report.full
        assert {await scene.value(key) for key in keys} == {3}
        assert {scene.shards_left(key) for key in keys} == {0}

    play(scenario)


def test_while_a_node_is_unavailable_minutes_are_folded_and_what_would_be_collected_is_counted() -> None:
    async def scenario(scene: Scene) -> None:
        for key in ("a", "b"):
            await scene.shards(1, 2, key=key)
        writer = scene.actor("writer")
        assert await writer.add(4, "a", writer.counter.new_token())
        await scene.world.sleep(UNTIL_FINAL_S + UNTIL_FOLDED_S)
        scene.cluster.kill("n2")
        collector = scene.actor("collector")
        report = await collector.process.start(collector.collector.run())
        assert report.waits == "a node does not report its hint window (node=n2)"
        assert (report.minutes, report.keys, report.skipped, report.collected) == (1, 2, 2, 0)
        assert (report.full, report.refused) == (False, None)
        standing = await collector.process.start(collector.collector.read_result())
        assert (standing.marks, standing.refused) == ({}, None)
        assert (await scene.value("a"), await scene.value("b")) == (7, 3)
        scene.cluster.restart("n2")
        await scene.world.sleep(10)
        report = await collector.process.start(collector.collector.run())
        assert (report.waits, report.skipped, report.collected, report.full) == (None, 0, 4, True)
        assert (await scene.value("a"), await scene.value("b")) == (7, 3)

    play(scenario)


class SilentHints:
    """A node that answers, and does not report its hint window."""

    async def read(self) -> Mapping[str, int]:
        raise Unavailable("the role may not read system_views.settings")


def test_where_a_node_does_not_report_its_hint_window_nothing_is_collected_though_all_replicas_answer() -> None:
    async def scenario(scene: Scene) -> None:
        await scene.shards(1, 2)
        await scene.world.sleep(UNTIL_FINAL_S)
        actor = scene.actor("collector")
        report = await actor.process.start(Collector(actor.host, Live(SETTINGS), KIND, SilentHints()).run())
        assert report.waits == "the role may not read system_views.settings"
        assert (report.skipped, report.collected, scene.shards_left()) == (1, 0, 2)

    play(scenario)


def test_a_pass_is_gone_on_with_by_another_process_where_the_first_ended() -> None:
    async def scenario(scene: Scene) -> None:
        keys = [f"k{number:02}" for number in range(24)]
        for number in (1, 2):
            writer = scene.actor(f"writer {number}")
            for key in keys:
                assert await writer.add(number, key)
        await scene.world.sleep(UNTIL_FINAL_S)
        first, second = scene.actor("first"), scene.actor("second")
        first.process.kill_before_step(150)
        first.process.start(first.collector.run())
        await scene.world.sleep(10)
        assert first.process.state is ProcessState.DEAD
        before = await second.process.start(second.collector.read_result())
        done = {mark.bucket for mark in before.marks[before.last_pass_us].values() if mark.done}  # type: ignore[index]
        assert 0 < len(done) < 8
        report = await second.process.start(second.collector.run())
        assert report.pass_us == before.last_pass_us
        assert report.buckets == 8 - len(done)
        assert report.full
        standing = await second.process.start(second.collector.read_result())
        assert standing.full_us == report.pass_us
        assert {await scene.value(key) for key in keys} == {3}

    play(scenario, buckets=8)


@pytest.mark.parametrize("page", [2, 3, 7])
def test_pages_of_any_length_meet_every_key(page: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headgate.counters.collect.collector.PAGE_ROWS", page)
    monkeypatch.setattr("headgate.counters.read.reading.PAGE_ROWS", page)

    async def scenario(scene: Scene) -> None:
        for number in range(5):
            writer = scene.actor(f"writer {number}")
            for key in range(number * 3):
                assert await writer.add(1, f"k{key:02}")
        expected = {f"k{key:02}": 5 - key // 3 - 1 for key in range(12)}
        reader = scene.actor("reader")

        async def scan() -> dict[str, int]:
            return {key: state async for key, state in reader.counter.scan()}

        assert await reader.process.start(scan()) == expected
        await scene.world.sleep(UNTIL_FINAL_S)
        report = await reader.process.start(reader.collector.run())
        assert report.keys == 12
        assert report.full
        assert await reader.process.start(scan()) == expected

    play(scenario)


def test_more_shards_than_one_batch_takes_are_collected_from_the_oldest_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headgate.counters.collect.collector.COLLECTED_AT_ONCE_MAX", 3)

    async def scenario(scene: Scene) -> None:
        await scene.shards(*(1 << number for number in range(11)))
        await scene.world.sleep(UNTIL_FINAL_S)
        collector = scene.actor("collector")
        assert await collector.collect() == 11
        assert scene.rows("n1") == [TALLY]
        assert await scene.value() == 2047

    play(scenario)


@pytest.mark.parametrize(
    ("window_s", "refused"), [(GC_AFTER_S - 0.6, False), (GC_AFTER_S - 0.5, True), (3600.0, True)]
)
def test_nothing_is_collected_while_a_hint_could_still_come(window_s: float, refused: bool) -> None:
    async def scenario(scene: Scene) -> None:
        await scene.shards(1, 2)
        await scene.world.sleep(UNTIL_FINAL_S)
        collector = scene.actor("collector")
        report = await collector.process.start(collector.collector.run())
        assert (report.refused is not None) == refused
        assert report.collected == (0 if refused else 2)
        if refused:
            assert report.refused is not None
            assert "\n" not in report.refused
            assert "raise spec.gc.after" in report.refused
        standing = await collector.process.start(collector.collector.read_result())
        assert standing.refused == report.refused
        assert await scene.value() == 3

    play(scenario, ring=Settings(max_hint_window_s=window_s))


def test_a_full_pass_is_owed_within_half_of_gc_grace() -> None:
    async def scenario(scene: Scene) -> None:
        await scene.shards(1)
        collector = scene.actor("collector")
        made_us = collector.now_us()

        async def overdue() -> bool:
            standing = await collector.process.start(collector.collector.read_result())
            return standing.is_overdue(made_us=made_us, now_us=collector.now_us(), gc_grace_us=10 * DAY_US)

        assert not await overdue()
        await scene.world.sleep(5 * 86_400 + 1)
        assert await overdue()
        await collector.process.start(collector.collector.run())
        assert not await overdue()

    play(scenario)


def test_a_read_that_meets_more_than_one_final_shard_has_them_collected() -> None:
    async def scenario(scene: Scene) -> None:
        await scene.shards(1, 2, 4)
        await scene.world.sleep(UNTIL_FINAL_S)
        reader = scene.actor("reader")
        reader.counter._collector = Collector(reader.host, Live(SETTINGS), KIND, SimulatedHints(scene.cluster))
        assert await reader.read() == 7
        await scene.world.sleep(1)
        assert scene.rows("n1") == [TALLY]
        assert await reader.read() == 7

    play(scenario)


def test_what_replaces_the_way_of_a_collection_is_not_asked_for_at_each_read() -> None:
    asked: list[None] = []

    class CountedHints(SilentHints):
        async def read(self) -> Mapping[str, int]:
            asked.append(None)
            return await super().read()

    async def scenario(scene: Scene) -> None:
        await scene.shards(1, 2, 4)
        await scene.world.sleep(UNTIL_FINAL_S)
        reader = scene.actor("reader")
        reader.counter._collector = Collector(reader.host, Live(SETTINGS), KIND, CountedHints())
        for expected in (1, 2):
            for _ in range(5):
                assert await reader.read() == 7
                await scene.world.sleep(1)
            assert len(asked) == expected
            await scene.world.sleep(COLLECT_AGAIN_US / SECOND)

    play(scenario)


def test_what_is_cached_is_at_most_a_second_old_and_reports_it() -> None:
    async def scenario(scene: Scene) -> None:
        writer, reader = scene.actor("writer"), scene.actor("reader")
        assert await writer.add(1)

        async def inspection() -> tuple[int, float]:
            cached = await reader.counter.read_cached("home")
            return cached.state, cached.age_s

        assert (await reader.process.start(inspection()))[0] == 1
        assert await writer.add(2)
        await scene.world.sleep(0.5)
        state, age_s = await reader.process.start(inspection())
        assert state == 1
        assert 0.5 <= age_s <= 0.6
        await scene.world.sleep(0.5)
        state, age_s = await reader.process.start(inspection())
        assert state == 3
        assert age_s < 0.1
        reader.process.pause(for_s=7, machine=True)
        await scene.world.sleep(0.1)
        assert await writer.add(4)
        state, age_s = await reader.process.start(inspection())
        assert state == 7

    play(scenario)
