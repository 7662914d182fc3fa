"""Runs pytest in a process of its own, as users of Headgate do."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

WITHIN_S = 120


def run_pytest(folder: Path, *options: str) -> str:
    """The output of pytest in a folder, with the plugin of `headgate.testing`."""
    installed = any(each.value == "headgate.testing.plugin" for each in entry_points(group="pytest11"))
    plugin = () if installed else ("-p", "headgate.testing.plugin")  # twice would be refused
    done = subprocess.run(
        (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *plugin, *options),
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=WITHIN_S,
        check=False,
    )
    return done.stdout + done.stderr
