"""Tables in docs/internals that are made from what they list: attacks from the tests that bear their numbers,
breakages from the files of tests/mutants, the states of a message from `engines/lanes/delivery/message_life.py`.

`.venv/bin/python -m tests.kit.generated_tables --write` writes them again.
"""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Mapping
from itertools import groupby
from pathlib import Path

from dev.mutants import Mutant, read_mutants
from headgate.engines.lanes.delivery.message_life import TRANSITIONS, LifeEvent, LifeState
from tests.kit.attacks_table import table as attacks
from tests.kit.attacks_table import tests_by_attack

INTERNALS = Path(__file__).parents[2] / "docs" / "internals"
PAGE = INTERNALS / "simulation.md"
DISPATCHER = INTERNALS / "protocols" / "dispatcher.md"


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


def life() -> str:
    """The states of a message and the ways between them, as a diagram of lines, and what each means."""
    everywhere = [event for event in LifeEvent if len(TRANSITIONS[event]) == len(LifeState) - 1]
    lines = ["```text"]
    for state in LifeState:
        ways = [
            f"{_name(event)} -> {_name(TRANSITIONS[event][state])}"
            for event in LifeEvent
            if state in TRANSITIONS[event] and event not in everywhere
        ]
        lines.append(f"{_name(state):10} {', '.join(ways) or '(the end)'}")
    lines += [f"{'any other':10} {_name(event)} -> {_name(LifeState.SETTLED)}" for event in everywhere]
    lines += ["```", ""]
    for of in (LifeState, LifeEvent):
        lines += [f"| {'state' if of is LifeState else 'event'} | meaning |", "| --- | --- |"]
        lines += [f"| {name} | {meaning} |" for name, meaning in _meanings(of).items()] + [""]
    return "\n".join(lines)


def _name(member: LifeState | LifeEvent) -> str:
    return member.name.lower().replace("_", " ")


def _meanings(of: type[LifeState | LifeEvent]) -> dict[str, str]:
    """The line below each member."""
    (body,) = [each.body for each in ast.parse(inspect.getsource(of)).body if isinstance(each, ast.ClassDef)]
    texts = [each.value.value for each in body if isinstance(each, ast.Expr) and isinstance(each.value, ast.Constant)]
    return dict(zip(map(_name, of), map(str, texts[1:]), strict=True))


def tables() -> Mapping[Path, Mapping[str, str]]:
    """The tables of each page, by their names there."""
    return {
        PAGE: {"attacks": attacks(tests_by_attack()), "breakages": breakages(read_mutants())},
        DISPATCHER: {"life": life()},
    }


def in_page(page: str, name: str) -> str:
    """A table as the page has it."""
    return page.partition(f"<!-- {name} -->\n")[2].partition(f"<!-- end of {name} -->")[0]


def written(page: str, of_page: Mapping[str, str]) -> str:
    """The page with its tables as they should be."""
    for name, table in of_page.items():
        begin = f"<!-- {name} -->\n"
        page = page.replace(begin + in_page(page, name), begin + table)
    return page


def main() -> None:
    """Print them, or write them into their pages."""
    for path, of_page in tables().items():
        if sys.argv[1:] == ["--write"]:
            path.write_text(written(path.read_text(encoding="utf-8"), of_page), encoding="utf-8")
        else:
            sys.stdout.write("\n".join(of_page.values()))


if __name__ == "__main__":
    main()
