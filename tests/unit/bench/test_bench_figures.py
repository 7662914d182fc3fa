"""Figures: medians, ratios within rounds, targets, and that none is built without a baseline of the same run."""

from __future__ import annotations

import math

import pytest

from bench.baseline import distances
from bench.figure import Figure, FigureBroken, Of, Series, Side, Spread, Target
from bench.known import Known
from bench.measurement import Plan, figures_of, quick_plan
from bench.rounds import CLIENT_US, ROWS_PER_CPU_S, ROWS_PER_S, Metric, Rounds, Window, order_of_round, take_rounds
from headgate.errors import Bug, InvalidRequest


def window(contender: str = "ours", **report: float) -> Window:
    """A second in which a thousand rows were written."""
    usual: dict[str, float] = {
        "wall_s": 1.0, "span_s": 1.0, "rows": 1000, "requests": 10, "failed": 0,
        "clients_cpu_s": 0.5, "cassandra_cpu_s": 0.25, "others_cpu_s": 0.0, "stolen_cpu_s": 0.0,
        "p50_ms": 1.0, "p99_ms": 2.0,
    }  # fmt: skip
    return Window(contender, **{**usual, **report})  # type: ignore[arg-type]


def figure(ours: tuple[float, ...], base: tuple[float, ...], target: Target | None = None) -> Figure:
    return Figure("case", "metric", "unit", Series("run", "ours", ours), Series("run", "base", base), target)


def test_a_spread_is_the_median_and_both_ends() -> None:
    assert Spread.of([5.0, 1.0, 9.0]) == Spread(5.0, 1.0, 9.0)


@pytest.mark.parametrize("values", [[], [1.0, math.nan], [math.inf]])
def test_a_spread_of_nothing_cannot_be_built(values: list[float]) -> None:
    with pytest.raises(FigureBroken):
        Spread.of(values)


def test_a_ratio_is_taken_within_each_round_before_the_median() -> None:
    measured = figure((10.0, 40.0, 90.0), (10.0, 20.0, 30.0))
    assert measured.ratio == Spread(2.0, 1.0, 3.0)
    assert measured.value == Spread(40.0, 10.0, 90.0)


@pytest.mark.parametrize(
    "baseline",
    [
        Series("another run", "base", (1.0, 2.0)),
        Series("run", "base", (1.0,)),
        Series("run", "ours", (1.0, 2.0)),
        Series("run", "base", (1.0, 0.0)),
    ],
    ids=["from another run", "from other rounds", "itself", "nothing"],
)
def test_a_figure_without_a_baseline_of_the_same_rounds_cannot_be_built(baseline: Series) -> None:
    with pytest.raises(FigureBroken):
        Figure("case", "metric", "unit", Series("run", "ours", (1.0, 2.0)), baseline)


@pytest.mark.parametrize(
    ("target", "met"),
    [
        (None, None),
        (Target(Side.AT_MOST, 1.5), True),
        (Target(Side.AT_MOST, 1.49), False),
        (Target(Side.AT_LEAST, 1.5), True),
        (Target(Side.AT_LEAST, 1.51), False),
        (Target(Side.AT_LEAST, 3.0, Of.VALUE), True),
        (Target(Side.AT_MOST, 2.9, Of.VALUE), False),
    ],
)
def test_a_target_is_held_against_the_median_and_holds_at_its_bound(target: Target | None, met: bool | None) -> None:
    assert figure((3.0, 3.0, 9.0), (2.0, 2.0, 2.0), target).met is met


def test_every_contender_begins_a_round_in_turn() -> None:
    rounds = [order_of_round(["a", "b", "c"], number) for number in range(4)]
    assert rounds == [["a", "b", "c"], ["b", "c", "a"], ["c", "a", "b"], ["a", "b", "c"]]


def test_rounds_are_interleaved_and_kept_by_contender() -> None:
    order: list[str] = []

    def take(contender: str) -> Window:
        order.append(contender)
        return window(contender, rows=len(order))

    taken = take_rounds("run", "case", ["a", "b"], take, rounds=3, time_is_up=lambda: False)
    assert order == ["a", "b", "b", "a", "a", "b"]
    assert [one.rows for one in taken.windows["a"]] == [1, 4, 5]
    assert taken.count == 3


def test_no_round_is_begun_when_time_is_up_and_none_is_left_half() -> None:
    taken = take_rounds("run", "case", ["a", "b"], window, rounds=5, time_is_up=lambda: True)
    assert {contender: len(windows) for contender, windows in taken.windows.items()} == {"a": 1, "b": 1}


def test_contenders_with_different_numbers_of_rounds_are_not_compared() -> None:
    with pytest.raises(Bug):
        Rounds("run", "case", {"a": (window(),), "b": ()})


@pytest.mark.parametrize(
    ("metric", "value"), [(ROWS_PER_S, 500.0), (CLIENT_US, 500.0), (ROWS_PER_CPU_S, 1000 / 0.75)]
)
def test_quantities_of_a_window(metric: Metric, value: float) -> None:
    assert metric.of(window(wall_s=2.0)) == pytest.approx(value)


def test_figures_of_two_contenders_share_their_rounds() -> None:
    rounds = Rounds("run", "case", {"ours": (window(clients_cpu_s=1.0),), "base": (window("base"),)})
    (made,) = figures_of(rounds, [CLIENT_US], "ours", "base", case="another name")
    assert (made.case, made.ratio.median) == ("another name", 2.0)


def test_a_baseline_reports_its_distance_from_what_is_known_of_it() -> None:
    rounds = Rounds("run", "case", {"base": (window("base"), window("base", clients_cpu_s=0.1), window("base"))})
    result = distances(rounds, "base", Known(per_cassandra_cpu_s=4_000, per_client_cpu_s=4_001))
    assert [(one.quantity, one.measured, one.sound) for one in result] == [
        ("rows per Cassandra CPU second", 4_000, True),
        ("rows per client CPU second", 2_000, False),
    ]


def test_what_was_never_measured_of_a_baseline_has_no_distance() -> None:
    rounds = Rounds("run", "case", {"base": (window("base"),)})
    assert [one.quantity for one in distances(rounds, "base", Known(per_s=1_000))] == ["rows per second"]


@pytest.mark.parametrize("output", [{"rounds": 0}, {"rounds": 51}, {"seconds": 0.0}, {"seconds": 61.0}])
def test_a_run_is_bounded(output: dict[str, int]) -> None:
    with pytest.raises(InvalidRequest):
        Plan("run", **output)  # type: ignore[arg-type]


def test_a_quick_run_is_short_and_reports_that_it_is_quick() -> None:
    plan = quick_plan("run")
    assert (plan.quick, plan.rounds_min) == (True, 1)
    assert plan.case_s_max(contenders=6) < 10
