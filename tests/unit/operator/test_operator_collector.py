"""Full listings are read when the operator is idle, or when one has been due for too long."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
from contextlib import suppress

import pytest

from headgate.process import event_loop
from headgate.process.event_loop import POLL_EVERY_S, ROUNDS, ROUNDS_MAX, THRESHOLDS, collect_at_rest
from tests.kit.simulated_world import World


class Collector:
    """Python's, as far as it is asked."""

    def __init__(self, rounds: int) -> None:
        self.rounds = rounds
        self.checks = 0

    def get_count(self) -> tuple[int, int, int]:
        return 0, 0, self.rounds

    def collect(self) -> int:
        self.checks, self.rounds = self.checks + 1, 0
        return 0


@pytest.mark.parametrize(
    ("rounds", "is_idle", "checks"),
    [
        (ROUNDS - 1, True, 0),
        (ROUNDS, True, 1),
        (ROUNDS_MAX - 1, False, 0),
        (ROUNDS_MAX, False, 1),
    ],
)
def test_it_checks_everything_when_it_is_owed_and_nobody_waits(
    monkeypatch: pytest.MonkeyPatch, rounds: int, is_idle: bool, checks: int
) -> None:
    asked = Collector(rounds)
    monkeypatch.setattr(event_loop, "gc", asked)

    async def work() -> None:
        going = asyncio.get_running_loop().create_task(collect_at_rest(lambda: is_idle))
        await asyncio.sleep(3 * POLL_EVERY_S + 1)
        going.cancel()
        with suppress(asyncio.CancelledError):
            await going

    with World(1) as world:
        world.run(work())
    assert checks == asked.checks


def test_python_counts_the_rounds_by_which_a_check_is_owed() -> None:
    gc.collect()
    gc.collect(1)
    gc.collect(1)
    assert 2 == gc.get_count()[2]


def test_a_leader_never_checks_everything_by_itself() -> None:
    program = (
        "import gc; from headgate.process.event_loop import let_changes_pass; let_changes_pass()\n"
        "print(gc.get_threshold(), gc.get_freeze_count() > 1000)"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert f"{THRESHOLDS} True" == ran.stdout.strip()
