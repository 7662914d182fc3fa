"""The laws of every type of counter, for whatever is counted, through bytes too."""

from __future__ import annotations

from typing import Any
from zlib import crc32

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.counters.types.contract import CounterType, StateUnreadable
from headgate.counters.types.laws import broken_law, taken
from headgate.counters.types.registry import OURS, type_of
from tests.unit.counters.counter_cases import EXACT, EXACT_WITHOUT_SKETCHES, NAMES, shards_of, updates_of

Kind = CounterType[Any, Any]

few = settings(max_examples=25, deadline=None)
"""Of each law and type: there are a hundred of these."""


def stored(kind: Kind, state: Any) -> Any:
    """The state as another process reads it."""
    return kind.load(kind.dump(state))


def test_every_type_of_ours_is_held_against_the_laws() -> None:
    assert sorted(OURS) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_the_examples_that_a_type_gives_keep_its_laws(name: str) -> None:
    assert broken_law(type_of(name)) is None


@pytest.mark.parametrize("name", NAMES)
@few
@given(data=st.data())
def test_merge_is_commutative_and_associative_and_zero_is_neutral(name: str, data: st.DataObject) -> None:
    kind = type_of(name)
    shards = data.draw(shards_of(name))
    a, b, c = (taken(kind, updates) for updates in shards)
    whole = kind.merge(kind.merge(a, b), c)
    assert kind.same(whole, kind.merge(a, kind.merge(b, c)))
    assert kind.same(whole, kind.merge(c, kind.merge(stored(kind, b), stored(kind, a))))
    assert kind.same(whole, kind.merge_all([stored(kind, b), kind.zero(), c, a]))
    assert kind.same(kind.merge(whole, kind.zero()), whole)
    assert kind.same(kind.merge(kind.zero(), stored(kind, whole)), whole)


@pytest.mark.parametrize("name", NAMES)
@few
@given(data=st.data())
def test_merging_shards_gives_what_one_shard_with_all_updates_holds(name: str, data: st.DataObject) -> None:
    kind = type_of(name)
    shards = data.draw(shards_of(name))
    whole = taken(kind, [update for updates in shards for update in updates])
    assert kind.same(kind.merge_all([stored(kind, taken(kind, updates)) for updates in shards]), whole)


@pytest.mark.parametrize("name", NAMES)
@few
@given(data=st.data())
def test_an_update_may_be_applied_before_or_after_a_merge(name: str, data: st.DataObject) -> None:
    kind = type_of(name)
    ours, theirs, once = data.draw(shards_of(name))
    for update in once[:3]:
        a, b = taken(kind, ours), taken(kind, theirs)
        later = kind.apply(kind.merge(a, b), update)
        assert kind.same(later, kind.merge(kind.apply(stored(kind, a), update), b))
        assert kind.same(later, kind.merge_all([a, b, stored(kind, kind.apply(kind.zero(), update))]))


@pytest.mark.parametrize("name", NAMES)
@few
@given(data=st.data())
def test_a_shard_that_was_dumped_and_loaded_at_any_time_continues_as_it_was(name: str, data: st.DataObject) -> None:
    kind = type_of(name)
    updates = data.draw(updates_of(kind))
    loads = data.draw(st.lists(st.booleans(), min_size=len(updates), max_size=len(updates)))
    state = kind.zero()
    for update, loaded in zip(updates, loads, strict=True):
        state = kind.apply(stored(kind, state) if loaded else state, update)
    assert kind.same(state, taken(kind, updates))


@pytest.mark.parametrize("name", NAMES)
@few
@given(data=st.data())
def test_the_same_state_gives_the_same_bytes_and_these_the_same_again(name: str, data: st.DataObject) -> None:
    kind = type_of(name)
    state = taken(kind, data.draw(updates_of(kind)))
    written = kind.dump(state)
    assert kind.dump(state) == written
    assert kind.dump(kind.load(written)) == written
    assert written[0] == kind.version
    assert kind.same(kind.load(written), state)


@pytest.mark.parametrize("name", EXACT)
@few
@given(data=st.data())
def test_of_exact_types_every_order_of_merging_gives_the_same_bytes(name: str, data: st.DataObject) -> None:
    kind = type_of(name)
    shards = data.draw(shards_of(name))
    states = [taken(kind, updates) for updates in shards]
    order = data.draw(st.permutations(range(len(states))))
    assert kind.dump(kind.merge_all([states[at] for at in order])) == kind.dump(kind.merge_all(states))


@pytest.mark.parametrize("name", NAMES)
@few
@given(data=st.data())
def test_merge_changes_neither_state_and_shares_nothing_that_changes(name: str, data: st.DataObject) -> None:
    kind = type_of(name)
    ours, theirs, once = data.draw(shards_of(name))
    a, b = taken(kind, ours), taken(kind, theirs)
    before = kind.dump(a), kind.dump(b)
    merged = kind.merge(a, b)
    for update in once:
        merged = kind.apply(merged, update)
    assert (kind.dump(a), kind.dump(b)) == before


@pytest.mark.parametrize("name", NAMES)
@few
@given(data=st.data())
def test_a_state_that_was_cut_or_damaged_is_refused_in_one_line(name: str, data: st.DataObject) -> None:
    kind = type_of(name)
    written = bytearray(kind.dump(taken(kind, data.draw(updates_of(kind, 8)))))
    if data.draw(st.booleans()):
        del written[data.draw(st.integers(0, len(written) - 1)) :]
    else:
        written[data.draw(st.integers(0, len(written) - 1))] ^= data.draw(st.integers(1, 255))
    with pytest.raises(StateUnreadable) as refused:
        kind.load(bytes(written))
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("name", EXACT_WITHOUT_SKETCHES)
@few
@given(garbage=st.binary(max_size=60))
def test_garbage_with_a_right_checksum_is_refused_too_or_is_a_state(name: str, garbage: bytes) -> None:
    kind = type_of(name)
    try:
        state = kind.load(b"\x01" + crc32(garbage).to_bytes(4, "little") + garbage)
    except StateUnreadable as refused:
        assert "\n" not in str(refused)
    else:
        kind.value(kind.merge(state, kind.zero()), {})


@pytest.mark.parametrize("name", NAMES)
def test_an_unknown_version_and_no_bytes_are_refused_and_state_what_to_do(name: str) -> None:
    kind = type_of(name)
    rest = kind.dump(kind.zero())[1:]
    with pytest.raises(StateUnreadable, match=r"a later release .*upgrade this process to that release"):
        kind.load(bytes((kind.version + 1,)) + rest)
    for none in (b"", b"\x00" + rest):
        with pytest.raises(StateUnreadable):
            kind.load(none)
