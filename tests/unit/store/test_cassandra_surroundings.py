"""A machine that lacks something gets one line with the remedy, before or instead of a traceback."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from headgate.errors import EnvironmentProblem, HeadgateError
from headgate.local.cassandra import installation
from headgate.local.cassandra.installation import find_java, maven_failure, parse_build, parse_major, require_memory
from headgate.local.cassandra.node import NodePlace, start_failure
from headgate.local.processes import PORTS, port_taken, server_ports

JAVA_17 = 'openjdk version "17.0.15" 2025-04-15\nOpenJDK Runtime Environment (build 17.0.15+6-Debian-1deb12u1)'


@pytest.mark.parametrize(
    ("message", "major"),
    [
        (JAVA_17, 17),
        ('java version "1.8.0_392"', 8),
        ('openjdk version "21" 2023-09-19', 21),
        ("no Java at all", None),
    ],
)
def test_the_version_of_a_java_is_read_from_its_text(message: str, major: int | None) -> None:
    assert major == parse_major(message)


def test_the_build_of_a_java_can_name_a_file() -> None:
    assert "17.0.15+6-Debian-1deb12u1" == parse_build(JAVA_17)
    assert "/" not in parse_build('openjdk version "17/../x"')


def fake_java(directory: Path, version: str) -> Path:
    program = directory / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    program.chmod(0o755)
    return program


@pytest.fixture
def no_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A machine without any Java; a directory to put one into."""
    monkeypatch.setattr(installation, "SYSTEM", tmp_path / "jvm")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "")
    return tmp_path


def test_without_java_it_names_what_to_install(no_java: Path) -> None:
    with pytest.raises(EnvironmentProblem, match=r"Java is missing.*openjdk-17"):
        find_java()


def test_a_java_of_the_wrong_version_is_named_with_the_right_ones(
    no_java: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(fake_java(no_java / "one", "21.0.1").parent))
    with pytest.raises(EnvironmentProblem, match=r"17 or 11.*version=21"):
        find_java()


def test_a_right_java_is_found_behind_a_wrong_one(no_java: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(fake_java(no_java / "one", "21.0.1").parent.parent))
    right = fake_java(no_java / "two", "17.0.9")
    monkeypatch.setenv("PATH", str(right.parent))
    assert (right, 17) == (find_java().program, find_java().major)


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("[ERROR] Could not transfer artifact x from y (https://repo.example/m2): Unknown host repo", "registry"),
        ("[ERROR] write failed: No space left on device", "disk is full"),
        ("[ERROR] Could not find artifact a:b:jar:1", "could not resolve"),
    ],
)
def test_mavens_many_lines_become_one_without_the_registrys_address(message: str, expected: str) -> None:
    line = str(maven_failure(message))
    assert expected in line
    assert "repo.example" not in line


@pytest.mark.parametrize(
    ("log", "expected"),
    [
        ("java.net.BindException: Address already in use", "Cassandra port is taken"),
        (
            "ERROR 127.0.0.9/127.0.0.9:7000 is in use: Cannot assign requested address",
            "cannot listen at this address",
        ),
        ("FSWriteError: java.io.IOException: No space left on device", "disk is full"),
        ("Error occurred: Could not reserve enough space for 2097152KB object heap", "Too little memory"),
        ("ERROR [main] Invalid yaml. Please remove properties [nonsense] from your cassandra.yaml", "[nonsense]"),
    ],
)
def test_a_node_that_did_not_start_gives_the_reason_and_what_to_do(tmp_path: Path, log: str, expected: str) -> None:
    (tmp_path / "system.log").write_text(log + "\n")
    place = NodePlace(tmp_path, "127.0.0.1", 1, 2, 3)
    assert expected in str(start_failure(tmp_path / "system.log", log, place))


def test_a_node_that_left_no_log_is_an_error_of_one_kind_too(tmp_path: Path) -> None:
    failure = start_failure(tmp_path / "system.log", "(no log)", NodePlace(tmp_path, "127.0.0.1", 1, 2, 3))
    assert isinstance(failure, HeadgateError)


def test_too_little_memory_is_reported_before_the_start() -> None:
    with pytest.raises(EnvironmentProblem, match="Too little memory"):
        require_memory(1 << 40)


def test_ports_are_free_different_and_below_those_of_outgoing_connections() -> None:
    ports = server_ports(5, ["127.0.0.1", "127.0.0.2"])
    assert 5 == len(set(ports))
    assert not any(port_taken("127.0.0.2", port) for port in ports)
    assert all(port in PORTS for port in ports)


def test_an_address_of_another_machine_is_refused() -> None:
    with pytest.raises(EnvironmentProblem, match=r"Not an address of this machine.*198\.51\.100\.7"):
        server_ports(1, ["198.51.100.7"])


def test_the_kernels_word_for_an_address_is_in_the_line() -> None:
    with pytest.raises(EnvironmentProblem, match=os.strerror(errno.EADDRNOTAVAIL)):
        server_ports(1, ["198.51.100.7"])
