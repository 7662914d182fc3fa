"""The size of a download is shown while it grows, by the means of the program that has a terminal."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from headgate.local import progress

WITHIN_S = 20


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[list[object], threading.Semaphore]]:
    """What a program shows, and a signal for each megabyte."""
    monkeypatch.setattr(progress, "MEASURE_EVERY_S", 0.005)
    lines: list[object] = []
    arrived = threading.Semaphore(0)

    @contextmanager
    def show(title: str, expect_mb: int) -> Iterator[Callable[[int], None]]:
        def advance(further_mb: int) -> None:
            lines.append(further_mb)
            arrived.release(further_mb)

        lines.append((title, expect_mb))
        yield advance
        lines.append("end")

    monkeypatch.setitem(progress._hooks, "download", show)
    yield lines, arrived


def test_each_further_megabyte_of_a_directory_is_shown(
    shown: tuple[list[object], threading.Semaphore], tmp_path: Path
) -> None:
    lines, arrived = shown
    with progress.download("jars", tmp_path, expect_mb=85):
        for name in ("a.jar", "sub/b.jar"):
            (tmp_path / name).parent.mkdir(exist_ok=True)
            (tmp_path / name).write_bytes(bytes(2_000_000))
            assert arrived.acquire(timeout=WITHIN_S) and arrived.acquire(timeout=WITHIN_S)
    assert (("jars", 85), 4, "end") == (lines[0], sum(each for each in lines if isinstance(each, int)), lines[-1])


def test_a_download_that_fails_ends_its_display(
    shown: tuple[list[object], threading.Semaphore], tmp_path: Path
) -> None:
    lines, _ = shown
    with pytest.raises(OSError, match="no network"), progress.download("jars", tmp_path, expect_mb=85):
        raise OSError("no network")
    assert [("jars", 85)] == lines
    assert [] == [each.name for each in threading.enumerate() if "_measure" in each.name]
