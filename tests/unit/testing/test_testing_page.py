"""The tests that docs/testing.md shows pass as they are printed; tests/system runs those that need a Cassandra."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.kit.page_examples import examples_of

EXAMPLES = [each for each in examples_of("testing.md") if each.language == "python" and not each.words]
TESTS = 5


def test_the_tests_of_the_page_pass(tmp_path: Path) -> None:
    for example in EXAMPLES:
        (tmp_path / f"test_example_{example.number}.py").write_text(example.text)
    command = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "headgate.testing.plugin")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False
    )
    assert f"{TESTS} passed" in done.stdout, done.stdout + done.stderr
