"""Shows the current step and its duration: a line at the start, a sign of life, a line at the end.

Several steps may run concurrently in threads; each line names its step.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

_printing = threading.Lock()


def say(text: str, *, to: TextIO | None = None) -> None:
    """One line, whole even when several threads print."""
    stream = to or sys.stdout
    with _printing:
        stream.write(text + "\n")
        stream.flush()


@contextmanager
def step(title: str, *, expect_s: float | None = None, sign_of_life_s: float = 20.0) -> Iterator[None]:
    """Announce a step, show its progress, and print its duration."""
    expected = f" (about {duration(expect_s)})" if expect_s is not None else ""
    say(f"  … {title}{expected}")
    started = time.monotonic()
    done = threading.Event()

    def sign_of_life() -> None:
        while not done.wait(sign_of_life_s):
            of = f" of about {duration(expect_s)}" if expect_s is not None else ""
            say(f"    {title}: {duration(time.monotonic() - started)}{of}")

    watcher = threading.Thread(target=sign_of_life, daemon=True)
    watcher.start()
    try:
        yield
    except BaseException:
        say(f"  ✗ {title}: failed after {duration(time.monotonic() - started)}")
        raise
    else:
        say(f"  ✓ {title}: {duration(time.monotonic() - started)}")
    finally:
        done.set()
        watcher.join()


def duration(seconds: float) -> str:
    """In readable form: 0.4 s, 42 s, 3 min 20 s."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if rest else f"{minutes} min"
