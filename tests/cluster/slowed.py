"""How much longer everything takes on this machine now than it would if nobody else worked on it.

What is promised in seconds is promised of a machine that a person has to himself. Tests share it with other tests, so
they ask first: as many busy programs as there are cores are run for a short time, and their time is compared with
the time they worked. It is asked while what is measured is still idle, so that its own weight never counts for it.
"""

from __future__ import annotations

import os
import subprocess
import sys

SPIN = """
import time
began_s = time.monotonic()
while time.process_time() < 0.3:
    pass
print((time.monotonic() - began_s) / 0.3)
"""


def slowed() -> float:
    """1.0: nobody else works."""
    processes = [
        subprocess.Popen([sys.executable, "-S", "-c", SPIN], stdout=subprocess.PIPE, text=True)
        for _ in range(os.cpu_count() or 1)
    ]
    reports = [float(process.communicate(timeout=120)[0]) for process in processes]
    return max(1.0, sum(reports) / len(reports))
