"""How a process of ours runs its loop: uvloop where it is, and a collector that is called seldom."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from types import SimpleNamespace

import pytest

from headgate.process import event_loop


def test_a_process_runs_to_its_end_and_gives_what_it_gave() -> None:
    program = (
        "import gc\nfrom headgate.process import event_loop as loop\n"
        "async def main():\n    return gc.get_threshold()[0], gc.get_freeze_count() > 1000\n"
        "print(loop.run(main()))"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert f"({event_loop.COLLECT_EVERY[0]}, True)" == ran.stdout.strip()


def test_without_the_extra_it_is_the_loop_of_asyncio(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_loop, "find_spec", lambda name: None)
    made = event_loop.new_loop()
    try:
        assert type(made).__module__.startswith("asyncio.")
    finally:
        made.close()


def test_with_the_extra_it_is_the_loop_of_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[asyncio.AbstractEventLoop] = []

    def new_event_loop() -> asyncio.AbstractEventLoop:
        made.append(asyncio.new_event_loop())
        return made[-1]

    monkeypatch.setattr(event_loop, "find_spec", lambda name: name)
    monkeypatch.setitem(sys.modules, "uvloop", SimpleNamespace(new_event_loop=new_event_loop))
    result = event_loop.new_loop()
    result.close()
    assert made == [result]


def test_importing_it_tunes_nothing() -> None:
    program = (
        "import gc; before = gc.get_threshold(); import headgate.process.event_loop, headgate\n"
        "print(before == gc.get_threshold())"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "True" == ran.stdout.strip()
