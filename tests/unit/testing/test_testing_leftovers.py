"""Leftovers of killed tests are distinguished from files that a living process still uses."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from dev.servers.debian import read_plan, without_system_packages
from dev.servers.ownership import is_abandoned, maker_tag, temporary_directory

PREFIX = "headgate-leftover-test-"


def tag_of_a_dead_process() -> str:
    """The tag of a process that has ended."""
    done = subprocess.run(
        [sys.executable, "-c", "from dev.servers.ownership import maker_tag; print(maker_tag())"],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    return done.stdout.strip()


def test_what_a_living_process_made_is_its_own() -> None:
    assert not is_abandoned(f"{PREFIX}{maker_tag()}-x", PREFIX)


def test_what_a_dead_process_made_is_abandoned() -> None:
    assert is_abandoned(f"{PREFIX}{tag_of_a_dead_process()}-x", PREFIX)


def test_an_id_given_to_another_process_since_does_not_protect() -> None:
    assert is_abandoned(f"{PREFIX}{os.getpid()}x0-x", PREFIX)


@pytest.mark.parametrize("name", ["other-1x1-x", PREFIX, f"{PREFIX}data"])
def test_what_carries_no_tag_is_never_touched(name: str) -> None:
    assert not is_abandoned(name, PREFIX)


def test_a_new_directory_removes_what_dead_makers_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    left = tmp_path / f"{PREFIX}{tag_of_a_dead_process()}-x"
    (left / "data").mkdir(parents=True)
    made = temporary_directory(PREFIX)
    assert [made] == list(tmp_path.iterdir())


def test_a_plan_of_apt_is_read_with_upgrades_and_architectures() -> None:
    plan = (
        "Reading package lists...\n"
        "Inst runc (1.1.5+ds1-1 Debian:12.1/stable [amd64])\n"
        "Inst libc6 [2.36-8] (2.36-9 Debian:12.1/stable [amd64]) []\n"
        "Conf runc (1.1.5+ds1-1 Debian:12.1/stable [amd64])\n"
    )
    assert {"runc": "1.1.5+ds1-1", "libc6": "2.36-9"} == read_plan(plan)


def test_the_systems_own_c_library_is_left_out_of_what_is_unpacked_beside_it() -> None:
    plan = dict.fromkeys(("libc6", "libc6-i386", "gcc-12-base", "libgcc-s1", "libseccomp2", "runc"), "1")
    assert ["libc6-i386", "libseccomp2", "runc"] == sorted(without_system_packages(plan))
