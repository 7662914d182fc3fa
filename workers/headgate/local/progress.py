"""Shows the current steps and their durations: a line at the start, signs of life, a line at the end.

Several steps may run concurrently in threads. Each line names its step, and one sign of life names all that run. A
program with a terminal may also have the size of downloads shown, by its own means (`show_downloads`).
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TextIO

SIGN_OF_LIFE_S = 20.0
MEASURE_EVERY_S = 0.5
ShowDownload = Callable[[str, int], AbstractContextManager[Callable[[int], None]]]
"""Takes a title and the expected number of megabytes, and gives the function that is called with each further one."""
_printing = threading.Lock()


def print_progress(text: str, *, to: TextIO | None = None) -> None:
    """One line, whole even when several threads print."""
    stream = to or sys.stdout
    with _printing:
        stream.write(text + "\n")
        stream.flush()


@dataclass(eq=False)
class _Running:
    title: str
    expect_s: float | None
    began_s: float


_running: list[_Running] = []
_hooks: dict[str, ShowDownload] = {}


@cache
def _start_watch() -> None:
    threading.Thread(target=_watch, daemon=True).start()


def _watch() -> None:
    while True:
        time.sleep(SIGN_OF_LIFE_S)
        now_s = time.monotonic()
        old = [one for one in tuple(_running) if now_s - one.began_s > SIGN_OF_LIFE_S / 2]
        if old:
            print_progress(format_signs((one.title, now_s - one.began_s, one.expect_s) for one in old))


def format_signs(running: Iterable[tuple[str, float, float | None]]) -> str:
    """One line for all steps that run: the title, the time it has taken, and the time it takes. Pure."""
    return "    " + "; ".join(
        f"{title}: {duration(took_s)}" + ("" if expect_s is None else f" of about {duration(expect_s)}")
        for title, took_s, expect_s in running
    )


@contextmanager
def step(title: str, *, expect_s: float | None = None) -> Iterator[None]:
    """Announce a step, show its progress, and print its duration."""
    expected = f" (about {duration(expect_s)})" if expect_s is not None else ""
    print_progress(f"  … {title}{expected}")
    one = _Running(title, expect_s, time.monotonic())
    _running.append(one)
    _start_watch()
    try:
        yield
    except BaseException:
        print_progress(f"  ✗ {title}: failed after {duration(time.monotonic() - one.began_s)}")
        raise
    else:
        print_progress(f"  ✓ {title}: {duration(time.monotonic() - one.began_s)}")
    finally:
        _running.remove(one)


def show_downloads(show: ShowDownload) -> None:
    """Have the downloads of this process shown by `show` from now on."""
    _hooks["download"] = show


@contextmanager
def download(title: str, directory: Path, *, expect_mb: int) -> Iterator[None]:
    """Show how a directory fills, if this process shows downloads."""
    show = _hooks.get("download")
    if show is None:
        yield
        return
    ended = threading.Event()
    with show(title, expect_mb) as advance:
        watch = threading.Thread(target=_measure, args=(directory, advance, ended), daemon=True)
        watch.start()
        try:
            yield
        finally:
            ended.set()
            watch.join()


def _measure(directory: Path, advance: Callable[[int], None], ended: threading.Event) -> None:
    shown_mb = 0
    while not ended.wait(MEASURE_EVERY_S):
        size_mb = _size_mb(directory)
        if size_mb > shown_mb:
            advance(size_mb - shown_mb)
            shown_mb = size_mb


def _size_mb(directory: Path) -> int:
    total = 0
    for path in directory.rglob("*"):
        with suppress(OSError):  # renamed or removed meanwhile
            total += path.stat().st_size
    return total // 1_000_000


def duration(seconds: float) -> str:
    """In readable form: 0.4 s, 42 s, 3 min 20 s."""
    if seconds < 9.95:
        return f"{seconds:.1f} s".replace(".0 s", " s")
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if rest else f"{minutes} min"
