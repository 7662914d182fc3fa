"""Durations and sizes keep their written form and have the value that it states."""

from __future__ import annotations

import copy
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.api.values.units import Duration, Size, format_duration_ms

MS_MAX = 9999 * 86_400_000
units = st.sampled_from([("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)])


@given(st.integers(0, MS_MAX))
def test_what_is_formatted_means_the_same_when_it_is_read(value_ms: int) -> None:
    assert Duration.parse(format_duration_ms(value_ms)) == value_ms


@given(st.integers(0, 9999), units)
def test_a_number_and_a_unit_is_that_many_of_it(number: int, unit: tuple[str, int]) -> None:
    written = f"{number}{unit[0]}"
    assert (str(Duration(written)), Duration(written).ms) == (written, number * unit[1])


@given(st.text(max_size=30))
def test_a_text_is_a_duration_or_refused_and_never_breaks(text: str) -> None:
    value_ms = Duration.parse(text)
    assert value_ms is None or Duration(text).ms == value_ms


@pytest.mark.parametrize(("one", "other"), [("1d", "24h"), ("90s", "1m30s"), ("1s", "1000ms"), ("36h", "1d12h")])
def test_what_is_equally_long_is_equal_however_it_is_written(one: str, other: str) -> None:
    assert Duration(one) == Duration(other)
    assert hash(Duration(one)) == hash(Duration(other))
    assert str(Duration(one)) != str(Duration(other))


@pytest.mark.parametrize(
    "text", ["", "5", "d", "1.5h", "-1s", "1m1d", "1s1s", "2w", "1 s", "90S", "1us", "10000d", "1d\n", "१d", "1h "]
)
def test_what_is_no_duration_is_refused(text: str) -> None:
    assert Duration.parse(text) is None
    with pytest.raises(ValueError, match="such as"):
        Duration(text)


def test_durations_are_ordered_by_value() -> None:
    written = ["1d", "500ms", "90s", "1m", "25h"]
    assert [str(each) for each in sorted(map(Duration, written))] == ["500ms", "1m", "90s", "1d", "25h"]


@pytest.mark.parametrize("value", [Duration("1d"), Size("1Mi")])
def test_they_are_values(value: Duration | Size) -> None:
    with pytest.raises(AttributeError):
        value.text = "2d"
    assert copy.deepcopy(value) == value
    assert str(pickle.loads(pickle.dumps(value))) == str(value)  # noqa: S301  what was pickled here


@pytest.mark.parametrize(
    ("text", "value"),
    [("0", 0), ("512", 512), ("1k", 1000), ("1Ki", 1024), ("1Mi", 1 << 20), ("64M", 64_000_000), ("2Gi", 2 << 30)],
)
def test_a_size_is_that_many_bytes(text: str, value: int) -> None:
    assert (Size(text).bytes, str(Size(text))) == (value, text)


@pytest.mark.parametrize("text", ["", "1MB", "1 Mi", "1.5Mi", "-1", "1m", "Ki", "1K", "1Mi\n", "0x10", "1234567890"])
def test_what_is_no_size_is_refused(text: str) -> None:
    assert Size.parse(text) is None


def test_sizes_are_ordered_by_value() -> None:
    assert sorted([Size("1Mi"), Size("1M"), Size("512Ki")]) == [Size("512Ki"), Size("1M"), Size("1Mi")]
