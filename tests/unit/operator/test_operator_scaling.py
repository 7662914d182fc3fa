"""How many workers are wanted: up at once, down slowly, and nothing from what is not known."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from headgate.engines.summary.decide_marks import LaterMark
from headgate.expiry import SECOND_US
from headgate_operator.decide.scaling import ScalingDecision, decide_scaling
from headgate_operator.model.names import consumer_name
from headgate_operator.model.world import (
    UNKNOWN,
    ChildName,
    DecisionMemory,
    LaneHealth,
    LaneProblem,
    QueueLoad,
)
from tests.kit.operator_world import NOW_US, TinyWorld, resource_document

DEPLOYMENT = ChildName("Deployment", consumer_name("emails", "mailer"))


class Load:
    """A queue with one consumer whose Deployment follows its spec."""

    def __init__(self, replicas: int = 0, lanes: int = 8, **scaling: Any) -> None:
        consumer = {"name": "mailer", "image": "m:1", "handler": "a:b", "scaling": {"min": 0, "max": 12, **scaling}}
        self.tiny = TinyWorld(resource_document("Queue", {"shards": lanes, "consumers": [consumer]}))
        self.lanes: int | None = lanes
        self.memory = DecisionMemory()
        self.now_us = NOW_US
        self.set(replicas)

    def set(self, replicas: int, ready: int | None = None) -> None:
        """This number of them runs."""
        ready = replicas if ready is None else ready
        self.tiny.live = {DEPLOYMENT: {"spec": {"replicas": replicas}, "status": {"readyReplicas": ready}}}

    def after(self, seconds: float, **figures: Any) -> int:
        """How many are wanted when so much time has passed and this is behind; then they run."""
        decided = self.decide(seconds, **figures)
        self.set(decided.wanted["mailer"])
        return decided.wanted["mailer"]

    def decide(self, seconds: float = 0, **figures: Any) -> ScalingDecision:
        """The same, without their running."""
        self.now_us += round(seconds * SECOND_US)
        read_us = self.now_us - round(figures.pop("age_s", 0) * SECOND_US)
        self.tiny.figures = QueueLoad(at_us=read_us, **figures) if figures.pop("known", True) else UNKNOWN
        decided = decide_scaling(self.tiny.world(), self.lanes, self.lanes, self.memory, self.now_us)
        self.memory = decided.memory
        return decided


def test_a_first_message_wakes_one_worker_at_once_and_the_count_shows_how_many() -> None:
    load = Load()
    assert [load.after(0), load.after(1, awake=True), load.after(1, awake=True, counted=4500)] == [0, 1, 5]


def test_the_count_of_the_wake_up_holds_until_figures_are_there() -> None:
    load = Load()
    assert load.after(1, awake=True, counted=4500) == 5
    assert load.after(2, awake=True, counted=4500, backlog=40, owners=1) == 5
    assert load.after(29, backlog=40, owners=5) == 1


def test_it_goes_up_at_once_and_down_to_the_highest_of_the_last_thirty_seconds() -> None:
    load = Load(lanes=100)
    wanted = [load.after(10, backlog=backlog, owners=1) for backlog in (3000, 9000, 5000, 100, 100, 100, 0)]
    assert wanted == [3, 9, 9, 9, 5, 1, 1]


def test_it_comes_back_to_none_thirty_seconds_after_the_last() -> None:
    load = Load()
    busy = {"backlog": 0, "in_flight": 1, "owners": 1}
    idle = {"backlog": 0, "owners": 1}
    assert [load.after(1, **busy), load.after(1, **idle), load.after(28, **idle), load.after(2, **idle)] == [
        1,
        1,
        1,
        0,
    ]


@pytest.mark.parametrize("held", [{"in_flight": 1}, {"held": 1}, {"backlog": 1}])
def test_whatever_is_in_flight_held_or_behind_keeps_one(held: dict[str, int]) -> None:
    load = Load(1)
    assert [load.after(20, owners=1, **held) for _ in range(5)] == [1] * 5


def test_what_is_due_within_thirty_seconds_keeps_one_and_wakes_none() -> None:
    soon = LaterMark(NOW_US + 100 * SECOND_US, NOW_US + 160 * SECOND_US)
    awake, asleep = Load(1), Load(0)
    assert [awake.after(0, later=(soon,)), awake.after(40, later=(soon,)), awake.after(35, later=(soon,))] == [
        1,
        0,
        0,
    ]
    keeping = Load(1)
    assert [keeping.after(71, later=(soon,)), keeping.after(29, later=(soon,))] == [1, 1]
    assert asleep.decide(75, later=(soon,)).wanted == {"mailer": 0}
    assert asleep.decide(0, later=(soon,)).again_at_us == soon.due_us


def test_a_backlog_that_does_not_fall_doubles_the_workers_every_five_seconds() -> None:
    load = Load(1, lanes=64, max=64)
    old = NOW_US - 60 * SECOND_US
    wanted = [load.after(5, backlog=50, oldest_us=old, owners=1) for _ in range(4)]
    assert wanted == [1, 2, 4, 8]


def test_nothing_is_doubled_while_the_backlog_falls_or_workers_are_not_ready() -> None:
    old = NOW_US - 60 * SECOND_US
    falling, starting = Load(4, lanes=64, max=64), Load(4, lanes=64, max=64)
    assert [falling.after(5, backlog=backlog, oldest_us=old, owners=4) for backlog in (90, 80, 70)] == [4, 4, 4]
    for _ in range(3):
        starting.set(4, ready=3)
        assert starting.after(5, backlog=50, oldest_us=old, owners=4) == 4


def test_what_waits_no_longer_than_lag_doubles_nothing() -> None:
    load = Load(1, lag="2m")
    assert [load.after(5, backlog=50, oldest_us=NOW_US - 60 * SECOND_US, owners=1) for _ in range(4)] == [1] * 4


def test_never_more_than_max_nor_than_lanes_nor_fewer_than_min() -> None:
    assert Load(lanes=100, max=12).after(0, backlog=10**6, owners=1) == 12
    assert Load(lanes=3, max=12).after(0, backlog=10**6, owners=1) == 3
    assert Load(lanes=8, min=2).after(0) == 2
    assert Load(lanes=1, min=2).after(0) == 1


def test_figures_that_are_not_known_or_too_old_leave_it_as_it_is() -> None:
    load = Load(5)
    assert [load.after(60, known=False), load.after(60, backlog=0, owners=1, age_s=16)] == [5, 5]
    assert load.after(10, backlog=0, owners=1) == 5
    assert load.after(31, backlog=0, owners=1) == 0


def test_a_process_that_remembers_nothing_takes_what_runs_for_wanted() -> None:
    load = Load(5)
    load.memory = DecisionMemory()
    assert load.after(0, backlog=0, owners=1) == 5
    assert load.after(31, backlog=0, owners=1) == 0


def test_lanes_that_nobody_works_get_one_worker_more() -> None:
    load = Load(2)
    load.memory = replace(load.memory, unwell_until_us=NOW_US + 5 * SECOND_US)
    assert load.after(1, backlog=2000, owners=2) == 3
    assert load.after(40, backlog=2000, owners=3) == 3
    assert load.after(31, backlog=2000, owners=3) == 2


def test_the_extra_worker_goes_with_the_last_message_unless_a_lane_still_wants_one() -> None:
    load = Load(2)
    load.memory = replace(load.memory, unwell_until_us=NOW_US + 300 * SECOND_US)
    assert load.after(1, backlog=500, owners=2) == 2
    assert [load.after(10, backlog=0, owners=2), load.after(31, backlog=0, owners=2)] == [2, 0]
    load.tiny.lanes = LaneHealth(load.now_us, 8, 0, unprocessed=(LaneProblem("1/0", 1, "work is due"),))
    assert load.after(1, backlog=0) == 1


def test_a_queue_that_is_busy_is_decided_again_within_five_seconds_and_a_sleeping_one_is_not() -> None:
    load = Load()
    assert load.decide(0, backlog=10, owners=1).again_at_us == load.now_us + 5 * SECOND_US
    assert Load().decide(0).again_at_us is None


def test_mode_external_is_reported_no_number() -> None:
    assert Load(mode="external").decide(0, backlog=10**6, owners=1).wanted == {}
