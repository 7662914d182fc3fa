"""Terminals as a picture: what a shell printed, when, in the order in which it came."""

from __future__ import annotations

import re
from pathlib import Path

from dev.recording import COLUMNS, PAUSE_S, Shell, with_short_pauses
from dev.terminal_picture import Line, Pane, build_picture


def test_lines_come_without_control_characters_and_no_wider_than_the_terminal() -> None:
    shell = Shell(Path("/home/of/a/user"))
    shell.printed = [
        (1.0, "\x1b]0;prompt\x07$ headgate to"),
        (2.0, "p\r\n\x1b[1mqueue\x1b[0m /home/of/a/user/mailer.py\r\n"),
        (3.0, "x" * 200 + "\n"),
    ]
    first, second, third = shell.lines()
    assert (Line(2.0, "$ headgate top"), Line(2.0, "queue ~/mailer.py")) == (first, second)
    assert (3.0, COLUMNS) == (third.at_s, len(third.text))


def test_pauses_are_cut_short_for_all_panes_alike() -> None:
    panes = [Pane("a", [Line(100.0, "one"), Line(160.0, "three")]), Pane("b", [Line(100.5, "two")])]
    a, b = with_short_pauses(panes)
    assert [0.0, 0.5 + PAUSE_S] == [line.at_s for line in a.lines]
    assert [0.5] == [line.at_s for line in b.lines]


def test_each_line_appears_at_its_time_and_is_escaped() -> None:
    picture = build_picture([Pane("terminal", [Line(0.0, "$ headgate top"), Line(5.0, "a < b & c"), Line(5.0, "")])])
    assert "a &lt; b &amp; c" in picture
    assert 2 == len(re.findall(r"<text class=\"line", picture))
    assert "@keyframes t50 { 0% { opacity: 0; } 50.00% { opacity: 1; } }" in picture
    assert "prefers-reduced-motion" in picture
