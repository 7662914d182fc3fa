"""Replays and exports whose driver dies before any of its calls: each message is written once, by whichever run."""

from __future__ import annotations

from contextlib import suppress

import pytest

from headgate_spark.jobs import history
from headgate_spark.jobs.tasks import Puts
from tests.simulation.bulk.bulk_world import JOB, Driver, Killed, MemoryFiles, MemoryPuts, driver, history_job
from tests.simulation.bulk.test_bulk_jobs import MESSAGES, Scene, scene, twice

STEPS = (pytest.param(11, id="some"), pytest.param(1, id="all", marks=pytest.mark.slow))


@pytest.fixture(autouse=True)
def _small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """A part each, so that there are several."""
    monkeypatch.setattr(history, "PARTS_A_PIECE", 1)


def replays(job_driver: Driver) -> MemoryPuts:
    """Into another queue."""
    return MemoryPuts(job_driver, Puts({}, "timeline", "shop/heir", JOB.hex, 0, 0))


def aged(one: Scene) -> None:
    """The backlog lies in two parts by now, and is settled."""
    one.emptied("shop/emails")
    one.shop.world.run(one.shop.world.sleep(70))
    program = one.shop.program("late producer")
    world = one.shop.world
    world.run(program.process.start(program.connection.open()))
    queue = world.run(program.process.start(program.connection.queue("shop/emails")))
    one.ids += world.run(program.process.start(queue.put_many([b"%d" % (MESSAGES + each) for each in range(6)])))
    world.run(world.sleep(2))


def calls_of_a_whole_run(seed: int, *, goes_on: bool) -> int:
    """How many calls a driver makes that nobody kills."""
    with scene(seed) as one:
        aged(one)
        local = driver(one.shop, "driver")
        files = MemoryFiles()
        job, counts = history_job(
            local, lambda mine: files_of(files, mine) if goes_on else replays(mine), goes_on=goes_on
        )
        job.run()
        assert MESSAGES + 6 == sum(done for done, _, _ in counts.batches)
        assert 2 == len(counts.batches)
        return local.calls


def files_of(files: MemoryFiles, job_driver: Driver) -> MemoryFiles:
    """The files, written by this driver."""
    files.job_driver = job_driver
    return files


@pytest.mark.parametrize("step", STEPS)
def test_an_export_writes_each_message_once_whatever_call_its_driver_dies_before(step: int) -> None:
    for call in range(2, calls_of_a_whole_run(1, goes_on=True) + 1, step):
        with scene(call) as one:
            aged(one)
            files = MemoryFiles()

            def make(job_driver: Driver, files: MemoryFiles = files) -> MemoryFiles:
                return files_of(files, job_driver)

            with suppress(Killed):
                history_job(driver(one.shop, "driver", dies_before=call), make, goes_on=True)[0].run()
            history_job(driver(one.shop, "heir"), make, goes_on=True)[0].run()
            assert ([], set(one.ids)) == (twice(files.ids), set(files.ids)), call
            again, counts = history_job(driver(one.shop, "later"), make, goes_on=True)
            again.run()
            assert 0 == sum(done for done, _, _ in counts.batches), "nothing is new"


@pytest.mark.parametrize("step", STEPS)
def test_a_replay_puts_each_message_once_whatever_call_its_driver_dies_before(step: int) -> None:
    for call in range(2, calls_of_a_whole_run(1, goes_on=False) + 1, step):
        with scene(call) as one:
            aged(one)
            with suppress(Killed):
                history_job(driver(one.shop, "driver", dies_before=call), replays, goes_on=False)[0].run()
            history_job(driver(one.shop, "heir"), replays, goes_on=False)[0].run()
            put = [message.payload.decode() for message in one.emptied("shop/heir")]
            assert [] == twice(put), call
            assert {str(each) for each in range(MESSAGES + 6)} == set(put), call


def test_a_replay_that_had_ended_restarts() -> None:
    with scene(2) as one:
        aged(one)
        for run in range(2):
            job, counts = history_job(driver(one.shop, f"driver {run}"), replays, goes_on=False)
            job.run()
            assert MESSAGES + 6 == sum(done for done, _, _ in counts.batches)
        assert 2 * (MESSAGES + 6) == len(one.emptied("shop/heir"))
