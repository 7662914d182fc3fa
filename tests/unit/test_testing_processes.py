"""A process counts as gone when nothing of it holds a port any more, not when its first thread has ended."""

from __future__ import annotations

import platform
import subprocess
import sys
from pathlib import Path

from penstock.testing.processes import Identity, wait_until

_EXIT_OF_A_THREAD = {"x86_64": 60, "aarch64": 93}[platform.machine()]
_FIRST_THREAD_ENDS = f"""
import ctypes, threading
threading.Thread(target=threading.Event().wait).start()
ctypes.CDLL(None).syscall({_EXIT_OF_A_THREAD}, 0)
"""


def first_thread_state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def test_a_process_lives_as_long_as_its_last_thread() -> None:
    with subprocess.Popen([sys.executable, "-c", _FIRST_THREAD_ENDS]) as process:
        try:
            assert wait_until(lambda: first_thread_state(process.pid) == "Z", timeout_s=20)
            assert Identity.of(process.pid) is not None
        finally:
            process.kill()
        assert wait_until(lambda: Identity.of(process.pid) is None, timeout_s=10)


def test_a_process_that_ended_is_gone_before_anybody_asked_how() -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        assert wait_until(lambda: Identity.of(process.pid) is None, timeout_s=20)


def test_another_process_of_the_same_id_is_another() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        there = Identity.of(process.pid)
        assert there is not None
        assert (True, False) == (there.alive(), Identity(there.pid, there.started - 1).alive())
