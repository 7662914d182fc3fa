"""Every test that needs a server is run by `make test` once: whatever it is marked with, one group has it."""

from __future__ import annotations

from itertools import combinations

from dev.tests import CLUSTERS, SERVER_GROUPS

MARKS = ("kubernetes", "operators", "pods", "rings", "spark")


def takes(which: str, marks: frozenset[str]) -> bool:
    """As pytest reads an expression of only `and` and `not`."""
    terms = which.split(" and ")
    return all((term.removeprefix("not ") in marks) is not term.startswith("not ") for term in terms)


def test_whatever_a_test_is_marked_with_one_group_has_it() -> None:
    for count in range(len(MARKS) + 1):
        for marks in combinations(MARKS, count):
            marked = frozenset({"servers", *marks})
            assert 1 == len([name for name, which in SERVER_GROUPS.items() if takes(which, marked)]), marks


def test_groups_that_may_meet_have_clusters_of_their_own() -> None:
    assert set(CLUSTERS) <= set(SERVER_GROUPS)
    kinds = {"kubernetes", "operators", "pods"}
    on_clusters = [name for name, which in SERVER_GROUPS.items() if kinds & set(which.split(" and "))]
    assert len(on_clusters) == len({CLUSTERS.get(name) for name in on_clusters})
