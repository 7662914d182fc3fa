"""The clock of a process, against nodes and a machine whose clocks a test sets."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping

import pytest

from headgate.errors import Unavailable
from headgate.store.clock.clock import Clock, ClockNotTrusted, MachineTime
from headgate.store.clock.clock_state import Bounds, Instant

SECOND = 1_000_000
WALL = 1_750_000_000 * SECOND


class Machine:
    """Two clocks that move when a test moves them."""

    def __init__(self) -> None:
        self.true_us = 1_000 * SECOND
        self.boot_less_us = 0
        self.wall_ahead_us = 0

    def read_instant(self) -> Instant:
        return Instant(self.true_us - self.boot_less_us, WALL + self.true_us + self.wall_ahead_us)


class Nodes:
    """Nodes that report the true time, but for the errors that a test adds."""

    def __init__(self, machine: Machine, *names: str) -> None:
        self.machine = machine
        self.ahead_us = dict.fromkeys(names, 0)
        self.up = dict.fromkeys(names, True)
        self.silent: set[str] = set()
        self.excluded: frozenset[str] = frozenset()
        self.asked: list[str] = []
        self.while_asked: Callable[[], None] = lambda: None

    def coordinators(self) -> Mapping[str, bool]:
        return dict(self.up)

    async def ask_time(self, coordinator: str, within_s: float) -> int:
        assert within_s > 0
        self.asked.append(coordinator)
        await asyncio.sleep(0)
        self.while_asked()
        if coordinator in self.silent:
            raise Unavailable
        return (WALL + self.machine.true_us + self.ahead_us[coordinator]) // 1000 * 1000

    def exclude(self, coordinators: frozenset[str]) -> None:
        self.excluded = coordinators


def kept(nodes: Nodes, bounds: Bounds | None = None) -> Clock:
    return Clock(nodes, source=nodes.machine, bounds=bounds, turn_s=0.001)


async def holds(condition: Callable[[], bool]) -> None:
    """Until the keeper has seen it."""
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110 - the keeper has no event for each thing it sees
            await asyncio.sleep(0)


def test_at_start_every_node_is_asked_and_then_the_time_can_be_relied_on() -> None:
    async def scenario() -> None:
        nodes = Nodes(Machine(), "a", "b", "c")
        async with kept(nodes) as clock:
            assert {"a", "b", "c"} == set(nodes.asked)
            assert WALL + nodes.machine.true_us == clock.require()

    asyncio.run(scenario())


def test_before_the_first_check_nothing_is_owned() -> None:
    nodes = Nodes(Machine(), "a")
    with pytest.raises(ClockNotTrusted, match="nothing is owned, acknowledged or sent"):
        kept(nodes).require()


def test_out_of_bounds_reports_it_in_one_line_with_the_node_by_how_much_and_what_to_do(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario() -> None:
        nodes = Nodes(Machine(), "10.0.0.7")
        nodes.ahead_us["10.0.0.7"] = 812 * 1000
        async with kept(nodes) as clock:
            with pytest.raises(ClockNotTrusted) as refused:
                clock.require()
            line = str(refused.value)
            assert "\n" not in line
            assert "node=10.0.0.7, by_ms=812, bound_ms=250" in line
            assert "NTP or chrony" in line

    with caplog.at_level(logging.INFO, logger="headgate.clock"):
        asyncio.run(scenario())
    assert 1 == len([record for record in caplog.records if "by_ms=812" in getattr(record, "reason", "")])


def test_it_reports_it_once_and_once_more_when_it_is_over(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        nodes = Nodes(Machine(), "a", "b")
        async with kept(nodes) as clock:
            for number in range(6):
                nodes.ahead_us = {"a": SECOND + number % 2 * 9_000, "b": SECOND + (number + 1) % 2 * 9_000}
                await clock.check()
            nodes.ahead_us = {"a": 0, "b": 0}
            await clock.check()
            clock.require()

    with caplog.at_level(logging.INFO, logger="headgate.clock"):
        asyncio.run(scenario())
    levels = [record.levelname for record in caplog.records]
    assert ["WARNING", "INFO"] == levels


def test_a_node_beyond_the_bound_is_excluded_and_used_again_once_it_is_fixed() -> None:
    async def scenario() -> None:
        nodes = Nodes(Machine(), "a", "b", "c")
        nodes.ahead_us["b"] = -SECOND
        async with kept(nodes) as clock:
            assert frozenset({"b"}) == nodes.excluded
            assert ("b",) == clock.figures().excluded
            nodes.ahead_us["b"] = 0
            await clock.check()
            assert frozenset() == nodes.excluded

    asyncio.run(scenario())


async def pass_time(clock: Clock, machine: Machine, seconds: int) -> None:
    """Half a second after the other, each of which the keeper has seen."""
    for _ in range(2 * seconds):
        machine.true_us += SECOND // 2
        await holds(lambda: clock._state.turned_boot_us == machine.read_instant().boot_us)


def test_a_machine_stopped_with_both_clocks_is_noticed_within_seconds_and_one_node_is_asked_meanwhile() -> None:
    async def scenario() -> None:
        nodes = Nodes(Machine(), "a", "b", "c")
        async with kept(nodes) as clock:
            nodes.asked.clear()
            await pass_time(clock, nodes.machine, 9)
            assert ["a", "b"] == nodes.asked
            nodes.machine.boot_less_us += 30 * SECOND
            nodes.machine.wall_ahead_us -= 30 * SECOND
            nodes.machine.true_us += 30 * SECOND
            assert clock.require()  # neither clock of this machine shows it
            await pass_time(clock, nodes.machine, 4)
            await holds(lambda: nodes.asked.count("a") > 1)
            with pytest.raises(ClockNotTrusted) as refused:
                clock.require()
            assert "by_ms=30000" in str(refused.value)

    asyncio.run(scenario())


def test_a_node_that_joins_is_no_coordinator_before_it_was_asked() -> None:
    async def scenario() -> None:
        nodes = Nodes(Machine(), "a", "b", "c")
        async with kept(nodes):
            nodes.ahead_us["d"] = SECOND
            nodes.up["d"] = True
            await holds(lambda: nodes.excluded == frozenset({"d"}))
            assert "d" not in nodes.asked
            nodes.machine.true_us += SECOND
            await holds(lambda: "d" in nodes.asked)
            assert frozenset({"d"}) == nodes.excluded

    asyncio.run(scenario())


def test_every_minute_the_nodes_are_asked_again() -> None:
    async def scenario() -> None:
        nodes = Nodes(Machine(), "a")
        async with kept(nodes) as clock:
            nodes.asked.clear()
            for _ in range(59):
                await turned(clock, nodes)
            assert [] == nodes.asked
            await turned(clock, nodes)
            await holds(lambda: bool(nodes.asked))
            assert 0 == clock.figures().pauses

    async def turned(clock: Clock, nodes: Nodes) -> None:
        """A second passes, and the keeper makes a turn in it."""
        nodes.machine.true_us += SECOND
        clock._turn()

    asyncio.run(scenario())


def test_after_a_pause_nothing_is_owned_until_the_nodes_were_asked_again() -> None:
    async def scenario() -> None:
        nodes = Nodes(Machine(), "a")
        async with kept(nodes) as clock:
            nodes.asked.clear()
            nodes.machine.true_us += 3 * SECOND
            with pytest.raises(ClockNotTrusted, match="was paused"):
                clock.require()
            assert WALL + nodes.machine.true_us == await clock.until_trusted(10)
            assert {"a"} == set(nodes.asked)
            assert 1 == clock.figures().pauses

    asyncio.run(scenario())


def test_a_step_of_the_wall_clock_is_seen_by_the_very_next_use() -> None:
    async def scenario() -> None:
        nodes = Nodes(Machine(), "a")
        async with kept(nodes) as clock:
            before_us = clock.require()
            nodes.machine.wall_ahead_us = -5 * SECOND
            with pytest.raises(ClockNotTrusted, match="wall clock was set"):
                clock.require()
            assert before_us == clock.now_us() == await clock.until_trusted(10)

    asyncio.run(scenario())


def test_a_machine_that_stood_still_and_was_fixed_continues_with_the_fixed_time() -> None:
    async def scenario() -> None:
        nodes = Nodes(Machine(), "a")
        async with kept(nodes) as clock:
            nodes.machine.true_us += 7 * SECOND
            nodes.machine.boot_less_us = 7 * SECOND
            with pytest.raises(ClockNotTrusted):
                clock.require()
            assert WALL + nodes.machine.true_us == await clock.until_trusted(10)

    asyncio.run(scenario())


def test_a_pause_in_the_middle_of_a_check_is_not_taken_for_a_slow_answer_alone() -> None:
    async def scenario() -> None:
        nodes = Nodes(Machine(), "a")

        def stand_still() -> None:
            nodes.while_asked = lambda: None
            nodes.machine.true_us += 30 * SECOND

        async with kept(nodes) as clock:
            nodes.while_asked = stand_still
            await clock.check()
            with pytest.raises(ClockNotTrusted, match="was paused"):
                clock.require()
            await clock.until_trusted(10)

    asyncio.run(scenario())


def test_a_node_that_answers_slowly_once_is_judged_by_its_best_answer() -> None:
    async def scenario() -> None:
        nodes = Nodes(Machine(), "a")
        slow = iter((900_000, 0, 0))
        nodes.while_asked = lambda: setattr(nodes.machine, "true_us", nodes.machine.true_us + next(slow, 0))
        async with kept(nodes) as clock:
            clock.require()

    asyncio.run(scenario())


def test_while_the_nodes_are_silent_until_trusted_ends_with_the_reason() -> None:
    async def scenario() -> None:
        nodes = Nodes(Machine(), "a")
        nodes.silent = {"a"}
        async with kept(nodes) as clock:
            with pytest.raises(ClockNotTrusted, match="too few nodes"):
                await clock.until_trusted(0.05)

    asyncio.run(scenario())


def test_now_never_goes_backwards_whatever_is_done_to_the_machine() -> None:
    async def scenario() -> None:
        nodes = Nodes(Machine(), "a")
        given = []
        async with kept(nodes) as clock:
            for step_us in (0, 5 * SECOND, -20 * SECOND, 100, -3 * SECOND, SECOND):
                nodes.machine.wall_ahead_us += step_us
                nodes.machine.true_us += 100_000
                await clock.check()
                given += [clock.now_us(), clock.now_us()]
        assert sorted(given) == given

    asyncio.run(scenario())


def test_the_figures_show_the_difference_to_each_node() -> None:
    async def scenario() -> None:
        nodes = Nodes(Machine(), "a", "b", "c")
        nodes.ahead_us |= {"a": 20_000, "b": -30_000}
        nodes.silent = {"c"}
        async with kept(nodes) as clock:
            figures = clock.figures()
            assert {"a": 20, "b": -30} == {node: round(us / 1000) for node, us in figures.differences_us.items()}
            assert figures.trusted
            assert 250_000 == figures.bound_us

    asyncio.run(scenario())


def test_an_error_in_the_keeper_is_logged_and_removes_the_trust(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        nodes = Nodes(Machine(), "a")
        async with kept(nodes) as clock:
            nodes.up = None  # type: ignore[assignment]
            await holds(lambda: any(getattr(record, "loop", None) == "clock" for record in caplog.records))
            nodes.machine.true_us += 2 * SECOND
            with pytest.raises(ClockNotTrusted):
                clock.require()

    asyncio.run(scenario())


def test_the_machines_clocks_are_read_together() -> None:
    source = MachineTime()
    checks = [source.read_instant() for _ in range(100)]
    distances = {check.wall_offset_us for check in checks}
    assert max(distances) - min(distances) < 100_000
    assert sorted(check.boot_us for check in checks) == [check.boot_us for check in checks]


def test_a_pause_that_a_check_makes_good_warns_nobody(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        machine = Machine()
        nodes = Nodes(machine, "a")
        async with kept(nodes) as clock:
            machine.true_us += 3 * SECOND
            with pytest.raises(ClockNotTrusted, match="was paused"):
                clock.require()
            await clock.check()
            clock.require()

    with caplog.at_level(logging.INFO, logger="headgate.clock"):
        asyncio.run(scenario())
    assert "WARNING" not in {record.levelname for record in caplog.records}
