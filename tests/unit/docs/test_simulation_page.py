"""The page of the simulation lists exactly what runs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.kit.simulated_store import Cluster
from tests.kit.simulated_world import Network, Process

PAGE = (Path(__file__).parents[3] / "docs" / "internals" / "simulation.md").read_text(encoding="utf-8")


def test_the_scenario_of_the_page_runs(capsys: pytest.CaptureFixture[str]) -> None:
    for block in re.findall(r"^```python\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE):
        exec(compile(block, "docs/internals/simulation.md", "exec"), {"__name__": "docs"})  # noqa: S102 - our own page
    printed = capsys.readouterr().out
    assert "network      held write" in printed
    assert "n2           resumed" in printed or "n2           paused" in printed
    assert "text='hello'" in printed


def test_every_fault_that_the_code_offers_is_on_the_page() -> None:
    offered = {"stop", "go_on", "kill", "restart", "shut_down", "overload", "hold_hints", "release_hints"}
    offered |= {"refuse", "allow", "hold_batchlog", "release_batchlog", "alter_gc_grace", "purge"}
    assert offered <= set(dir(Cluster))
    assert {"cut", "heal", "slow", "lose", "delay"} <= set(dir(Network))
    assert {"pause", "kill", "kill_before_step", "pause_before_step"} <= set(dir(Process))
    for name in (*offered, "cut", "heal", "slow", "lose", "delay", "pause", "kill_before_step", "pause_before_step"):
        assert f"{name}(" in PAGE, name
