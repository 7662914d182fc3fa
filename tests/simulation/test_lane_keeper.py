"""The loops by which a process holds lanes: one that breaks is heard of, since nobody awaits it."""

from __future__ import annotations

import asyncio
import logging

import pytest

from penstock.engines.timeline.lane_keeper import LaneKeeper
from tests.simulation.timeline_puts import Queue, simulate
from tests.simulation.timeline_workers import WORKED, Consumer, Seen, lanes_ready


def test_a_bug_in_the_loop_that_takes_lanes_is_told_once_with_the_queue(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def broken(keeper: LaneKeeper) -> None:
        raise KeyError("nobody thought of this")

    async def scenario(queue: Queue) -> None:
        await lanes_ready(queue)
        monkeypatch.setattr(LaneKeeper, "_take_free", broken)
        Consumer(queue, "worker", Seen()).start()
        await asyncio.sleep(5)

    with caplog.at_level(logging.ERROR, logger="penstock.lanes"):
        simulate(scenario, settings=WORKED)
    told = [record for record in caplog.records if record.name == "penstock.lanes"]
    assert [f"lanes are not taken any more: {WORKED.name}"] == [record.getMessage() for record in told]
    assert "nobody thought of this" in str(told[0].exc_info)
