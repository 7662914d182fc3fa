"""Names in the code: no identifier is a riddle, no two public classes share a name, and prefixes of functions have
the meaning that STYLE gives them.

Test functions are sentences and not names: of them only the words are checked that no sentence may have.
"""

from __future__ import annotations

import ast
import re
import subprocess
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
SHIPPED = ("workers/", "operator/", "spark/")

_SENTENCES = "told tell tells telling mend mends mended mending anew looked moment moments whoever"
_NAMES = """
says said say away hands look looks looking who whose carried graves seen beside here apart found chance ground door
doors room rooms homeless burial buried bury tenure loan loans lent borrow borrows borrowed borrower borrowing letter
letters books news flight flights twin twins doubles trouble troubles troubled obey hear
"""
PROSE = frozenset(_SENTENCES.split())
"""Words that STYLE bans in sentences too."""
BANNED = PROSE | frozenset(_NAMES.split())
COMPOUNDS = (
    "dead_letter", "dead_letters", "in_flight", "not_found", "module_not_found", "moments_value", "moments_state"
)  # fmt: skip
"""The trade's own words: of a queue, of HTTP, of Python's errors, and of statistics."""
STATISTICS = frozenset({"Moments", "kll_doubles_sketch"})

PURE_PREFIXES = ("decide_", "build_", "parse_", "format_")
STORES = frozenset(
    {"Store", "CassandraStore", "Session", "Catalogue", "ApiServer", "Cluster", "ClusterPort", "Headgate"}
)


def components(name: str) -> list[str]:
    """The words of an identifier, whether it is in snake case or in camel case."""
    return [word.lower() for word in re.findall(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+", name)]


def banned_words(name: str) -> set[str]:
    """Those of an identifier that no identifier may have."""
    if name in STATISTICS:
        return set()
    snake = f"_{'_'.join(components(name))}_"
    for compound in COMPOUNDS:
        snake = snake.replace(f"_{compound}_", "_")
    banned = PROSE if name.startswith("test_") else BANNED
    return (banned & set(snake.split("_"))) | ({"in hand"} if snake.endswith("_in_hand_") else set())


def identifiers(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Every identifier of a module that it defines or uses, with its line.

    Left out are modules, which test_house holds to their own rules, and the columns of a row that was read, whose
    names are stored.
    """
    for node in ast.walk(tree):
        line = getattr(node, "lineno", 0)
        match node:
            case (
                ast.Name(id=name)
                | ast.arg(arg=name)
                | ast.ExceptHandler(name=str(name))
                | ast.MatchAs(name=str(name))
            ):
                yield name, line
            case ast.Attribute(value=ast.Name(id="row")):
                pass
            case ast.Attribute(attr=name) | ast.keyword(arg=str(name)):
                yield name, line
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield name, line
            case ast.alias(name=name, asname=alias):
                yield alias or name.rpartition(".")[2], line


def faults_of(path: str, source: str) -> list[str]:
    """The identifiers of a file with a banned word, each once, as `path:line: name`."""
    first: dict[str, int] = {}
    for name, line in identifiers(ast.parse(source)):
        if banned_words(name):
            first.setdefault(name, line)
    return [f"{path}:{line}: {name}" for name, line in first.items()]


def classes_of(sources: Mapping[str, str]) -> dict[str, list[str]]:
    """Public classes that are defined more than once, with their places."""
    places: dict[str, list[str]] = defaultdict(list)
    for path, source in sources.items():
        for node in ast.parse(source).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(f"{path}:{node.lineno}")
    return {name: defined for name, defined in places.items() if len(defined) > 1}


def prefix_faults(path: str, source: str) -> list[str]:
    """Functions whose prefix promises that they do no I/O, and that are asynchronous or take a store."""
    faults = []
    functions = [
        node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    for node in functions:
        if not node.name.startswith(PURE_PREFIXES):
            continue
        takes = {
            name.id
            for one in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)
            if one.annotation is not None
            for name in ast.walk(one.annotation)
            if isinstance(name, ast.Name)
        }
        if isinstance(node, ast.AsyncFunctionDef):
            faults.append(f"{path}:{node.lineno}: {node.name} is asynchronous")
        elif takes & STORES:
            faults.append(f"{path}:{node.lineno}: {node.name} takes a {', '.join(sorted(takes & STORES))}")
    return faults


def decides_nothing(source: str) -> bool:
    """Whether a module has public functions and none of them decides. One of classes alone is exempt."""
    functions = [
        node.name
        for node in ast.parse(source).body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not node.name.startswith("_")
    ]
    return bool(functions) and not any(name.startswith("decide_") for name in functions)


def read_sources() -> dict[str, str]:
    """All tracked Python files."""
    listed = subprocess.run(["git", "ls-files", "*.py"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return {path: (ROOT / path).read_text(encoding="utf-8") for path in listed.split() if (ROOT / path).is_file()}


@pytest.fixture(scope="module")
def sources() -> dict[str, str]:
    return read_sources()


def test_no_identifier_has_a_word_that_style_bans(sources: Mapping[str, str]) -> None:
    assert [] == [fault for path, source in sources.items() for fault in faults_of(path, source)]


def test_no_two_public_classes_have_one_name(sources: Mapping[str, str]) -> None:
    shipped = {path: source for path, source in sources.items() if path.startswith(SHIPPED)}
    assert {} == classes_of(shipped)


def test_a_pure_prefix_promises_no_io(sources: Mapping[str, str]) -> None:
    shipped = {path: source for path, source in sources.items() if path.startswith(SHIPPED)}
    assert [] == [fault for path, source in shipped.items() for fault in prefix_faults(path, source)]


def test_a_module_that_is_named_decide_exports_a_decision(sources: Mapping[str, str]) -> None:
    modules = {path: source for path, source in sources.items() if Path(path).name.startswith("decide_")}
    assert [] == [path for path, source in modules.items() if path.startswith(SHIPPED) and decides_nothing(source)]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("to" + "ld", {"to" + "ld"}),
        ("_read_to" + "ld", {"to" + "ld"}),
        ("Dead" + "Letters", set()),
        ("QueueNotFo" + "und", set()),
        ("fo" + "und_ms", {"fo" + "und"}),
        ("Fo" + "undTable", {"fo" + "und"}),
        ("handshake", set()),
        ("test_what_is_fo" + "und", set()),
        ("IN_FLI" + "GHT_MAX", set()),
    ],
)
def test_the_words_of_a_name_are_known(name: str, words: set[str]) -> None:
    assert words == banned_words(name)


def test_every_kind_of_identifier_is_checked() -> None:
    source = "def f(look): x.look = g(look=1)\nclass Look: pass\nfrom a import look\nfor look in y: row.look\n"
    assert {"look": 5, "Look": 1} == {
        name: [one for one, _ in identifiers(ast.parse(source))].count(name) for name in ("look", "Look")
    }


def test_a_second_class_of_a_name_is_reported() -> None:
    assert {"A": ["x.py:1", "y.py:1"]} == classes_of(
        {"x.py": "class A: ...\n", "y.py": "class A: ...\nclass _B: ...\n"}
    )


def test_a_prefix_that_is_not_kept_to_is_reported() -> None:
    faults = prefix_faults(
        "x.py", "async def decide_a(): ...\ndef parse_b(store: Store | None): ...\ndef parse_c(): ...\n"
    )
    assert ["x.py:1: decide_a is asynchronous", "x.py:2: parse_b takes a Store"] == faults
