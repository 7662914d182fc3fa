"""What tests on real servers share beside the servers."""

from __future__ import annotations

import sys
from collections.abc import Callable

import pytest


@pytest.fixture
def measured(capsys: pytest.CaptureFixture[str]) -> Callable[[str], None]:
    """Shows what a test measured to whoever runs it, also where it passes."""

    def show(line: str) -> None:
        with capsys.disabled():
            sys.stdout.write(f"\n  {line}\n")

    return show
