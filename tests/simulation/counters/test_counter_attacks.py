"""The attacks B1 to B7 of ATTACKS.md: schedules in which a counter would be wrong, each against its defence."""

from __future__ import annotations

import asyncio

import pytest

from headgate.counters.model.decide_shards import TALLY
from headgate.counters.model.decide_tokens import Token
from tests.kit.simulated_store import Settings
from tests.kit.simulated_world import ProcessState
from tests.simulation.counters.counter_scenes import (
    DAY_S,
    GC_AFTER_S,
    HINT_WINDOW_S,
    LIFETIME_S,
    SETTINGS,
    UNTIL_FINAL_S,
    UNTIL_FOLDED_S,
    Actor,
    Scene,
    at_every_step,
    ends_in_error,
    play,
)

# ---- B1: a read that decides is whole


def test_attack_B1_at_every_step_of_a_collector_another_collects_more() -> None:
    async def scenario(scene: Scene, step: int) -> bool:
        await scene.shards(1, 2, 4, 8, 16)
        await scene.world.sleep(UNTIL_FINAL_S - LIFETIME_S / 2)
        await scene.shards(32)
        await scene.world.sleep(LIFETIME_S / 2)
        first, second = scene.actor("first"), scene.actor("second")
        assert await scene.value() == 63
        first.process.pause_before_step(step, for_s=400)
        under_way = first.process.start(first.collector.collect("home"))
        await scene.world.sleep(100)
        struck = first.process.state is ProcessState.PAUSED
        await second.collect()
        assert await scene.value() == 63
        await under_way
        assert await scene.value() == 63
        await scene.world.sleep(UNTIL_FINAL_S)
        await second.collect()
        assert await scene.value() == 63
        assert scene.shards_left() == 0
        return struck

    assert at_every_step(scenario) > 5


def test_attack_B1_a_key_is_decided_on_by_one_request_at_all() -> None:
    async def scenario(scene: Scene) -> list[str]:
        await scene.shards(*range(1, 9))
        await scene.world.sleep(UNTIL_FINAL_S)
        collector = scene.actor("collector")
        before = len(scene.world.history)
        await collector.collect()
        return [line for line in list(scene.world.history.lines())[before:] if "asks" in line]

    asked = play(scenario)
    assert len([line for line in asked if "Consistency.ALL" in line]) == 1
    assert len([line for line in asked if "Batch(" in line]) == 1


@pytest.mark.parametrize("how", ["a pass", "a scan", "the marks"])
def test_attack_B1_a_batch_that_one_replica_has_is_not_torn_by_what_others_read_there(how: str) -> None:
    """The batch landed on one replica alone. A reader meets it there, and read repair brings what it asked for
    to another: were that the deletions without the tally, the next reader of the other two would miss what was
    counted."""

    async def scenario(scene: Scene, replica: str) -> None:
        await scene.shards(1, 2, 4)
        await scene.shards(8, 16, key="other")
        await scene.world.sleep(UNTIL_FINAL_S)
        collector, reader = scene.actor("collector"), scene.actor("reader")
        scene.cluster.hold_hints()
        for name in scene.cluster.nodes:
            if name != replica:
                scene.world.network.lose("write", target=name, count=1)
        collecting = collector.process.start(ends_in_error(collector.collector.collect("home")))
        await scene.world.sleep(0.1)
        collector.process.kill()  # before it is sent again
        assert collecting is not None
        for _ in range(6):  # by each coordinator in turn
            if how == "a pass":
                await reader.process.start(reader.collector._page(0, None))
            elif how == "a scan":
                await reader.process.start(_scanned(reader))
            else:
                await reader.process.start(reader.counter.reader.read_marks(0))
        scene.cluster.kill(replica)
        await scene.world.sleep(10)
        assert await scene.value() == 7
        assert await scene.value("other") == 24

    for seed in range(3):
        for replica in ("n1", "n2", "n3"):

            async def one(scene: Scene, replica: str = replica) -> None:
                await scenario(scene, replica)

            play(one, seed=seed)


# ---- B2: a fold that comes late


def test_attack_B2_a_minute_that_is_folded_days_late_is_not_lost_below_the_tally() -> None:
    async def scenario(scene: Scene) -> None:
        reporter, collector = scene.actor("teller"), scene.actor("collector")
        assert await reporter.add(1, token=reporter.counter.new_token("order 1"))
        await scene.world.sleep(2 * DAY_S)
        await scene.shards(2, 4)
        await scene.world.sleep(3 * DAY_S)
        await collector.collect()
        assert await scene.value() == 7
        await collector.fold()
        assert await scene.value() == 7
        await collector.collect()
        assert await scene.value() == 7
        assert scene.shards_left() == 0

    play(scenario)


def test_attack_B2_what_a_replica_heard_of_a_fold_does_not_raise_the_cutoff() -> None:
    """The read at ALL meets one replica before the fold's shard landed there, and another that has heard of `folded`
    but not of the shard: the minute is not to be taken for folded then."""

    async def scenario(scene: Scene) -> None:
        reporter, folder, collector = scene.actor("teller"), scene.actor("folder"), scene.actor("collector")
        assert await reporter.add(1, token=reporter.counter.new_token("order 1"))
        await scene.world.sleep(2 * DAY_S)
        await scene.shards(2, 4)
        await scene.world.sleep(3 * DAY_S)
        network = scene.world.network
        network.delay("read", target="n1", by_s=1.5, source="n2")
        network.delay("read", target="n1", by_s=1.5, source="n3")
        network.delay("read", target="n1", by_s=1.5, source="n1")
        collecting = collector.process.start(collector.collector.collect("home"))
        await scene.world.sleep(0.1)
        network.delay("write", target="n1", by_s=10, count=1)  # the shard of the fold; `folded` comes through
        await folder.fold()
        await ends_in_error(asyncio.wait_for(collecting, 30))
        await scene.world.sleep(60)
        assert await scene.value() == 7
        await collector.collect()
        assert await scene.value() == 7

    play(scenario, ring=Settings(max_hint_window_s=HINT_WINDOW_S, speculative_retry_s=None))


# ---- B3: what comes back after it was collected


def test_attack_B3_a_folder_that_continues_after_its_minute_was_collected_counts_nothing_twice() -> None:
    async def scenario(scene: Scene, step: int) -> bool:
        reporter, late, folder = scene.actor("teller"), scene.actor("late"), scene.actor("folder")
        assert await reporter.add(1, token=reporter.counter.new_token("order 1"))
        await scene.shards(2)
        await scene.world.sleep(UNTIL_FOLDED_S)
        late.process.pause_before_step(step, for_s=4 * DAY_S)
        folding = late.process.start(late.collector.folder.fold(0))
        await scene.world.sleep(10)
        struck = late.process.state is ProcessState.PAUSED
        await folder.fold()
        await scene.world.sleep(2 * DAY_S)
        await scene.shards(4)
        await scene.world.sleep(UNTIL_FINAL_S)
        await folder.collect()
        assert await scene.value() == 7
        await scene.world.sleep(DAY_S)
        scene.forget_tombstones()
        await ends_in_error(asyncio.wait_for(folding, 3 * DAY_S))
        assert await scene.value() == 7
        await scene.shards(8, 16)
        await scene.world.sleep(UNTIL_FINAL_S)
        await folder.collect()
        assert await scene.value() == 31
        assert scene.shards_left() == 0
        return struck

    assert at_every_step(scenario) > 5


def test_attack_B3_a_replica_that_missed_the_batch_and_comes_back_after_the_purge_brings_nothing_back() -> None:
    async def scenario(scene: Scene) -> None:
        await scene.shards(1, 2, 4)
        await scene.world.sleep(UNTIL_FINAL_S)
        collector = scene.actor("collector")
        scene.world.network.lose("write", target="n3", count=1)
        scene.cluster.hold_hints()
        await collector.collect()
        assert len(scene.rows("n3")) == 3
        scene.cluster.kill("n3")
        await scene.world.sleep(DAY_S)
        for node in scene.cluster.nodes.values():  # its hints have long been given up
            node.replica.hints.clear()
        scene.cluster.release_hints()
        scene.forget_tombstones()
        scene.cluster.restart("n3")
        await scene.world.sleep(10)
        assert await scene.value() == 7
        scene.forget_tombstones()
        assert await scene.value() == 7
        await scene.shards(8, 16)
        await scene.world.sleep(UNTIL_FINAL_S)
        await collector.collect()
        assert await scene.value() == 31
        assert scene.shards_left() == 0

    play(scenario)


def test_attack_B3_a_resent_write_that_lands_after_the_purge_is_not_counted_again() -> None:
    async def scenario(scene: Scene) -> None:
        writer = scene.actor("writer")
        scene.world.network.delay("request", source="writer", by_s=2 * DAY_S, count=1)
        assert await writer.add(1)  # the first request is held; the same bytes are sent again, and land
        await scene.shards(2)
        await scene.world.sleep(UNTIL_FINAL_S)
        await scene.actor("collector").collect()
        await scene.world.sleep(DAY_S)
        scene.forget_tombstones()
        await scene.world.sleep(DAY_S)
        assert scene.shards_left() == 1  # there it is
        assert await scene.value() == 3

    play(scenario)


# ---- B4: a reader while a minute is folded


def test_attack_B4_a_reader_that_is_overtaken_by_fold_collection_and_removal_counts_once() -> None:
    async def scenario(scene: Scene, step: int) -> bool:
        reporter, reader, folder = scene.actor("teller"), scene.actor("slow reader"), scene.actor("folder")
        assert await reporter.add(1, token=reporter.counter.new_token("order 1"))
        await scene.shards(2)
        await scene.world.sleep(UNTIL_FOLDED_S)
        reader.process.pause_before_step(step, for_s=5 * DAY_S)
        reading = reader.process.start(reader.counter.read("home"))
        await scene.world.sleep(10)
        struck = reader.process.state is ProcessState.PAUSED
        await folder.fold()
        await scene.world.sleep(2 * DAY_S)
        await folder.fold()
        await scene.shards(4)
        await scene.world.sleep(UNTIL_FINAL_S)
        await folder.collect()
        await scene.world.sleep(DAY_S)
        scene.forget_tombstones()
        assert await asyncio.wait_for(reading, 5 * DAY_S) in ((3, 7) if struck else (3,))
        return struck

    assert at_every_step(scenario) > 5


def test_attack_B4_a_reader_between_the_steps_of_a_fold_counts_once() -> None:
    async def scenario(scene: Scene, step: int) -> bool:
        reporter, folder = scene.actor("teller"), scene.actor("folder")
        for number in (1, 2, 4):
            assert await reporter.add(number, token=reporter.counter.new_token(f"order {number}"))
        await scene.shards(8)
        await scene.world.sleep(UNTIL_FOLDED_S)
        folder.process.kill_before_step(step)
        folder.process.start(folder.collector.folder.fold(0))
        await scene.world.sleep(20)
        struck = folder.process.state is ProcessState.DEAD
        assert await scene.value() == 15
        await scene.actor("another folder").fold()
        assert await scene.value() == 15
        return struck

    assert at_every_step(scenario) > 5


@pytest.mark.parametrize("earlier", [False, True], ids=["a first read", "a later read"])
def test_attack_B4_a_replica_that_heard_of_a_fold_before_its_shards_hides_nothing(earlier: bool) -> None:
    """A slice is no snapshot: one replica answered before the shard of the fold came, the other has `folded` and
    missed the shard."""

    async def scenario(scene: Scene) -> None:
        reporter, folder, reader = scene.actor("teller"), scene.actor("folder"), scene.actor("late reader")
        assert await reporter.add(1, token=reporter.counter.new_token("order 1"))
        await scene.shards(2)
        if earlier:
            assert await reader.read() == 3
        await scene.world.sleep(UNTIL_FOLDED_S)
        network = scene.world.network
        network.delay("read", target="n1", by_s=2, count=1)
        network.cut("late reader", "n3")
        reading = reader.process.start(reader.counter.read("home"))
        await scene.world.sleep(0.1)
        network.delay("write", target="n1", by_s=10, count=1)  # the shard; `folded` comes through
        await folder.fold()
        assert await reading == 3
        network.heal()
        assert await scene.value() == 3

    for seed in range(12):
        play(scenario, seed=seed, ring=Settings(max_hint_window_s=HINT_WINDOW_S, speculative_retry_s=None))


# ---- B5: an update with a token that is answered too late


@pytest.mark.parametrize("lost", [0, 1, 3], ids=["sent at once", "one sent again", "all sent again"])
def test_attack_B5_an_update_with_a_token_that_was_stuck_past_the_fold_is_not_acknowledged(lost: int) -> None:
    """Its machine is paused with it, so that its time limits have not passed when it resumes."""

    async def scenario(scene: Scene, step: int) -> bool:
        reporter, folder = scene.actor("teller"), scene.actor("folder")
        assert await scene.actor("another").add(2, token=reporter.counter.new_token("order 2"))
        token = reporter.counter.new_token("order 1")
        scene.world.network.lose("request", source="teller", count=lost)
        reporter.process.pause_before_step(step, for_s=600, machine=True)
        adding = reporter.process.start(ends_in_error(_added(reporter, token)))
        await scene.world.sleep(UNTIL_FOLDED_S + 60)
        struck = reporter.process.state is ProcessState.PAUSED
        await folder.fold()
        error = await asyncio.wait_for(adding, 2000)
        await folder.fold()
        value = await scene.value()
        assert value in ((2, 3) if error is not None else (3,))
        return struck

    assert at_every_step(scenario) > 3


async def _scanned(reader: Actor) -> dict[str, int]:
    return {key: state async for key, state in reader.counter.scan()}


async def _added(reporter: Actor, token: Token) -> None:
    """Called in the process: what an update begins there is paused with it."""
    await reporter.counter.add("home", 1, token)


# ---- B6: a mutator that is paused beyond its end


@pytest.mark.parametrize("lost", [0, 1, 2], ids=["sent at once", "sent again", "sent again twice"])
def test_attack_B6_a_mutator_that_was_paused_beyond_its_end_acknowledges_nothing_that_is_not_counted(
    lost: int,
) -> None:
    """Its machine is paused with it, so that its time limits have not passed when it resumes."""

    async def scenario(scene: Scene, step: int) -> bool:
        writer, collector = scene.actor("writer"), scene.actor("collector")
        assert await writer.add(1)
        await scene.shards(2)
        scene.world.network.lose("request", source="writer", count=lost)
        writer.process.pause_before_step(step, for_s=10 * UNTIL_FINAL_S, machine=True)
        adding = writer.process.start(writer._add(4, "home", None))
        await scene.world.sleep(2 * UNTIL_FINAL_S)
        struck = writer.process.state is ProcessState.PAUSED
        await collector.collect()
        scene.forget_tombstones()
        acknowledged = await asyncio.wait_for(adding, 20 * UNTIL_FINAL_S)
        assert await scene.value() in ((7,) if acknowledged else (3, 7))
        await scene.world.sleep(UNTIL_FINAL_S)
        await scene.shards(8)
        await scene.world.sleep(UNTIL_FINAL_S)
        await collector.collect()
        assert await scene.value() in ((15,) if acknowledged else (11, 15))
        return struck

    assert at_every_step(scenario) > 3


# ---- B7: growth


def test_attack_B7_keys_that_are_culled_again_and_again_cost_no_further_shards() -> None:
    async def scenario(scene: Scene) -> None:
        writer = scene.actor("writer")
        for _ in range(4):
            for key in range(10):
                assert await writer.add(1, f"k{key}")
        assert writer.counter.mutator.culled > 20
        for key in range(10):
            assert await scene.value(f"k{key}") == 4
            assert scene.shards_left(f"k{key}") == 1

    play(scenario, memory_bytes_max=1000, life=SETTINGS.life)


def test_attack_B7_a_collection_leaves_one_range_and_not_a_tombstone_for_each_shard() -> None:
    async def scenario(scene: Scene) -> None:
        await scene.shards(*[1] * 30)
        await scene.world.sleep(UNTIL_FINAL_S)
        await scene.actor("collector").collect()
        assert await scene.value() == 30
        for name, node in scene.cluster.nodes.items():
            assert scene.rows(name) == [TALLY]
            for held in node.replica.tables[SETTINGS.tables.shards.name].values():
                assert len(held.partition.ranges) == 1
                assert len(held.partition.rows) == 1

    play(scenario)


def test_attack_B7_the_windows_of_mutators_are_partitions_that_expire() -> None:
    async def scenario(scene: Scene) -> None:
        writer = scene.actor("writer")
        assert await writer.add(1)
        first = writer.now_us() // 60_000_000 * 60_000_000
        assert await writer.process.start(writer.counter.read_between("home", first, first + 60_000_000)) == 1
        await scene.world.sleep(60 + GC_AFTER_S + 3600)
        assert await writer.process.start(writer.counter.read_between("home", first, first + 60_000_000)) == 0
        assert await scene.value() == 1

    play(scenario, grains_us=(60_000_000,), retention_us=3_600_000_000)
