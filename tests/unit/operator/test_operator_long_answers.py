"""Long answers are read as json.loads reads them, and hold the event loop for no longer than short ones."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate_operator.cluster import json_stream
from headgate_operator.cluster.json_stream import LONG, PIECE, parse
from tests.kit.loop_turns import turns_meanwhile

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)
indents = st.sampled_from([None, 0, 2])


def parsed(body: bytes) -> Any:
    return asyncio.run(parse(body))


@given(st.dictionaries(st.text(), values, max_size=5), indents)
def test_in_pieces_it_names_its_text_at_once(report: dict[str, Any], indent: int | None) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_stream, "LONG", 0)
        patch.setattr(json_stream, "PIECE", 1)
        assert report == parsed(json.dumps(report, indent=indent).encode())


@pytest.mark.parametrize(
    "body",
    [b'{"a": [1, 2', b'{"a": [1 2]}', b'{"a" 1}', b"{1: 2}", b'{"a": 1} x', b'{"a": 1,}', b"\xff{}", b"<html>"],
)
def test_what_is_no_json_is_an_error_of_value(body: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_stream, "LONG", 0)
    with pytest.raises(ValueError):
        parsed(body)


def test_while_a_long_list_is_parsed_others_have_their_turn() -> None:
    body = json.dumps({"kind": "List", "items": [{"name": "q" * 100}] * (10 * LONG // 100)}).encode()

    async def others_turns() -> int:
        with turns_meanwhile() as turns:
            await parse(body)
        return turns.count

    assert asyncio.run(others_turns()) >= len(body) // PIECE - 1
