"""Progress of a long command, on standard error: a bar by rich on a terminal, else a plain line every ten seconds.

Rich belongs to the extra `cli`. Without it, and where standard error is no terminal, plain lines are written, and a
command that ends within ten seconds writes none. Results on standard output are never touched.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from importlib.util import find_spec
from typing import Final, TextIO

LINE_EVERY_S: Final = 10.0


class LineProgress:
    """Plain lines, at most one every ten seconds."""

    def __init__(
        self, title: str, total: int | None, stream: TextIO, *, now_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._title = title
        self._total = total
        self._stream = stream
        self._now_s = now_s
        self._done = 0
        self._written_s = now_s()

    def advance(self, count: int = 1) -> None:
        self._done += count
        if self._now_s() - self._written_s >= LINE_EVERY_S:
            self._written_s = self._now_s()
            of = "" if self._total is None else f" of {self._total:,}"
            self._stream.write(f"{self._title}: {self._done:,}{of}\n")
            self._stream.flush()


class BarProgress:
    def __init__(self, advance: Callable[[float], None]) -> None:
        self._advance = advance

    def advance(self, count: int = 1) -> None:
        self._advance(count)


def has_rich() -> bool:
    """Whether the extra `cli` is installed."""
    return find_spec("rich") is not None


@contextmanager
def show_progress(
    title: str, total: int | None = None, *, quiet: bool = False
) -> Iterator[LineProgress | BarProgress]:
    """Show how far a command is; `total` is None where it is not known. `quiet`: never a bar."""
    stream = sys.stderr
    if quiet or not stream.isatty() or not has_rich():
        yield LineProgress(title, total, stream)
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bars

    bars = Bars(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(elapsed_when_finished=True),
        console=Console(file=stream),
        transient=True,
        redirect_stdout=False,
        redirect_stderr=False,
    )
    with bars:
        task = bars.add_task(title, total=total)
        yield BarProgress(partial(bars.advance, task))


@contextmanager
def show_download(title: str, expect_mb: int) -> Iterator[Callable[[int], None]]:
    with show_progress(f"{title}, MB", expect_mb) as progress:
        yield progress.advance
