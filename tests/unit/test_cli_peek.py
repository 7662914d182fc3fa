"""The output of `headgate peek`: dead letters show why they died, others have no such column."""

from __future__ import annotations

from headgate.cli.peek import shown
from headgate.client.redriving import DIED_OF
from headgate.engines.contract import Peeked, Standing

NOW_US = 10_000_000


def peeked(reason: str | None = None) -> Peeked:
    attributes = {} if reason is None else {DIED_OF: reason}
    return Peeked("m-1", b'{"to": ""}', attributes, None, 9_000_000, 8_000_000, 5, next(iter(Standing)))


def test_a_dead_letter_shows_the_end_of_its_reason_where_the_error_stands() -> None:
    reason = "Traceback (most recent call last):\n  File ...\nValueError: order X-1 has no address"
    head, *rows = shown([peeked(reason), peeked()], NOW_US)
    assert head.endswith("died of")
    assert rows[0].endswith("ValueError: order X-1 has no address")
    assert rows[1].endswith("-")


def test_where_nothing_died_no_column_tells_of_it() -> None:
    head, row = shown([peeked()], NOW_US)
    assert "died of" not in head
    assert row.endswith('{"to": ""}')
    assert "1s" in row
