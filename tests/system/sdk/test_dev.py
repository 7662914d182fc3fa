"""`headgate dev`: what a newcomer sees, the commands it proposes, and that nothing is left."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from dev.servers.cassandra.serving import Serving
from headgate.local.processes import Identity, wait_until
from headgate.local.stack import state_directory

ROOT = Path(__file__).parents[3]
EXAMPLE = ROOT / "examples" / "dev" / "emails.yaml"
ANOTHER = """---
apiVersion: headgate.io/v1beta1
kind: Queue
metadata: {name: letters, namespace: shop}
spec:
  shards: 1
  storage: {tables: shared}
  consumers: [{name: scribe, handler: "examples.python.mailer:send", concurrency: 1}]
"""
MESSAGE_WITHIN_S = 30
"""From the command to a message handled, on a machine that is not busy with others."""


class Dev:
    """One run of it, and what it prints."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.lines: list[str] = []
        self._reading = threading.Thread(target=self._read, daemon=True)
        self._reading.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        self.lines.extend(line.rstrip("\n") for line in self.process.stdout)

    def wait_for_line(self, pattern: str, *, times: int = 1, within_s: float = 120) -> list[re.Match[str]]:
        """Wait for lines."""
        matches: list[re.Match[str]] = []

        def has_line() -> bool:
            matches[:] = [each for line in self.lines if (each := re.search(pattern, line))]
            return len(matches) >= times or self.process.poll() is not None

        assert wait_until(has_line, timeout_s=within_s), "\n".join(self.lines)
        assert len(matches) >= times, "\n".join(self.lines)
        return matches

    def descendants(self) -> list[Identity]:
        """Every process that it has begun, with those that they have."""
        parents: dict[int, list[int]] = {}
        for stat in Path("/proc").glob("[0-9]*/stat"):
            try:
                parent = int(stat.read_text().rpartition(")")[2].split()[1])
            except (FileNotFoundError, ProcessLookupError):
                continue
            parents.setdefault(parent, []).append(int(stat.parent.name))
        matches: list[int] = []
        left = [self.process.pid]
        while left:
            children = parents.get(left.pop(), [])
            matches += children
            left += children
        return [identity for pid in matches if (identity := Identity.of(pid)) is not None]

    def end(self, number: int) -> int:
        """Send it a signal; its exit code."""
        self.process.send_signal(number)
        code = self.process.wait(60)
        self._reading.join(10)
        return code


@contextmanager
def dev(*files: Path, connection_variables: dict[str, str] | None = None, folder: Path = ROOT) -> Iterator[Dev]:
    """Started from the project's folder by default, as `make dev` does; nothing of it is left afterwards."""
    mine = {
        name: value for name, value in os.environ.items() if name not in ("CONTACT_POINTS", "USERNAME", "PASSWORD")
    }
    environment = {
        **mine,
        "PYTHONPATH": os.pathsep.join(sys.path),
        "PYTHONUNBUFFERED": "1",
        **(connection_variables or {}),
    }
    with subprocess.Popen(
        [sys.executable, "-m", "headgate.cli.main", "dev", *map(str, files)],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        begun = Dev(process)
        try:
            yield begun
        finally:
            left = begun.descendants()
            if process.poll() is None:
                begun.end(signal.SIGTERM)
            servers = ended_servers_of(state_directory(files))
            shutil.rmtree(state_directory(files), ignore_errors=True)
            assert ([], []) == (servers, [each for each in left if each.alive()])


def suggested(begun: Dev) -> list[str]:
    """The commands that it prints, as they stand there."""
    start = begun.lines.index("Try in another terminal:") + 1
    return [line.removeprefix("  ") for line in begun.lines[start : begun.lines.index("", start)]]


def another_terminal(*lines: str) -> subprocess.CompletedProcess[str]:
    """A shell in the user's home, which knows nothing of the project."""
    home = Path.home()
    return subprocess.run(
        ["/bin/sh", "-ec", "\n".join(lines)],
        cwd=home,
        env={"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(home)},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def test_a_newcomer_has_a_message_handled_tries_what_he_is_reported_changes_a_file_and_ends_it(
    tmp_path: Path, measured: Callable[[str], None]
) -> None:
    file = tmp_path / "emails.yaml"
    file.write_text(EXAMPLE.read_text())
    began_s = time.monotonic()
    with dev(file) as begun:
        begun.wait_for_line("Ctrl-C ends it")
        begun.wait_for_line("^$", times=2)
        sourced, send, *others = suggested(begun)
        sent = another_terminal(sourced, send)
        assert (0, 10) == (sent.returncode, len(sent.stdout.splitlines())), sent
        assert 10 == len({each[1] for each in begun.wait_for_line(r"sent 'hello' to (you-\d+)", times=10)})
        took_s = time.monotonic() - began_s
        measured(f"headgate dev, from nothing to ten messages handled: {took_s:.1f} s")
        assert took_s < 4 * MESSAGE_WITHIN_S

        # What is printed can be typed.
        reports = [another_terminal(sourced, line) for line in others]
        assert {0} == {each.returncode for each in reports}, reports
        dead = next(line for line in others if " peek " in line)
        assert wait_until(lambda: '{"no": "address"}' in another_terminal(sourced, dead).stdout, timeout_s=20)
        redriven = another_terminal(sourced, next(line for line in others if " redrive " in line))
        assert (0, "moved 1\n") == (redriven.returncode, redriven.stdout)

        # A worker that dies is restarted.
        (mailer,) = [each for each in begun.descendants() if is_worker(each, "shop/emails")]
        os.kill(mailer.pid, signal.SIGKILL)
        begun.wait_for_line(r"emails/mailer .* was killed by SIGKILL; restarting")
        begun.wait_for_line("worker started", times=2)

        # A file that is changed is obeyed.
        file.write_text("spec: [")
        begun.wait_for_line(r"^files +\| .*emails\.yaml")
        file.write_text(EXAMPLE.read_text() + ANOTHER)
        begun.wait_for_line("queue/shop/letters created")
        begun.wait_for_line(r"letters/scribe .*worker started")

        assert 0 == begun.end(signal.SIGINT)
        begun.wait_for_line(r"worker stopped +queue=shop/letters")
        begun.wait_for_line("its data stays for the next run")


def test_a_handler_whose_code_is_changed_is_begun_with_the_new_code(cassandra: Serving, tmp_path: Path) -> None:
    (tmp_path / "queues.yaml").write_text(ANOTHER.replace("examples.python.mailer:send", "mine.tasks:work"))
    (tmp_path / "mine").mkdir()
    code = (
        "from mine.words import WORD\n\ndef work(payload: bytes) -> None: print(WORD, payload.decode(), flush=True)\n"
    )
    (tmp_path / "mine" / "tasks.py").write_text(code)
    (tmp_path / "mine" / "words.py").write_text("WORD = 'old'\n")
    variables = {**cassandra.environment(), "KEYSPACE": "dev_of_changes"}
    send = [sys.executable, "-m", "headgate.cli.main", "put", "shop/letters"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **variables}
    try:
        with dev(tmp_path / "queues.yaml", connection_variables=variables, folder=tmp_path) as begun:
            begun.wait_for_line("worker started")
            subprocess.run([*send, "first"], env=environment, check=True, stdout=subprocess.DEVNULL)
            begun.wait_for_line("old first")
            (tmp_path / "mine" / "words.py").write_text("WORD = 'brand new'\n")
            begun.wait_for_line("worker started", times=2)
            subprocess.run([*send, "second"], env=environment, check=True, stdout=subprocess.DEVNULL)
            begun.wait_for_line("brand new second")
            begun.wait_for_line("worker stopped")
    finally:
        cassandra.cql("DROP KEYSPACE IF EXISTS dev_of_changes")


def is_worker(identity: Identity, queue: str) -> bool:
    """Whether it is a worker of that queue, and no child of one."""
    arguments = Path(f"/proc/{identity.pid}/cmdline").read_text().split("\0")
    return "worker" in arguments and queue in arguments


def test_on_a_cassandra_of_ones_own_nothing_is_started_and_each_way_to_end_ends_all(
    cassandra: Serving, tmp_path: Path
) -> None:
    file = tmp_path / "emails.yaml"
    file.write_text(EXAMPLE.read_text())
    variables = {**cassandra.environment(), "KEYSPACE": "dev_of_ones_own"}
    try:
        with dev(file, connection_variables=variables) as begun:
            begun.wait_for_line("worker started")
            assert 0 == begun.end(signal.SIGHUP)
            assert not any(re.match(r"cassandra +\| (starting|stopping)", line) for line in begun.lines), begun.lines
        with dev(file, connection_variables=variables) as begun:
            begun.wait_for_line("worker started")
            left = begun.descendants()
            begun.process.kill()
            begun.process.wait()
            assert wait_until(lambda: not any(each.alive() for each in left), timeout_s=40)
        with dev(file, connection_variables=variables) as begun:
            begun.wait_for_line("apply")
            assert 0 == begun.end(signal.SIGTERM)
    finally:
        cassandra.cql("DROP KEYSPACE IF EXISTS dev_of_ones_own")


@pytest.mark.parametrize("instant", ["before there is a server", "when there is one", "when it has just been found"])
def test_ended_while_its_cassandra_starts_it_leaves_none(tmp_path: Path, instant: str) -> None:
    file = tmp_path / "emails.yaml"
    file.write_text(EXAMPLE.read_text())
    with dev(file) as begun:
        begun.wait_for_line("starting" if instant != "when it has just been found" else r"cassandra +\| ready at")
        if instant == "when there is one":
            assert wait_until(lambda: any(map(is_java, begun.descendants())), timeout_s=30)
        assert begun.end(signal.SIGTERM) in (0, 1)
        assert [] == ended_servers_of(state_directory([file]))
        assert not any("Traceback" in line for line in begun.lines), begun.lines


def ended_servers_of(state: Path) -> list[str]:
    """Whatever was left on the data of one stack, which belongs to one test: no run of the tests leaves a server, not
    even one that fails because of it."""
    left = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit() and int(folder.name) != os.getpid():
            with contextlib.suppress(OSError):
                command = (folder / "cmdline").read_bytes()
                if os.fsencode(state) in command:
                    left.append(command.replace(b"\0", b" ").decode(errors="replace"))
                    os.kill(int(folder.name), signal.SIGKILL)
    return left


def is_java(identity: Identity) -> bool:
    """Whether it is the server."""
    try:
        return b"java" in Path(f"/proc/{identity.pid}/cmdline").read_bytes().split(b"\0")[0]
    except FileNotFoundError:
        return False


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "does not exist"),
        ("kind: Queue\n", "apiVersion"),
        ("", "No Queue and no Counter in these files"),
    ],
)
def test_a_file_that_is_wrong_is_reported_before_anything_is_started(
    tmp_path: Path, text: str | None, message: str
) -> None:
    file = tmp_path / "emails.yaml"
    if text is not None:
        file.write_text(text)
    with dev(file) as begun:
        assert 2 == begun.process.wait(60)
        begun.wait_for_line(re.escape(message))
        assert not any("Traceback" in line or "starting" in line for line in begun.lines), begun.lines
