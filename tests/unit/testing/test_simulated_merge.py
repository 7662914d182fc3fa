"""Whatever the order in which writes reach a replica, and however often: it ends with the same partition."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headgate.store.memory.partition import EVERYTHING, Cut, PartitionUpdate, Span
from headgate.store.memory.rows import (
    Cell,
    Deletion,
    Row,
    expiring_cell,
    live_cell,
    purged,
    reconcile,
    tombstone_cell,
)
from tests.kit.simulated_store.images import (
    ReplicaImage,
    SimulatedPartition,
    images_agree,
    merge_images,
    missing_from,
)

TIMES = st.integers(1, 5)
VALUES = st.sampled_from("ab")
CELLS = st.one_of(
    st.builds(lambda at, text: live_cell(at, text.encode(), text), TIMES, VALUES),
    st.builds(lambda at, text, ttl_s: expiring_cell(at, text.encode(), text, 100, ttl_s), TIMES, VALUES, TIMES),
    st.builds(tombstone_cell, TIMES, st.integers(100, 103)),
)
DELETIONS = st.builds(Deletion, TIMES, st.integers(100, 103))
KEYS = st.tuples(st.integers(0, 3), st.integers(0, 2))
ENDS = st.one_of(st.none(), st.tuples(st.integers(0, 3)), KEYS)
SPANS = st.builds(Span, ENDS, st.booleans(), ENDS, st.booleans())
ROW_CELLS = st.dictionaries(st.sampled_from("vw"), CELLS, max_size=2)


@st.composite
def updates(draw: st.DrawFn) -> PartitionUpdate:
    """One write of any kind."""
    kind = draw(st.sampled_from(["row", "row", "row", "row deletion", "range", "partition", "static"]))
    if kind == "range":
        return PartitionUpdate(ranges={draw(SPANS): draw(DELETIONS)})
    if kind == "partition":
        return PartitionUpdate(deletion=draw(DELETIONS))
    if kind == "static":
        return PartitionUpdate(static=Row((), None, None, draw(ROW_CELLS)))
    key = draw(KEYS)
    if kind == "row deletion":
        return PartitionUpdate(rows={key: Row(key, None, draw(DELETIONS), {})})
    marker = draw(st.one_of(st.none(), CELLS.filter(lambda cell: cell.kind != 2)))
    return PartitionUpdate(rows={key: Row(key, marker, None, draw(ROW_CELLS))})


ALL = Cut(EVERYTHING, False, None, 101)


def _image(writes: list[PartitionUpdate], cut: Cut = ALL) -> ReplicaImage:
    partition = SimulatedPartition()
    for write in writes:
        partition.apply(write)
    return partition.replica_image(cut, 0)


def _visible(image: ReplicaImage, now_s: int = 101) -> list[tuple[object, ...]]:
    return [
        (key, *(row.value(name, now_s) for name in "vw"))
        for key, row in zip(image.keys, image.rows, strict=True)
        if row.is_live(now_s)
    ]


@given(CELLS, CELLS, CELLS)
def test_of_three_cells_the_same_wins_in_any_order(one: Cell, two: Cell, three: Cell) -> None:
    assert reconcile(one, two)[:4] == reconcile(two, one)[:4]
    assert reconcile(one, one) == one
    assert reconcile(reconcile(one, two), three)[:4] == reconcile(one, reconcile(two, three))[:4]


def test_at_one_timestamp_a_tombstone_beats_what_expires_and_that_beats_what_stays() -> None:
    stays, expires, gone = live_cell(5, b"z", "z"), expiring_cell(5, b"a", "a", 100, 50), tombstone_cell(5, 100)
    assert reconcile(stays, expires) is expires
    assert reconcile(expires, gone) is gone
    assert reconcile(stays, gone) is gone
    assert reconcile(live_cell(5, b"\x80", ""), live_cell(5, b"\x7f", "")).encoded == b"\x80", "bytes are unsigned"
    assert reconcile(live_cell(6, b"a", "a"), gone).timestamp_us == 6


def test_what_expired_counts_as_deleted_when_it_was_written() -> None:
    cell = expiring_cell(5, b"a", "a", 100, 50)
    assert purged(cell, 149, 140) is cell, "it still lives"
    assert purged(cell, 150, 100) is cell, "it is not old enough"
    assert purged(cell, 150, 101) is None


@given(st.data(), st.lists(updates(), max_size=12))
def test_a_partition_does_not_depend_on_the_order_of_writes(
    data: st.DataObject, writes: list[PartitionUpdate]
) -> None:
    other = data.draw(st.permutations(writes)) + data.draw(
        st.lists(st.sampled_from(writes or [PartitionUpdate()]), max_size=3)
    )
    assert images_agree([_image(writes), _image(other)])


@given(st.lists(updates(), max_size=8), st.lists(updates(), max_size=8), st.booleans(), st.integers(1, 3))
def test_replicas_merged_know_what_one_that_got_everything_knows(
    left: list[PartitionUpdate], right: list[PartitionUpdate], backwards: bool, limit: int
) -> None:
    cut = Cut(EVERYTHING, backwards, limit, 101)
    images = [_image(left, cut), _image(right, cut)]
    merged = merge_images(images, backwards)
    whole = _visible(_image([*left, *right], Cut(EVERYTHING, backwards, None, 101)))
    report = _visible(merged)
    if merged.truncated:
        assert report == whole[: len(report)]
    else:
        assert report == whole


@given(st.lists(updates(), max_size=8), st.lists(updates(), max_size=8))
def test_a_replica_that_is_reported_what_it_lacks_answers_like_the_others(
    left: list[PartitionUpdate], right: list[PartitionUpdate]
) -> None:
    merged = merge_images([_image(left), _image(right)], False)
    fixed = _image([*left, missing_from(_image(left), merged) or PartitionUpdate()])
    assert _visible(fixed) == _visible(merged)
    assert images_agree([fixed, merged])


@given(st.lists(updates(), max_size=12), st.integers(95, 160))
def test_a_purge_changes_nothing_that_a_reader_of_that_time_sees(
    writes: list[PartitionUpdate], gc_before_s: int
) -> None:
    now_s = max(gc_before_s, 101)
    partition = SimulatedPartition()
    for write in writes:
        partition.apply(write)
    cut = Cut(EVERYTHING, False, None, now_s)
    before, report = _visible(partition.replica_image(cut, 0), now_s), partition.replica_image(cut, gc_before_s)
    partition.purge(now_s, gc_before_s)
    after = partition.replica_image(cut, gc_before_s)
    assert before == _visible(report, now_s) == _visible(after, now_s)
    assert images_agree([report, after]), "a purged replica answers as one that has not purged yet"
