"""Writes the last results into docs/benchmarks.md: `python -m bench.docs`; `--check` only lists stale ones.

A result is between two marks; everything else on the page is written by hand.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

from bench.report import as_markdown
from headgate.errors import SpecError

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "bench" / "results"
PAGE = ROOT / "docs" / "benchmarks.md"
_MARKED = re.compile(r"(<!-- result: ([a-z]+) -->\n).*?(<!-- end of result -->)", re.S)


def with_results(page: str, results: dict[str, str]) -> str:
    """The page with each marked place filled from the result of that name."""
    places = {found[2] for found in _MARKED.finditer(page)}
    if missing := sorted(results.keys() - places):
        raise SpecError(
            "the page has no place for the result",
            remedy="write <!-- result: NAME --> and <!-- end of result --> where it belongs",
            names=", ".join(missing),
        )

    def fill(found: re.Match[str]) -> str:
        kept = results.get(found[2])
        said = "\n".join(as_markdown(json.loads(kept))) if kept is not None else "Not measured yet."
        return f"{found[1]}\n{said}\n\n{found[3]}"

    return _MARKED.sub(fill, page)


def read_results() -> dict[str, str]:
    """The results that are kept, by name."""
    return {path.stem: path.read_text(encoding="utf-8") for path in sorted(RESULTS.glob("*.json"))}


def is_stale() -> bool:
    """Whether the page shows other results than the kept ones."""
    page = PAGE.read_text(encoding="utf-8")
    return with_results(page, read_results()) != page


def write() -> None:
    """Update the page."""
    PAGE.write_text(with_results(PAGE.read_text(encoding="utf-8"), read_results()), encoding="utf-8")


def main(arguments: list[str]) -> int:
    """Write, or check."""
    if arguments == ["--check"]:
        if is_stale():
            print("docs/benchmarks.md is stale; run: python -m bench.docs", file=sys.stderr)
            return 1
        return 0
    if arguments:
        print("usage: python -m bench.docs [--check]", file=sys.stderr)
        return 2
    write()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
