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
        """The text of a file."""
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
            dull: int = 1

            def drab(self, dull: int) -> int:
                self.dull = dull
                return f"{dull} {self.drab(dull=dull)} dull"
        """,
    )
    assert 0 == tree.apply("name * dull value", "name * drab read_value")
    assert tree.read("a.py") == dedent(
        """
        class Holder:
            value: int = 1

            def read_value(self, value: int) -> int:
                self.value = value
                return f"{value} {self.read_value(value=value)} dull"
        """
    ).lstrip("\n")


def test_a_second_run_changes_nothing(tree: Tree) -> None:
    tree.write("workers/headgate/tally.py", "class Tally:\n    dull = 1\n")
    tree.write("a.py", "from headgate import tally\nfrom headgate.tally import Tally\n\nprint(Tally.dull, tally)\n")
    rules = ("name * Tally Account", "name a.py dull value", "module * headgate.tally headgate.account")
    assert 0 == tree.apply(*rules)
    subprocess.run(["git", "add", "-A"], cwd=tree.root, check=True)
    text = tree.read("a.py")
    assert 0 == tree.apply(*rules)
    assert text == tree.read("a.py")
    assert "" == subprocess.run(["git", "diff"], cwd=tree.root, check=True, capture_output=True, text=True).stdout


def test_the_narrowest_rule_wins_and_an_equal_name_is_an_exception(tree: Tree) -> None:
    source = "def one():\n    dull = 1\n    return dull\n\n\ndef two():\n    dull = 2\n    return dull\n"
    tree.write("p/a.py", source)
    tree.write("p/b.py", source)
    tree.write("q/c.py", source)
    tree.apply("name * dull value", "name p/*.py dull entry", "name p/a.py::two dull row", "name q/c.py dull dull")
    assert tree.read("p/a.py") == source.replace("dull = 1\n    return dull", "entry = 1\n    return entry").replace(
        "dull", "row"
    )
    assert tree.read("p/b.py") == source.replace("dull", "entry")
    assert tree.read("q/c.py") == source


def test_a_keyword_is_renamed_for_one_callee_only(tree: Tree) -> None:
    tree.write("a.py", "print(x.send(dull=1), other(dull=2))\n")
    tree.apply("kwarg * send(dull) value")
    assert "print(x.send(value=1), other(dull=2))\n" == tree.read("a.py")


def test_distinctive_names_are_renamed_in_strings_and_pages_and_plain_words_are_not(tree: Tree) -> None:
    tree.write("a.py", '# ThingLost, died_in, dull, `dull`\nx = "ThingLost died_in dull"\ny = {"died_in": x}\n')
    tree.write("docs/a.md", "ThingLost, dull, Vague is `Vague`.\n\n```python\ndull = Vague()\n```\n")
    tree.apply("name * ThingLost ThingMissing", "name * died_in source", "name * dull value", "name * Vague Other")
    assert tree.read("a.py") == (
        '# ThingMissing, source, dull, `dull`\nx = "ThingMissing source dull"\ny = {"died_in": x}\n'
    )
    assert tree.read("docs/a.md") == "ThingMissing, dull, Vague is `Other`.\n\n```python\nvalue = Other()\n```\n"


def test_strings_that_hold_attributes_and_parameters_follow(tree: Tree) -> None:
    tree.write(
        "a.py",
        """
        @pytest.mark.parametrize(("dull", "x"), [])
        def test_it(dull, x, monkeypatch):
            monkeypatch.setattr(x, "dull", getattr(x, "dull"))
        """,
    )
    tree.apply("name a.py dull value")
    assert "dull" not in tree.read("a.py")


def test_imports_of_other_distributions_and_modules_are_not_renamed(tree: Tree) -> None:
    source = "import json\nfrom lib import found\n\nfrom headgate import tally\n\nprint(found, tally.a, json.found)\n"
    tree.write("workers/headgate/tally.py", "")
    tree.write("a.py", source)
    tree.apply("name * found row", "name * tally state", "name * headgate other")
    assert source == tree.read("a.py")


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ("def f(dull, value):\n    return dull, value\n", "dull and value would both be value"),
        ("def f(dull):\n    return [value for _ in dull]\n", "value"),
        ("class A:\n    def f(self):\n        self.dull = self.value\n", "attributes dull, value"),
        ("class A:\n    value = 1\n\n    def f(self):\n        self.dull = 2\n", "attributes dull, value"),
        ("from x import value\n\n\ndef f(dull):\n    return dull\n", "hide the import value"),
        ("f(dull=1, value=2)\n", "no Python"),
    ],
)
def test_two_names_that_would_become_one_are_refused(
    tree: Tree, capsys: pytest.CaptureFixture[str], source: str, why: str
) -> None:
    tree.write("a.py", source)
    tree.write("b.py", "dull = 1\n")
    assert 1 == tree.apply("name * dull value")
    assert why in capsys.readouterr().err
    assert (source, "dull = 1\n") == (tree.read("a.py"), tree.read("b.py"))


def test_hiding_a_builtin_is_refused_but_not_for_an_attribute(tree: Tree) -> None:
    tree.write("a.py", "class A:\n    dull: str\n")
    assert 0 == tree.apply("name a.py dull help")
    tree.write("a.py", "def f(dull):\n    return dull\n")
    assert 1 == tree.apply("name a.py dull help")


def test_a_new_name_that_is_another_rules_old_one_is_refused(tree: Tree) -> None:
    tree.write("a.py", "dull = 1\n")
    assert 1 == tree.apply("name * dull drab", "name * drab value")


def test_a_module_moves_with_everything_that_names_it(tree: Tree) -> None:
    tree.write("workers/headgate/engines/tally.py", "class Tally: ...\n")
    tree.write("workers/headgate/engines/lanes/ownership/lease.py", "")
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
    tree.write("workers/headgate/account.py", "dull = 1\n")
    tree.apply("module * headgate.tally headgate.account", "name workers/headgate/tally.py dull value")
    assert "value = 1\n" == tree.read("workers/headgate/account.py")


def test_mutants_quote_the_renamed_source(tree: Tree) -> None:
    tree.write("workers/headgate/tally.py", 'def f(dull):\n    # dull\n    return dull + 1, "dull"\n')
    tree.write(
        "tests/mutants/a.toml",
        """
        [[mutant]]
        breaks = "it is dull"
        file = "workers/headgate/tally.py"
        find = 'return dull + 1, "dull"'
        replace = 'return dull + 2, "dull"'
        """,
    )
    tree.apply("name workers/headgate/tally.py dull value", "module * headgate.tally headgate.account")
    (mutant,) = tomllib.loads(tree.read("tests/mutants/a.toml"))["mutant"]
    assert mutant == {
        "breaks": "it is dull",
        "file": "workers/headgate/account.py",
        "find": 'return value + 1, "dull"',
        "replace": 'return value + 2, "dull"',
    }


def test_mutants_follow_a_line_that_is_wrapped(tree: Tree) -> None:
    tree.write("pyproject.toml", "[tool.ruff]\nline-length = 40\n")
    tree.write("a.py", "def f(dull, other):\n    return g(dull, other, 1)\n")
    tree.write(
        "tests/mutants/a.toml",
        """
        [[mutant]]
        file = "a.py"
        find = "return g(dull, other, 1)"
        replace = "return g(dull, other, 2)"
        """,
    )
    assert 0 == tree.apply("name * dull a_value_with_a_long_name")
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
    tree.write("a.py", "print(row.dull, self.row.dull, x.dull, dull)\n")
    assert 0 == tree.apply("name * dull value", "name * row.dull row.dull", "name * x.dull x.report")
    assert "print(row.dull, self.row.dull, x.report, value)\n" == tree.read("a.py")


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
