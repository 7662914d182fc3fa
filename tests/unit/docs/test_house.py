"""Promises of the whole distribution: its language, its licence, and pinned dependencies."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
LOCKS = ("requirements.lock", "requirements-spark.lock", "requirements-dev.lock")
BUILD_LOCK = "requirements-build.lock"

_PINNED = re.compile(r"[a-z0-9][a-z0-9._-]*(\[[a-z0-9,_-]+\])?==\S+( ; .+)?")
_HASH = re.compile(r"--hash=sha256:[0-9a-f]{64}")


def faults_of_lock(text: str) -> list[str]:
    """Requirements that are not pinned to one version with a hash, and lines that name an index."""
    code = "\n".join(line.partition("#")[0].rstrip() for line in text.splitlines())
    faults = []
    for entry in code.replace("\\\n", " ").splitlines():
        requirement, *hashes = re.split(r"\s+(?=--hash)", entry.strip())
        if not requirement:
            continue
        if not _PINNED.fullmatch(requirement.strip()):
            faults.append(f"not pinned: {requirement.strip()}")
        elif not hashes or not all(_HASH.fullmatch(one.strip()) for one in hashes):
            faults.append(f"no hash: {requirement.strip()}")
    return faults + [f"a host is named: {result}" for result in re.findall(r"\S*://\S*", text)]


def names_in(text: str) -> set[str]:
    """The distributions that a lock pins."""
    return {re.split(r"[\[=]", line)[0] for line in text.splitlines() if _PINNED.match(line)}


@pytest.mark.parametrize("lock", [*LOCKS, BUILD_LOCK])
def test_every_dependency_is_pinned_with_hashes_and_no_index_is_named(lock: str) -> None:
    assert faults_of_lock((ROOT / lock).read_text(encoding="utf-8")) == []


@pytest.mark.parametrize("lock", LOCKS)
def test_a_lock_holds_what_the_project_depends_on(lock: str) -> None:
    wanted = {re.split(r"[<>=\[ ]", one)[0].lower() for one in PROJECT["dependencies"]}
    assert wanted - names_in((ROOT / lock).read_text(encoding="utf-8")) == set()


def test_the_wheel_is_built_in_the_image_by_what_builds_it_elsewhere() -> None:
    (backend,) = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["build-system"]["requires"]
    assert backend in (ROOT / BUILD_LOCK).read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("click>=8.1\n", "not pinned: click>=8.1"),
        ("click==8.1.8\n", "no hash: click==8.1.8"),
        ("click==8.1.8 \\\n    --hash=sha256:00\n", "no hash: click==8.1.8"),
        ("--index-url https://example.org/simple\n", "a host is named: https://example.org/simple"),
        ("# from https://example.org/simple\n", "a host is named: https://example.org/simple"),
        ("click @ https://example.org/click.whl\n", "not pinned: click @ https://example.org/click.whl"),
    ],
)
def test_a_loose_lock_is_found(text: str, fault: str) -> None:
    assert fault in faults_of_lock(text)


def test_it_is_written_in_python_3_11_or_later() -> None:
    assert PROJECT["requires-python"] == ">=3.11"


def test_the_licence_is_apache_2() -> None:
    text = (ROOT / "LICENSE").read_text(encoding="utf-8")
    assert (PROJECT["license"], PROJECT["license-files"]) == ("Apache-2.0", ["LICENSE"])
    assert [line.strip() for line in text.splitlines() if line.strip()][:2] == [
        "Apache License",
        "Version 2.0, January 2004",
    ]


@pytest.mark.parametrize("package", ["workers/headgate", "operator/headgate_operator", "spark/headgate_spark"])
def test_every_import_package_is_typed(package: str) -> None:
    assert (ROOT / package / "py.typed").is_file()


FORMER_NAME = "pen" + "stock"
"""It belongs to another project on the package indexes, with the same import name: instructions that name it install
a stranger's code."""


def places_of_former_name(files: Mapping[str, str]) -> list[str]:
    """Paths, and lines of files, that name it."""
    paths = [path for path in files if FORMER_NAME in path.lower()]
    lines = [
        f"{path}:{number}"
        for path, text in files.items()
        for number, line in enumerate(text.splitlines(), 1)
        if FORMER_NAME in line.lower()
    ]
    return paths + lines


def test_the_former_name_occurs_nowhere() -> None:
    left_out = {
        ".git",
        ".venv",
        ".venv-dev",
        "__pycache__",
        ".mypy_cache",
        ".ruff_cache",
        ".pytest_cache",
        ".hypothesis",
    }
    paths = [each for each in ROOT.rglob("*") if each.is_file() and not left_out & set(each.relative_to(ROOT).parts)]
    files = {str(each.relative_to(ROOT)): each.read_text(encoding="utf-8", errors="replace") for each in paths}
    assert len(files) > 1_000
    assert [] == places_of_former_name(files)


def test_a_former_name_is_found_in_paths_and_lines() -> None:
    result = places_of_former_name({f"docs/{FORMER_NAME}.md": f"one\npip install {FORMER_NAME.title()}"})
    assert [f"docs/{FORMER_NAME}.md", f"docs/{FORMER_NAME}.md:2"] == result


def test_the_how_to_of_the_sdk_names_every_extra() -> None:
    page = (ROOT / "docs" / "python.md").read_text(encoding="utf-8")
    extras = {name for name, needs in PROJECT["optional-dependencies"].items() if needs}
    assert set() == {each for each in extras if f"`headgate[{each}]`" not in page}
