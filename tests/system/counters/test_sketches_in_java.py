"""Java's DataSketches reads the states of distinct, audience, quantiles and topk counters, with the same results.

Spark's functions for sketches are that same library.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from headgate.counters.types.contract import Json
from headgate.counters.types.registry import type_of
from headgate.local.cache import cached
from headgate.local.cassandra.installation import find_java, maven_failure
from headgate.local.processes import require_program

JARS = {"datasketches-java": "6.1.1", "datasketches-memory": "3.0.2"}
COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy"
ITEMS = 20_000
SHARDS = 3


def fetch(entry: Path) -> None:
    """The jars, by Maven, with a repository that goes again."""
    maven = require_program("mvn", remedy="install Maven (Debian: apt-get install maven)")
    repository = entry / ".maven"
    for name, version in JARS.items():
        wanted = f"-Dartifact=org.apache.datasketches:{name}:{version}"
        done = subprocess.run(
            [
                maven,
                "--batch-mode",
                "--quiet",
                f"-Dmaven.repo.local={repository}",
                COPY,
                wanted,
                "-DoutputDirectory=.",
            ],
            cwd=entry,
            env={**os.environ, "JAVA_HOME": str(find_java().program.parent.parent)},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise maven_failure(done.stdout + done.stderr)
    shutil.rmtree(repository)


def merged(name: str, arguments: list[Json]) -> tuple[bytes, Any]:
    """The bytes and the value of some shards, merged."""
    kind = type_of(name)
    states = []
    for shard in range(SHARDS):
        state = kind.zero()
        for argument in arguments[shard::SHARDS]:
            state = kind.apply(state, kind.parse("add", [argument], 0))
        states.append(kind.load(kind.dump(state)))
    whole = kind.merge_all(states)
    return kind.dump(whole), kind.value(whole, {})


@pytest.fixture
def class_path() -> str:
    """Of Java's DataSketches."""
    folder = cached("datasketches-java", "-".join(JARS.values()), fetch)
    return os.pathsep.join(str(folder / f"{name}-{version}.jar") for name, version in JARS.items())


def test_java_reads_every_sketch_and_estimates_the_same(class_path: str, tmp_path: Path) -> None:
    visitors: list[Json] = [f"visitor-{number}" for number in range(ITEMS)]
    values = {}
    for name, arguments in {
        "distinct": visitors,
        "audience": visitors,
        "quantiles": [float(number) for number in range(ITEMS)],
        "topk": [f"page-{min(number % 50, number % 7)}" for number in range(ITEMS)],
    }.items():
        state, values[name] = merged(name, list(arguments))
        (tmp_path / name).write_bytes(state)
    source = Path(__file__).with_name("java") / "Sketches.java"
    done = subprocess.run(
        [str(find_java().program), "-cp", class_path, str(source), str(tmp_path), str(ITEMS)],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert (0, "") == (done.returncode, done.stderr)
    output = {name: float(number) for name, _, number in (line.partition("=") for line in done.stdout.splitlines())}
    first = values["topk"].items[0]
    assert output == pytest.approx(
        {
            "distinct": values["distinct"].estimate,
            "distinct here": values["distinct"].estimate,
            "audience": values["audience"].estimate,
            "audience here": values["audience"].estimate,
            "quantiles": ITEMS,
            "median": values["quantiles"].quantiles[0.5],
            "topk": ITEMS,
            first.item: first.count,
        },
        rel=1e-12,
    )
