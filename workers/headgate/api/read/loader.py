"""Resources from YAML files: several documents per file, each fault with its file, line, document and field.

YAML that kubectl reads differently is refused: a duplicate key is a fault, a time such as 2026-11-18T09:00:00Z stays
a text, and `1:30` is no number of base 60. Documents of other groups (a Secret next to its Queue) are skipped and
counted. This module knows YAML; parse.py checks the resources.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from headgate.api.read.parse import Resource, check_resource, is_ours
from headgate.api.rules.rules import Fault
from headgate.errors import EnvironmentProblem, InvalidRequest

STANDARD_INPUT: Final = "-"
"""The path of standard input."""
_BYTES_MAX: Final = 16 * 1024 * 1024
_NODES_MAX: Final = 1_000_000
_DEPTH_MAX: Final = 100


@dataclass(frozen=True)
class Located:
    """A fault and where it stands."""

    file: str
    line: int
    document: str
    fault: Fault

    def __str__(self) -> str:
        where = f"{self.file}:{self.line}" if self.line else self.file
        return ": ".join(part for part in (where, self.document, str(self.fault)) if part)


@dataclass(frozen=True)
class LoadedFiles:
    """The content of files: resources in their order, faults, and the number of other documents."""

    resources: tuple[Resource, ...] = ()
    faults: tuple[Located, ...] = ()
    passed_over: int = 0

    def __add__(self, other: LoadedFiles) -> LoadedFiles:
        return LoadedFiles(
            self.resources + other.resources, self.faults + other.faults, self.passed_over + other.passed_over
        )


class FilesInvalid(InvalidRequest):
    """The resources are not valid."""

    def __init__(self, faults: Iterable[Located]) -> None:
        self.faults = tuple(faults)
        super().__init__("\n".join(str(fault) for fault in self.faults))


def load_files(paths: Iterable[Path]) -> tuple[Resource, ...]:
    """The resources of these files, or FilesInvalid with a line for every fault in any of them."""
    reading = read_files(paths)
    if reading.faults:
        raise FilesInvalid(reading.faults)
    return reading.resources


def read_files(paths: Iterable[Path]) -> LoadedFiles:
    """The content of these files, valid or not; a duplicate resource is a fault."""
    reading = LoadedFiles()
    for path in paths:
        name = "standard input" if str(path) == STANDARD_INPUT else str(path)
        reading += read_text(_read_file(path), name)
    return reading + LoadedFiles(faults=tuple(_twice(reading.resources)))


def read_text(text: str, file: str) -> LoadedFiles:
    """The content of a text."""
    reading = LoadedFiles()
    try:
        loader = _Loader(text)
        number = 0
        while loader.check_node():
            number += 1
            node = loader.get_node()
            if node is not None:
                reading += _read_document(loader, node, file, f"document {number}")
    except RecursionError:
        line, detail = 0, "is nested too deep for a resource"
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
        line = mark.line + 1 if mark else 0
        detail = getattr(error, "problem", None) or str(error).splitlines()[0]
    else:
        return reading
    return reading + LoadedFiles(faults=(Located(file, line, "", Fault("not YAML", detail)),))


def _read_file(path: Path) -> str:
    from_input = str(path) == STANDARD_INPUT
    try:
        if from_input:
            content = sys.stdin.buffer.read(_BYTES_MAX + 1)
        else:
            with path.open("rb") as file:
                content = file.read(_BYTES_MAX + 1)
    except FileNotFoundError:
        raise InvalidRequest(f"{path} does not exist") from None
    except IsADirectoryError:
        raise InvalidRequest(f"{path} is a directory, not a file") from None
    except OSError as error:
        raise EnvironmentProblem(f"{path} cannot be read", reason=error.strerror) from None
    if len(content) > _BYTES_MAX and from_input:
        raise InvalidRequest("Standard input is too large for resources", bytes_max=_BYTES_MAX)
    if len(content) > _BYTES_MAX:
        raise InvalidRequest("The file is too large for resources", file=path, bytes_max=_BYTES_MAX)
    try:
        return content.decode()
    except UnicodeDecodeError:
        raise InvalidRequest(f"{'Standard input' if from_input else path} is not text in UTF-8") from None


def _read_document(loader: _Loader, node: yaml.Node, file: str, label: str) -> LoadedFiles:
    _check_size(node, {}, 0)
    document = loader.construct_document(node)
    if document is None:
        return LoadedFiles()
    if not isinstance(document, Mapping):
        fault = Fault("the document", "must be a resource: apiVersion, kind, metadata, spec")
        return LoadedFiles(faults=(Located(file, node.start_mark.line + 1, label, fault),))
    if not is_ours(document):
        return LoadedFiles(passed_over=1)
    metadata = document.get("metadata")
    name = metadata.get("name", "without a name") if isinstance(metadata, Mapping) else "without a name"
    checked = check_resource(document)
    if not isinstance(checked, list):
        return LoadedFiles(resources=(checked,))
    label = f"{label}, {document.get('kind')} {name}"
    located = (Located(file, _line_of(node, fault.path), label, fault) for fault in checked)
    return LoadedFiles(faults=tuple(sorted(located, key=lambda each: each.line)))


def _check_size(node: yaml.Node, sizes: dict[int, int], depth: int) -> int:
    """How many nodes a document has once its aliases are written out: a few lines can stand for more than fits."""
    if id(node) in sizes:
        return sizes[id(node)]
    if depth > _DEPTH_MAX:
        raise yaml.MarkedYAMLError(problem="is nested too deep for a resource", problem_mark=node.start_mark)
    children: Iterable[yaml.Node] = ()
    if isinstance(node, yaml.MappingNode):
        children = (child for pair in node.value for child in pair)
    elif isinstance(node, yaml.SequenceNode):
        children = node.value
    size = 1 + sum(_check_size(child, sizes, depth + 1) for child in children)
    if size > _NODES_MAX:
        raise yaml.MarkedYAMLError(
            problem="is too large once its aliases are written out", problem_mark=node.start_mark
        )
    sizes[id(node)] = size
    return size


def _line_of(node: yaml.Node, path: str) -> int:
    """The line of the deepest part of a path that is there."""
    line = node.start_mark.line + 1
    for step in re.findall(r"[^.\[\]]+", path):
        child = _child(node, step)
        if child is None:
            break
        line, node = child
    return line


def _child(node: yaml.Node, step: str) -> tuple[int, yaml.Node] | None:
    if isinstance(node, yaml.MappingNode):
        return next(((key.start_mark.line + 1, value) for key, value in node.value if key.value == step), None)
    if isinstance(node, yaml.SequenceNode) and step.isdigit() and int(step) < len(node.value):
        item = node.value[int(step)]
        return item.start_mark.line + 1, item
    return None


def _twice(resources: Iterable[Resource]) -> Iterator[Located]:
    names: set[tuple[str, str, str]] = set()
    for resource in resources:
        key = (resource.kind, resource.metadata.namespace, resource.metadata.name)
        if key in names:
            kind, namespace, name = key
            fault = Fault("metadata.name", f"{kind} {namespace}/{name} is there twice; remove one or rename it")
            yield Located("in all files", 0, "", fault)
        names.add(key)


class _Loader(yaml.SafeLoader):
    """YAML as kubectl reads it."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        lines: dict[str, int] = {}
        for key, _ in node.value:
            line = key.start_mark.line + 1
            if key.value in lines and key.value != "<<":
                raise yaml.constructor.ConstructorError(
                    None, None, f'"{key.value}" is there twice, first in line {lines[key.value]}', key.start_mark
                )
            lines[key.value] = line
        return super().construct_mapping(node, deep=deep)


_NUMBERS: Final = {
    "tag:yaml.org,2002:int": r"^[-+]?(0|[1-9][0-9_]*|0x[0-9a-fA-F_]+|0o?[0-7_]+|0b[01_]+)$",
    "tag:yaml.org,2002:float": (
        r"^[-+]?([0-9][0-9_]*[.][0-9_]*([eE][-+]?[0-9]+)?|[.][0-9_]+|[0-9]+[eE][-+]?[0-9]+|[.](inf|nan))$"
    ),
}
_LEFT_OUT: Final = {"tag:yaml.org,2002:timestamp", *_NUMBERS}
_Loader.yaml_implicit_resolvers = {
    first: kept
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    if (kept := [(tag, shape) for tag, shape in resolvers if tag not in _LEFT_OUT])
}
for _tag, _shape in _NUMBERS.items():
    _Loader.add_implicit_resolver(_tag, re.compile(_shape), list("-+0123456789."))
