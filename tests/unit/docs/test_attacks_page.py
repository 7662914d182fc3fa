"""Every attack has a test that bears its number, or a reason; the page's tables are made from what they list."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from dev.mutants import read_mutants
from tests.kit import attacks_table
from tests.kit.generated_tables import in_page, tables

PROTOCOLS = ("catalogue", "lanes", "store", "timeline")


def test_every_attack_is_shown_or_states_where_it_will_be() -> None:
    assert [] == attacks_table.faults(attacks_table.tests_by_attack())


def test_a_missing_test_and_an_unknown_number_are_found() -> None:
    assert "A3: no test, and no reason" in attacks_table.faults({})
    assert "Z1: no such attack" in attacks_table.faults({"Z1": ["tests/x.py::test_attack_Z1_y"]})


@pytest.mark.parametrize(("page", "name"), [(page, name) for page, of_page in tables().items() for name in of_page])
def test_a_table_of_a_page_is_what_it_is_made_from(page: Path, name: str) -> None:
    expected = tables()[page][name]
    result = in_page(page.read_text(encoding="utf-8"), name)
    assert expected == result, "generate it again: .venv/bin/python -m tests.kit.generated_tables --write"


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_each_protocol_has_ten_breakages_and_half_of_all_are_found_by_simulation_alone(protocol: str) -> None:
    mutants = read_mutants()
    assert 10 <= sum(each.name.startswith(f"{protocol}/") for each in mutants)
    ways = Counter(each.by for each in mutants if each.name.partition("/")[0] in ("lanes", "timeline"))
    assert ways["simulation"] >= sum(ways.values()) / 2
