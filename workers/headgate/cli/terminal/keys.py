"""Keys of a terminal, read one at a time while an asyncio loop runs. The terminal is restored at the end, however it
ends.
"""

from __future__ import annotations

import asyncio
import os
import termios
import tty
from types import TracebackType
from typing import Final

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
