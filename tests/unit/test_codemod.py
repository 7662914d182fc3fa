"""The codemod renames what its tables name, nothing else, and refuses what would change the meaning of the code."""

from __future__ import annotations

import subprocess
import tomllib
from pathlib import Path
from textwrap import dedent

import pytest

from dev.codemod import Table, TableError, differing_lines, format_toml, parse_table, run, wrap_prose


class Tree:
    """A repository in a folder of its own."""

    def __init__(self, root: Path) -> None:
        self.root = root
        subprocess.run(["git", "init", "-q"], cwd=root, check=True)

    def write(self, path: str, text: str) -> None:
        """A tracked file."""
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).write_text(dedent(text).lstrip("\n"))
        subprocess.run(["git", "add", path], cwd=self.root, check=True)

    def read(self, path: str) -> str:
        """What is in it now."""
        return (self.root / path).read_text()

    def apply(self, *rules: str) -> int:
        """The exit code of a run; the fields of a rule are separated by spaces."""
        table = Table()
        parse_table(["\t".join(rule.split()) for rule in rules], table)
        return run(self.root, table)


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path)


def test_every_kind_of_identifier_is_renamed(tree: Tree) -> None:
    tree.write(
        "a.py",
        """
        class Holder:
            told: int = 1

            def said(self, told: int) -> int:
                self.told = told
                return f"{told} {self.said(told=told)} told"
        """,
    )
    assert 0 == tree.apply("name * told value", "name * said read_value")
    assert tree.read("a.py") == dedent(
        """
        class Holder:
            value: int = 1

            def read_value(self, value: int) -> int:
                self.value = value
                return f"{value} {self.read_value(value=value)} told"
        """
    ).lstrip("\n")


def test_a_second_run_changes_nothing(tree: Tree) -> None:
    tree.write("workers/headgate/tally.py", "class Tally:\n    told = 1\n")
    tree.write("a.py", "from headgate import tally\nfrom headgate.tally import Tally\n\nprint(Tally.told, tally)\n")
    rules = ("name * Tally Account", "name a.py told value", "module * headgate.tally headgate.account")
    assert 0 == tree.apply(*rules)
    subprocess.run(["git", "add", "-A"], cwd=tree.root, check=True)
    text = tree.read("a.py")
    assert 0 == tree.apply(*rules)
    assert text == tree.read("a.py")
    assert "" == subprocess.run(["git", "diff"], cwd=tree.root, check=True, capture_output=True, text=True).stdout


def test_the_narrowest_rule_wins_and_an_equal_name_is_an_exception(tree: Tree) -> None:
    source = "def one():\n    told = 1\n    return told\n\n\ndef two():\n    told = 2\n    return told\n"
    tree.write("p/a.py", source)
    tree.write("p/b.py", source)
    tree.write("q/c.py", source)
    tree.apply("name * told value", "name p/*.py told entry", "name p/a.py::two told row", "name q/c.py told told")
    assert tree.read("p/a.py") == source.replace("told = 1\n    return told", "entry = 1\n    return entry").replace(
        "told", "row"
    )
    assert tree.read("p/b.py") == source.replace("told", "entry")
    assert tree.read("q/c.py") == source


def test_a_keyword_is_renamed_for_one_callee_only(tree: Tree) -> None:
    tree.write("a.py", "print(x.send(told=1), other(told=2))\n")
    tree.apply("kwarg * send(told) value")
    assert "print(x.send(value=1), other(told=2))\n" == tree.read("a.py")


def test_distinctive_names_are_renamed_in_strings_and_pages_and_plain_words_are_not(tree: Tree) -> None:
    tree.write("a.py", '# ThingLost, died_in, told, `told`\nx = "ThingLost died_in told"\ny = {"died_in": x}\n')
    tree.write("docs/a.md", "ThingLost, told, Vague is `Vague`.\n\n```python\ntold = Vague()\n```\n")
    tree.apply("name * ThingLost ThingMissing", "name * died_in source", "name * told value", "name * Vague Other")
    assert tree.read("a.py") == (
        '# ThingMissing, source, told, `told`\nx = "ThingMissing source told"\ny = {"died_in": x}\n'
    )
    assert tree.read("docs/a.md") == "ThingMissing, told, Vague is `Other`.\n\n```python\nvalue = Other()\n```\n"


def test_strings_that_hold_attributes_and_parameters_follow(tree: Tree) -> None:
    tree.write(
        "a.py",
        """
        @pytest.mark.parametrize(("told", "x"), [])
        def test_it(told, x, monkeypatch):
            monkeypatch.setattr(x, "told", getattr(x, "told"))
        """,
    )
    tree.apply("name a.py told value")
    assert "told" not in tree.read("a.py")


def test_imports_of_other_distributions_and_modules_are_not_renamed(tree: Tree) -> None:
    source = "import json\nfrom lib import found\n\nfrom headgate import tally\n\nprint(found, tally.a, json.found)\n"
    tree.write("workers/headgate/tally.py", "")
    tree.write("a.py", source)
    tree.apply("name * found row", "name * tally state", "name * headgate other")
    assert source == tree.read("a.py")


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ("def f(told, value):\n    return told, value\n", "told and value would both be value"),
        ("def f(told):\n    return [value for _ in told]\n", "value"),
        ("class A:\n    def f(self):\n        self.told = self.value\n", "attributes told, value"),
        ("class A:\n    value = 1\n\n    def f(self):\n        self.told = 2\n", "attributes told, value"),
        ("from x import value\n\n\ndef f(told):\n    return told\n", "hide the import value"),
        ("f(told=1, value=2)\n", "no Python"),
    ],
)
def test_two_names_that_would_become_one_are_refused(
    tree: Tree, capsys: pytest.CaptureFixture[str], source: str, why: str
) -> None:
    tree.write("a.py", source)
    tree.write("b.py", "told = 1\n")
    assert 1 == tree.apply("name * told value")
    assert why in capsys.readouterr().err
    assert (source, "told = 1\n") == (tree.read("a.py"), tree.read("b.py"))


def test_hiding_a_builtin_is_refused_but_not_for_an_attribute(tree: Tree) -> None:
    tree.write("a.py", "class A:\n    told: str\n")
    assert 0 == tree.apply("name a.py told help")
    tree.write("a.py", "def f(told):\n    return told\n")
    assert 1 == tree.apply("name a.py told help")


def test_a_new_name_that_is_another_rules_old_one_is_refused(tree: Tree) -> None:
    tree.write("a.py", "told = 1\n")
    assert 1 == tree.apply("name * told said", "name * said value")


def test_a_module_moves_with_everything_that_names_it(tree: Tree) -> None:
    tree.write("workers/headgate/engines/tally.py", "class Tally: ...\n")
    tree.write("workers/headgate/engines/lane.py", "")
    tree.write("pyproject.toml", 'x = "headgate.engines.tally:Tally"\n')
    tree.write("docs/a.md", "`engines/tally.py`, `tally.py`, workers/headgate/engines/tally.py, other/tally.py\n")
    tree.write(
        "a.py",
        """
        from headgate.engines import tally, lane
        from headgate.engines.tally import Tally

        print(tally.Tally, lane, Tally, "headgate.engines.tally.Tally")
        """,
    )
    assert 0 == tree.apply("module * headgate.engines.tally headgate.lanes.account")
    assert (tree.root / "workers/headgate/lanes/account.py").is_file()
    assert not (tree.root / "workers/headgate/engines/tally.py").exists()
    assert 'x = "headgate.lanes.account:Tally"\n' == tree.read("pyproject.toml")
    assert tree.read("docs/a.md") == (
        "`lanes/account.py`, `account.py`, workers/headgate/lanes/account.py, other/tally.py\n"
    )
    text = tree.read("a.py")
    assert "from headgate.lanes import account\n" in text
    assert "from headgate.engines import lane\n" in text
    assert 'print(account.Tally, lane, Tally, "headgate.lanes.account.Tally")' in text


def test_rules_by_the_former_path_apply_after_the_move(tree: Tree) -> None:
    tree.write("workers/headgate/account.py", "told = 1\n")
    tree.apply("module * headgate.tally headgate.account", "name workers/headgate/tally.py told value")
    assert "value = 1\n" == tree.read("workers/headgate/account.py")


def test_mutants_quote_the_renamed_source(tree: Tree) -> None:
    tree.write("workers/headgate/tally.py", 'def f(told):\n    # told\n    return told + 1, "told"\n')
    tree.write(
        "tests/mutants/a.toml",
        """
        [[mutant]]
        breaks = "it is told"
        file = "workers/headgate/tally.py"
        find = 'return told + 1, "told"'
        replace = 'return told + 2, "told"'
        """,
    )
    tree.apply("name workers/headgate/tally.py told value", "module * headgate.tally headgate.account")
    (mutant,) = tomllib.loads(tree.read("tests/mutants/a.toml"))["mutant"]
    assert mutant == {
        "breaks": "it is told",
        "file": "workers/headgate/account.py",
        "find": 'return value + 1, "told"',
        "replace": 'return value + 2, "told"',
    }


def test_mutants_follow_a_line_that_is_wrapped(tree: Tree) -> None:
    tree.write("pyproject.toml", "[tool.ruff]\nline-length = 40\n")
    tree.write("a.py", "def f(told, other):\n    return g(told, other, 1)\n")
    tree.write(
        "tests/mutants/a.toml",
        """
        [[mutant]]
        file = "a.py"
        find = "return g(told, other, 1)"
        replace = "return g(told, other, 2)"
        """,
    )
    assert 0 == tree.apply("name * told a_value_with_a_long_name")
    (mutant,) = tomllib.loads(tree.read("tests/mutants/a.toml"))["mutant"]
    assert 1 == tree.read("a.py").count(mutant["find"])
    broken = tree.read("a.py").replace(mutant["find"], mutant["replace"])
    assert "2" in broken
    assert "1" not in broken


@pytest.mark.parametrize(
    "line", ["name\t*\told", "nam\t*\told\tnew", "name\t*\told\tnot-a-name", "name\t*\told\tclass"]
)
def test_a_line_that_is_no_rule_is_an_error(line: str) -> None:
    with pytest.raises(TableError):
        parse_table([line], Table())


def test_differing_lines_are_unique_in_the_text() -> None:
    assert ("b\na\n", "b\nc\n") == differing_lines("a\nb\na\n", "a\nb\nc\n")
    assert differing_lines("a\na\n", "a\na\n") == ("a\na\n", "a\na\n")


@pytest.mark.parametrize("value", ['a "b" \\ c', "two\nlines\n", "it's", '"', "\n\nx", 'ends in "'])
@pytest.mark.parametrize("like", ['"x"', "'x'", '"""x"""', "'''x'''", '"""\nx"""'])
def test_a_toml_string_is_read_as_it_was_written(value: str, like: str) -> None:
    assert value == tomllib.loads(f"x = {format_toml(value, like)}")["x"]


def test_what_one_module_defines_is_renamed_where_it_is_imported(tree: Tree) -> None:
    tree.write("workers/headgate/a.py", "class Found: ...\n\n\ndef f(Found=1):\n    return Found\n")
    tree.write("workers/headgate/b.py", "class Found: ...\n")
    tree.write(
        "c.py", 'from headgate import a\nfrom headgate.b import Found\n\nprint(Found, a.Found, "headgate.a.Found")\n'
    )
    tree.write(
        "d.py", "from headgate.a import Found\nfrom headgate.b import Found as B\n\nprint(Found, B, x.Found)\n"
    )
    assert 0 == tree.apply("name from:headgate.a Found Match", "name from:headgate.b Found Row")
    assert "class Match: ...\n\n\ndef f(Found=1):\n    return Found\n" == tree.read("workers/headgate/a.py")
    assert tree.read("c.py").endswith('from headgate.b import Row\n\nprint(Row, a.Match, "headgate.a.Match")\n')
    assert tree.read("d.py").endswith("import Match\nfrom headgate.b import Row as B\n\nprint(Match, B, x.Found)\n")


def test_the_attribute_of_one_name_has_a_rule_of_its_own(tree: Tree) -> None:
    tree.write("a.py", "print(row.told, self.row.told, x.told, told)\n")
    assert 0 == tree.apply("name * told value", "name * row.told row.told", "name * x.told x.report")
    assert "print(row.told, self.row.told, x.report, value)\n" == tree.read("a.py")


def test_a_name_that_a_module_passes_on_follows(tree: Tree) -> None:
    tree.write("workers/headgate/a.py", "class Found: ...\n")
    tree.write("workers/headgate/b.py", 'from headgate.a import Found\n\n__all__ = ["Found"]\n')
    tree.write("c.py", "from headgate.b import Found\n\nprint(Found)\n")
    assert 0 == tree.apply("name from:headgate.a Found Match")
    assert 'from headgate.a import Match\n\n__all__ = ["Match"]\n' == tree.read("workers/headgate/b.py")
    assert "from headgate.b import Match\n\nprint(Match)\n" == tree.read("c.py")


def test_a_method_sees_the_import_and_not_what_its_class_binds(tree: Tree) -> None:
    tree.write("workers/headgate/a.py", "def found(): ...\n")
    source = "from headgate.a import found\n\n\nclass A:\n    def found(self):\n        return found()\n"
    tree.write("b.py", source)
    assert 0 == tree.apply("name from:headgate.a found match")
    assert source.replace("import found", "import match").replace("return found", "return match") == tree.read("b.py")


def test_prose_that_becomes_too_long_is_wrapped() -> None:
    text = '"""One two three\nfour five.\n\n- six\n"""\n\nx = "one two three four"\n# one two three\n'
    assert wrap_prose(text, 12) == (
        '"""One two\nthree four\nfive.\n\n- six\n"""\n\nx = "one two three four"\n# one two\n# three\n'
    )
