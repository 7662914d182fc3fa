"""The screen of `headgate top`: its lines at each size, its keys, and a terminal that is restored."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator, Sequence
from functools import reduce
from typing import Any

import pyte
import pytest

from headgate.cli.terminal.live import parse_keys
from headgate.cli.terminal.top_screen import BLOCKS, Screen, lines, press, sparkline, with_queues

WITHIN_S = 20.0


def queue(name: str, backlog: int | None = 0, **fields: Any) -> dict[str, Any]:
    return {
        "queue": name,
        "backlog": backlog,
        "in_flight": 0,
        "oldest_age_s": None,
        "rate_per_s": 0.0,
        "workers": 1,
        "lanes": 2,
        "lanes_blocked": 0,
        **fields,
    }


QUEUES = [
    queue("shop/emails", 1_234_567, in_flight=3, oldest_age_s=75.5, rate_per_s=12.5),
    queue("shop/orders", 5, in_flight=40, oldest_age_s=700.0, rate_per_s=250.0),
    queue("shop/idle", None, workers=0),
]
LANE = {
    "generation": 1,
    "shard": 0,
    "owner": "0123456789abcdef",
    "state": "held",
    "lease_left_s": 3.0,
    "oldest_due_at": "2026-11-20T05:00:00.000Z",
    "in_flight": None,
    "hidden": 2,
}
STATS = {
    "at": "2026-11-20T05:00:05.000Z",
    "backlog": 5,
    "in_flight": 40,
    "delayed": 1,
    "oldest_age_s": 5.0,
    "lanes": [{**LANE, "shard": number} for number in range(40)],
}


def screen_of(*readings: Sequence[dict[str, Any]]) -> Screen:
    return reduce(with_queues, readings or (QUEUES,), Screen())


def pressed(screen: Screen, *keys: str) -> Screen:
    return reduce(lambda each, key: press(each, key, 24), keys, screen)


def texts(screen: Screen, width: int = 80, height: int = 24) -> list[str]:
    return [line.text for line in lines(screen, width, height)]


def names_in_order(screen: Screen) -> list[str]:
    return [line.split()[0] for line in texts(screen) if line.startswith("shop/")]


# ---- the lines


@pytest.mark.parametrize(("width", "height"), [(80, 24), (40, 10), (200, 60), (20, 4), (80, 5)])
@pytest.mark.parametrize("opened", [False, True])
def test_the_screen_fits_every_size(width: int, height: int, opened: bool) -> None:
    screen = screen_of([queue(f"namespace-{number}/" + "q" * 40, number) for number in range(100)])
    if opened:
        screen = Screen(**{**pressed(screen, "enter").__dict__, "lanes": STATS})
    shown = texts(screen, width, height)
    assert height == len(shown)
    assert max(len(line) for line in shown) <= width


def test_eighty_columns_show_all_keys() -> None:
    assert texts(screen_of())[-1].endswith("q quit")
    assert texts(pressed(screen_of(), "enter"))[-1].endswith("q quit")


def test_eighty_columns_show_backlog_rate_and_their_trends() -> None:
    screen = screen_of(*([queue("shop/emails", count, rate_per_s=rate)] for count, rate in ((1, 9.0), (4, 3.0))))
    _, _, head, row, *_ = texts(screen)
    assert ["queue", "backlog", "rate/s", "oldest", "in", "flight"] == head.split()
    assert ["shop/emails", "4", "▃█", "3", "█▃", "-", "0"] == row.split()


def test_a_wide_terminal_also_shows_workers_and_lanes() -> None:
    assert ["workers", "lanes", "blocked"] == texts(screen_of(), 120)[2].split()[-3:]


@pytest.mark.parametrize(
    ("values", "line"),
    [([], "    "), ([0, 0], "  ▁▁"), ([1, 2, 4, 8, 4], "▃▅█▅"), ([0.001, 1000], "  ▂█"), ([5, 0], "  █▁")],
)
def test_a_sparkline_is_scaled_from_zero_to_its_maximum(values: list[float], line: str) -> None:
    assert line == sparkline(values, 4)
    assert set(line) <= {" ", *BLOCKS}


def test_queues_without_workers_are_marked() -> None:
    assert any("shop/idle (no workers)" in line for line in texts(screen_of(), 120))
    assert "no queues" in texts(screen_of([]))


def test_an_opened_queue_shows_its_lanes() -> None:
    screen = pressed(screen_of(), "down", "enter")
    assert "shop/orders   reading ..." == texts(screen)[0]
    opened = Screen(**{**screen.__dict__, "lanes": STATS})
    shown = texts(opened)
    assert shown[0].startswith("shop/orders   backlog 5   in flight 40   delayed 1   oldest 5s")
    assert ["1/0", "held", "01234567", "3s", "5s", "-", "2"] == shown[6].split()
    scrolled = pressed(opened, "down", "down", "up")
    assert "1/1" == texts(scrolled)[6].split()[0]
    assert screen_of().sorted() == pressed(scrolled, "escape").sorted()
    assert pressed(scrolled, "escape").opened is None


def test_an_error_is_shown_and_the_next_reading_clears_it() -> None:
    broken = Screen(**{**screen_of().__dict__, "error": "no server listens"})
    assert "! no server listens" == texts(broken)[1]
    assert "" == texts(with_queues(broken, QUEUES))[1]


# ---- keys


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("b", ["shop/emails", "shop/orders", "shop/idle"]),
        ("a", ["shop/orders", "shop/emails", "shop/idle"]),
        ("f", ["shop/orders", "shop/emails", "shop/idle"]),
        ("r", ["shop/orders", "shop/emails", "shop/idle"]),
        ("n", ["shop/emails", "shop/idle", "shop/orders"]),
    ],
)
def test_a_key_sorts(key: str, expected: list[str]) -> None:
    assert expected == names_in_order(pressed(screen_of(), key))


def test_the_selection_moves_and_stays_with_its_queue() -> None:
    screen = screen_of()
    assert "shop/emails" == screen.selected
    assert "shop/orders" == pressed(screen, "down").selected
    assert "shop/idle" == pressed(screen, "down", "j", "down", "down").selected
    assert "shop/emails" == pressed(screen, "end", "home").selected
    assert "shop/orders" == pressed(screen, "down", "n").selected
    assert "shop/emails" == with_queues(pressed(screen, "down"), QUEUES[:1]).selected
    many = screen_of([queue(f"shop/q{number:03d}", 1_000 - number) for number in range(100)])
    assert any(line.startswith("shop/q099") for line in texts(pressed(many, "end")))
    assert pressed(screen, "q").is_over


def test_keys_are_read_from_what_a_terminal_sends() -> None:
    assert ["up", "down", "enter", "q", "escape"] == parse_keys("\x1b[A\x1bOB\rq\x1b")
    assert ["page down", "b"] == parse_keys("\x1b[6~b\x01")


# ---- a real terminal

PROGRAM = """
import asyncio, sys, time
from headgate.cli.terminal.live import LiveScreen
from headgate.errors import Unavailable
from tests.unit.cli.test_cli_top import QUEUES, STATS

began = time.monotonic()
readings = 0

async def read_queues():
    global readings
    readings += 1
    if "fails" in sys.argv and readings > 1:
        raise RuntimeError("a bug")
    if "unavailable" in sys.argv and readings > 1:
        raise Unavailable("no server listens at the contact points")
    return [{**each, "backlog": (each["backlog"] or 0) + readings} for each in QUEUES]

async def read_stats(name):
    return STATS

async def main():
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    import signal
    loop.add_signal_handler(signal.SIGINT, task.cancel)
    try:
        await LiveScreen(read_queues, read_stats, every_s=0.1).run()
    except asyncio.CancelledError:
        print("cancelled")

asyncio.run(main())
print("ended")
"""


class Terminal:
    """A process on a pseudo terminal, and what its screen shows."""

    def __init__(self, *words: str, columns: int = 80, rows: int = 24) -> None:
        self.shown = pyte.Screen(columns, rows)
        self._stream = pyte.ByteStream(self.shown)
        self.raw = b""
        self._ours, self._theirs = pty.openpty()
        self.before = termios.tcgetattr(self._theirs)
        self.resize(columns, rows)
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "TERM": "xterm-256color"}
        for name in ("COLUMNS", "LINES", "NO_COLOR"):
            environment.pop(name, None)
        self.process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, *words],
            stdin=self._theirs,
            stdout=self._theirs,
            stderr=self._theirs,
            env=environment,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # noqa: PLW1509  a terminal of its own
        )

    def resize(self, columns: int, rows: int) -> None:
        self.shown.resize(rows, columns)
        fcntl.ioctl(self._ours, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def press(self, keys: str) -> None:
        os.write(self._ours, keys.encode())

    def _read(self, within_s: float) -> bool:
        ready, _, _ = select.select([self._ours], [], [], within_s)
        if not ready:
            return False
        with contextlib.suppress(OSError):
            received = os.read(self._ours, 65_536)
            self.raw += received
            self._stream.feed(received)
            return True
        return False

    def until(self, text: str, *, at_line: int | None = None) -> list[str]:
        """Read until the screen has a text."""
        deadline_s = time.monotonic() + WITHIN_S
        while time.monotonic() < deadline_s:
            display = [line.rstrip() for line in self.shown.display]
            if text in ("\n".join(display) if at_line is None else display[at_line]):
                return display
            self._read(0.2)
        raise AssertionError(f"{text!r} is not on the screen:\n" + "\n".join(self.shown.display))

    def end(self) -> int:
        """Read to the end; the exit code."""
        deadline_s = time.monotonic() + WITHIN_S
        while self.process.poll() is None and time.monotonic() < deadline_s:
            self._read(0.1)
        while self._read(0.1):
            pass
        return self.process.wait(1)

    def is_restored(self) -> bool:
        """Whether the terminal is as it was: its settings, its screen and its cursor."""
        settings = termios.tcgetattr(self._theirs) == self.before
        is_left = self.raw.rfind(b"\x1b[?1049l") > self.raw.rfind(b"\x1b[?1049h") > -1
        return settings and is_left and self.raw.rfind(b"\x1b[?25h") > self.raw.rfind(b"\x1b[?25l")

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(5)
        os.close(self._ours)
        os.close(self._theirs)


@pytest.fixture
def terminal() -> Iterator[Any]:
    opened: list[Terminal] = []

    def begin(*words: str, **size: int) -> Terminal:
        opened.append(Terminal(*words, **size))
        return opened[-1]

    yield begin
    for each in opened:
        each.close()


def test_keys_sort_open_and_quit_and_the_terminal_is_restored(terminal: Any) -> None:
    shell = terminal()
    first = shell.until("shop/orders")
    assert first[0].startswith("headgate top   3 queues")
    assert first[23].startswith("↑↓ select")
    assert first[3].startswith("shop/emails")
    shell.press("n")
    shell.until("sorted by name")
    shell.press("\x1b[B\x1b[B\r")
    opened = shell.until("1/0", at_line=6)
    assert opened[0].startswith("shop/orders   backlog 5")
    shell.press("\x1b")
    shell.until("headgate top", at_line=0)
    shell.press("q")
    assert 0 == shell.end()
    assert shell.is_restored()


def test_it_redraws_without_clearing_the_screen(terminal: Any) -> None:
    shell = terminal()
    shell.until("shop/orders")
    began = len(shell.raw)
    for count in ("1,234,569", "1,234,570", "1,234,571"):
        shell.until(count[:-1])
    assert b"\x1b[2J" not in shell.raw[began:]
    shell.press("q")
    assert 0 == shell.end()


def test_it_follows_the_size_of_the_terminal(terminal: Any) -> None:
    shell = terminal()
    assert not any("blocked" in line for line in shell.until("shop/orders"))
    shell.resize(120, 30)
    wide = shell.until("blocked", at_line=2)
    assert wide[29].startswith("↑↓ select") or shell.until("↑↓ select", at_line=29)
    shell.resize(60, 10)
    shell.until("↑↓ select", at_line=9)
    shell.press("q")
    assert 0 == shell.end()


@pytest.mark.parametrize("how", ["key", "signal"])
def test_ctrl_c_quits_and_restores_the_terminal(terminal: Any, how: str) -> None:
    shell = terminal()
    shell.until("shop/orders")
    if how == "key":
        shell.press("\x03")
    else:
        shell.process.send_signal(signal.SIGINT)
    assert 0 == shell.end()
    assert b"cancelled" in shell.raw
    assert shell.is_restored()


def test_a_bug_restores_the_terminal_before_its_traceback(terminal: Any) -> None:
    shell = terminal("fails")
    assert 1 == shell.end()
    assert shell.raw.rfind(b"a bug") > shell.raw.rfind(b"\x1b[?1049l")
    assert shell.is_restored()


def test_a_server_that_is_unavailable_is_a_line_and_the_numbers_stay(terminal: Any) -> None:
    shell = terminal("unavailable")
    shown = shell.until("! no server listens at the contact points", at_line=1)
    assert shown[3].startswith("shop/emails")
    shell.press("q")
    assert 0 == shell.end()
