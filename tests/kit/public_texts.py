"""Texts that users read, with file and line: pages, and strings of code, chart and resources."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Any, Final

import yaml

CODE_FOLDERS: Final = ("workers/headgate/", "operator/headgate_operator/", "spark/headgate_spark/")
NOT_SHOWN: Final = ("workers/headgate/testing/",)
PAGES: Final = re.compile(r"(README|CHANGELOG|docs/[^/]+|docs/runbooks/[^/]+)\.md|examples/.*\.md")
PAGES_OF_WORDS_ALONE: Final = ("docs/internals/origins.md", "docs/weaknesses.md")
"""Pages for those that develop it; the sentence rules are for what users read."""
DESCRIBED: Final = re.compile(r"crds/.*\.yaml|charts/headgate/files/alerts\.yaml")
COMMENTED: Final = ("charts/headgate/values.yaml",)
NOTES: Final = ("charts/headgate/templates/NOTES.txt",)
DASHBOARD: Final = "charts/headgate/files/dashboard.json"
SHOWN_KEYS: Final = frozenset(("description", "summary", "title"))
LOG_CALLS: Final = frozenset(("debug", "info", "warning", "error", "exception", "critical"))
METRIC_CALLS: Final = frozenset(("counter", "gauge", "histogram", "reading", "of_queues", "of_operator"))
COMMANDS: Final = frozenset(("command", "group"))


class Kind(Enum):
    """The kind of a text, where rules differ."""

    SENTENCE = "sentence"
    HEADING = "heading"
    OPTION = "option"
    ERROR = "error"
    LOG = "log"
    FACT = "fact"
    """The name of an error's fact, which is shown as `name=value`."""


@dataclass(frozen=True)
class PublicText:
    """One text that is shown."""

    line: int
    kind: Kind
    text: str


def texts_of_file(name: str, root: Path) -> Iterator[PublicText]:
    """Every text of a file that users read."""
    path = root / name
    if name.endswith(".py"):
        if name.startswith(CODE_FOLDERS) and not name.startswith(NOT_SHOWN):
            yield from shown_by_code(path.read_text(encoding="utf-8"), error_classes(root))
    elif PAGES.fullmatch(name) and name not in PAGES_OF_WORDS_ALONE:
        yield from paragraphs(path.read_text(encoding="utf-8"))
    elif DESCRIBED.fullmatch(name):
        yield from described(path.read_text(encoding="utf-8"))
    elif name in COMMENTED:
        yield from commented(path.read_text(encoding="utf-8"))
    elif name in NOTES:
        template = re.sub(r"\{\{.*?\}\}", "x", path.read_text(encoding="utf-8"))
        yield from paragraphs(template)
    elif name == DASHBOARD:
        yield from _shown_by_json(json.loads(path.read_text(encoding="utf-8")))


# ---- pages


def paragraphs(page: str) -> Iterator[PublicText]:
    """Headings, paragraphs, items of lists and cells of tables of a page; code is no text."""
    lines: list[str] = []
    first = 1
    fence = ""
    is_list = was_blank = False
    for number, line in enumerate(page.splitlines(), 1):
        bare = line.strip()
        marker = re.match(r"(?:[-*+]|\d+[.)])\s+", bare)
        indent = len(line) - len(line.lstrip())
        opens = re.match(r"(```+|~~~+)", bare)
        is_code = not marker and was_blank and indent >= (6 if is_list else 4)
        if fence or opens:
            fence = "" if fence and bare.startswith(fence) else fence or (opens.group() if opens else "")
            bare = ""
        elif is_code:
            continue
        elif bare and indent == 0:
            is_list = bool(marker)
        is_start = bool(marker) or bare.startswith(("#", "|", ">")) or not bare
        if is_start and lines:
            yield PublicText(first, Kind.SENTENCE, " ".join(lines))
            lines = []
        was_blank = not bare
        if bare.startswith("#"):
            yield PublicText(number, Kind.HEADING, bare.lstrip("# "))
        elif bare.startswith("|"):
            yield from (
                PublicText(number, Kind.SENTENCE, cell.strip())
                for cell in re.split(r"(?<!\\)\|", bare)
                if cell.strip()
            )
        elif bare:
            first = first if lines else number
            lines.append(bare[marker.end() :] if marker else bare.lstrip("> "))
    if lines:
        yield PublicText(first, Kind.SENTENCE, " ".join(lines))


# ---- the chart and the resources


def described(text: str) -> Iterator[PublicText]:
    """Values of keys that people are shown."""
    for document in yaml.compose_all(text, Loader=yaml.SafeLoader):
        yield from _of_node(document)


def _of_node(node: Any) -> Iterator[PublicText]:
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if isinstance(value, yaml.ScalarNode) and key.value in SHOWN_KEYS:
                text = re.sub(r"\{\{.*?\}\}", "x", value.value)
                yield PublicText(value.start_mark.line + 1, Kind.SENTENCE, text)
            else:
                yield from _of_node(value)
    elif isinstance(node, yaml.SequenceNode):
        for each in node.value:
            yield from _of_node(each)


def commented(text: str) -> Iterator[PublicText]:
    """Comments of consecutive lines."""
    lines: list[str] = []
    for number, line in enumerate([*text.splitlines(), ""], 1):
        match = re.match(r"\s*#+\s?(.*)", line)
        if match is None and lines:
            yield PublicText(number - len(lines), Kind.SENTENCE, " ".join(lines))
            lines = []
        elif match:
            lines.append(match.group(1))


def _shown_by_json(value: Any) -> Iterator[PublicText]:
    if isinstance(value, dict):
        for key, each in value.items():
            if key in SHOWN_KEYS and isinstance(each, str):
                yield PublicText(1, Kind.SENTENCE, each)
            else:
                yield from _shown_by_json(each)
    elif isinstance(value, list):
        for each in value:
            yield from _shown_by_json(each)


# ---- code


@cache
def error_classes(root: Path) -> frozenset[str]:
    """Names of all classes below HeadgateError, and of click's errors."""
    bases: dict[str, set[str]] = {}
    for folder in CODE_FOLDERS:
        for path in sorted((root / folder).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.ClassDef):
                    bases.setdefault(node.name, set()).update(_name(base) for base in node.bases)
    known = {"HeadgateError"}
    while more := {name for name, of in bases.items() if of & known} - known:
        known |= more
    return frozenset(known | {"UsageError", "BadParameter", "ClickException"})


def shown_by_code(source: str, errors: frozenset[str]) -> Iterator[PublicText]:
    """Help of commands and options, errors, log lines, help of metrics, and messages of conditions."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call):
            yield from _of_call(node, errors)
        elif isinstance(node, ast.ClassDef) and node.name in errors:
            if doc := ast.get_docstring(node):
                yield PublicText(node.lineno + 1, Kind.ERROR, doc.splitlines()[0])
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            if any(_name(each) in COMMANDS for each in node.decorator_list) and (doc := ast.get_docstring(node)):
                for paragraph in re.split(r"\n\s*\n", doc):
                    if not paragraph.startswith("\b"):
                        yield PublicText(node.lineno + 1, Kind.SENTENCE, paragraph)
        elif isinstance(node, ast.Dict):
            keyed = zip(node.keys, node.values, strict=True)
            for value in (value for key, value in keyed if _is_reason(key)):
                if text := _text(value):
                    yield PublicText(value.lineno, Kind.SENTENCE, text)


def _of_call(call: ast.Call, errors: frozenset[str]) -> Iterator[PublicText]:
    name = _name(call.func)
    if name in errors:
        yield from _texts(call.args[:1], Kind.ERROR)
        yield from _texts([each.value for each in call.keywords if each.arg == "remedy"], Kind.SENTENCE)
        yield from (PublicText(each.value.lineno, Kind.FACT, each.arg) for each in call.keywords if each.arg)
    elif name in LOG_CALLS and _owner(call.func).endswith(("log", "logger")):
        yield from _texts(call.args[:1], Kind.LOG)
    elif name in METRIC_CALLS:
        yield from _texts(call.args[1:2], Kind.SENTENCE)
    elif name in ("option", "Option"):
        yield from _texts([each.value for each in call.keywords if each.arg == "help"], Kind.OPTION)
    elif any(_is_reason(each) for each in call.args):
        yield from _texts(call.args, Kind.SENTENCE)
    else:
        yield from _texts(
            [each.value for each in call.keywords if each.arg in ("help", "description")], Kind.SENTENCE
        )


def _texts(nodes: list[ast.expr], kind: Kind) -> Iterator[PublicText]:
    for node in nodes:
        if text := _text(node):
            yield PublicText(node.lineno, kind, text)


def _text(node: ast.expr | None) -> str | None:
    """A string of the source, with each expression in it as an `x`."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return re.sub(r"\{[^{}\s]*\}", "x", node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(_text(each) or "x" for each in node.values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return f"{_text(node.left) or 'x'}{_text(node.right) or 'x'}"
    return None


def _is_reason(node: ast.expr | None) -> bool:
    return isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "Reason"


def _owner(node: ast.expr) -> str:
    return _name(node.value) if isinstance(node, ast.Attribute) else ""


def _name(node: ast.expr) -> str:
    if isinstance(node, ast.Call):
        return _name(node.func)
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
