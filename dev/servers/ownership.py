"""The owner of a temporary object: names that contain their creator, so that the remains of a killed one can be
identified and removed.

A tag is the creator's process id and its start time; the kernel gives the pair to one process only. Objects of a
running creator are never touched.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from pathlib import Path

from headgate.local.processes import Identity

_TAG = re.compile(r"(\d+)x([0-9a-f]+)")


def maker_tag() -> str:
    """The tag of this process; short, since the kernel bounds the names of links and namespaces."""
    us = Identity.of(os.getpid())
    assert us is not None, "this process runs"
    return f"{us.pid}x{us.started:x}"


def is_abandoned(name: str, prefix: str) -> bool:
    """Whether `name` was created under `prefix` by a process that does not run any more."""
    match = _TAG.match(name.removeprefix(prefix)) if name.startswith(prefix) else None
    return match is not None and not Identity(int(match[1]), int(match[2], 16)).alive()


def temporary_directory(prefix: str) -> Path:
    """A new directory with this process's tag; remains of dead creators under the prefix are removed on the way."""
    for left in Path(tempfile.gettempdir()).glob(f"{prefix}*"):
        if is_abandoned(left.name, prefix):
            shutil.rmtree(left, ignore_errors=True)
    return Path(tempfile.mkdtemp(prefix=f"{prefix}{maker_tag()}-"))
