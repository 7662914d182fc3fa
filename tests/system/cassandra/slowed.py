"""How much longer everything takes on this machine now than it would if nobody else worked on it.

Promises in seconds hold for a machine that does nothing else. Tests share theirs with other tests, so they measure
first. One busy program per core runs for a short time, and its wall time is compared with its CPU time. The measured
program is still idle then, so that its own load does not count.
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
