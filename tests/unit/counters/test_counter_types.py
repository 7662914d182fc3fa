"""For each type of counter: its value, the numbers it takes, its largest error, and the bytes it is stored in."""

from __future__ import annotations

import math
import random
import statistics
from collections import Counter
from datetime import UTC, datetime
from decimal import Decimal, localcontext
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.counters.types.contract import (
    CounterType,
    Json,
    QuestionInvalid,
    StateFull,
    UpdateInvalid,
    number_of,
    plain,
)
from headgate.counters.types.laws import taken
from headgate.counters.types.minmax import MinMaxValue
from headgate.counters.types.product import DIGITS
from headgate.counters.types.registry import OURS, type_of
from headgate.counters.types.set import ELEMENTS_MAX

AT_US = 1_700_000_000_000_000
SEED = 7

few = settings(max_examples=50, deadline=None)


def value_of(name: str, *calls: tuple[Any, ...], question: dict[str, Any] | None = None, at_us: int = AT_US) -> Any:
    """The value after these updates, each a verb and its arguments; a microsecond apart."""
    kind = type_of(name)
    updates = [kind.parse(verb, rest, at_us + number) for number, (verb, *rest) in enumerate(calls)]
    return kind.value(taken(kind, updates), question or {})


def whole(name: str, arguments: list[Json], shards: int = 1) -> tuple[CounterType[Any, Any], Any]:
    """The type, and a state that took an update for each argument, shared out over shards and stored between."""
    kind = type_of(name)
    states = []
    for shard in range(shards):
        state = kind.zero()
        for argument in arguments[shard::shards]:
            state = kind.apply(state, kind.parse("add", [argument], AT_US))
        states.append(kind.load(kind.dump(state)))
    return kind, kind.merge_all(states)


# ---- sum


def test_a_sum_counts_up_and_down_without_a_bound() -> None:
    assert 2**70 + 1 - 7 == value_of("sum", ("add", 2**70), ("add",), ("add", -7))
    assert -(10**1000) == value_of("sum", ("add", -(10**1000)))


# ---- product


@few
@given(st.lists(st.one_of(st.integers(-9, 9), st.decimals(-9, 9, places=2)), max_size=12))
def test_a_product_is_exact(factors: list[int | Decimal]) -> None:
    value = value_of("product", *(("add", each if isinstance(each, int) else str(each)) for each in factors))
    expected = Fraction(1)
    for each in factors:
        expected *= Fraction(each)
    assert (expected, True) == (Fraction(value.number), value.exact)


def test_a_float_is_the_decimal_that_it_is_written_as() -> None:
    assert Decimal("1.1025") == value_of("product", ("add", 1.05), ("add", 1.05)).number


def test_zero_makes_a_product_zero_for_ever_and_exactly() -> None:
    assert (0, True) == (
        (value := value_of("product", ("add", 0), ("add", -3), ("add", "1e300"))).number,
        value.exact,
    )
    assert "0" == str(value_of("product", ("add", "-0.0")).number)


def test_a_product_of_more_digits_than_it_keeps_is_rounded_and_reports_it() -> None:
    kind, state = whole("product", ["1.05"] * 600)
    value = kind.value(state, {})
    assert not value.exact
    with localcontext(prec=DIGITS + 2500):
        assert abs(value.number / Decimal("1.05") ** 600 - 1) < Decimal(10) ** -990
    assert len(kind.dump(state)) < DIGITS + 30


# ---- minmax


def test_the_least_and_the_greatest_are_reported_with_their_witnesses() -> None:
    calls = [("add", 3, "b"), ("add", 12.5, "c"), ("add", 3.0, "a"), ("add", 12.5, "d"), ("add", 7)]
    assert MinMaxValue(3, "a", 12.5, "c") == value_of("minmax", *calls)
    assert MinMaxValue(3, "a", 12.5, "c") == value_of("minmax", *reversed(calls))
    assert MinMaxValue(None, None, None, None) == value_of("minmax")
    assert MinMaxValue(2**80, None, 2**80, None) == value_of("minmax", ("add", 2**80))


# ---- times


@few
@given(st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=40), st.integers(1, 5))
def test_mean_and_variance_are_the_exact_ones_rounded_once_however_they_were_shared_out(
    numbers: list[float], shards: int
) -> None:
    kind, state = whole("moments", list(numbers), shards)
    value = kind.value(state, {})
    exact = [Fraction(each) for each in numbers]
    mean = sum(exact) / len(exact)
    spread = sum((each - mean) ** 2 for each in exact)
    assert (len(numbers), float(mean), math.fsum(numbers)) == (value.count, value.mean, value.total)
    assert (float(spread / len(exact)), float(spread / (len(exact) - 1))) == (value.variance, value.sample_variance)


def test_a_variance_does_not_drift_where_running_ones_do() -> None:
    numbers: list[Json] = [1e9 + each for each in (4, 7, 13, 16)] * 250
    kind, state = whole("moments", numbers, 10)
    assert 22.5 == kind.value(state, {}).variance


def test_times_take_the_most_different_numbers_in_a_bounded_state() -> None:
    kind, state = whole("moments", [1.7e308, 5e-324, -1.7e308, 1])
    assert (4, 0.25, math.inf) == ((value := kind.value(state, {})).count, value.mean, value.variance)
    assert len(kind.dump(state)) < 1024
    assert [None] * 5 == list(plain(value_of("moments")).values())[1:]  # type: ignore[union-attr]
    assert (1, 0.0, None) == ((one := value_of("moments", ("add", 3))).count, one.variance, one.sample_variance)


# ---- register and set: the later wins


def test_the_later_write_wins_in_whatever_order_they_land() -> None:
    kind = type_of("register")
    early, late = (kind.parse("set", [value], AT_US + us) for value, us in (("early", 0), ("late", 1)))
    for order in ([early, late], [late, early]):
        value = kind.value(taken(kind, order), {})
        assert ("late", datetime(2023, 11, 14, 22, 13, 20, 1, tzinfo=UTC)) == (value.value, value.at)
    assert (None, None) == ((none := value_of("register")).value, none.at)


def test_of_two_writes_of_one_time_the_greater_bytes_win_everywhere() -> None:
    kind = type_of("register")
    a, b = (kind.parse("set", [value], AT_US) for value in ("a", "b"))
    assert ["b", "b"] == [kind.value(taken(kind, order), {}).value for order in ([a, b], [b, a])]


def test_of_an_element_the_later_update_wins_and_at_one_time_the_addition() -> None:
    kind = type_of("set")
    added, removed = kind.parse("add", ["x"], AT_US), kind.parse("remove", ["x"], AT_US)
    later = kind.parse("remove", ["x"], AT_US + 1)
    assert [["x"], ["x"]] == [kind.value(taken(kind, order), {}) for order in ([added, removed], [removed, added])]
    assert [[], []] == [kind.value(taken(kind, order), {}) for order in ([added, later], [later, added])]
    again = kind.parse("add", ["x", "y"], AT_US + 2)
    assert ["x", "y"] == kind.value(taken(kind, [again, later, added]), {})


def test_a_removal_is_forgotten_once_no_addition_from_before_it_can_come() -> None:
    kind = type_of("set")
    state = taken(
        kind,
        [
            kind.parse(verb, [it], AT_US + us)
            for verb, it, us in (("remove", "x", 0), ("remove", "y", 9), ("add", "z", 1))
        ],
    )
    kept = kind.forget(state, AT_US + 5)
    assert kind.value(state, {}) == kind.value(kept, {})
    assert [] == kind.value(kind.merge(kept, taken(kind, [kind.parse("add", ["y"], AT_US)])), {})[:-1]
    assert b'"x"' not in kind.dump(kept)
    assert b'"y"' in kind.dump(kept)


def test_a_set_that_has_grown_to_its_bound_refuses_and_stays_as_it_was() -> None:
    kind = type_of("set")
    state = {str(number): 2 * AT_US + 1 for number in range(ELEMENTS_MAX)}
    with pytest.raises(StateFull, match="spread the elements over several keys"):
        kind.apply(state, kind.parse("add", ["one more"], AT_US))
    assert ELEMENTS_MAX == len(kind.apply(state, kind.parse("remove", ["0"], AT_US + 1)))


# ---- sketches: how wrong they are


@pytest.mark.parametrize("name", ["distinct", "audience"])
@pytest.mark.parametrize("count", [10, 1_000, 100_000])
def test_different_items_are_estimated_within_the_stated_error(name: str, count: int) -> None:
    items: list[Json] = [f"visitor-{number}" for number in range(count)]
    kind, state = whole(name, [*items, *items[: count // 2]], 4)
    value = kind.value(state, {})
    assert value.low <= count <= value.high
    assert 0.997 == value.confidence
    assert value.high - value.low <= 2 * 0.055 * count
    if count <= 1_000 and name == "audience":
        assert count == value.estimate


def test_a_text_and_a_number_are_different_items() -> None:
    assert 2 == round(value_of("distinct", ("add", "1", 1, "1")).estimate)


def test_audiences_report_which_process_is_in_both_in_either_and_in_one_alone() -> None:
    kind, monday = whole("audience", list(range(60_000)))
    _, tuesday = whole("audience", list(range(40_000, 100_000)))
    audience: Any = kind
    for combined, truth in (
        (audience.both(monday, tuesday), 20_000),
        (audience.either(monday, tuesday), 100_000),
        (audience.without(monday, tuesday), 40_000),
    ):
        value = kind.value(kind.load(kind.dump(combined)), {})
        assert value.low <= truth <= value.high
        assert abs(value.estimate - truth) < 0.04 * 100_000


@pytest.mark.parametrize("shards", [1, 9])
def test_quantiles_are_within_the_stated_error_of_rank(shards: int) -> None:
    numbers: list[Json] = [random.Random(SEED + number).expovariate(1) for number in range(20_000)]
    kind, state = whole("quantiles", numbers, shards)
    value = kind.value(state, {"ranks": [0.01, 0.25, 0.5, 0.9, 0.999]})
    ordered = sorted(numbers)  # type: ignore[type-var]
    assert (20_000, ordered[0], ordered[-1]) == (value.count, value.least, value.greatest)
    assert 0 < value.rank_error < 0.0134
    for rank, number in value.quantiles.items():
        true_rank = sum(each <= number for each in ordered) / len(ordered)  # type: ignore[operator]
        assert abs(true_rank - rank) <= 2 * value.rank_error, (rank, true_rank)


def test_few_numbers_have_exact_quantiles() -> None:
    value = value_of("quantiles", *(("add", number) for number in range(1, 101)))
    assert ({0.5: 50.0, 0.9: 90.0, 0.99: 99.0}, 0.0) == (value.quantiles, value.rank_error)
    assert (0, None, {}) == ((none := value_of("quantiles")).count, none.least, none.quantiles)


def test_the_most_frequent_items_are_found_and_their_counts_lie_where_is_reported() -> None:
    rng = random.Random(SEED)
    items: list[Json] = [f"page-{min(int(rng.paretovariate(1)), 5_000)}" for _ in range(40_000)]
    truth = Counter(items)
    kind, state = whole("topk", items, 6)
    value = kind.value(state, {"limit": 20})
    assert (40_000, 20) == (value.total, len(value.items))
    assert value.error <= 0.0035 * 40_000
    for each in value.items:
        assert each.low <= truth[each.item] <= each.high <= each.low + value.error
    assert [item for item, _ in truth.most_common(5)] == [each.item for each in value.items[:5]]


# ---- what is refused


@pytest.mark.parametrize(
    ("name", "verb", "arguments"),
    [
        ("sum", "add", [1.5]),
        ("sum", "add", [True]),
        ("sum", "add", [1, 2]),
        ("sum", "add", [2**5000]),
        ("sum", "remove", [1]),
        ("product", "add", []),
        ("product", "add", ["many"]),
        ("product", "add", ["Infinity"]),
        ("product", "add", ["9" * 400]),
        ("product", "add", ["1e99999"]),
        ("minmax", "add", [math.nan]),
        ("minmax", "add", [1, 2]),
        ("minmax", "add", [1, "w" * 2000]),
        ("moments", "add", [math.inf]),
        ("moments", "add", [2**1024]),
        ("moments", "add", ["1"]),
        ("quantiles", "add", [math.nan]),
        ("quantiles", "add", [10**400]),
        ("register", "set", []),
        ("register", "set", [{1, 2}]),
        ("register", "set", ["x" * 70_000]),
        ("register", "add", [1]),
        ("set", "add", []),
        ("set", "add", [1]),
        ("set", "add", ["\ud800"]),
        ("set", "add", ["x" * 2000]),
        ("distinct", "add", []),
        ("distinct", "add", [""]),
        ("distinct", "add", [1.5]),
        ("distinct", "add", [2**63]),
        ("audience", "add", [None]),
        ("topk", "add", [1]),
        ("topk", "add", ["x", 0]),
        ("topk", "add", ["x", 1, 1]),
    ],
)
def test_an_update_that_a_type_does_not_take_is_one_line_of_what_it_takes(
    name: str, verb: str, arguments: list[Any]
) -> None:
    with pytest.raises(UpdateInvalid) as refused:
        type_of(name).parse(verb, arguments, AT_US)
    assert f"type={name}" in str(refused.value)
    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) < 300


@pytest.mark.parametrize("name", sorted(OURS))
def test_a_question_that_a_type_does_not_know_is_refused(name: str) -> None:
    with pytest.raises(QuestionInvalid):
        value_of(name, question={"colour": "red"})


def test_words_of_a_command_line_are_numbers_where_numbers_are_meant() -> None:
    assert [1, 2.5, "many", "nan", -3] == [number_of(word) for word in ("1", "2.5", "many", "nan", "-3")]
    assert ["1", "2"] == type_of("distinct").read_words(["1", "2"])
    assert ["007", 2] == type_of("topk").read_words(["007", "2"])
    assert [3, "007"] == type_of("minmax").read_words(["3", "007"])


# ---- bytes that other languages read


@pytest.mark.parametrize(
    ("name", "calls", "body"),
    [
        ("sum", [("add", 300), ("add", -1)], "2b01"),
        ("sum", [("add", -129)], "7fff"),
        ("product", [("add", "-1.05")], "00" + b"-105E-2".hex()),
        ("minmax", [("add", 2.5, "w"), ("add", 3)], b'[[2.5,"w"],[3,null]]'.hex()),
        ("moments", [("add", 0.5), ("add", 2)], "0200000000000000010001000511"),
        (
            "set",
            [("add", "b", "a"), ("remove", "b")],
            b'{"in":{"a":1700000000000000},"out":{"b":1700000000000001}}'.hex(),
        ),
        ("register", [("set", {"b": 1, "a": "\u00e9"})], '[1700000000000000,{"a":"\u00e9","b":1}]'.encode().hex()),
    ],
)
def test_what_is_stored_is_as_the_formats_state(name: str, calls: list[tuple[Any, ...]], body: str) -> None:
    """Written by hand against docs/internals/formats.md."""
    kind = type_of(name)
    state = taken(kind, [kind.parse(verb, rest, AT_US + at) for at, (verb, *rest) in enumerate(calls)])
    assert body == kind.dump_body(state).hex()
    assert kind.dump(state)[5:] == kind.dump_body(state)


@pytest.mark.parametrize(
    ("name", "family", "size_max"), [("distinct", 7, 2_200), ("audience", 3, 33_000), ("quantiles", 15, 7_000)]
)
def test_a_sketch_is_stored_as_its_library_writes_it(name: str, family: int, size_max: int) -> None:
    kind, state = whole(name, list(range(50_000)), 3)
    body = kind.dump_body(state)
    assert family == body[2]  # the library's number of its kinds, in whatever language
    assert len(body) <= size_max


def test_a_variance_agrees_with_the_standard_library() -> None:
    numbers: list[Any] = [random.Random(SEED).gauss(10, 3) for _ in range(100)]
    kind, state = whole("moments", numbers)
    assert math.isclose(statistics.pvariance(numbers), kind.value(state, {}).variance, rel_tol=1e-12)
