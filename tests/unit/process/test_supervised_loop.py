"""A background loop outlives the errors it meets, and reports when a new process is needed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

import pytest

from headgate.errors import OperationRefused
from headgate.process.background_tasks import CALM_S, FAILING_S_MAX, PAUSE_S_MAX, SupervisedLoop
from tests.kit.simulated_world import World

log = logging.getLogger("headgate.test")


def simulated(scenario: Coroutine[Any, Any, None]) -> None:
    """Run in virtual time."""
    with World(seed=1) as world:
        world.run(scenario)


class Work:
    """Fails as often as a test wants, then runs for ever."""

    def __init__(self, failures: int, error: Exception) -> None:
        self.begun = 0
        self._failures = failures
        self._error = error

    async def run(self) -> None:
        """Once."""
        self.begun += 1
        if self.begun <= self._failures:
            raise self._error
        await asyncio.Event().wait()


def test_work_that_fails_is_started_again_within_seconds(caplog: pytest.LogCaptureFixture) -> None:
    work = Work(5, OperationRefused("not allowed"))

    async def scenario() -> None:
        loop = SupervisedLoop("lanes", work.run, log=log, queue="shop/emails")
        loop.start()
        await asyncio.sleep(5 * PAUSE_S_MAX)
        assert 6 == work.begun
        assert loop.is_running
        assert loop.why_dead() is None
        await loop.stop()

    with caplog.at_level(logging.INFO, logger="headgate.test"):
        simulated(scenario())
    assert 1 == len([record for record in caplog.records if record.levelno == logging.ERROR]), "logged once"
    assert "shop/emails" == caplog.records[0].__dict__["queue"]


def test_a_store_that_refuses_for_hours_is_no_reason_for_a_restart() -> None:
    async def scenario() -> None:
        loop = SupervisedLoop("lanes", Work(10**6, OperationRefused("not allowed")).run, log=log)
        loop.start()
        await asyncio.sleep(3600)
        assert loop.why_dead() is None
        await loop.stop()

    simulated(scenario())


def test_a_loop_that_meets_nothing_but_unexpected_errors_is_dead_after_a_minute() -> None:
    async def scenario() -> None:
        loop = SupervisedLoop("lanes", Work(10**6, KeyError("shard")).run, log=log)
        loop.start()
        await asyncio.sleep(FAILING_S_MAX - 1)
        assert loop.why_dead() is None
        await asyncio.sleep(2)
        assert "the loop of lanes has failed for 61 s: KeyError('shard')" == loop.why_dead()
        await loop.stop()
        assert not loop.is_running

    simulated(scenario())


def test_a_loop_that_was_ended_from_outside_is_dead() -> None:
    async def scenario() -> None:
        loop = SupervisedLoop("clock", Work(0, KeyError()).run, log=log)
        loop.start()
        await asyncio.sleep(1)
        (task,) = [each for each in asyncio.all_tasks() if each.get_name() == "headgate: clock"]
        task.cancel()
        await asyncio.sleep(1)
        assert "the loop of clock has ended" == loop.why_dead()
        loop.start()
        assert loop.why_dead() is None
        await loop.stop()
        assert loop.why_dead() is None

    simulated(scenario())


def test_work_that_ran_for_long_has_recovered(caplog: pytest.LogCaptureFixture) -> None:
    begun: list[float] = []

    async def work() -> None:
        begun.append(asyncio.get_running_loop().time())
        await asyncio.sleep(2 * CALM_S if len(begun) % 3 == 0 else 0)
        raise KeyError("shard")

    async def scenario() -> None:
        loop = SupervisedLoop("members", work, log=log)
        loop.start()
        await asyncio.sleep(10 * CALM_S)
        assert loop.why_dead() is None
        await loop.stop()

    with caplog.at_level(logging.INFO, logger="headgate.test"):
        simulated(scenario())
    assert ["background loop failed; restarting", "background loop recovered"] * 4 == [
        record.getMessage() for record in caplog.records
    ][:8]


def test_work_that_returns_is_not_started_again() -> None:
    begun: list[int] = []

    async def work() -> None:
        begun.append(1)

    async def scenario() -> None:
        loop = SupervisedLoop("marks", work, log=log)
        loop.start()
        await asyncio.sleep(10)
        assert not loop.is_running
        assert loop.why_dead() is None
        loop.start()
        await asyncio.sleep(10)

    simulated(scenario())
    assert [1, 1] == begun
