"""A process whose wall clock is off, and nothing else of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time

import pytest

from dev.servers.debian import is_debian
from dev.servers.wall_clock import find_installed_libfaketime, shifted

CHECK = "import json, time; print(json.dumps([time.clock_gettime(getattr(time, name)) for name in NAMES]))"
CLOCKS = ("CLOCK_REALTIME", "CLOCK_MONOTONIC", "CLOCK_BOOTTIME")


@pytest.mark.parametrize("seconds", [0.35, -0.35, 3600.0])
def test_the_wall_clock_is_off_and_boot_time_is_not(seconds: float) -> None:
    if find_installed_libfaketime() is None and not is_debian():
        pytest.skip("needs libfaketime, or Debian's packages of it")
    before = [time.clock_gettime(getattr(time, name)) for name in CLOCKS]
    observation = subprocess.run(
        [sys.executable, "-c", CHECK.replace("NAMES", repr(CLOCKS))],
        env={**os.environ, **shifted(seconds)},
        capture_output=True,
        check=True,
    )
    after = [time.clock_gettime(getattr(time, name)) for name in CLOCKS]
    wall, monotonic, boot = json.loads(observation.stdout)
    assert before[0] <= wall - seconds <= after[0]
    assert before[1] <= monotonic <= after[1]
    assert before[2] <= boot <= after[2]
