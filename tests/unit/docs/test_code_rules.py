"""Rules on what is shipped: background work has one lifecycle and a name, no object sets another's state, and a file
that a comment or a docstring names exists."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

STARTER = "workers/headgate/process/background_tasks.py"
OTHERS = {
    "workers/headgate/testing/virtual_world.py": "starts a simulated process, on a loop that does not run yet",
}
STARTING = {"create_task", "ensure_future"}

SETTERS = {
    "operator/headgate_operator/informers/kopf_watch.py": "kopf is configured by assignments to its settings",
}
SETTINGS_OF_A_QUEUE = "workers/headgate/engines/"
"""An engine takes what a read of the catalogue returned by `settings_changed`, and sets its live cells."""


def shipped() -> dict[str, str]:
    """Every shipped source, by its path."""
    files = [file for root in ("workers", "operator", "spark") for file in Path(root).rglob("*.py")]
    return {str(file): file.read_text() for file in files}


def starts(tree: Mapping[str, str]) -> Iterator[str]:
    """Where a task begins, by any way of asyncio."""
    for path, source in tree.items():
        for node in ast.walk(ast.parse(source)):
            name = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
            imported = {each.name for each in node.names} if isinstance(node, ast.ImportFrom) else set()
            if name in STARTING or imported & STARTING:
                yield f"{path}:{node.lineno}"  # type: ignore[attr-defined]  # those nodes have a line


def pushes(tree: Mapping[str, str]) -> Iterator[str]:
    """Assignments to an attribute of an attribute, and methods that pass changed settings on."""
    for path, source in tree.items():
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store | ast.Del):
                owner = node.value
                while isinstance(owner, ast.Subscript):
                    owner = owner.value
                if isinstance(owner, ast.Attribute):
                    yield f"{path}:{node.lineno}: {ast.unparse(node)}"
            elif (
                isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
                and node.name == "settings_changed"
                and not path.startswith(SETTINGS_OF_A_QUEUE)
            ):
                yield f"{path}:{node.lineno}: {node.name}"


def test_background_work_is_started_in_one_place() -> None:
    tree = shipped()
    assert {STARTER, *OTHERS} == {each.rpartition(":")[0] for each in starts(tree)}


def test_a_task_that_is_started_elsewhere_is_found() -> None:
    tree = {
        "a.py": "import asyncio\ntask = asyncio.create_task(work())",
        "b.py": "async with asyncio.TaskGroup() as group:\n    group.create_task(work())",
        "c.py": "from asyncio import ensure_future as soon\nsoon(work())",
        "d.py": "begin = loop.create_task",
        "e.py": "start_task('refresh', work())",
    }
    assert ["a.py:2", "b.py:2", "c.py:1", "d.py:1"] == list(starts(tree))


def test_every_started_task_has_a_name() -> None:
    calls = [node for node in ast.walk(ast.parse(Path(STARTER).read_text())) if isinstance(node, ast.Call)]
    tasks = [call for call in calls if isinstance(call.func, ast.Attribute) and call.func.attr in STARTING]
    assert tasks
    assert all("name" in {each.arg for each in call.keywords} for call in tasks)


def test_no_object_sets_the_state_of_another() -> None:
    violations = [each for each in pushes(shipped()) if each.partition(":")[0] not in SETTERS]
    assert [] == violations


def test_an_object_that_sets_the_state_of_another_is_found() -> None:
    source = """
class Worker:
    def __init__(self, keeper, queue):
        self.keeper = keeper
        self.keeper.on_lost = self.lose
        queue.bound.max_skew_us, self.done = 1, True
        self.run.moved += 1
        self.held[0].on_lost = self.lose
        del self.run.moved
        made = keeper.settings.now

    def settings_changed(self, settings):
        self.keeper.settings_changed(settings)
"""
    lines_pushed = [each.partition(":")[2] for each in pushes({"a.py": source})]
    lines = ["5: self.keeper.on_lost", "6: queue.bound.max_skew_us", "7: self.run.moved"]
    lines += ["8: self.held[0].on_lost", "9: self.run.moved"]
    assert sorted([*lines, "12: settings_changed"]) == sorted(lines_pushed)


NAMED = re.compile(r"(?<![\w/.{}*-])([a-z_][\w/]*\.py)\b")


def missing_files(tree: Mapping[str, str], files: Iterable[str]) -> list[str]:
    """Names of Python files, with or without folders before them, that no file has."""
    known = {file[at:] for file in files for at in range(len(file)) if at == 0 or file[at - 1] == "/"}
    return [f"{path}: {name}" for path, source in tree.items() for name in NAMED.findall(source) if name not in known]


def test_a_file_that_a_docstring_or_a_comment_names_exists() -> None:
    everywhere = ("workers", "operator", "spark", "tests", "dev", "bench", "examples", "docs")
    files = [file.as_posix() for root in everywhere for file in Path(root).rglob("*.py")]
    assert [] == missing_files(shipped(), files)


def test_a_file_that_is_gone_is_found_in_a_docstring() -> None:
    tree = {"workers/a.py": '"""See lanes/b.py, c.py and {name}.py; the rule is in old/b.py and gone.py."""'}
    assert ["workers/a.py: old/b.py", "workers/a.py: gone.py"] == missing_files(tree, ["w/lanes/b.py", "w/c.py"])
