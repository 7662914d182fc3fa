"""Conditions under which a run counts, and the storage of its result."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from bench import docs, headlines
from bench.baseline import Distance
from bench.contender import Tally, percentile
from bench.figure import Side, Target
from bench.measurement import Measured, Plan, Results, figures_of, quick_plan
from bench.report import Document, as_markdown, as_text, document, number
from bench.rounds import CLIENT_US, ROWS_PER_S, Rounds
from bench.run import EXIT_USAGE, main, parse
from bench.validity import Load, baseline_marks, failure_marks, load_marks, load_of, rounds_marks
from headgate.errors import InvalidRequest
from tests.unit.bench.test_bench_figures import window

MACHINE: dict[str, object] = {"cores": 2, "memory_gb": 8, "processor": "a processor"}
PRINTED: Document = {"date": "2026-01-02", "commit": "abc", "load_average": {"before": 0.5, "after": 1.5}}


def rounds_of(count: int = 3, **report: float) -> Rounds:
    return Rounds(
        "run",
        "batches",
        {
            "ours": tuple(window("ours", clients_cpu_s=0.6, **report) for _ in range(count)),
            "driver": tuple(window("driver", **report) for _ in range(count)),
        },
    )


def results_of(rounds: Rounds, *, bound: float = 1.5, known: float = 2_000) -> Results:
    figures = figures_of(rounds, [CLIENT_US, ROWS_PER_S], "ours", "driver")
    with_target = replace(figures[0], target=Target(Side.AT_MOST, bound))
    distance = Distance("batches", "rows per client CPU second", 2_000, known)
    return Results([Measured(rounds, (with_target, figures[1]), (distance,))])


def kept(**report: float) -> Document:
    return document("store", Plan("run"), results_of(rounds_of(), **report), MACHINE, PRINTED)


@pytest.mark.parametrize(
    ("others", "stolen", "marks"),
    [(0.15, 0.02, []), (0.16, 0.0, [False]), (0.51, 0.0, [True]), (0.0, 0.03, [False]), (0.6, 0.11, [True, True])],
)
def test_a_load_is_noted_and_then_voids_the_run(others: float, stolen: float, marks: list[bool]) -> None:
    assert [mark.bad for mark in load_marks(Load(others, stolen))] == marks


def test_a_load_is_the_median_share_of_all_cores() -> None:
    windows = [window(span_s=2.0, others_cpu_s=used, stolen_cpu_s=0.04) for used in (0.4, 1.0, 4.0)]
    assert load_of(windows, cores=2) == Load(others=0.25, stolen=0.01)


def test_others_never_use_less_than_nothing() -> None:
    assert load_of([window(others_cpu_s=-0.01)], cores=2).others == 0.0


def test_a_baseline_below_half_of_what_is_known_voids_the_run() -> None:
    marks = baseline_marks([Distance("a", "rows", 50.0, 100.0), Distance("b", "rows", 49.0, 100.0)])
    assert [(mark.bad, "of b does 49" in mark.text) for mark in marks] == [(True, True)]


def test_too_few_rounds_void_the_run() -> None:
    assert [mark.bad for mark in rounds_marks([rounds_of(2), rounds_of(3)])] == [True]


@pytest.mark.parametrize(("failed", "bad"), [(0, []), (1, [False]), (9, [True])])
def test_failed_requests_are_reported_and_many_void_the_run(failed: int, bad: list[bool]) -> None:
    rounds = Rounds("run", "case", {"ours": (window(requests=500, failed=failed),)})
    assert [mark.bad for mark in failure_marks([rounds])] == bad


def test_a_valid_result_reports_its_target_as_met() -> None:
    lines = as_text(kept())
    assert "VALID" in lines
    assert any(line.startswith("target: batches") and "1.20 times" in line and "met" in line for line in lines)


def test_a_missed_target_is_reported_and_the_result_still_counts() -> None:
    result = kept(bound=1.1)
    assert (result["valid"], result["figures"][0]["met"]) == (True, False)
    assert any("MISSED" in line for line in as_text(result))
    assert any("MISSED" in line for line in as_markdown(result))


def test_an_invalid_result_reports_it_and_why() -> None:
    lines = as_text(kept(known=5_000))
    assert any(line.startswith("INVALID") for line in lines)
    assert any(line.startswith("invalid: the baseline of batches") for line in lines)


def test_every_figure_keeps_its_baseline_its_ratio_its_target_and_whether_it_is_met() -> None:
    assert kept()["figures"][0] == {
        "case": "batches",
        "metric": "client CPU per row",
        "unit": "µs",
        "contender": "ours",
        "value": {"median": 600.0, "low": 600.0, "high": 600.0},
        "baseline": {"contender": "driver", "median": 500.0, "low": 500.0, "high": 500.0},
        "ratio": {"median": 1.2, "low": 1.2, "high": 1.2},
        "target": "ratio at most 1.5",
        "met": True,
    }


def test_a_result_keeps_the_cpu_seconds_of_clients_and_cassandra_beside_wall_time() -> None:
    assert kept()["cpu_s"] == {"clients": 3.3, "cassandra": 1.5, "wall": 6.0}


def test_a_run_that_left_cases_out_does_not_count_and_names_them() -> None:
    results = replace(results_of(rounds_of()), left_out=["commit log: single inserts"])
    result = document("store", Plan("run"), results, MACHINE, PRINTED)
    assert not result["valid"]
    assert "invalid: the time limit came before: commit log: single inserts" in as_text(result)


def test_a_quick_run_does_not_hold_its_baselines_against_what_is_known() -> None:
    result = document("store", quick_plan("run"), results_of(rounds_of(2), known=5_000), MACHINE, PRINTED)
    assert result["valid"]


def test_a_result_survives_json() -> None:
    result = kept()
    assert as_text(json.loads(json.dumps(result))) == as_text(result)


@pytest.mark.parametrize(("value", "shown"), [(1234.5, "1,234"), (100.0, "100"), (12.34, "12.3"), (0.128, "0.13")])
def test_a_number_is_shown_with_three_digits(value: float, shown: str) -> None:
    assert number(value) == shown


def test_markdown_has_a_row_a_case_and_a_column_a_quantity() -> None:
    table = [line for line in as_markdown(kept()) if line.startswith("| ")]
    assert table[0] == "| case | beside | client CPU per row, µs | rows per second, /s |"
    assert table[2] == "| batches | driver | 600; 1.20 (1.20 to 1.20) | 1,000; 1.00 (1.00 to 1.00) |"


PAGE = "before\n<!-- result: store -->\nold\n<!-- end of result -->\nafter\n"


def test_a_page_is_filled_between_its_marks_and_nowhere_else() -> None:
    page = docs.with_results(PAGE, {"store": json.dumps(kept())})
    assert page.startswith("before\n<!-- result: store -->\n\n`make bench-store` on 2026-01-02")
    assert page.endswith("<!-- end of result -->\nafter\n")
    assert "old" not in page
    assert docs.with_results(page, {"store": json.dumps(kept())}) == page


def test_a_result_without_a_place_on_the_page_is_reported() -> None:
    with pytest.raises(InvalidRequest, match="no place"):
        docs.with_results(PAGE, {"counters": "{}"})


def test_the_pages_and_the_plot_show_the_kept_results() -> None:
    assert [] == docs.stale_files(), "run: python -m bench.docs"


def test_a_page_with_another_figure_is_stale(monkeypatch: pytest.MonkeyPatch) -> None:
    pages = docs.read_pages()
    for path in pages:
        changed = {**pages, path: pages[path].replace("49,550", "50,000")}
        monkeypatch.setattr(docs, "read_pages", lambda changed=changed: changed)
        assert [path] == docs.stale_files()


def test_a_figure_that_no_result_has_is_an_error() -> None:
    with pytest.raises(InvalidRequest, match="lacks a figure"):
        headlines.find_figure(kept(), "batches", "colour")


def faults_of_kept(name: str, text: str) -> list[str]:
    """Why a result has no business in git."""
    result = json.loads(text)
    faults = [hint for hint in (str(docs.ROOT), str(Path.home())) if hint in text]
    faults += [] if result["valid"] and not result["quick"] else ["it does not count"]
    faults += [] if result["name"] == name else ["it has another name"]
    return faults + [
        f"{figure['case']} has no baseline" for figure in result["figures"] if not figure["baseline"]["median"] > 0
    ]


def test_every_kept_result_counts_and_names_no_machine() -> None:
    assert {
        name: faults_of_kept(name, text) for name, text in docs.read_results().items() if faults_of_kept(name, text)
    } == {}


def test_a_result_that_does_not_count_or_names_a_machine_is_found() -> None:
    assert faults_of_kept("store", json.dumps(kept())) == []
    assert faults_of_kept("other", json.dumps(kept(known=5_000))) == ["it does not count", "it has another name"]
    assert faults_of_kept("store", json.dumps(kept() | {"commit": str(docs.ROOT)})) == [str(docs.ROOT)]


@pytest.mark.parametrize(("share", "value"), [(0.5, 51), (0.99, 100), (1.0, 100), (0.0, 1)])
def test_a_percentile_is_a_value_that_was_measured(share: float, value: float) -> None:
    assert percentile([float(one) for one in range(100, 0, -1)], share) == value


def test_a_tally_ends_by_count() -> None:
    tally = Tally(seconds=60.0, requests_max=2)
    assert [tally.may_begin() for _ in range(3)] == [True, True, False]


def test_a_tally_ends_by_time() -> None:
    assert not Tally(seconds=0.0, requests_max=10).may_begin()


def test_the_first_failure_of_a_run_is_kept() -> None:
    tally = Tally(seconds=60.0, requests_max=2)
    for text in ("one", "two"):
        tally.fail(ValueError(text))
    assert (tally.failed, tally.first_error) == (2, "ValueError: one")


def test_options_change_a_plan() -> None:
    name, plan, output = parse(["store", "--rounds", "3", "--seconds", "0.5", "--output", "x.json"])
    assert (name, plan.rounds, plan.seconds, plan.quick, output) == ("store", 3, 0.5, False, Path("x.json"))


def test_a_plan_that_cannot_be_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["store", "--rounds", "0"]) == EXIT_USAGE
    message = capsys.readouterr().err
    assert (message.count("\n"), "rounds=0" in message) == (1, True)
