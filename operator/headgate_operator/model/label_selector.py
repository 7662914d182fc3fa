"""A Kubernetes label selector as a value, and whether labels match it.

It selects the namespaces that may use the chart's connection. An empty selector matches everything, as in Kubernetes.
An expression that cannot be read is an error at the start and never a match, since credentials depend on it.

Pure.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from headgate.errors import InvalidRequest

REQUIREMENTS_MAX: Final = 64
_WITH_VALUES: Final = ("In", "NotIn")
_WITHOUT_VALUES: Final = ("Exists", "DoesNotExist")


class SelectorInvalid(InvalidRequest):
    """The selector of namespaces is not a label selector."""


@dataclass(frozen=True)
class Requirement:
    key: str
    operator: str
    values: frozenset[str] = frozenset()

    def holds(self, labels: Mapping[str, str]) -> bool:
        value = labels.get(self.key)
        match self.operator:
            case "In":
                return value is not None and value in self.values
            case "NotIn":
                return value is None or value not in self.values
            case "Exists":
                return value is not None
            case _:
                return value is None


@dataclass(frozen=True)
class LabelSelector:
    requirements: tuple[Requirement, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether it matches all labels."""
        return not self.requirements

    def matches(self, labels: Mapping[str, str]) -> bool:
        return all(each.holds(labels) for each in self.requirements)


EVERYTHING: Final = LabelSelector()


def parse_selector(text: str) -> LabelSelector:
    """The selector of a JSON text, as the API has it: matchLabels and matchExpressions."""
    try:
        document = json.loads(text) if text.strip() else {}
    except ValueError:
        raise SelectorInvalid(given=text[:100], remedy="write it as JSON, with matchLabels") from None
    if not isinstance(document, dict) or document.keys() - {"matchLabels", "matchExpressions"}:
        raise SelectorInvalid(given=text[:100], remedy="use matchLabels and matchExpressions, and no other field")
    labels, expressions = document.get("matchLabels") or {}, document.get("matchExpressions") or []
    if not isinstance(labels, dict) or not all(isinstance(value, str) for value in labels.values()):
        raise SelectorInvalid(given=text[:100], remedy="write matchLabels as a map of texts")
    if not isinstance(expressions, list) or len(labels) + len(expressions) > REQUIREMENTS_MAX:
        raise SelectorInvalid(given=text[:100], remedy=f"write a list, and at most {REQUIREMENTS_MAX} requirements")
    equal = [Requirement(key, "In", frozenset((value,))) for key, value in labels.items()]
    return LabelSelector((*equal, *(_parse_expression(each) for each in expressions)))


def _parse_expression(expression: Any) -> Requirement:
    known = expression if isinstance(expression, dict) else {}
    key, operator, values = known.get("key"), known.get("operator"), known.get("values") or []
    is_known = operator in _WITH_VALUES if values else operator in _WITHOUT_VALUES
    if not isinstance(key, str) or not isinstance(operator, str) or not is_known or not isinstance(values, list):
        remedy = "give each key an operator: In and NotIn with values, Exists and DoesNotExist without"
        raise SelectorInvalid(given=str(expression)[:100], remedy=remedy)
    return Requirement(key, operator, frozenset(map(str, values)))
