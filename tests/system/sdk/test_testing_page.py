"""The tests of docs/testing.md that need a Cassandra pass as they are printed, in a pytest of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from dev.servers.cassandra.serving import Serving
from tests.kit.page_examples import Example, examples_of

EXAMPLES = [each for each in examples_of("testing.md") if each.words == ("cassandra",)]
WITHIN_S = 180


@pytest.mark.parametrize("example", EXAMPLES, ids=str)
def test_the_tests_of_the_page_pass_on_a_cassandra(example: Example, cassandra: Serving, tmp_path: Path) -> None:
    (tmp_path / "test_shop.py").write_text(example.text)
    environment = {
        **os.environ,
        **cassandra.environment(),
        "KEYSPACE": "headgate_test_testing_page",
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path / "test_shop.py")]
    done = subprocess.run(
        command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=WITHIN_S, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed" in done.stdout


def test_the_page_shows_a_test_on_a_cassandra() -> None:
    assert len(EXAMPLES) == 1
