"""Nothing but the registry names an engine: other code finds it by the name in a queue's entry.

The test reads all that is shipped, except the folders of the engines themselves and the API, whose engines are a
user's choice. It finds imports of an engine's folder, its name as a string, and its block in a queue's spec.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest

from headgate.api.resources.queues import QueueSpec

ROOT = Path(__file__).parents[3]
SHIPPED = ("workers/headgate", "operator/headgate_operator", "spark/headgate_spark")
FOLDERS = ("workers/headgate/engines", "spark/headgate_spark/engines")
MAY_NAME = ("workers/headgate/api/", "workers/headgate/engines/registry.py")
BUILT = frozenset(path.parent.name for path in (ROOT / FOLDERS[0]).glob("*/entry.py"))
OFFERED = frozenset(get_args(QueueSpec.model_fields["engine"].annotation))
SAME_WORD = {"workers/headgate/counters/": {"bucket"}}
"""A counter's keys are in buckets."""


def named_engines(source: str, path: str) -> Iterator[str]:
    """Where this source names an engine, and how."""
    words = (BUILT & OFFERED).difference(*(words for folder, words in SAME_WORD.items() if path.startswith(folder)))
    prefixes = tuple(f"{package}.engines.{name}." for name in BUILT for package in ("headgate", "headgate_spark"))
    for node in ast.walk(ast.parse(source)):
        for name in _names_in(node):
            if name in words or f"{name}.".startswith(prefixes):
                yield f"{path}:{getattr(node, 'lineno', 0)}: {name}"


def _names_in(node: ast.AST) -> list[str]:
    match node:
        case ast.Import(names=names):
            return [each.name for each in names]
        case ast.ImportFrom(module=str(module), names=names):
            return [f"{module}.{each.name}" for each in names]
        case ast.Constant(value=str(text)) | ast.Attribute(attr=str(text)):
            return [text]
        case _:
            return []


def shipped_files() -> list[str]:
    """All but the folders of engines, and those that may name them."""
    files = (path.relative_to(ROOT).as_posix() for folder in SHIPPED for path in (ROOT / folder).rglob("*.py"))
    own = tuple(f"{folder}/{name}/" for folder in FOLDERS for name in BUILT)
    return sorted(file for file in files if not file.startswith((*own, *MAY_NAME)))


def test_the_registry_alone_names_an_engine() -> None:
    named = [name for file in shipped_files() for name in named_engines((ROOT / file).read_text(), file)]
    assert [] == named


@pytest.mark.parametrize(
    "source",
    [
        "from headgate.engines.timeline.engine import TimelineQueue",
        "from headgate.engines import timeline",
        "import headgate.engines.timeline.engine as engine",
        "def f():\n    from headgate_spark.engines.timeline import scan",
        "SUPPORTED = ('timeline',)",
        "is_known = spec.engine == 'timeline'",
        "part = spec.timeline.part",
        "module = import_module('headgate.engines.timeline.entry')",
    ],
)
def test_a_name_is_found(source: str) -> None:
    assert 1 == len(list(named_engines(source, "workers/headgate/client/made_up.py")))


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("workers/headgate/client/made_up.py", "from headgate.engines.contract import Engine"),
        ("workers/headgate/client/made_up.py", "'''Of engine timeline.'''\nsummary_timelines = 1"),
    ],
)
def test_other_words_are_none(path: str, source: str) -> None:
    assert [] == list(named_engines(source, path))


def test_files_and_engines_are_found() -> None:
    assert "timeline" in BUILT & OFFERED
    files = shipped_files()
    assert {"workers/headgate/client/queue.py", "workers/headgate/engines/lanes/dispatcher.py"} <= set(files)
    assert not any("/timeline/" in file for file in files)
