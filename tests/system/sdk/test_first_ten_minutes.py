"""README, two tutorials and the demo's last lines, typed as printed into shells with nothing but HOME and PATH."""

from __future__ import annotations

import itertools
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from dev.demo import list_next_commands
from headgate.local.cassandra.own_cassandra import find_kept
from headgate.local.processes import wait_until
from tests.kit.page_examples import examples_of
from tests.system.sdk.fresh_shell import Newcomer, newcomer

READY_WITHIN_S = 110
"""Everything but the packages comes from the cache: some 10 s on a machine that does nothing else."""


@pytest.fixture(scope="module")
def person(tmp_path_factory: pytest.TempPathFactory) -> Newcomer:
    """Somebody with a clone."""
    return newcomer(tmp_path_factory.mktemp("newcomer"))


def blocks_of(page: str) -> list[list[str]]:
    """The command lines of a page that a test can run, block by block."""
    blocks = [each for each in examples_of(page) if each.is_run]
    return [[line for line in block.text.splitlines() if line.strip()] for block in blocks]


def state_of_dev(person: Newcomer) -> Path:
    """Where the stack of `make dev` keeps its data."""
    (directory,) = (each for each in (person.home / ".cache/headgate/run/dev").iterdir() if each.is_dir())
    return directory


def typed(person: Newcomer, line: str, *before: str, folder: Path | None = None) -> str:
    """The output of a line in a new shell, after lines that set the shell up."""
    done = person.run(*before, line, folder=folder)
    assert 0 == done.returncode, f"{line}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def type_all(person: Newcomer, lines: Iterable[str], *before: str) -> None:
    """Each line in a shell of its own, in order; the dead letter of an earlier line is waited for."""
    with ThreadPoolExecutor(1) as pool:
        waiting = []
        for line in lines:
            if " receive " in line:  # it waits for messages, and so do the lines after it not
                waiting.append(pool.submit(typed, person, line, *before))
            elif " peek " in line and "-dead" in line:
                has_dead = partial(shows, person, line, *before, text='{"no": "address"}')
                assert wait_until(has_dead, timeout_s=60), line
            else:
                typed(person, line, *before)
        for each in waiting:
            each.result()


def shows(person: Newcomer, line: str, *before: str, text: str) -> bool:
    """Whether a line writes a text."""
    return text in typed(person, line, *before)


def test_what_readme_and_demo_print_works_as_printed(person: Newcomer, measured: Callable[[str], None]) -> None:
    (start,), (setting, *lines), demo = blocks_of("../README.md")
    began_s = time.monotonic()
    with person.terminal(start) as terminal:
        terminal.wait_for("handled, .* after it was put", within_s=READY_WITHIN_S)
        measured(f"make dev, in a new clone with a warm cache: handled after {time.monotonic() - began_s:.1f} s")
        terminal.wait_for("Ctrl-C ends it")
        terminal.wait_for("headgate redrive")

        type_all(person, lines, setting)
        assert wait_until(lambda: terminal.has("sent 'hello' to you-10"), timeout_s=20)

        # The tutorials, on the same queues.
        (again,), *more = blocks_of("start-developer.md")
        assert again == start
        type_all(person, itertools.chain.from_iterable(more), setting)
        (person.home / "letters.jsonl").write_text('{"to": "ann@example.org"}\n')
        typed(person, f"headgate apply {person.clone}/examples/dev/counters.yaml", setting)
        type_all(person, itertools.chain.from_iterable(blocks_of("start-data-engineer.md")), setting)

        # What it prints for another terminal is the same, with a path of its own.
        heading = next(number for number, line in enumerate(terminal.lines) if line.startswith("Try in another"))
        printed = terminal.lines[heading + 1 :]
        assert str(state_of_dev(person)) in printed[0]
        assert "shop/emails" in typed(person, "headgate top --snapshot", printed[0].strip())

        # The demo's lines, on this Cassandra: a cluster's are run where there is one.
        demo_cassandra = person.home / ".cache/headgate/run/demo-cassandra"
        demo_cassandra.mkdir()
        shutil.copy(state_of_dev(person) / "server.json", demo_cassandra / "server.json")
        first, *others = list_next_commands(context=None)
        assert demo[0].partition("#")[0].strip() == first.partition("#")[0].strip()
        for line in [*demo[1:], *(each for each in others if not each.startswith("kubectl"))]:
            typed(person, line, first, folder=person.clone)

        code = terminal.interrupt()
        assert terminal.has("its data stays for the next run"), terminal.lines
        assert not terminal.has("Traceback"), terminal.lines
    assert code in (-signal.SIGINT, 0, 2, 130)
    assert find_kept(state_of_dev(person)) is None


def test_without_java_and_maven_each_is_one_line(person: Newcomer, tmp_path: Path) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("bash", "env"):
        (programs / name).symlink_to(str(shutil.which(name)))
    bare = Newcomer(tmp_path, person.clone, {"HOME": str(tmp_path), "PATH": str(programs), "PYTHONPATH": "workers:."})
    script = (
        "import sys; from pathlib import Path; from headgate.local.cassandra import installation;"
        "installation.SYSTEM, installation.ELSEWHERE = Path('/none'), ();"
        "from dev.run_local import main; sys.exit(main([]))"
    )
    done = bare.run(f'{sys.executable} -c "{script}"', folder=person.clone)
    assert 1 == done.returncode
    java, maven = done.stderr.splitlines()
    assert "Java is missing" in java
    assert "program=mvn" in maven


NO_LINUX = """
import os, sys, sysconfig
import asyncio, ctypes, multiprocessing, urllib.request, uuid  # of this Python, which is built for Linux
sysconfig.get_config_vars()
LINUX = {"setpriv", "ip", "nsenter", "unshare"}
def is_linux(path):
    text = os.fsdecode(path) if isinstance(path, (str, bytes, os.PathLike)) else ""
    return text.startswith(("/proc", "/sys/")) or os.path.basename(text) in LINUX
def hide(function):
    def hidden(path, *rest, **named):
        if is_linux(path):
            raise FileNotFoundError(2, "not on this system", path)
        return function(path, *rest, **named)
    return hidden
os.stat, os.access = hide(os.stat), lambda path, *rest, access=os.access, **named: (
    not is_linux(path) and access(path, *rest, **named))
def refuse(event, arguments):
    if event in ("open", "subprocess.Popen", "os.listdir") and is_linux(arguments[0]):
        raise FileNotFoundError(2, "not on this system", arguments[0])
sys.addaudithook(refuse)
sys.platform = "darwin"
"""
"""For Python at its start: what Linux alone has is gone, for all processes of Python that inherit the variable."""


def test_a_stack_runs_on_a_system_without_proc_and_without_the_programs_of_linux(
    person: Newcomer, tmp_path: Path
) -> None:
    (tmp_path / "sitecustomize.py").write_text(NO_LINUX)
    variables = {"PYTHONPATH": os.pathsep.join([str(tmp_path), *filter(None, sys.path)])}
    local = Newcomer(person.home, person.clone, {**person.environment, **variables})
    probe = local.run(
        f"{sys.executable} -c 'import sys, pathlib; print(sys.platform, pathlib.Path(\"/proc\").exists())'"
    )
    assert "darwin False\n" == probe.stdout, probe
    file, payload = tmp_path / "emails.yaml", '{"to": "ann"}'
    shutil.copy(person.clone / "examples" / "dev" / "emails.yaml", file)
    line = f"{sys.executable} -m headgate.cli.main dev {file} --put '{payload}' --until-handled"
    done = local.run(line, folder=person.clone)
    assert 0 == done.returncode, f"{done.stdout}\n{done.stderr}"
    assert "sent 'hello' to ann" in done.stdout
    assert "Traceback" not in done.stdout + done.stderr
    left = subprocess.run(["pgrep", "-f", str(tmp_path)], capture_output=True, text=True, check=False)
    assert "" == left.stdout
