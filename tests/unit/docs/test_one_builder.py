"""What an engine runs on is built in one file of tests and benchmarks, so that a new field of it is added once."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
BUILT = {
    "Host": "headgate.engines.context",
    "ProcessContext": "headgate.client.catalogue.process_context",
}
BUILDER = "tests/kit/process.py"


def builders_of(sources: Mapping[str, str]) -> set[str]:
    """The files that call one of these constructors, whatever they import it as."""
    return {path for path, source in sources.items() if _builds(ast.parse(source, path))}


def _builds(tree: ast.Module) -> bool:
    names, modules = set[str](), set(BUILT.values())
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module in modules:
            names |= {each.asname or each.name for each in node.names if BUILT.get(each.name) == node.module}
    calls = [node.func for node in ast.walk(tree) if isinstance(node, ast.Call)]
    return any(
        (isinstance(each, ast.Name) and each.id in names)
        or (isinstance(each, ast.Attribute) and each.attr in BUILT and ast.unparse(each.value) in modules)
        for each in calls
    )


def test_a_process_is_built_in_one_file() -> None:
    files = [file for folder in ("tests", "bench") for file in (ROOT / folder).rglob("*.py")]
    assert {BUILDER} == builders_of({file.relative_to(ROOT).as_posix(): file.read_text() for file in files})


@pytest.mark.parametrize(
    "source",
    [
        "from headgate.engines.context import Host\nHost(1)",
        "from headgate.engines.context import Host as Process\nProcess(1)",
        "import headgate.engines.context\nheadgate.engines.context.Host(1)",
        "from headgate.client.catalogue.process_context import ProcessContext\ndef f(): ProcessContext()",
    ],
)
def test_another_builder_is_found(source: str) -> None:
    assert {"tests/x.py"} == builders_of({"tests/x.py": source, "tests/y.py": "from other import Host\nHost()"})
