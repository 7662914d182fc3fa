"""Tables in docs/internals/simulation.md that are made from what they list: attacks from the tests that bear their
numbers, breakages from the files of tests/mutants.

`.venv/bin/python -m tests.kit.generated_tables --write` writes them again.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from itertools import groupby
from pathlib import Path

from dev.mutants import Mutant, read_mutants
from tests.kit.attacks_table import table as attacks
from tests.kit.attacks_table import tests_by_attack

PAGE = Path(__file__).parents[2] / "docs" / "internals" / "simulation.md"


def breakages(mutants: list[Mutant]) -> str:
    """Each deliberate breakage, by file of tests/mutants: what it breaks, and what finds it."""
    lines = []
    for group, of_group in groupby(mutants, key=lambda each: each.name.partition("/")[0]):
        lines += [f"`tests/mutants/{group}.toml`", "", "| breakage | rule | found by |", "| --- | --- | --- |"]
        for each in of_group:
            name = each.name.partition("/")[2].replace("-", " ")
            lines.append(f"| {name} | {each.breaks} | {each.by} |")
        lines.append("")
    return "\n".join(lines)


def tables() -> Mapping[str, str]:
    """Every table by its name in the page."""
    return {"attacks": attacks(tests_by_attack()), "breakages": breakages(read_mutants())}


def in_page(page: str, name: str) -> str:
    """A table as the page has it."""
    return page.partition(f"<!-- {name} -->\n")[2].partition(f"<!-- end of {name} -->")[0]


def written(page: str) -> str:
    """The page with its tables as they should be."""
    for name, table in tables().items():
        begin = f"<!-- {name} -->\n"
        page = page.replace(begin + in_page(page, name), begin + table)
    return page


def main() -> None:
    """Print them, or write them into the page."""
    if sys.argv[1:] == ["--write"]:
        PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    else:
        sys.stdout.write("\n".join(tables().values()))


if __name__ == "__main__":
    main()
