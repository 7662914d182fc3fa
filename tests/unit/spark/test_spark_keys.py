"""Keys of rows and marks of batches: the same row again is known, another is not, and in doubt nothing is written."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate_spark.write.decide_marks import (
    ANSWER_US,
    BatchPassed,
    BatchTooOld,
    KeysDiffer,
    Mark,
    decide_mark,
)
from headgate_spark.write.rows_to_put import RowKeys, TaskName, token_name

TASK = TaskName("q", 3, 1)
WINDOW_US = 3_600_000_000


def row_of(values: tuple[object, ...]) -> dict[str, object]:
    """The values by column."""
    return {f"column {at}": value for at, value in enumerate(values)}


def keys(rows: list[tuple[object, ...]], task: TaskName = TASK) -> list[tuple[str, str | None]]:
    """Of rows in this order."""
    made = RowKeys(task)
    return [(key.text, key.scope) for key in map(made.key_of, map(row_of, rows))]


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3), st.binary(max_size=2))), st.randoms())
def test_rows_have_the_same_keys_in_whatever_order_they_come(rows: list[tuple[object, ...]], rng: object) -> None:
    other = list(rows)
    rng.shuffle(other)  # type: ignore[attr-defined]
    assert sorted(keys(rows)) == sorted(keys(other))


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3), st.binary(max_size=2))))
def test_no_two_rows_share_a_key_be_they_equal(rows: list[tuple[object, ...]]) -> None:
    assert len(rows) == len(set(keys(rows)))


@pytest.mark.parametrize("other", [TaskName("r", 3, 1), TaskName("q", 4, 1), TaskName("q", 3, 2)])
def test_another_query_batch_or_partition_has_keys_of_its_own(other: TaskName) -> None:
    assert not set(keys([(1, b"x")])) & set(keys([(1, b"x")], other))


def test_a_bytes_value_is_not_the_text_that_resembles_it() -> None:
    assert 2 == len({key[0].split()[2] for key in keys([("b'x'",), (b"x",)])})


def test_the_name_of_a_token_is_short_and_reports_keys_apart() -> None:
    made = RowKeys(TASK)
    names = {token_name("q", made.key_of({"text": "x" * 1000})) for _ in range(3)}
    assert (3, {32}) == (len(names), set(map(len, names)))


def step(observation: Mark | None, mine: Mark) -> Mark | None:
    """With a window of an hour, and clocks within a second."""
    return decide_mark(observation, mine, remembered_us=WINDOW_US, skew_us=1_000_000)


@pytest.mark.parametrize("observation", [None, Mark(2, 0)])
def test_the_first_task_of_a_batch_sets_its_mark(observation: Mark | None) -> None:
    assert step(observation, Mark(3, 50)) is None


def test_a_batch_is_written_while_all_its_keys_are_remembered() -> None:
    last_us = WINDOW_US - 2_000_000 - ANSWER_US
    assert Mark(3, 0) == step(Mark(3, 0), Mark(3, last_us))
    with pytest.raises(BatchTooOld, match=r"could be twice .*start with another checkpoint"):
        step(Mark(3, 0), Mark(3, last_us + 1))


def test_a_task_of_the_past_writes_nothing() -> None:
    with pytest.raises(BatchPassed):
        step(Mark(4, 0), Mark(3, 1))


def test_a_batch_that_was_begun_by_other_keys_is_not_gone_on_with() -> None:
    with pytest.raises(KeysDiffer, match="at_first=order_id, now=\\(none\\)"):
        step(Mark(3, 0, "order_id"), Mark(3, 1))
