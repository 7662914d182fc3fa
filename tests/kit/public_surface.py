"""Walks the public surface of the SDK: every name of `headgate` and `headgate.settle`, its fields, members and types.

What an application meets is found by type hints: the parameters and results of each public call, and the fields of
each public dataclass. Members for the other parts of Headgate (`INTERNAL_MEMBERS`) are no part of it; the page of the
SDK does not name them.
"""

from __future__ import annotations

import dataclasses
import enum
import inspect
import re
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import headgate

INTERNAL_MEMBERS = frozenset(
    (
        *("require_usable", "freshen", "generations_of", "batches", "now_us", "end", "close", "found", "ended"),
        *("bound", "receive_deliveries", "renew", "dead_loops", "process_context", "counter_entries"),
        "queue_entries",
        *("entry", "engine", "handle", "kind", "standing", "run_collector", "delivery", "trace"),
        *("read_peeked", "read_stats", "read_location", "read_overview", "run_repair", "put_chunk"),
        *("mark_lost", "state", "connection", "queue", "message", "counter"),
    )
)
"""For the worker, the commands, the operator and Spark. `state` is that of a CounterState."""
DOCUMENTED_ALL_THE_SAME = frozenset({("Counter", "state"), ("SyncCounter", "state")})

OURS = ("headgate", "tests")
MICROSECONDS = re.compile(r"(^|_)(us|micros|microseconds)($|_)", re.IGNORECASE)


def public_objects() -> dict[str, Any]:
    """Every public name, with its module where that is not `headgate`."""
    result = {name: getattr(headgate, name) for name in headgate.__all__ if name != "settle"}
    return result | {f"settle.{name}": getattr(headgate.settle, name) for name in headgate.settle.__all__}


@dataclasses.dataclass(frozen=True)
class Fault:
    """A place where something of the engine is shown to an application."""

    where: str
    what: str

    def __str__(self) -> str:
        return f"{self.where}: {self.what}"


def faults_of(objects: Mapping[str, Any]) -> list[Fault]:
    """Everything that an application should not meet in these."""
    public = {id(each) if inspect.isclass(each) else id(type(each)) for each in objects.values()}
    entries: list[Fault] = []
    for name, each in objects.items():
        if inspect.isclass(each):
            entries += _class_faults(name, each, public)
        elif inspect.isfunction(each):
            entries += _call_faults(name, each, public)
    return entries


def _class_faults(name: str, kind: type, public: set[int]) -> Iterator[Fault]:
    if dataclasses.is_dataclass(kind):
        hints = typing.get_type_hints(kind)
        for field in dataclasses.fields(kind):
            yield from _name_faults(name, field.name)
            yield from _type_faults(f"{name}.{field.name}", hints[field.name], public)
    if issubclass(kind, enum.Enum | BaseException):
        return
    for member, value in _members_of(kind):
        if member.startswith("_") or (member in INTERNAL_MEMBERS and (name, member) not in DOCUMENTED_ALL_THE_SAME):
            continue
        yield from _name_faults(name, member)
        call = value.fget if isinstance(value, property) else value
        call = call.__func__ if isinstance(call, classmethod | staticmethod) else call
        if inspect.isfunction(call):
            yield from _call_faults(f"{name}.{member}", call, public)


def _members_of(kind: type) -> Iterator[tuple[str, Any]]:
    """Its own and those of its bases, but for those of Python's own classes."""
    for base in kind.__mro__:
        if base.__module__.partition(".")[0] in OURS:
            yield from vars(base).items()


def _call_faults(name: str, call: Callable[..., Any], public: set[int]) -> Iterator[Fault]:
    hints = typing.get_type_hints(call)
    for parameter in inspect.signature(call).parameters:
        yield from _name_faults(name, parameter)
    for parameter, hint in hints.items():
        yield from _type_faults(f"{name}({parameter})", hint, public)


def _name_faults(where: str, name: str) -> Iterator[Fault]:
    if MICROSECONDS.search(name):
        yield Fault(f"{where}.{name}", "microseconds")


def _type_faults(where: str, hint: Any, public: set[int]) -> Iterator[Fault]:
    for kind in _classes_in(hint):
        if kind.__module__.partition(".")[0].startswith("headgate") and id(kind) not in public:
            yield Fault(where, f"{kind.__module__}.{kind.__qualname__} is not public")


def _classes_in(hint: Any) -> Iterator[type]:
    """Every class that a type is made of."""
    if typing.get_origin(hint) is not None or isinstance(hint, types.UnionType):
        for each in typing.get_args(hint):
            yield from _classes_in(each)
    elif isinstance(hint, list):
        for each in hint:
            yield from _classes_in(each)
    elif inspect.isclass(hint):
        if typing.is_typeddict(hint):
            for each in typing.get_type_hints(hint).values():
                yield from _classes_in(each)
        else:
            yield hint
