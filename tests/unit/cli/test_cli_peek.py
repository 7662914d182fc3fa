"""The output of `headgate peek`: the reasons of dead letters, and no such column for other messages."""

from __future__ import annotations

from headgate.cli.documents import peeked_document
from headgate.cli.messages import format_peeked
from headgate.client.redriving import DEATH_REASON
from headgate.engines.contract import Peeked, Visibility

NOW_US = 10_000_000
REASON = "Traceback (most recent call last):\n  File ...\nValueError: order X-1 has no address"


def peeked(reason: str | None = None) -> Peeked:
    attributes = {} if reason is None else {DEATH_REASON: reason}
    return Peeked("m-1", b'{"to": ""}', attributes, None, 9_000_000, 8_000_000, 5, next(iter(Visibility)))


def test_a_dead_letter_shows_the_last_line_of_its_reason() -> None:
    head, *rows = format_peeked([peeked(REASON), peeked()], NOW_US)
    assert head.endswith("reason")
    assert rows[0].endswith("ValueError: order X-1 has no address")
    assert rows[1].endswith("-")


def test_without_dead_letters_there_is_no_column_of_reasons() -> None:
    head, row = format_peeked([peeked()], NOW_US)
    assert "reason" not in head
    assert row.endswith('{"to": ""}')
    assert "1s" in row


def test_json_has_the_whole_reason() -> None:
    assert (REASON, None) == (peeked_document(peeked(REASON))["reason"], peeked_document(peeked())["reason"])
