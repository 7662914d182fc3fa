"""A resource from plain JSON: valid, or every fault with the path of its field and what would be right.

It is the same for the operator, the CLI and the catalogue's writer. It refuses the same resources as the API server,
by the same models and rules. Nulls are dropped first, as the API server drops them.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from typing import Any, Final

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from headgate.api.resources.counters import CounterResource
from headgate.api.resources.model import API_VERSION, GROUP, fields_of, model_of
from headgate.api.resources.passed_on import PASSED_ON
from headgate.api.resources.queues import QueueResource
from headgate.api.rules.bounds import check_bounds
from headgate.api.rules.rules import Fault, check_rules, format_path
from headgate.errors import InvalidRequest

Resource = QueueResource | CounterResource
KINDS: Final[dict[str, type[Resource]]] = {"Queue": QueueResource, "Counter": CounterResource}
FAULTS_MAX: Final = 50
"""Each needs a search for what was meant, so that a document of unknown fields would take seconds."""
_NULLS_KEPT: Final = PASSED_ON | {"metadata"}
"""Fields whose inside is somebody else's: a null in there may mean something."""


class ResourceInvalid(InvalidRequest):
    """The resource is not valid."""

    def __init__(self, faults: Sequence[Fault]) -> None:
        self.faults = tuple(faults)
        super().__init__("; ".join(str(fault) for fault in faults))


def parse_resource(document: Mapping[str, Any], old: Mapping[str, Any] | None = None) -> Resource:
    """The resource, or ResourceInvalid with all faults. `old` is what it was, for the rules on change."""
    return _require_valid(check_resource(document, old))


def parse_stored(document: Mapping[str, Any]) -> Resource:
    """The same of a document that was accepted before: a bound that came later takes no queue from its workers."""
    return _require_valid(_check_kind(document) or _check(document, None))


def check_resource(document: Mapping[str, Any], old: Mapping[str, Any] | None = None) -> Resource | list[Fault]:
    """The resource, or what is wrong with it."""
    return _check_kind(document) or check_bounds(document) or _check(document, old)


def _require_valid(checked: Resource | list[Fault]) -> Resource:
    if isinstance(checked, list):
        raise ResourceInvalid(checked)
    return checked


def _check(document: Mapping[str, Any], old: Mapping[str, Any] | None) -> Resource | list[Fault]:
    """Against models and rules."""
    model = KINDS[document["kind"]]
    plain = without_nulls(document)
    resource = _check_model(model, plain)
    faults = [*(resource if isinstance(resource, list) else ()), *_check_keys(plain)]
    if _shaped(plain):
        faults += check_rules(model, plain, None if old is None else without_nulls(old))
    return faults or resource


def is_ours(document: Mapping[str, Any]) -> bool:
    """Whether a document means to be one of our resources, however wrong it may be."""
    return document.get("kind") in [*KINDS] or str(document.get("apiVersion")).startswith(f"{GROUP}/")


def without_nulls(node: Any) -> Any:
    """The document without fields that are null, but for what is passed on to others."""
    if isinstance(node, Mapping):
        return {
            key: value if key in _NULLS_KEPT else without_nulls(value)
            for key, value in node.items()
            if value is not None
        }
    return [without_nulls(item) for item in node] if isinstance(node, list) else node


def _check_kind(document: Mapping[str, Any]) -> list[Fault]:
    faults = []
    if document.get("kind") not in [*KINDS]:  # in a list, since what stands there need not be hashable
        faults.append(Fault("kind", f"must be {' or '.join(KINDS)}{_meant(str(document.get('kind')), KINDS)}"))
    if document.get("apiVersion") != API_VERSION:
        faults.append(Fault("apiVersion", f"must be {API_VERSION}"))
    return faults


def _check_model(model: type[Resource], plain: Mapping[str, Any]) -> Resource | list[Fault]:
    try:
        return model.model_validate(plain, by_alias=True, by_name=False)
    except ValidationError as invalid:
        errors = invalid.errors(include_url=False)
        faults = [Fault(format_path(error["loc"]), _format_error(model, error)) for error in errors[:FAULTS_MAX]]
        left = len(errors) - len(faults)
        return [*faults, Fault("spec", f"has {left} further faults; fix these first")] if left else faults


def _check_keys(plain: Mapping[str, Any]) -> list[Fault]:
    """Items of one list with the same name: the API server merges these lists by name."""
    spec = plain.get("spec")
    faults = []
    for field in ("consumers", "bulk"):
        items = spec.get(field) if isinstance(spec, Mapping) else None
        keys: set[str] = set()
        for index, item in enumerate(items if isinstance(items, list) else ()):
            name = item.get("name") if isinstance(item, Mapping) else None
            if isinstance(name, str) and name in keys:
                faults.append(Fault(f"spec.{field}[{index}].name", f"{name} is there twice; each needs its own name"))
            keys.add(str(name))
    return faults


def _shaped(plain: Mapping[str, Any]) -> bool:
    """Whether maps are maps and lists are lists, so that rules can be asked."""
    spec = plain.get("spec")
    if not isinstance(spec, Mapping) or not isinstance(plain.get("metadata"), Mapping):
        return False
    lists = [spec.get(name, []) for name in ("consumers", "bulk", "windows")]
    return all(isinstance(items, list) for items in lists) and all(
        isinstance(item, Mapping) for items in lists[:2] for item in items
    )


_WORDS: Final[dict[str, str]] = {
    "missing": "is required",
    "int_type": "must be a whole number, without quotes",
    "int_from_float": "must be a whole number",
    "bool_type": "must be true or false, without quotes",
    "string_type": "must be a text; put it in quotes",
    "model_type": "must hold fields of its own, one a line below it",
    "dict_type": "must hold fields of its own, one a line below it",
    "tuple_type": "must be a list",
    "greater_than_equal": "must be at least {ge}",
    "less_than_equal": "must be at most {le}",
    "string_too_long": "must have at most {max_length} characters",
    "string_too_short": "must have at least {min_length} characters",
    "too_long": "must have at most {max_length} items",
    "string_pattern_mismatch": "must match {pattern}",
}


def _format_error(model: type[BaseModel], error: ErrorDetails) -> str:
    kind, context = error["type"], error.get("ctx", {})
    if kind == "extra_forbidden":
        known = _fields_above(model, error["loc"])
        unknown = str(error["loc"][-1])
        return f"is unknown{_meant(unknown, known) or '; possible here: ' + ', '.join(sorted(known))}"
    if kind == "literal_error":
        allowed = str(context["expected"]).replace("'", "")
        return f"must be {allowed}{_meant(str(error['input']), allowed.replace(' or ', ', ').split(', '))}"
    return _WORDS[kind].format(**context) if kind in _WORDS else error["msg"]


def _meant(given: str, known: Sequence[str] | Mapping[str, Any]) -> str:
    """`; did you mean "..."?`, where something known is close to what was given, letter case aside."""
    by_folded = {name.casefold(): name for name in known}
    close = difflib.get_close_matches(given.casefold().replace("_", ""), by_folded, n=1, cutoff=0.6)
    return f'; did you mean "{by_folded[close[0]]}"?' if close else ""


def _fields_above(model: type[BaseModel], location: Sequence[str | int]) -> list[str]:
    """The fields of the model in which a location's last step was not found."""
    for step in location[:-1]:
        field = fields_of(model).get(str(step))
        model = (field and model_of(field.annotation)) or model
    return list(fields_of(model))
