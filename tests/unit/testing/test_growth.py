"""The walk over an engine's structures names what grows."""

from __future__ import annotations

from collections import OrderedDict, deque

from headgate.engines.timeline.put.waiting_calls import PlainBuffer
from tests.kit.growth import SLACK, entries_of, grown, most_of


def test_entries_are_counted_by_the_path_of_attributes_also_in_slots() -> None:
    buffer = PlainBuffer()
    buffer.payloads += [b"a", b"b"]
    assert 2 == entries_of(buffer)["payloads"]
    assert 2 == entries_of({"of one lane": buffer})["payloads"]
    assert 3 == entries_of([[1, 2], deque([3])])[""] - 2


def test_what_grows_is_named_and_what_varies_is_not() -> None:
    before = most_of([entries_of(OrderedDict.fromkeys(range(SLACK)))])
    assert {} == grown(before, entries_of(list(range(SLACK + 5))))
    assert {"": (SLACK, 3 * SLACK)} == grown(before, entries_of(list(range(3 * SLACK))))
