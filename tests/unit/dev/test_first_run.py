"""Preparations of `make dev` and `make demo`: programs, packages, Cassandra's classes, the build of Kubernetes."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from dev import environment, run_local, uv_program
from dev.background_build import BackgroundBuild, end_left_over
from headgate.errors import EnvironmentProblem
from headgate.local import processes, progress
from headgate.local.cassandra import installation
from headgate.local.cassandra.installation import Installation, Java
from headgate.local.processes import Identity, Server, wait_until

ROOT = Path(__file__).parents[3]
LOCK = (
    "tzdata==1 \\\n    --hash=sha256:aa\nuv==0.13.8 \\\n    --hash=sha256:bb \\\n    --hash=sha256:cc\nwheel==1 \\\n"
)


# ---- what is missing


def test_everything_that_is_missing_is_named_in_the_order_in_which_it_is_installed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in [name for name in os.environ if name.endswith("CONTACT_POINTS")]:
        monkeypatch.delenv(name)
    monkeypatch.setattr(installation, "SYSTEM", tmp_path)
    monkeypatch.setattr(installation, "ELSEWHERE", ())
    monkeypatch.setattr(environment, "PYTHON_MIN", (9, 0))
    monkeypatch.setenv("HEADGATE_CACHE", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    missing = [str(each) for each in run_local.list_missing()]
    assert ["Python", "Java", "Maven"] == [
        next(word for word in ("Maven", "Java", "Python") if word in line) for line in missing
    ]
    assert all("\n" not in line for line in missing)
    monkeypatch.setenv("HEADGATE_CONTACT_POINTS", "10.0.0.1")
    assert 1 == len(run_local.list_missing())


def test_a_java_stub_of_macos_counts_as_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    stub = tmp_path / "java"
    stub.write_text('#!/bin/sh\necho "Unable to locate a Java Runtime." >&2\nexit 1\n')
    stub.chmod(0o755)
    monkeypatch.setattr(installation, "SYSTEM", tmp_path)
    monkeypatch.setattr(installation, "ELSEWHERE", ())
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises(EnvironmentProblem, match="Java is missing"):
        installation.find_java()


def test_a_java_of_homebrew_is_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    program = tmp_path / "openjdk@17" / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\necho 'openjdk version \"17.0.15\"' >&2\n")
    program.chmod(0o755)
    monkeypatch.setattr(installation, "SYSTEM", tmp_path / "none")
    monkeypatch.setattr(installation, "ELSEWHERE", (f"{tmp_path}/openjdk@17/bin",))
    monkeypatch.setenv("PATH", "/none")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    assert program == installation.find_java().program


# ---- packages


def test_uv_is_installed_by_the_hashes_of_the_lock() -> None:
    assert "uv==0.13.8 \\\n    --hash=sha256:bb \\\n    --hash=sha256:cc\n" == uv_program.locked_requirement(
        LOCK, "uv"
    )
    assert "--hash=sha256:" in uv_program.locked_requirement(uv_program.LOCK.read_text(), "uv")
    with pytest.raises(EnvironmentProblem, match="does not pin"):
        uv_program.locked_requirement(LOCK, "pip")


def test_uv_uses_the_index_that_pip_is_set_up_with() -> None:
    configured = "global.index-url='https://a.example/simple'\n:env:.cert='/c.pem'\nglobal.cert='/c.pem'\nwheel.index-url='x'\n"
    assert {"UV_DEFAULT_INDEX": "https://a.example/simple", "SSL_CERT_FILE": "/c.pem"} == uv_program.uv_settings(
        configured, {}
    )
    assert {"SSL_CERT_FILE": "/c.pem"} == uv_program.uv_settings(
        configured, {"UV_DEFAULT_INDEX": "https://b.example"}
    )
    several = "global.extra-index-url='\\nhttps://a.example\\nhttps://b.example'\n"
    assert {"UV_INDEX": "https://a.example https://b.example"} == uv_program.uv_settings(several, {})


def test_a_failed_installation_is_one_line_without_the_address_of_the_index() -> None:
    error = str(uv_program.install_failure("uv", "Resolving\nerror: no answer of https://u:p@a.example/simple/x\n"))
    assert "no answer of (the index)" in error
    assert "a.example" not in error
    assert "\n" not in error


def test_what_make_dev_installs_has_neither_spark_nor_tools() -> None:
    names = " ".join((ROOT / name).read_text() for name in environment.RUN.locks)
    assert "cassandra-driver==" in names
    assert [] == re.findall(r"^(?:pyspark|mypy|pytest|ruff)==", names, re.MULTILINE)


def test_an_environment_is_ready_until_a_lock_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "ROOT", tmp_path)
    for name in (*environment.RUN.locks, "pyproject.toml"):
        (tmp_path / name).write_text("a==1")
    environment.RUN.path.mkdir()
    assert not environment.RUN.is_ready()
    (environment.RUN.path / "ready").write_text(environment.RUN.fingerprint())
    assert environment.RUN.is_ready()
    (tmp_path / environment.RUN.locks[0]).write_text("a==2")
    assert not environment.RUN.is_ready()


# ---- Cassandra's classes


def test_the_first_start_learns_and_a_clean_end_keeps_what_was_learned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADGATE_CACHE", str(tmp_path / "cache"))
    state, jars = tmp_path / "state", tmp_path / "jars"
    state.mkdir()
    parts = Installation(Java(Path("/java"), 17, "17.0.15+6"), jars)
    (argument,) = installation.learning_arguments(parts, state)
    written = Path(argument.partition("=")[2])
    written.write_text("classes")
    installation.keep_learned(state)
    (kept,) = (tmp_path / "cache" / "cassandra-archive").glob("*/classes.jsa")
    assert ("classes", False) == (kept.read_text(), written.exists())
    assert () == installation.learning_arguments(Installation(parts.java, jars, kept), state)
    assert () == installation.learning_arguments(Installation(Java(Path("/java"), 11, "11"), jars), state)


def test_what_a_killed_node_has_half_written_is_forgotten(tmp_path: Path) -> None:
    parts = Installation(Java(Path("/java"), 17, "17"), tmp_path)
    written = Path(installation.learning_arguments(parts, tmp_path)[0].partition("=")[2])
    written.write_text("cla")
    installation.forget_learned(tmp_path)
    assert not written.exists()


# ---- without Linux


def test_a_process_is_known_by_ps_where_there_is_no_proc(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(processes, "_PROC", tmp_path / "none")
    server = Server("sleeper", ["/bin/sleep", "60"], log=tmp_path / "log", pid_file=tmp_path / "pid")
    server.start()
    try:
        assert server.alive()
        again = Server("sleeper", [], log=tmp_path / "log", pid_file=tmp_path / "pid")
        assert again.alive()
        assert not Identity(server.pid, 1).alive()
    finally:
        assert server.stop()
    assert not server.alive()


def test_memory_is_checked_where_the_system_reports_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(installation, "_MEMORY", tmp_path / "meminfo")
    installation.require_memory(1 << 40)
    (tmp_path / "meminfo").write_text("MemAvailable:    2048 kB\n")
    with pytest.raises(EnvironmentProblem, match="Too little memory"):
        installation.require_memory(3)


def test_the_makefile_is_one_for_an_old_make_and_an_old_bash() -> None:
    text = (ROOT / "Makefile").read_text()
    newer = (
        r"!=|::=|^\.ONESHELL|\$\(file |^undefine|^\s*private |&:|\$\{\w+\^|\$\{\w+,|declare -A|mapfile|readarray|\|&"
    )
    assert [] == re.findall(newer, text, re.MULTILINE)


# ---- progress, and the build in the background


def test_one_line_shows_all_that_runs() -> None:
    line = progress.format_signs([("build a", 130.0, 400.0), ("fetch b", 20.4, None)])
    assert "    build a: 2 min 10 s of about 6 min 40 s; fetch b: 20 s" == line
    assert ["5 s", "5.4 s", "10 s", "89 s", "2 min"] == [progress.duration(each) for each in (5, 5.4, 9.96, 89, 120)]


def started_build(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, works: str) -> tuple[BackgroundBuild, list[str]]:
    """One whose works are these, in Python."""
    monkeypatch.setenv("HEADGATE_STATE", str(tmp_path))
    source = (
        "import subprocess, sys, time; from dev import background_build as build;"
        "from headgate.errors import EnvironmentProblem;"
        f"\ndef fail(): raise EnvironmentProblem('no disk', remedy='buy one')"
        f"\ndef sleep(): print('pid', subprocess.Popen(['sleep', '600']).wait(), flush=True)"
        f"\nbuild.works_of = lambda **_: {works}"
        "\nsys.exit(build.main(sys.argv[1:]))"
    )
    shown: list[str] = []
    build = BackgroundBuild(lambda name, line: shown.append(f"{name} {line}"), (sys.executable, "-c", source))
    build.start(own_cluster=True, spark=False)
    return build, shown


def test_a_build_that_fails_ends_all_other_builds_and_is_one_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    build, _ = started_build(monkeypatch, tmp_path, "[sleep, fail]")
    began_s = time.monotonic()
    with pytest.raises(EnvironmentProblem, match="Kubernetes could not be built") as result:
        build.wait()
    assert "no disk" in str(result.value)
    assert "\n" not in str(result.value)
    assert time.monotonic() - began_s < 60
    assert not (tmp_path / "demo-build.pid").exists()


def test_a_build_that_an_interrupted_demo_left_is_ended_whole(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    build, _ = started_build(monkeypatch, tmp_path, "[sleep]")
    assert build._process is not None
    group = build._process.pid
    assert wait_until(lambda: len(members_of(group)) > 1, timeout_s=20)
    assert end_left_over()
    build._process.wait(30)
    assert wait_until(lambda: members_of(group) == [], timeout_s=10)
    assert not end_left_over()


def members_of(group: int) -> list[str]:
    """The processes of a group that run."""
    done = subprocess.run(["ps", "-eo", "pid=,pgid=,state="], capture_output=True, text=True, check=True)
    rows = [line.split() for line in done.stdout.splitlines()]
    return [pid for pid, of, state in rows if int(of) == group and not state.startswith("Z")]


def test_a_build_that_ends_well_is_waited_for(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    build, shown = started_build(monkeypatch, tmp_path, "[lambda: print('built', flush=True)]")
    build.wait()
    assert ["kubernetes built"] == shown
    build.end()
    assert signal.getsignal(signal.SIGTERM) is not signal.SIG_IGN
