"""A process counts as gone, or as paused, when that is true of its last thread and not only of its first."""

from __future__ import annotations

import platform
import subprocess
import sys
import time
from pathlib import Path

from dev.servers.owned_server import OwnedServer, stands_still
from headgate.local.processes import Identity, wait_until

_EXIT_OF_A_THREAD = {"x86_64": 60, "aarch64": 93}[platform.machine()]
_FIRST_THREAD_ENDS = f"""
import ctypes, threading
threading.Thread(target=threading.Event().wait).start()
ctypes.CDLL(None).syscall({_EXIT_OF_A_THREAD}, 0)
"""
_THREADS_COUNT = """
import hashlib, sys, threading
block = bytes(1_000_000)
def count(file):
    while True:
        hashlib.sha256(block).digest()
        file.write(b"x")
for n in range(4):
    threading.Thread(target=count, args=(open(f"{sys.argv[1]}/{n}", "wb", buffering=0),)).start()
"""
"""Each thread leaves the interpreter's lock while it hashes: they run side by side, as a server's do."""


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


def test_nothing_of_a_paused_process_runs_until_it_continues(tmp_path: Path) -> None:
    def written() -> int:
        return sum(file.stat().st_size for file in tmp_path.glob("[0-9]"))

    def counts_on(beyond: int) -> bool:
        return wait_until(lambda: written() > beyond, timeout_s=20)

    server = OwnedServer("counting", [sys.executable, "-c", _THREADS_COUNT, str(tmp_path)], log=tmp_path / "log")
    server.start()
    try:
        assert counts_on(0)
        for _ in range(20):
            server.pause()
            assert stands_still(server.pid)
            at_rest = written()
            time.sleep(0.005)
            assert (at_rest, True) == (written(), server.alive())
            server.resume()
            assert counts_on(at_rest)
    finally:
        server.kill()
