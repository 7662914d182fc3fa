"""Writes the last results into the pages and the plot: `python -m bench.docs`; `--check` only prints what is stale.

A result is between two marks; everything else on a page is written by hand.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping
from pathlib import Path

from bench import headlines
from bench.plot import build_plot
from bench.report import as_markdown
from headgate.errors import InvalidRequest

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "bench" / "results"
BENCHMARKS = "docs/internals/benchmarks.md"
FIGURES = "docs/figures.md"
README = "README.md"
PLOT = "docs/pictures/measured.svg"
_MARKED = re.compile(r"(<!-- result: ([a-z]+) -->\n).*?(<!-- end of result -->)", re.S)


def with_results(page: str, results: dict[str, str]) -> str:
    """The page with each marked place filled from the result of that name."""
    places = {result[2] for result in _MARKED.finditer(page)}
    if missing := sorted(results.keys() - places):
        raise InvalidRequest(
            "the page has no place for the result",
            remedy="write <!-- result: NAME --> and <!-- end of result --> where it belongs",
            names=", ".join(missing),
        )

    def fill(result: re.Match[str]) -> str:
        kept = results.get(result[2])
        text = "\n".join(as_markdown(json.loads(kept))) if kept is not None else "Not measured yet."
        return f"{result[1]}\n{text}\n\n{result[3]}"

    return _MARKED.sub(fill, page)


def with_part(page: str, mark: str, lines: list[str]) -> str:
    """The page with the place of that mark filled."""
    place = re.compile(rf"(<!-- {mark} -->\n).*?(<!-- end of {mark} -->)", re.DOTALL)
    return place.sub(lambda result: f"{result[1]}\n" + "\n".join(lines) + f"\n\n{result[2]}", page)


def read_results() -> dict[str, str]:
    """The results that are kept, by name."""
    return {path.stem: path.read_text(encoding="utf-8") for path in sorted(RESULTS.glob("*.json"))}


def build_files(pages: Mapping[str, str], kept: dict[str, str]) -> dict[str, str]:
    """Every file that shows results, by its path, from the pages as they are."""
    results = {name: json.loads(text) for name, text in kept.items()}
    figures = with_part(pages[FIGURES], "measured", headlines.build_full_table(results))
    return {
        BENCHMARKS: with_results(pages[BENCHMARKS], kept),
        FIGURES: with_part(figures, "costs", headlines.build_cost_table(results)),
        README: with_part(pages[README], "measured", headlines.build_short_table(results)),
        PLOT: build_plot(results),
    }


def read_pages() -> dict[str, str]:
    """The files that show results, as they are."""
    paths = (BENCHMARKS, FIGURES, README, PLOT)
    return {path: (ROOT / path).read_text(encoding="utf-8") for path in paths if (ROOT / path).is_file()}


def stale_files() -> list[str]:
    """The files that show other results than the kept ones."""
    pages = read_pages()
    return [path for path, text in build_files(pages, read_results()).items() if pages.get(path) != text]


def write() -> None:
    """Bring the files up to date."""
    for path, text in build_files(read_pages(), read_results()).items():
        (ROOT / path).write_text(text, encoding="utf-8")


def main(arguments: list[str]) -> int:
    """Write, or check."""
    if arguments == ["--check"]:
        stale = stale_files()
        for path in stale:
            print(f"{path} is stale; run: python -m bench.docs", file=sys.stderr)
        return 1 if stale else 0
    if arguments:
        print("usage: python -m bench.docs [--check]", file=sys.stderr)
        return 2
    write()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
