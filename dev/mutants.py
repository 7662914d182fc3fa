"""Run the mutants kept under tests/mutants: each has to be found by the tests that it names.

A mutant is an exact text and its replacement. It is applied to a copy of the tree, never to the tree itself. It
counts as found when the tests it names fail by an assertion or an error of the code. A copy in which those tests
cannot even be collected is inconclusive, and so is one whose tests pass without the mutation applied. One that
survives, or whose text is no longer in the file, fails the run.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from headgate.local.progress import duration, print_progress

ROOT = Path(__file__).resolve().parent.parent
MUTANTS = ROOT / "tests" / "mutants"
COPIED = ("workers", "operator", "spark", "tests", "dev", "bench", "crds", "docs", "examples", "pyproject.toml")
TESTS_FAILED = 1
RUN_S_MAX = 600


@dataclass(frozen=True)
class Mutant:
    """One mutant: the place, the change, the rule it breaks, and the tests that have to find it."""

    name: str
    breaks: str
    file: str
    find: str
    replace: str
    killers: tuple[str, ...]
    by: str

    @classmethod
    def read(cls, group: str, entry: dict[str, object]) -> Mutant:
        """From an entry of a TOML file; all fields are required."""
        killers = entry["found_by"]
        assert isinstance(killers, list)
        return cls(
            f"{group}/{entry['name']}",
            str(entry["breaks"]),
            str(entry["file"]),
            str(entry["find"]),
            str(entry["replace"]),
            tuple(map(str, killers)),
            str(entry["by"]),
        )


@dataclass(frozen=True)
class Ending:
    """The result of a mutant."""

    mutant: Mutant
    verdict: str
    seconds: float = 0.0
    detail: str = ""

    @property
    def is_killed(self) -> bool:
        """Whether the tests did their work."""
        return self.verdict == "found"


def read_mutants(directory: Path = MUTANTS) -> list[Mutant]:
    """All breakages, by file name and then in the order of the file."""
    return [
        Mutant.read(path.stem, entry)
        for path in sorted(directory.glob("*.toml"))
        for entry in tomllib.loads(path.read_text())["mutant"]
    ]


def mutated(text: str, mutant: Mutant) -> str | None:
    """The mutated text, or None if its place does not exist exactly once."""
    return text.replace(mutant.find, mutant.replace) if text.count(mutant.find) == 1 else None


def copy_tree(to: Path) -> None:
    """The files of the tree that the tests need."""
    ignore = shutil.ignore_patterns("__pycache__", "results")
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, to / name, ignore=ignore)
        elif source.exists():
            shutil.copy2(source, to / name)


def run_tests(tree: Path, tests: Sequence[str], *, servers: bool) -> tuple[int, str]:
    """pytest's exit code and closing lines, in a copy."""
    environment = {**os.environ, "PYTHONPATH": "workers:operator:spark:.", "PYTHONDONTWRITEBYTECODE": "1"}
    which = "servers" if servers else "not servers and not slow"
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-m", which, *tests]
    try:
        done = subprocess.run(
            command, cwd=tree, env=environment, capture_output=True, text=True, check=False, timeout=RUN_S_MAX
        )
    except subprocess.TimeoutExpired:
        return TESTS_FAILED, f"did not end within {duration(RUN_S_MAX)}"
    return done.returncode, "\n".join(done.stdout.splitlines()[-3:])


def try_mutant(mutant: Mutant) -> Ending:
    """Apply it to a copy, and see whether the tests notice."""
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="headgate-mutant-") as temporary:
        tree = Path(temporary)
        copy_tree(tree)
        target = tree / mutant.file
        text = mutated(target.read_text(), mutant) if target.exists() else None
        if text is None:
            return Ending(mutant, "no longer applies", 0, f"its text does not occur exactly once in {mutant.file}")
        target.write_text(text)
        code, closing = run_tests(tree, mutant.killers, servers=mutant.by == "servers")
    took = time.monotonic() - started
    if code == TESTS_FAILED:
        return Ending(mutant, "found", took)
    return Ending(mutant, "survived" if code == 0 else "inconclusive", took, closing)


def unbroken(mutants: Sequence[Mutant]) -> tuple[bool, str]:
    """Whether the named tests pass without any mutation; otherwise their failures are meaningless."""
    closing = ""
    with tempfile.TemporaryDirectory(prefix="headgate-mutant-") as temporary:
        copy_tree(Path(temporary))
        for servers in (False, True):
            tests = {test for mutant in mutants if (mutant.by == "servers") is servers for test in mutant.killers}
            if tests:
                code, closing = run_tests(Path(temporary), sorted(tests), servers=servers)
                if code != 0:
                    return False, closing
    return True, closing


def main() -> int:
    """Try all, or those of one group."""
    parser = argparse.ArgumentParser(description="run the deliberate breakages")
    parser.add_argument("group", nargs="*", help="files of tests/mutants, without .toml. Default: all")
    chosen = parser.parse_args().group
    mutants = [mutant for mutant in read_mutants() if not chosen or mutant.name.split("/")[0] in chosen]
    if not mutants:
        print_progress(f"no mutants in tests/mutants{' of ' + ', '.join(chosen) if chosen else ''}", to=sys.stderr)
        return 2
    sound, closing = unbroken(mutants)
    if not sound:
        print_progress(f"the tests fail without any mutant:\n{closing}", to=sys.stderr)
        return 1
    with ThreadPoolExecutor(2) as pool:
        endings = []
        for ending in pool.map(try_mutant, mutants):
            endings.append(ending)
            mark = "✓" if ending.is_killed else "✗"
            print_progress(
                f"  {mark} {ending.mutant.name}: {ending.verdict} ({duration(ending.seconds)}) {ending.detail}"
            )
    result = sum(ending.is_killed for ending in endings)
    simulated = sum(ending.is_killed and ending.mutant.by == "simulation" for ending in endings)
    print_progress(f"{result} of {len(endings)} breakages found, {simulated} of them by simulation alone")
    return 0 if result == len(endings) else 1


if __name__ == "__main__":
    sys.exit(main())
