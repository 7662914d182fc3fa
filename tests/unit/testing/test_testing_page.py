"""The tests that docs/testing.md shows pass as they are printed; tests/system runs those that need a Cassandra."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest

from tests.kit.page_examples import Example, examples_of

EXAMPLES = [each for each in examples_of("testing.md") if each.language == "python" and not each.words]


def defined_tests(example: Example) -> list[tuple[str, Callable[..., Any]]]:
    """The test functions that an example defines."""
    names: dict[str, Any] = {"__name__": "page"}
    exec(compile(example.text, str(example), "exec"), names)  # noqa: S102 - our own page
    return [(name, result) for name, result in names.items() if name.startswith("test_")]


TESTS = [test for example in EXAMPLES for test in defined_tests(example)]


@pytest.mark.parametrize("test", [result for _, result in TESTS], ids=[name for name, _ in TESTS])
def test_a_test_of_the_page_passes(test: Callable[..., Any], capsys: pytest.CaptureFixture[str]) -> None:
    test(**({"capsys": capsys} if "capsys" in inspect.signature(test).parameters else {}))


def test_the_page_shows_four_tests_that_need_no_server() -> None:
    assert len(TESTS) == 4
