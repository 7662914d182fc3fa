"""Runs the screen of `headgate top`: readings, keys and changes of the size come in, and each redraws the screen.

Rich draws it on the alternate screen without clearing it, so nothing flickers; the terminal is restored at the end,
also after an error or Ctrl-C. Keys are read one at a time while the event loop runs.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import termios
import tty
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Any, Final

from headgate.cli.terminal.progress import has_rich
from headgate.cli.terminal.top_screen import Screen, lines, press, with_queues
from headgate.errors import HeadgateError, Unavailable
from headgate.process.background_tasks import end_task, start_task

READ_BYTES: Final = 64
SEQUENCES: Final = {
    "\x1b[A": "up",
    "\x1b[B": "down",
    "\x1b[C": "right",
    "\x1b[D": "left",
    "\x1bOA": "up",
    "\x1bOB": "down",
    "\x1bOC": "right",
    "\x1bOD": "left",
    "\x1b[H": "home",
    "\x1b[F": "end",
    "\x1b[5~": "page up",
    "\x1b[6~": "page down",
    "\r": "enter",
    "\n": "enter",
    "\x1b": "escape",
    "\x7f": "backspace",
}
_LONGEST: Final = max(len(each) for each in SEQUENCES)
RESIZED: Final = "resized"
READ: Final = "read"

ReadQueues = Callable[[], Awaitable[Sequence[Mapping[str, Any]]]]
ReadStats = Callable[[str], Awaitable[Mapping[str, Any]]]


def is_screen_possible() -> bool:
    if not sys.stdin.isatty() or not has_rich():
        return False
    from rich.console import Console

    return not Console().is_dumb_terminal


class LiveScreen:
    """The screen while it is open. `read_queues` and `read_stats` give documents."""

    def __init__(self, read_queues: ReadQueues, read_stats: ReadStats, *, every_s: float) -> None:
        self._read_queues = read_queues
        self._read_stats = read_stats
        self._every_s = every_s
        self._events: asyncio.Queue[str] = asyncio.Queue(maxsize=1_000)
        self._screen = Screen()
        self._opened = asyncio.Event()

    async def run(self) -> None:
        """Until the key q."""
        from rich.console import Console
        from rich.live import Live

        console = Console(file=sys.stdout, force_terminal=True)
        loop = asyncio.get_running_loop()
        with (
            KeyReader(sys.stdin.fileno(), self._events),
            Live(
                console=console, screen=True, auto_refresh=False, redirect_stdout=False, redirect_stderr=False
            ) as live,
        ):
            loop.add_signal_handler(signal.SIGWINCH, self._resized)
            before = signal.signal(signal.SIGTSTP, signal.SIG_IGN)  # stopped, it would leave the terminal as it is
            reading = start_task("reading for the screen", self._read())
            try:
                while not self._screen.is_over:
                    live.update(self._rendered(console.width, console.height), refresh=True)
                    await self._next_event(console.height, reading)
            finally:
                loop.remove_signal_handler(signal.SIGWINCH)
                signal.signal(signal.SIGTSTP, before)
                await end_task(reading)

    async def _next_event(self, height: int, reading: asyncio.Task[None]) -> None:
        waiting = start_task("event of the screen", self._events.get())
        done, _ = await asyncio.wait((waiting, reading), return_when=asyncio.FIRST_COMPLETED)
        if reading in done:
            waiting.cancel()
            await reading  # raises what ended it
        event = waiting.result()
        if event not in (RESIZED, READ):
            was_opened = self._screen.opened
            self._screen = press(self._screen, event, height)
            if self._screen.opened != was_opened:
                self._opened.set()

    def _resized(self) -> None:
        with contextlib.suppress(asyncio.QueueFull):
            self._events.put_nowait(RESIZED)

    def _rendered(self, width: int, height: int) -> Any:
        from rich.text import Text

        text = Text(no_wrap=True, overflow="crop", end="")
        shown = lines(self._screen, width, height)
        for number, line in enumerate(shown):
            text.append(line.text, style=line.style or None)
            if number < len(shown) - 1:
                text.append("\n")
        return text

    async def _read(self) -> None:
        """Read once per interval, and at once when a queue is opened."""
        while True:
            self._opened.clear()
            name = self._screen.opened
            try:
                if name is not None:
                    stats = await self._read_stats(name)
                    if self._screen.opened == name:
                        self._screen = replace(self._screen, lanes=stats)
                self._screen = with_queues(self._screen, await self._read_queues())
            except Unavailable as error:
                self._screen = replace(self._screen, error=str(error))
            except HeadgateError as error:
                if name is None:
                    raise
                self._screen = replace(self._screen, opened=None, lanes=None, error=str(error))
            await self._events.put(READ)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._opened.wait(), self._every_s)


# ---- keys


def parse_keys(text: str) -> list[str]:
    """The names of the keys in what a terminal sent; characters are their own names."""
    keys = []
    at = 0
    while at < len(text):
        for length in range(min(_LONGEST, len(text) - at), 0, -1):
            name = SEQUENCES.get(text[at : at + length])
            if name is not None:
                keys.append(name)
                at += length
                break
        else:
            if text[at].isprintable():
                keys.append(text[at])
            at += 1
    return keys


class KeyReader:
    """Puts the names of keys into a queue while it is open. Signals (Ctrl-C) still work."""

    def __init__(self, descriptor: int, events: asyncio.Queue[str]) -> None:
        self._descriptor = descriptor
        self._events = events
        self._before: list[object] = []

    def __enter__(self) -> KeyReader:
        self._before = termios.tcgetattr(self._descriptor)
        tty.setcbreak(self._descriptor, termios.TCSANOW)
        asyncio.get_running_loop().add_reader(self._descriptor, self._read)
        return self

    def _read(self) -> None:
        received = os.read(self._descriptor, READ_BYTES)
        for key in parse_keys(received.decode(errors="ignore")) if received else ["q"]:  # the terminal is closed
            self._events.put_nowait(key)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        asyncio.get_running_loop().remove_reader(self._descriptor)
        termios.tcsetattr(self._descriptor, termios.TCSADRAIN, self._before)  # type: ignore[arg-type]
