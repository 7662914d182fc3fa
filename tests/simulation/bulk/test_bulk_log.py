"""The row of a bulk job: of two drivers only the later one changes it, and what was noted is found again."""

from __future__ import annotations

import asyncio
from uuid import UUID

import pytest

from headgate.store.catalogue.bulk_log import BulkLog, BulkRow, JobTakenOver, Stage
from tests.kit.simulated_store import Cluster, SimulatedStore
from tests.kit.simulated_world import World

JOB = UUID(int=9)


def test_a_batch_goes_from_planned_to_committed_to_its_end_and_each_step_is_found_again() -> None:
    async def scenario(world: World, cluster: Cluster) -> None:
        log = log_of(world, cluster, "driver")
        row = await log.take()
        assert (Stage.IDLE, 0, {}) == (row.stage, row.number, row.memo)
        for step in range(1, 4):
            row = await log.plan(row, b"plan %d" % step)
            assert row == await log.read()
            row = await log.commit(row, b"rest %d" % step)
            assert row == await log.read()
            row = await log.finish(row, {"at_us": step})
            assert (row, step, b"") == (await log.read(), row.number, row.plan)

    play(scenario)


@pytest.mark.parametrize("step", ["plan", "commit", "finish"])
def test_a_driver_that_another_took_for_dead_changes_nothing_any_more(step: str) -> None:
    async def scenario(world: World, cluster: Cluster) -> None:
        zombie, heir = log_of(world, cluster, "zombie"), log_of(world, cluster, "heir")
        row = await zombie.take()
        if step != "plan":
            row = await zombie.plan(row, b"batch")
        if step == "finish":
            row = await zombie.commit(row, b"rest")
        result = await heir.take()
        assert (row.stage, row.plan) == (result.stage, result.plan)
        with pytest.raises(JobTakenOver):
            await (zombie.finish(row, {}) if step == "finish" else getattr(zombie, step)(row, b"late"))
        assert result == await heir.read()

    play(scenario)


def test_of_drivers_that_begin_at_once_one_continues() -> None:
    async def scenario(world: World, cluster: Cluster) -> None:
        logs = [log_of(world, cluster, f"driver {number}") for number in range(4)]
        rows = await asyncio.gather(*(log.take() for log in logs), return_exceptions=True)
        planned = await asyncio.gather(
            *(log.plan(row, b"mine") for log, row in zip(logs, rows, strict=True) if isinstance(row, BulkRow)),
            return_exceptions=True,
        )
        assert 1 == sum(isinstance(row, BulkRow) for row in planned)

    for seed in range(5):
        play(scenario, seed)


def log_of(world: World, cluster: Cluster, name: str) -> BulkLog:
    """For a process of its own."""
    process = world.process(name)
    return BulkLog(SimulatedStore(cluster, process), JOB, process.uuid)


def play(scenario: object, seed: int = 1) -> None:
    """In a world of its own."""
    with World(seed) as world:
        world.run(scenario(world, Cluster(world)))  # type: ignore[operator]
