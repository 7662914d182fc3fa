"""The tests that docs/testing.md shows pass as they are printed; tests/system runs those that need a Cassandra."""

from __future__ import annotations

from pathlib import Path

from tests.kit.page_examples import examples_of
from tests.kit.pytest_process import run_pytest

EXAMPLES = [each for each in examples_of("testing.md") if each.language == "python" and not each.words]
TESTS = 5


def test_the_tests_of_the_page_pass(tmp_path: Path) -> None:
    for example in EXAMPLES:
        (tmp_path / f"test_example_{example.number}.py").write_text(example.text)
    output = run_pytest(tmp_path)
    assert f"{TESTS} passed" in output, output
