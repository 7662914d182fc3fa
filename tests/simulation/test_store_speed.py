"""The simulation is cheap enough to be run for many seeds: a thousand seconds of the contract suite's own work."""

from __future__ import annotations

import importlib
import inspect
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from tests.conformance.store.worlds import SimulatedWorld

SIMULATED_S = 1_000.0
PARTS = 10
CPU_S_MAX = 10.0
VOLUMES = ("test_more_of_one_moment_than_a_clock_sequence_can_tell_apart_are_all_kept",)
"""Sixteen thousand rows in a quarter of a second: a case of volume, whose cost is that of its rows, not of time."""
SUITE = Path(__file__).parents[1] / "conformance" / "store"


def _cases() -> list[Callable[..., Coroutine[Any, Any, None]]]:
    """The cases of the contract suite that need nothing but a whole ring."""
    files = [file for file in sorted(SUITE.glob("test_*.py")) if file.stem != "test_replicas_down"]
    modules = [importlib.import_module(f"tests.conformance.store.{file.stem}") for file in files]
    functions = [
        value for module in modules for name, value in sorted(vars(module).items()) if name.startswith("test_")
    ]
    return [
        case
        for case in functions
        if inspect.iscoroutinefunction(case)
        and list(inspect.signature(case).parameters) == ["world"]
        and not getattr(case, "pytestmark", [])
        and case.__name__ not in VOLUMES
    ]


def _cpu_s_of(cases: list[Callable[..., Coroutine[Any, Any, None]]], simulated_s: float, first_seed: int) -> float:
    """What so many simulated seconds cost."""
    passed_s = 0.0
    seed = first_seed
    began_s = time.process_time()
    while passed_s < simulated_s:
        for case in cases:
            world = SimulatedWorld(seed)
            with world.simulation:
                world.run(case(world=world))
                passed_s += world.simulation.now_s()
            seed += 1
    return (time.process_time() - began_s) * simulated_s / passed_s


def test_a_thousand_simulated_seconds_of_the_contract_suite_take_less_than_ten() -> None:
    """Taken in parts, and the cheapest counts: a neighbour on the machine makes a second of CPU do less."""
    cases = _cases()
    assert len(cases) >= 60
    parts = [_cpu_s_of(cases, SIMULATED_S / PARTS, part * 10_000) for part in range(PARTS)]
    print(f"{min(parts) * PARTS:.1f} to {max(parts) * PARTS:.1f} CPU seconds for {SIMULATED_S:.0f} simulated ones")  # noqa: T201 - the figure
    assert min(parts) * PARTS < CPU_S_MAX
