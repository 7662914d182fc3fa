"""The part of a consumer's pod template that applies without Kubernetes: the environment of its worker. Pure.

Only literal values can be used: a value from a Secret, or one that refers to another, is known to Kubernetes alone.
Everything left out is reported, so that its absence is no surprise.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from headgate.api.resources.consumer import PodTemplate

WORKER = "worker"
REFERENCE = "$("


@dataclass(frozen=True)
class OfTemplate:
    """The used part, and the names of the rest."""

    environment: tuple[tuple[str, str], ...] = ()
    left_out: tuple[str, ...] = ()


NOTHING = OfTemplate()


def of_template(template: PodTemplate | None) -> OfTemplate:
    """For the worker on this machine."""
    if template is None:
        return NOTHING
    environment: list[tuple[str, str]] = []
    left_out = [] if template.metadata is None else ["metadata"]
    for key, value in (template.spec or {}).items():
        if key != "containers" or not isinstance(value, list):
            left_out.append(key)
            continue
        for container in value:
            environment += _values_of(container)
            left_out += _others_of(container)
    return OfTemplate(tuple(environment), tuple(left_out))


def _is_worker(container: Any) -> bool:
    return isinstance(container, Mapping) and container.get("name") == WORKER


def _entries_of(container: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    entries = container.get("env")
    return [each for each in entries if isinstance(each, Mapping)] if isinstance(entries, list) else []


def _is_written_out(entry: Mapping[str, Any]) -> bool:
    return (
        isinstance(entry.get("value", ""), str)
        and "valueFrom" not in entry
        and REFERENCE not in entry.get("value", "")
    )


def _values_of(container: Any) -> Iterator[tuple[str, str]]:
    if _is_worker(container):
        for entry in _entries_of(container):
            if _is_written_out(entry):
                yield str(entry.get("name")), entry.get("value", "")


def _others_of(container: Any) -> Iterator[str]:
    if not _is_worker(container):
        named = container.get("name") if isinstance(container, Mapping) else None
        yield f"container {named}"
        return
    yield from (f"{WORKER}.{key}" for key in container if key not in ("name", "env"))
    yield from (f"{WORKER}.env.{each.get('name')}" for each in _entries_of(container) if not _is_written_out(each))
