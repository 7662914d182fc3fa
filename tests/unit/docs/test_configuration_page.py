"""docs/configuration.md names exactly the environment variables that our code reads, and every extra."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from headgate.store.connection_variables import PREFIX, VARIABLES

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")
SHIPPED = ("workers", "operator", "spark", "dev")
ENVIRONMENTS = frozenset(("os.environ", "environment"))
"""How our code calls an environment."""
OF_OTHER_PROGRAMS = frozenset(
    (
        *("PATH", "HOME", "TMPDIR", "JAVA_HOME", "LD_PRELOAD", "DOCKER_HOST", "GOFLAGS", "KUBERNETES_SERVICE_HOST"),
        *("HADOOP_CONF_DIR", "PYSPARK_PYTHON", "SPARK_HOME", "SPARK_CONF_DIR", "SPARK_CLASSPATH"),
        *("SPARK_EXTRA_CLASSPATH", "SPARK_DIST_CLASSPATH"),
    )
)
"""Read as other programs define them, and set by these programs or by nobody."""

_OURS = re.compile(r"HEADGATE_[A-Z][A-Z_]*")
_VARIABLE = re.compile(r"[A-Z][A-Z_]+")


def variables_read(source: str) -> set[str]:
    """The variables that a module reads: texts that are a name of ours, and what it takes from an environment."""
    return {name for node in ast.walk(ast.parse(source)) for name in _names_at(node)}


def _names_at(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.Constant(value=str(text)) if _OURS.fullmatch(text):
            yield text
        case ast.Call(func=ast.Attribute(value=where, attr="get"), args=[ast.Constant(value=str(text)), *_]):
            yield from _name_in(where, text)
        case ast.Subscript(value=where, slice=ast.Constant(value=str(text))):
            yield from _name_in(where, text)
        case ast.keyword(arg="envvar", value=ast.Constant(value=str(text))):
            yield text


def _name_in(where: ast.expr, text: str) -> Iterator[str]:
    if ast.unparse(where) in ENVIRONMENTS and _VARIABLE.fullmatch(text):
        yield text


def shipped_variables() -> set[str]:
    """Every variable of ours, and each setting of a connection with the prefix and without it."""
    modules = [file for folder in SHIPPED for file in (ROOT / folder).rglob("*.py")]
    matches = {name for module in modules for name in variables_read(module.read_text(encoding="utf-8"))}
    settings = {name for setting in VARIABLES for name in (setting, PREFIX + setting)}
    return (matches | settings) - OF_OTHER_PROGRAMS


def documented_variables(page: str) -> list[str]:
    """The variables in the first columns of the page's tables."""
    cells = [line.split("|")[1] for line in page.splitlines() if line.startswith("| ")]
    return [name for cell in cells for name in re.findall(r"`([A-Z][A-Z_]+)`", cell)]


def differences(page: str, read: set[str]) -> list[str]:
    """Variables that only one of the two has, or that the page names twice."""
    named = documented_variables(page)
    missing = [f"{name} is not on the page" for name in sorted(read - set(named))]
    unread = [f"{name} is read nowhere" for name in sorted(set(named) - read)]
    return missing + unread + [f"{name} is named twice" for name in sorted(set(named)) if named.count(name) > 1]


def test_the_page_names_every_variable_that_is_read_and_no_other() -> None:
    assert [] == differences(PAGE, shipped_variables())


@pytest.mark.parametrize(
    "name", ["HEADGATE_DRAIN", "HEADGATE_SSL_CA", "SSL_DIRECTORY", "METRICS_GRAPHITE", "HEADGATE_TEST_CLUSTER"]
)
def test_a_variable_that_is_missing_is_found(name: str) -> None:
    assert [f"{name} is not on the page"] == differences(PAGE.replace(f"`{name}`", "it"), shipped_variables())


def test_a_variable_that_is_read_nowhere_is_found() -> None:
    assert ["HEADGATE_GONE is read nowhere"] == differences(f"{PAGE}| `HEADGATE_GONE` | |\n", shipped_variables())


def test_a_variable_that_is_named_twice_is_found() -> None:
    assert ["POD_NAME is named twice"] == differences(f"{PAGE}| `POD_NAME` | |\n", shipped_variables())


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ('VARIABLE = "HEADGATE_X"', {"HEADGATE_X"}),
        ('os.environ["OTHER"]', {"OTHER"}),
        ('environment.get("OTHER", "")', {"OTHER"}),
        ('click.option("--x", envvar="OTHER")', {"OTHER"}),
        ('facts.get("OTHER"), "set HEADGATE_X"', set()),
    ],
)
def test_a_variable_is_known_by_how_it_is_read(source: str, names: set[str]) -> None:
    assert names == variables_read(source)


def test_the_page_has_every_extra_and_what_it_brings() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    rows = [line for line in PAGE.partition("## Extras")[2].splitlines() if line.startswith("| `")]
    brought = {name.strip(" `"): cell.strip() for _, name, cell, *_ in (row.split("|") for row in rows)}
    declared = {
        extra: ", ".join(re.split(r"[<>=]", each)[0] for each in libraries) or "nothing"
        for extra, libraries in project["optional-dependencies"].items()
    }
    assert declared == brought
