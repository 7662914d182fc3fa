"""Namespaces that may use the chart's connection are selected as Kubernetes selects; a mistake selects none."""

from __future__ import annotations

import json
from typing import Any

import pytest

from headgate_operator.model.label_selector import REQUIREMENTS_MAX, SelectorInvalid, parse_selector


def matches(selector: dict[str, Any], labels: dict[str, str]) -> bool:
    return parse_selector(json.dumps(selector)).matches(labels)


def expression(operator: str, *values: str) -> dict[str, Any]:
    return {"matchExpressions": [{"key": "team", "operator": operator, **({"values": [*values]} if values else {})}]}


@pytest.mark.parametrize(
    ("selector", "matching", "others"),
    [
        ({"matchLabels": {"team": "a"}}, [{"team": "a", "x": "y"}], [{}, {"team": "b"}, {"a": "team"}]),
        (expression("In", "a", "b"), [{"team": "a"}, {"team": "b"}], [{}, {"team": "c"}, {"team": ""}]),
        (expression("NotIn", "a"), [{}, {"team": "b"}], [{"team": "a"}]),
        (expression("Exists"), [{"team": ""}], [{}]),
        (expression("DoesNotExist"), [{}], [{"team": ""}]),
        (
            {"matchLabels": {"team": "a"}, **expression("NotIn", "b")},
            [{"team": "a"}],
            [{}, {"team": "b"}],
        ),
    ],
)
def test_it_matches_as_kubernetes_does(
    selector: dict[str, Any], matching: list[dict[str, str]], others: list[dict[str, str]]
) -> None:
    assert [True] * len(matching) == [matches(selector, each) for each in matching]
    assert [False] * len(others) == [matches(selector, each) for each in others]


@pytest.mark.parametrize("text", ["", " ", "{}", '{"matchLabels": {}}', '{"matchExpressions": null}'])
def test_an_empty_one_matches_everything(text: str) -> None:
    selector = parse_selector(text)
    assert (True, True) == (selector.is_empty, selector.matches({}))


@pytest.mark.parametrize(
    "text",
    [
        "team=a",
        "[]",
        '"a"',
        '{"team": "a"}',
        '{"matchLabels": ["a"]}',
        '{"matchLabels": {"team": 1}}',
        '{"matchExpressions": {"team": "a"}}',
        '{"matchExpressions": ["team"]}',
        '{"matchExpressions": [{"key": "team", "operator": "Is", "values": ["a"]}]}',
        '{"matchExpressions": [{"key": "team", "operator": "In"}]}',
        '{"matchExpressions": [{"key": "team", "operator": "In", "values": []}]}',
        '{"matchExpressions": [{"key": "team", "operator": "Exists", "values": ["a"]}]}',
        '{"matchExpressions": [{"key": "team", "operator": "In", "values": "abc"}]}',
        '{"matchExpressions": [{"operator": "Exists"}]}',
    ],
)
def test_a_selector_that_cannot_be_read_is_an_error_and_admits_nobody(text: str) -> None:
    with pytest.raises(SelectorInvalid) as refused:
        parse_selector(text)
    assert 1 == len(str(refused.value).splitlines())


def test_it_is_bounded() -> None:
    labels = {f"l{number}": "x" for number in range(REQUIREMENTS_MAX + 1)}
    with pytest.raises(SelectorInvalid, match=f"at most {REQUIREMENTS_MAX} requirements"):
        parse_selector(json.dumps({"matchLabels": labels}))
