"""Every attack has a test that bears its number, or a reason; the page's table is made from the tests."""

from __future__ import annotations

from tests.unit.attacks_table import PAGE, faults, in_page, table, tests_by_attack


def test_every_attack_is_shown_or_says_where_it_will_be() -> None:
    assert [] == faults(tests_by_attack())


def test_the_table_of_the_page_is_what_the_tests_say() -> None:
    expected = table(tests_by_attack())
    assert expected == in_page(PAGE.read_text(encoding="utf-8")), (
        "write it anew: .venv/bin/python -m tests.unit.attacks_table --write"
    )


def test_a_missing_test_and_an_unknown_number_are_found() -> None:
    assert "A3: no test, and no reason" in faults({})
    assert "Z1: no such attack" in faults({"Z1": ["tests/x.py::test_attack_Z1_y"]})
