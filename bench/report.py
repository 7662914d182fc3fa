"""A result in its stored form (JSON) and in readable form (text, Markdown); both are rendered from the stored form.

It contains no host name and no path of a machine, so that it can be in git.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from bench.baseline import Distance
from bench.figure import Figure, Spread
from bench.measurement import Plan, Results
from bench.validity import (
    Load,
    baseline_marks,
    failure_marks,
    is_valid,
    left_out_marks,
    load_marks,
    load_of,
    rounds_marks,
)

Document = dict[str, Any]

FIGURE_HEAD = (
    "case",
    "ours",
    "lowest to highest",
    "baseline",
    "of the baseline",
    "ratio",
    "lowest to highest",
    "target",
)
DISTANCE_HEAD = ("baseline", "quantity", "measured", "known", "of the known rate")


def document(name: str, plan: Plan, results: Results, machine: dict[str, object], surroundings: Document) -> Document:
    """All facts for a reader, or a later program."""
    windows = [window for rounds in results.rounds for window in rounds.all_windows]
    load = load_of(windows, int(str(machine["cores"])))
    marks = [
        *([] if plan.quick else baseline_marks(results.distances)),
        *load_marks(load),
        *rounds_marks(results.rounds, at_least=plan.rounds_min),
        *failure_marks(results.rounds),
        *left_out_marks(results.left_out),
    ]
    return {
        "name": name,
        "command": f"python -m bench.run {name}" + (" --quick" if plan.quick else ""),
        "only": list(plan.only),
        **surroundings,
        "quick": plan.quick,
        "rounds": plan.rounds,
        "window_s": plan.seconds,
        "machine": machine,
        "load": _load(load, surroundings),
        "cpu_s": {
            "clients": round(sum(window.clients_cpu_s for window in windows), 2),
            "cassandra": round(sum(window.cassandra_cpu_s for window in windows), 2),
            "wall": round(sum(window.wall_s for window in windows), 2),
        },
        "valid": is_valid(marks),
        "marks": [{"bad": mark.bad, "text": mark.text} for mark in marks],
        "checked": results.checked,
        "baselines": [_distance(distance, case.part) for case in results.cases for distance in case.distances],
        "figures": [_figure(figure, case.part) for case in results.cases for figure in case.figures],
    }


def _load(load: Load, surroundings: Document) -> Document:
    averages = surroundings.get("load_average", {})
    return {"others_share": round(load.others, 3), "stolen_share": round(load.stolen, 3), "average": averages}


def _spread(spread: Spread) -> Document:
    return {"median": _kept(spread.median), "low": _kept(spread.low), "high": _kept(spread.high)}


def _kept(value: float) -> float:
    """Four significant digits: the rest is noise, and would differ in git after every run."""
    return float(f"{value:.4g}")


def _figure(figure: Figure, part: str) -> Document:
    target = figure.target
    return {
        **({"part": part} if part else {}),
        "case": figure.case,
        "metric": figure.metric,
        "unit": figure.unit,
        "contender": figure.ours.contender,
        "value": _spread(figure.value),
        "baseline": {"contender": figure.baseline.contender, **_spread(figure.baseline.spread)},
        "ratio": _spread(figure.ratio),
        "target": None if target is None else f"{target.of.value} {target.side.value} {target.bound:g}",
        "met": figure.met,
    }


def _distance(distance: Distance, part: str) -> Document:
    return {
        **({"part": part} if part else {}),
        "case": distance.case,
        "quantity": distance.quantity,
        "measured": _kept(distance.measured),
        "known": distance.known,
        "ratio": _kept(distance.ratio),
        "sound": distance.sound,
    }


def number(value: float) -> str:
    """In readable form: three digits, thousands separated."""
    digits = 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2
    return f"{value:,.{digits}f}"


def _ends(spread: Document) -> str:
    return f"{number(spread['low'])} to {number(spread['high'])}"


def verdict(figure: Document) -> str:
    """The targets, and whether they were met."""
    if figure["target"] is None:
        return ""
    return f"{figure['target']}: {'met' if figure['met'] else 'MISSED'}"


def figure_row(figure: Document) -> tuple[str, ...]:
    """A figure as the cells under FIGURE_HEAD."""
    value, baseline, ratio = figure["value"], figure["baseline"], figure["ratio"]
    return (
        figure["case"],
        number(value["median"]),
        _ends(value),
        baseline["contender"],
        number(baseline["median"]),
        f"{ratio['median']:.2f}",
        f"{ratio['low']:.2f} to {ratio['high']:.2f}",
        verdict(figure),
    )


def distance_row(distance: Document) -> tuple[str, ...]:
    """A baseline's distance as the cells under DISTANCE_HEAD."""
    sound = "" if distance["sound"] else " (too far)"
    return (
        distance["case"],
        distance["quantity"],
        number(distance["measured"]),
        number(distance["known"]),
        f"{distance['ratio']:.2f}{sound}",
    )


def by_metric(figures: Iterable[Document]) -> dict[str, list[Document]]:
    """Figures that are read together, the ones with a target where they belong."""
    grouped: dict[str, list[Document]] = {}
    for figure in figures:
        grouped.setdefault(f"{figure['metric']}, {figure['unit']}", []).append(figure)
    return grouped


def summary(kept: Document) -> list[str]:
    """The first facts: whether it counts, why not, and the targets."""
    lines = ["VALID" if kept["valid"] else "INVALID: these figures do not count"]
    lines += [f"{'invalid' if mark['bad'] else 'note'}: {mark['text']}" for mark in kept["marks"]]
    lines += [
        f"target: {figure['case']}, {figure['metric']}: {number(figure['value']['median'])} {figure['unit']}, "
        f"{figure['ratio']['median']:.2f} times the {figure['baseline']['contender']}'s; {verdict(figure)}"
        for figure in kept["figures"]
        if figure["target"] is not None
    ]
    lines += [f"checked: {what}" for what in kept.get("checked", [])]
    lines += [
        f"measured before: {part}, on {at['date']}, commit {at['commit']}" for part, at in earlier(kept).items()
    ]
    load, used = kept["load"], kept["cpu_s"]
    lines.append(
        f"load: others used {load['others_share']:.0%} of the machine, {load['stolen_share']:.0%} was stolen; "
        f"in {used['wall']:,.0f} s of windows clients used {used['clients']:,.0f} CPU s, "
        f"Cassandra {used['cassandra']:,.0f}"
    )
    return lines


def earlier(kept: Document) -> dict[str, Document]:
    """Parts that were measured at another commit than the last, and where."""
    return {figure["part"]: figure["earlier"] for figure in kept["figures"] if "earlier" in figure}


def as_text(kept: Document) -> list[str]:
    """For a terminal."""
    lines = []
    for title, figures in by_metric(kept["figures"]).items():
        lines += ["", title, *_columns(FIGURE_HEAD, [figure_row(figure) for figure in figures])]
    if kept["baselines"]:
        rows = [distance_row(distance) for distance in kept["baselines"]]
        lines += ["", "baselines compared with their known rates", *_columns(DISTANCE_HEAD, rows)]
    return [*lines, "", *summary(kept)]


def _columns(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(row[place]) for row in (head, *rows)) for place in range(len(head))]
    return [
        "  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in (head, *rows)
    ]


def as_markdown(kept: Document) -> list[str]:
    """For the documentation: a row a case, a column a quantity."""
    machine = kept["machine"]
    grouped = by_metric(kept["figures"])
    cases = dict.fromkeys((figure["case"], figure["baseline"]["contender"]) for figure in kept["figures"])
    rows = [[case, baseline, *(_cell(figures, case) for figures in grouped.values())] for case, baseline in cases]
    lines = [
        f"`make bench-{kept['name']}` on {kept['date']}, commit {kept['commit']}: {kept['rounds']} rounds of"
        f" {kept['window_s']:g} s; {machine['cores']} cores ({machine['processor']}), {machine['memory_gb']} GB.",
        "",
        *(f"- {line}" for line in summary(kept)),
        "",
        "In each cell: our figure; its ratio to the baseline (in the lowest and in the highest round).",
        "",
        *_table(("case", "beside", *grouped), rows),
    ]
    if kept["baselines"]:
        lines += ["", *_table(DISTANCE_HEAD, [distance_row(distance) for distance in kept["baselines"]])]
    return lines


def _cell(figures: Sequence[Document], case: str) -> str:
    """Ours, its ratio to the baseline, and the range of that."""
    for figure in figures:
        if figure["case"] == case:
            ratio = figure["ratio"]
            ends = f"{ratio['low']:.2f} to {ratio['high']:.2f}"
            return f"{number(figure['value']['median'])}; {ratio['median']:.2f} ({ends})"
    return ""


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    return [f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows)]
