"""Rename identifiers and move modules over the whole repository, from tables of old and new names.

Each line of a table has four fields, separated by tabs, and an optional fifth:

    name    SCOPE  old          new         every identifier `old` within SCOPE
    kwarg   SCOPE  callee(old)  new         the keyword `old` where something whose last name is `callee` is called
    module  *      dotted.old   dotted.new  the file moves, and everything that names the module follows

SCOPE is `*` or a glob of paths; `path::Qualified.name` is one class or function with all that is in it;
`from:dotted.module` is what that module defines, there and wherever it is imported from it. An old name such as
`row.dull` is the attribute of what is called `row`. The narrowest rule wins, and a rule whose new name equals the old
one makes an exception. The fifth field is `code` (leave
strings and prose alone) or `text` (replace the word in strings and prose too). Distinctive names are replaced there
without it: CamelCase everywhere, names with an underscore under the scope `*`, others where they are marked as code.

A run changes everything or nothing: it refuses a table by which two names of one scope would become one, or by which
a name would hide a builtin, an import or a keyword. A second run finds nothing to change.
"""

from __future__ import annotations

import argparse
import ast
import builtins
import dataclasses
import keyword
import re
import subprocess
import symtable
import sys
import tomllib
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import Path, PurePosixPath

import libcst as cst

Stack = tuple[str, ...]

SOURCE_ROOTS = ("workers", "operator", "spark", "")
NOT_TEXT = (".lock", ".png", ".svg", ".gif", ".jar", ".gz", ".sum", ".typed")
BUILTINS = frozenset(dir(builtins))
ATTRIBUTE_CALLS = frozenset({"getattr", "setattr", "hasattr", "delattr", "attrgetter", "methodcaller", "object"})
FIXTURE_CALLS = frozenset({"usefixtures", "getfixturevalue", "parametrize"})
NAME_LISTS = frozenset({"__all__", "__slots__", "__match_args__"})
WORD = re.compile(r"\w+")
PYTHON_BLOCK = re.compile(r"(?ms)^([ \t]*)```python[^\n]*\n(.*?)^[ \t]*```")
FROM_IMPORT = re.compile(r"(?m)^from ([\w.]+) import (\([^)]*\)|[^\n]+)")
PASSED_ON_DEPTH = 3
TOML_FIELD = re.compile(
    r"(?ms)^(?P<key>\w+) = (?P<raw>\"\"\".*?\"\"\"|'''.*?'''|\"(?:[^\"\\\n]|\\.)*\"|'[^'\n]*')(?=[ \t]*(?:#|$))"
)


class TableError(Exception):
    """A table that cannot be read."""


@dataclass(frozen=True)
class Rule:
    """One line of a table."""

    kind: str
    glob: str
    inside: Stack
    old: str
    new: str
    callee: str = ""
    flag: str = ""

    @property
    def rank(self) -> tuple[int, int, int]:
        """The narrower, the higher."""
        exact = self.glob != "*" and not set("*?[") & set(self.glob)
        return (len(self.inside), 2 if exact else int(self.glob != "*"), len(self.glob))

    @property
    def is_origin(self) -> bool:
        """Whether it is about what one module defines."""
        return self.glob.startswith("from:")

    def covers(self, stack: Stack) -> bool:
        """Whether a place inside these classes and functions belongs to the rule."""
        return stack[: len(self.inside)] == self.inside


@dataclass
class Table:
    """The rules of a run."""

    names: list[Rule] = field(default_factory=list)
    keywords: list[Rule] = field(default_factory=list)
    attributes: list[Rule] = field(default_factory=list)
    modules: dict[str, str] = field(default_factory=dict)


def parse_table(lines: Sequence[str], table: Table) -> None:
    """Add the lines of a file to a table."""
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.startswith("#"):
            continue
        kind, *rest = (part.strip() for part in line.split("\t"))
        if (
            kind not in ("name", "kwarg", "module")
            or len(rest) not in (3, 4)
            or rest[3:] not in ([], ["code"], ["text"])
        ):
            raise TableError(f"line {number} is no rule: {line!r}")
        scope, old, new, flag = (*rest, "")[:4]
        path, _, inside = scope.partition("::")
        if kind == "module":
            table.modules[old] = new
            continue
        callee = ""
        if kind == "kwarg":
            callee, _, old = old.removesuffix(")").partition("(")
        if kind == "name" and "." in old:
            kind, (callee, _, old), new = "attribute", old.partition("."), new.rpartition(".")[2]
        if not old.isidentifier() or not new.isidentifier() or keyword.iskeyword(new):
            raise TableError(f"line {number} has a name that is no identifier: {line!r}")
        rule = Rule(kind, path, tuple(inside.split(".")) if inside else (), old, new, callee, flag)
        {"name": table.names, "kwarg": table.keywords, "attribute": table.attributes}[kind].append(rule)


def split_modules(names: Mapping[str, str]) -> re.Pattern[str] | None:
    """A pattern of all the dotted names, the longest first."""
    longest_first = sorted(names, key=len, reverse=True)
    return re.compile(r"(?<![\w.])(?:" + "|".join(map(re.escape, longest_first)) + r")(?!\w)") if names else None


class FileRules:
    """The rules that apply to one file."""

    def __init__(
        self,
        table: Table,
        path: str,
        former_path: str | None = None,
        passed_on: Mapping[tuple[str, str], Rule] | None = None,
    ) -> None:
        self.path = path
        self._passed_on = passed_on or {}
        paths = [path] if former_path is None else [path, former_path]
        self._names: dict[str, list[Rule]] = defaultdict(list)
        self._origins = {(rule.glob.removeprefix("from:"), rule.old): rule for rule in table.names if rule.is_origin}
        self._active: dict[str, Rule] = {}
        self._keywords: dict[tuple[str, str], list[Rule]] = defaultdict(list)
        for rule in table.names:
            if rule.glob == "*" or any(fnmatchcase(one, rule.glob) for one in paths):
                self._names[rule.old].append(rule)
        for rule in table.keywords:
            if rule.glob == "*" or any(fnmatchcase(one, rule.glob) for one in paths):
                self._keywords[rule.callee, rule.old].append(rule)
        self._attributes: dict[tuple[str, str], list[Rule]] = defaultdict(list)
        for rule in table.attributes:
            if rule.glob == "*" or any(fnmatchcase(one, rule.glob) for one in paths):
                self._attributes[rule.callee, rule.old].append(rule)
        for rules in (*self._names.values(), *self._keywords.values(), *self._attributes.values()):
            rules.sort(key=lambda rule: rule.rank, reverse=True)
        self.words = {*self._names, *(old for _, old in self._origins), *(old for _, old in self._keywords)}
        self.words |= {old for _, old in self._attributes}

    def origin_rule(self, module: str, old: str) -> Rule | None:
        """The rule for what a module defines, or imports and passes on."""
        return self._origins.get((module, old)) or self._passed_on.get((module, old))

    def activate(self, origins: Mapping[str, str], module: str) -> None:
        """Note what a file imports, and which module it is itself."""
        own = {old: rule for (source, old), rule in self._origins.items() if source == module}
        imported = {old: self.origin_rule(source, old) for old, source in origins.items()}
        self._active = {**own, **{old: rule for old, rule in imported.items() if rule is not None}}
        self.__dict__.pop("pattern", None)

    def active_rule(self, old: str) -> Rule | None:
        """The rule for a name that the file imports, or defines at its top."""
        return self._active.get(old)

    def rule(self, old: str, stack: Stack) -> Rule | None:
        """The rule for an identifier at a place."""
        return next((rule for rule in self._names.get(old, ()) if rule.covers(stack)), None)

    def keyword_rule(self, callee: str, old: str, stack: Stack) -> Rule | None:
        """The rule for a keyword argument at a place."""
        return next((rule for rule in self._keywords.get((callee, old), ()) if rule.covers(stack)), None)

    def attribute_rule(self, base: str, old: str, stack: Stack) -> Rule | None:
        """The rule for the attribute of what has a certain name."""
        return next((rule for rule in self._attributes.get((base, old), ()) if rule.covers(stack)), None)

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        """Any old name as a word."""
        olds = sorted({*self._names, *self._active}, key=len, reverse=True)
        return re.compile(r"\b(?:" + "|".join(map(re.escape, olds)) + r")\b")

    def rewrite_text(self, text: str, stack: Stack, *, prose: bool, key: bool = False) -> str:
        """A string, a comment or a page, with those names replaced that differ from ordinary words."""
        if not self._names and not self._active:
            return text
        is_whole = text.strip("'\"rbfuRBFU") if not prose else ""

        def replace(match: re.Match[str]) -> str:
            old = match.group()
            own = self.rule(old, stack)
            rule = own if own is not None and own.flag == "text" else self.active_rule(old) or own
            if rule is None or rule.flag == "code" or names_other_module(rule, match):
                return old
            if rule.flag == "text" or stands_as_name(rule, match, whole=is_whole == old, prose=prose, key=key):
                return rule.new
            return old

        return self.pattern.sub(replace, text)


def names_other_module(rule: Rule, match: re.Match[str]) -> bool:
    """Whether the word is the last of a dotted name in which another module defines it."""
    before = re.search(r"(\w+(?:\.\w+)+)[.:]$", match.string[: match.start()]) if rule.is_origin else None
    return before is not None and before.group(1) != rule.glob.removeprefix("from:")


def stands_as_name(rule: Rule, match: re.Match[str], *, whole: bool, prose: bool, key: bool) -> bool:
    """Whether a word in a text is the identifier and not an ordinary word."""
    old, text, at = rule.old, match.string, match.start()
    line = text.rfind("\n", 0, at) + 1
    quoted = text.count("`", line, at) % 2 == 1
    if (
        re.search(r"[A-Z].*[a-z0-9].*[A-Z]|[A-Z][a-z0-9]+[A-Z]", old)
        and old.lstrip("_")[:1].isupper()
        and not old.isupper()
    ):
        return True
    if old.lstrip("_")[:1].isupper() and "_" not in old.strip("_"):
        qualified = at > 1 and text[at - 1] in ".:" and (text[at - 2].isalnum() or text[at - 2] == "_")
        return whole or quoted or qualified or text[match.end() : match.end() + 1] == "("
    if "_" in old.strip("_") or old.startswith("_"):
        return not key and (rule.glob == "*" or (prose and quoted))
    return prose and quoted and rule.glob != "*"


@dataclass(frozen=True)
class Scope:
    """The names of a function or class: which are bound in it, which are only used."""

    stack: Stack
    kind: str
    symbols: tuple[symtable.Symbol, ...]
    children: tuple[Scope, ...]


def read_scopes(text: str, path: str) -> Scope:
    """The scopes of a module."""

    def convert(table: symtable.SymbolTable, stack: Stack) -> Scope:
        children = []
        for child in table.get_children():
            named = child.get_name().isidentifier() and child.get_name() not in (
                "lambda",
                "genexpr",
                "listcomp",
                "setcomp",
                "dictcomp",
            )
            children.append(convert(child, (*stack, child.get_name()) if named else stack))
        return Scope(stack, str(table.get_type()), tuple(table.get_symbols()), tuple(children))

    return convert(symtable.symtable(text, path, "exec"), ())


def _bound(symbol: symtable.Symbol, kind: str) -> bool:
    if kind == "module":
        return symbol.is_assigned() or symbol.is_imported() or symbol.is_namespace()
    return symbol.is_local() or symbol.is_parameter()


class Imports:
    """Names that a file imports and no rule may touch: modules, and what other distributions define."""

    def __init__(self, tree: cst.Module, modules: frozenset[str], scopes: Scope) -> None:
        packages = {name.partition(".")[0] for name in modules}
        self.fixed: set[str] = set()
        self.all: set[str] = set()
        self.origins: dict[str, str] = {}
        self._local: dict[Stack, set[str]] = defaultdict(set)
        self._classes: set[Stack] = set()
        for node in _imports_in(tree):
            if isinstance(node, cst.Import):
                for alias in node.names:
                    bound = alias.asname.name if alias.asname else alias.name
                    name = _dotted(bound).partition(".")[0] if isinstance(bound, cst.Attribute | cst.Name) else ""
                    self.fixed.add(name)
            elif not isinstance(node.names, cst.ImportStar):
                source = _dotted(node.module) if node.module else ""
                for alias in node.names:
                    name = _dotted(alias.name)
                    bound_name = (
                        alias.asname.name.value if alias.asname and isinstance(alias.asname.name, cst.Name) else name
                    )
                    self.all.add(bound_name)
                    if bound_name == name:
                        self.origins[name] = source
                    if source.partition(".")[0] not in packages or f"{source}.{name}" in modules:
                        self.fixed.add(bound_name)
        self.all |= self.fixed
        self._collect(scopes)

    def _collect(self, scope: Scope) -> None:
        if scope.kind == "class":
            self._classes.add(scope.stack)
        if scope.kind != "module":
            for symbol in scope.symbols:
                if _bound(symbol, scope.kind) and not symbol.is_imported():
                    self._local[scope.stack].add(symbol.get_name())
        for child in scope.children:
            self._collect(child)

    def is_local(self, name: str, stack: Stack) -> bool:
        """Whether a function or class around a place binds the name itself; methods do not see what a class binds."""
        around = (stack[:depth] for depth in range(1, len(stack) + 1))
        return any(name in self._local.get(one, ()) for one in around if one == stack or one not in self._classes)

    def is_fixed(self, name: str, stack: Stack) -> bool:
        """Whether a plain name at a place is such an import."""
        return name in self.fixed and not self.is_local(name, stack)


def _imports_in(node: cst.CSTNode) -> Iterator[cst.Import | cst.ImportFrom]:
    if isinstance(node, cst.Import | cst.ImportFrom):
        yield node
    elif isinstance(node, cst.Module | cst.BaseCompoundStatement | cst.BaseSuite | cst.SimpleStatementLine):
        for child in node.children:
            yield from _imports_in(child)
    elif isinstance(node, cst.Else | cst.ExceptHandler | cst.Finally | cst.MatchCase):
        yield from _imports_in(node.body)


def _dotted(node: cst.BaseExpression | cst.CSTNode | None) -> str:
    if isinstance(node, cst.Attribute):
        return f"{_dotted(node.value)}.{node.attr.value}"
    return node.value if isinstance(node, cst.Name) else ""


_FIELDS: dict[type, tuple[str, ...]] = {}
_LEAVES = (cst.SimpleWhitespace, cst.Newline, cst.Semicolon, cst.Comma, cst.AssignEqual, cst.MaybeSentinel)


def _children(node: cst.CSTNode) -> Iterator[cst.CSTNode]:
    names = _FIELDS.get(type(node))
    if names is None:
        names = tuple(one.name for one in dataclasses.fields(node))
        _FIELDS[type(node)] = names
    for name in names:
        value = getattr(node, name)
        if isinstance(value, cst.CSTNode):
            yield value
        elif isinstance(value, list | tuple):
            for item in value:
                if isinstance(item, cst.CSTNode):
                    yield item


def _set(node: cst.CSTNode, name: str, value: object) -> None:
    object.__setattr__(node, name, value)  # the tree is dropped once its code is written, so it is edited in place


class Renamer:
    """Walks one module and renames in place."""

    def __init__(
        self,
        rules: FileRules,
        modules: Mapping[str, str],
        imports: Imports,
        known: frozenset[str],
        ours: Mapping[str, str],
    ) -> None:
        self._rules = rules
        self._modules = modules
        self._imports = imports
        self._known = known
        self._ours = ours
        self._packages = {name.partition(".")[0] for name in known}
        self._moved_bindings: dict[str, str] = {}
        self._as_code: dict[int, bool] = {}
        self._keys: set[int] = set()
        self.attributes: dict[Stack, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
        self.chains: set[tuple[str, str]] = set()

    def new_name(self, old: str, stack: Stack, *, plain: bool) -> str:
        """The name that an identifier gets; `plain` when it is not an attribute or a keyword."""
        if plain and self._imports.is_fixed(old, stack):
            return self._moved_bindings.get(old, old)
        rule = self._rules.active_rule(old) if plain and not self._imports.is_local(old, stack) else None
        rule = rule or self._rules.rule(old, stack)
        if rule is None:
            return old
        following = self._rules.rule(rule.new, stack)
        if rule.new != old and following is not None and following.new != rule.new:
            self.chains.add((old, rule.new))
        return rule.new

    def rename_module(self, tree: cst.Module) -> None:
        """Rename everything in it."""
        if self._modules:
            for node in _imports_in(tree):
                if isinstance(node, cst.ImportFrom):
                    self._note_moved(node)
        self._walk(tree, ())

    def _note_moved(self, node: cst.ImportFrom) -> None:
        if isinstance(node.names, cst.ImportStar):
            return
        for alias in node.names:
            target = self._modules.get(f"{_dotted(node.module)}.{_dotted(alias.name)}")
            if target is not None and alias.asname is None:
                self._moved_bindings[_dotted(alias.name)] = target.rpartition(".")[2]

    def _walk(self, node: cst.CSTNode, stack: Stack) -> None:
        match node:
            case cst.Name():
                _set(node, "value", self.new_name(node.value, stack, plain=True))
            case cst.Comment():
                _set(node, "value", self._rules.rewrite_text(node.value, stack, prose=True))
            case cst.SimpleString() | cst.FormattedStringText():
                _set(node, "value", self._string(node, stack))
            case cst.Expr(value=cst.SimpleString() as docstring):
                _set(docstring, "value", self._rules.rewrite_text(docstring.value, stack, prose=True))
            case cst.FunctionDef() | cst.ClassDef():
                self._definition(node, stack)
            case cst.Attribute():
                self._attribute(node, stack)
            case cst.ImportFrom():
                self._import_from(node, stack)
            case cst.Import():
                for alias in node.names:
                    if alias.asname is not None:
                        self._walk(alias.asname, stack)
            case _:
                self._other(node, stack)

    def _definition(self, node: cst.FunctionDef | cst.ClassDef, stack: Stack) -> None:
        inner = (*stack, node.name.value)
        for child in _children(node):
            outer = child is node.name or any(child is line for line in node.leading_lines)
            self._walk(child, stack if outer else inner)

    def _other(self, node: cst.CSTNode, stack: Stack) -> None:
        self._mark(node)
        if isinstance(node, cst.Call):
            self._keywords(node, stack)
        if isinstance(node, cst.Module | cst.IndentedBlock) and self._modules:
            _set(node, "body", list(self._split_imports(node.body)))
        renamed = node.keyword if isinstance(node, cst.Arg) else None
        for child in _children(node):
            if child is not renamed and not isinstance(child, _LEAVES):
                self._walk(child, stack)

    def _attribute(self, node: cst.Attribute, stack: Stack) -> None:
        old = node.attr.value
        new = self.new_name(old, stack, plain=False)
        owner = node.value.func if isinstance(node.value, cst.Call) else node.value
        base = owner.attr if isinstance(owner, cst.Attribute) else owner
        if isinstance(base, cst.Name):
            rule = self._rules.attribute_rule(base.value, old, stack)
            if base is node.value and self._imports.is_fixed(base.value, stack):
                module = self._ours.get(base.value)
                rule = rule or (self._rules.origin_rule(module, old) if module is not None else None)
                new = new if module is not None or base.value in self._packages else old
            new = rule.new if rule else new
            if base.value in ("self", "cls"):
                self.attributes[stack[:-1]][new].add(old)
        _set(node.attr, "value", new)
        for child in _children(node):
            if child is not node.attr:
                self._walk(child, stack)

    def attributes_of(self, stack: Stack) -> dict[str, set[str]]:
        """The attributes that the methods of a class use: new name -> old names."""
        merged: dict[str, set[str]] = defaultdict(set)
        for place, attributes in self.attributes.items():
            if place[: len(stack)] == stack:
                for new, olds in attributes.items():
                    merged[new] |= olds
        return merged

    def _import_from(self, node: cst.ImportFrom, stack: Stack) -> None:
        for child in _children(node):
            if child is not node.module and not isinstance(child, cst.ImportAlias):
                self._walk(child, stack)
        if isinstance(node.names, cst.ImportStar):
            return
        source = _dotted(node.module)
        foreign = bool(source) and source.partition(".")[0] not in self._packages
        for alias in node.names:
            name = _dotted(alias.name)
            target = self._modules.get(f"{source}.{name}")
            if target is not None:
                _set(alias.name, "value", target.rpartition(".")[2])
            elif not foreign and f"{source}.{name}" not in self._known and isinstance(alias.name, cst.Name):
                rule = self._rules.origin_rule(source, name) or self._rules.rule(name, stack)
                _set(alias.name, "value", rule.new if rule else name)
            for child in _children(alias):
                if child is not alias.name:
                    self._walk(child, stack)

    def _split_imports(self, body: Sequence[cst.CSTNode]) -> Iterator[cst.CSTNode]:
        """Imports of modules that move into another package, each in a statement of its own."""
        for line in body:
            first = line.body[0] if isinstance(line, cst.SimpleStatementLine) else None
            if not isinstance(first, cst.ImportFrom) or isinstance(first.names, cst.ImportStar):
                yield line
                continue
            source, stay = _dotted(first.module), []
            before = len(first.names)
            for alias in first.names:
                target = self._modules.get(f"{source}.{_dotted(alias.name)}")
                parent = target.rpartition(".")[0] if target else self._modules.get(source, source)
                if target is None or parent == self._modules.get(source, source):
                    stay.append(alias)
                else:
                    shown = cst.Module([]).code_for_node(alias.asname) if alias.asname else ""
                    new = target.rpartition(".")[2]
                    yield cst.parse_statement(f"from {parent} import {new}{shown}\n")
            if len(stay) == before:
                yield line
            elif stay:
                _set(stay[-1], "comma", cst.MaybeSentinel.DEFAULT)
                _set(first, "names", stay)
                yield line

    def _keywords(self, node: cst.Call, stack: Stack) -> None:
        callee = _dotted(node.func).rpartition(".")[2] or (
            node.func.attr.value if isinstance(node.func, cst.Attribute) else ""
        )
        for arg in node.args:
            if arg.keyword is not None:
                rule = self._rules.keyword_rule(callee, arg.keyword.value, stack)
                new = rule.new if rule else self.new_name(arg.keyword.value, stack, plain=False)
                _set(arg.keyword, "value", new)

    def _mark(self, node: cst.CSTNode) -> None:
        """Remember which strings hold names of attributes and parameters, and which are keys of dictionaries."""
        if isinstance(node, cst.Call):
            callee = node.func.attr.value if isinstance(node.func, cst.Attribute) else _dotted(node.func)
            if callee in FIXTURE_CALLS:
                self._mark_all(node.args[0] if callee == "parametrize" and node.args else node)
            elif callee in ATTRIBUTE_CALLS:
                for arg in node.args:
                    if isinstance(arg.value, cst.SimpleString):
                        self._as_code[id(arg.value)] = False
        elif isinstance(node, cst.Assign | cst.AnnAssign):
            targets = [one.target for one in node.targets] if isinstance(node, cst.Assign) else [node.target]
            if any(_dotted(one) in NAME_LISTS for one in targets) and node.value is not None:
                self._mark_all(node.value, plain=True)
        elif (isinstance(node, cst.DictElement) and isinstance(node.key, cst.SimpleString)) or (
            isinstance(node, cst.Index) and isinstance(node.value, cst.SimpleString)
        ):
            self._keys.add(id(node.key if isinstance(node, cst.DictElement) else node.value))

    def _mark_all(self, node: cst.CSTNode, *, plain: bool = False) -> None:
        if isinstance(node, cst.SimpleString):
            self._as_code[id(node)] = plain
        for child in node.children:
            self._mark_all(child, plain=plain)

    def _string(self, node: cst.SimpleString | cst.FormattedStringText, stack: Stack) -> str:
        if id(node) in self._as_code:

            def replace(match: re.Match[str]) -> str:
                return self.new_name(match.group(), stack, plain=self._as_code[id(node)])

            body = node.value[1:-1]
            last = re.fullmatch(r"(?:\w+\.)*(\w+)", body)
            if last is not None or re.fullmatch(r"[\w, ]+", body):
                head, tail = (body[: last.start(1)], last.group(1)) if last else ("", body)
                return node.value[0] + head + WORD.sub(replace, tail) + node.value[-1]
        return self._rules.rewrite_text(node.value, stack, prose=False, key=id(node) in self._keys)


class Repository:
    """The tracked files, and what a run makes of them."""

    def __init__(self, root: Path, table: Table) -> None:
        self.root = root
        self.table = table
        listed = subprocess.run(
            ["git", "ls-files", "-z"], cwd=root, check=True, capture_output=True, text=True
        ).stdout
        self.paths = sorted(one for one in listed.split("\0") if one and (root / one).is_file())
        self.modules = frozenset(self._module_names())
        self.moves = self._find_moves()
        self._former = {new: old for old, new in self._all_moves().items()}
        defined = {
            rule.glob.removeprefix("from:") + "." + rule.old: rule.glob.removeprefix("from:") + "." + rule.new
            for rule in table.names
            if rule.is_origin
        }
        modules = split_modules(table.modules)
        self._dotted_names = {
            old: modules.sub(lambda match: table.modules[match.group()], new) if modules else new
            for old, new in {**defined, **table.modules}.items()
        } | dict(table.modules)
        self._dotted = split_modules(self._dotted_names)
        self._path_names = self._build_path_names()
        self._passed_on = self._find_passed_on()
        self.changed: dict[str, str] = {}
        self.refusals: list[str] = []

    def _module_names(self) -> Iterator[str]:
        for path in self.paths:
            if path.endswith(".py"):
                parts = self._module_of(path).split(".")
                for depth in range(1, len(parts) + 1):
                    yield ".".join(parts[:depth])

    @staticmethod
    def _module_of(path: str) -> str:
        parts = PurePosixPath(path).with_suffix("").parts
        parts = parts[1:] if parts[0] in SOURCE_ROOTS else parts
        return ".".join(parts[:-1] if parts and parts[-1] == "__init__" else parts)

    def _paths_of(self, dotted: str) -> list[str]:
        """Where a module of that name would be: as a file or as a package, under each root."""
        base = dotted.replace(".", "/")
        return [f"{root}/{base}".lstrip("/") for root in SOURCE_ROOTS]

    def _find_moves(self) -> dict[str, str]:
        """Tracked files that move, and where to."""
        moves = {}
        for old, new in self.table.modules.items():
            for before, after in zip(self._paths_of(old), self._targets(old, new), strict=True):
                for path in self.paths:
                    if path == f"{before}.py":
                        moves[path] = f"{after}.py"
                    elif path.startswith(f"{before}/"):
                        moves.setdefault(path, after + path.removeprefix(before))
        return moves

    def _targets(self, old: str, new: str) -> list[str]:
        roots = {
            "headgate": "workers",
            "headgate_operator": "operator",
            "headgate_spark": "spark",
            "dev": "",
            "tests": "",
        }
        package = new.partition(".")[0]
        same = package == old.partition(".")[0]
        return [
            f"{root if same else roots.get(package, root)}/{new.replace('.', '/')}".lstrip("/")
            for root in SOURCE_ROOTS
        ]

    def _all_moves(self) -> dict[str, str]:
        """The moves, also those of an earlier run."""
        result = dict(self.moves)
        for old, new in self.table.modules.items():
            for before, after in zip(self._paths_of(old), self._targets(old, new), strict=True):
                if f"{after}.py" in self.paths:
                    result.setdefault(f"{before}.py", f"{after}.py")
        return result

    def _build_path_names(self) -> dict[str, str]:
        """Paths in texts: whole, from a folder on where that is unique, and as a file name in backticks."""
        moves, names = self._all_moves(), {}
        every = {*self.paths, *moves}
        ends: dict[str, int] = defaultdict(int)
        for path in every - set(moves.values()):
            parts = path.split("/")
            for depth in range(len(parts)):
                ends["/".join(parts[depth:])] += 1
        for old, new in moves.items():
            before, after = old.split("/"), new.split("/")
            for depth in range(len(before)):
                end = "/".join(before[depth:])
                same = before[:depth] == after[:depth]
                if ends[end] == 1:
                    shorter = "/".join(after[depth:] if same else after[-1:] if depth == len(before) - 1 else after)
                    names[end if "/" in end else f"`{end}`"] = shorter if "/" in end else f"`{shorter}`"
        return {end: new for end, new in names.items() if end != new}

    @cached_property
    def _path_pattern(self) -> re.Pattern[str] | None:
        longest_first = sorted(self._path_names, key=len, reverse=True)
        return (
            re.compile(r"(?<![\w/.-])(?:" + "|".join(map(re.escape, longest_first)) + r")(?![\w])")
            if longest_first
            else None
        )

    def rewrite_modules(self, text: str) -> str:
        """A text with the names and paths of modules replaced."""
        if self._dotted is not None:
            text = self._dotted.sub(lambda match: self._dotted_names[match.group()], text)
        if self._path_pattern is not None:
            text = self._path_pattern.sub(lambda match: self._path_names[match.group()], text)
        return text

    def rules_of(self, path: str) -> FileRules:
        """The rules for a file, also by the path that it had before it moved."""
        return FileRules(self.table, path, self._former.get(path), self._passed_on)

    def _find_passed_on(self) -> dict[tuple[str, str], Rule]:
        """Names with a rule for the module that defines them, by the modules that import them."""
        origins = {(rule.glob.removeprefix("from:"), rule.old): rule for rule in self.table.names if rule.is_origin}
        imported = [
            (self._module_of(path), match[1], name)
            for path in (self.paths if origins else ())
            if path.endswith(".py")
            for match in FROM_IMPORT.finditer((self.root / path).read_text(encoding="utf-8"))
            for name in WORD.findall(match[2])
        ]
        passed_on: dict[tuple[str, str], Rule] = {}
        for _ in range(PASSED_ON_DEPTH):
            for module, source, name in imported:
                rule = origins.get((source, name)) or passed_on.get((source, name))
                if rule is not None and (module, name) not in origins:
                    passed_on[module, name] = rule
        return passed_on

    def rewrite_python(self, text: str, rules: FileRules) -> tuple[str, list[str]]:
        """Source with the names replaced, and why that is refused."""
        words = set(WORD.findall(text))
        lasts = {old.rpartition(".")[2] for old in self.table.modules}
        if not words & rules.words and not words & lasts:
            return text, []
        tree = cst.parse_module(text)
        scopes = read_scopes(text, rules.path)
        imports = Imports(tree, self.modules, scopes)
        ours = dict(_module_bindings(tree, self.modules))
        rules.activate(imports.origins, self._module_of(rules.path))
        renamer = Renamer(rules, self.table.modules, imports, self.modules, ours)
        renamer.rename_module(tree)
        new = tree.code
        if new == text:
            return text, []
        refusals = [
            f"{old} -> {then}: the new name is an old one of another rule" for old, then in sorted(renamer.chains)
        ]
        refusals += find_collisions(scopes, renamer, imports)
        try:
            compile(new, rules.path, "exec", dont_inherit=True)
        except SyntaxError as error:
            refusals.append(f"the result is no Python: {error}")
        return new, [f"{rules.path}: {refusal}" for refusal in refusals]

    def rewrite_page(self, text: str, rules: FileRules) -> str:
        """A page or a configuration file with the names replaced; blocks of Python in it are code."""
        if not set(WORD.findall(text)) & rules.words:
            return text
        parts, at = [], 0
        for block in PYTHON_BLOCK.finditer(text):
            parts.append(rules.rewrite_text(text[at : block.start(2)], (), prose=True))
            parts.append(self._rewrite_block(block, rules))
            at = block.end(2)
        return "".join(parts) + rules.rewrite_text(text[at:], (), prose=True)

    def _rewrite_block(self, block: re.Match[str], rules: FileRules) -> str:
        indent, code = block.group(1), block.group(2)
        lines = [line.removeprefix(indent) for line in code.splitlines(keepends=True)]
        try:
            new, _ = self.rewrite_python("".join(lines), rules)
        except (cst.ParserSyntaxError, SyntaxError):
            return rules.rewrite_text(code, (), prose=True)
        return "".join(indent + line if line.strip() else line for line in new.splitlines(keepends=True))

    def rewrite_all(self) -> None:
        """Work out the new text of every file; nothing is written."""
        for path in self.paths:
            if path.endswith(NOT_TEXT):
                continue
            try:
                text = (self.root / path).read_text(encoding="utf-8")
            except UnicodeDecodeError:
                continue
            new = self.rewrite_file(path, text)
            if new != text:
                self.changed[path] = new

    def rewrite_file(self, path: str, text: str) -> str:
        """The new text of one file; mutants follow when their sources are written."""
        rules = self.rules_of(path)
        new = text
        if path.endswith(".py"):
            new, refusals = self.rewrite_python(text, rules)
            self.refusals += refusals
        elif path.endswith((".md", ".toml")):
            if is_mutants(path):
                return text
            new = self.rewrite_page(text, rules)
        return self.rewrite_modules(new)

    def write(self) -> None:
        """Write the texts, move the files and put the sources in form."""
        for path, text in self.changed.items():
            (self.root / path).write_text(text, encoding="utf-8")
        for old, new in self.moves.items():
            (self.root / new).parent.mkdir(parents=True, exist_ok=True)
            subprocess.run(["git", "mv", old, new], cwd=self.root, check=True)
        sources = sorted(self.moves.get(path, path) for path in self.changed if path.endswith(".py"))
        width = read_line_length(self.root)
        for path in sources:
            text = (self.root / path).read_text(encoding="utf-8")
            wrapped = wrap_prose(text, width)
            if wrapped != text:
                (self.root / path).write_text(wrapped, encoding="utf-8")
        if sources:
            for command in (("check", "--select", "I,RUF022", "--fix", "--quiet"), ("format", "--quiet")):
                run_ruff(self.root, [*command, *sources])


def read_line_length(root: Path) -> int:
    """The width that ruff is set to."""
    file = root / "pyproject.toml"
    options = tomllib.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    return int(options.get("tool", {}).get("ruff", {}).get("line-length", 88))


def wrap_prose(text: str, width: int) -> str:
    """Lines of docstrings and comments that have become too long, with their last words on the next line."""
    lines = text.split("\n")
    if all(len(line) <= width for line in lines):
        return text
    prose = _lines_of_prose(text)
    number = 0
    while number < len(lines):
        line = lines[number]
        lead = re.match(r"\s*(?:#\s+)?", line)
        cut = line.rfind(" ", 0, width + 1)
        if len(line) <= width or number not in prose or lead is None or cut <= lead.end():
            number += 1
            continue
        after = lines[number + 1] if number + 1 in prose else ""
        rest = line[cut + 1 :]
        lines[number] = line[:cut]
        joins = after.strip(' #"') and re.match(r"\s*(?:#\s+)?", after)[0] == lead[0]  # type: ignore[index]
        if joins and not re.match(r"\s*(?:#\s+)?(?:[-*|>]|\d+\.|\w+: )", after):
            lines[number + 1] = f"{lead[0]}{rest} {after[lead.end() :]}"
        else:
            lines.insert(number + 1, lead[0] + rest)
            prose = {one if one <= number else one + 1 for one in prose} | {number + 1}
        number += 1
    return "\n".join(lines)


def _lines_of_prose(text: str) -> set[int]:
    """The numbers, from 0, of lines that are a comment or within a string that stands alone."""
    prose = {number for number, line in enumerate(text.split("\n")) if line.lstrip().startswith("# ")}
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            prose |= set(range(node.lineno - 1, node.end_lineno or node.lineno))
    return prose


def run_ruff(root: Path, options: Sequence[str], text: str | None = None) -> str:
    """What ruff prints."""
    command = [str(Path(sys.executable).with_name("ruff")), *options]
    return subprocess.run(command, cwd=root, check=True, capture_output=True, text=True, input=text).stdout


def _module_bindings(tree: cst.Module, modules: frozenset[str]) -> Iterator[tuple[str, str]]:
    """Names in a file that are modules of this repository, and which."""
    for node in _imports_in(tree):
        if isinstance(node, cst.Import):
            for alias in node.names:
                bound = _dotted(alias.asname.name if alias.asname else alias.name)
                if "." not in bound and _dotted(alias.name) in modules:
                    yield bound, _dotted(alias.name)
        elif not isinstance(node.names, cst.ImportStar):
            for alias in node.names:
                module = f"{_dotted(node.module)}.{_dotted(alias.name)}"
                if module in modules:
                    yield _dotted(alias.asname.name if alias.asname else alias.name), module


def find_collisions(scopes: Scope, renamer: Renamer, imports: Imports) -> list[str]:
    """Scopes in which two names would become one, or a name would hide another."""
    problems: list[str] = []

    def check(scope: Scope, above: Mapping[str, str]) -> None:
        where = ".".join(scope.stack) or "module"
        names: dict[str, str] = {}
        bound: dict[str, str] = {}
        for symbol in scope.symbols:
            old = symbol.get_name()
            binds = _bound(symbol, scope.kind)
            local = scope.kind != "module" and binds and not symbol.is_imported()
            new = renamer.new_name(old, scope.stack, plain=not local)
            if new in names and names[new] != old:
                problems.append(f"{where}: {names[new]} and {old} would both be {new}")
            if not binds and above.get(new, old) != old:
                problems.append(f"{where}: {old} would be the {new} that is {above[new]} outside")
            names[new] = old
            if binds and new != old and scope.kind != "class":
                if new in BUILTINS:
                    problems.append(f"{where}: {old} would hide the builtin {new}")
                if scope.kind == "function" and new in imports.all:
                    problems.append(f"{where}: {old} would hide the import {new}")
            if binds and scope.kind == "function":
                bound[new] = old
        if scope.kind == "class":
            for new, olds in renamer.attributes_of(scope.stack).items():
                every = olds | ({names[new]} if names.get(new) in _defined(scope) else set())
                if len(every) > 1:
                    problems.append(f"{where}: attributes {', '.join(sorted(every))} would all be {new}")
        for child in scope.children:
            check(child, {**above, **bound})

    check(scopes, {})
    return sorted(set(problems))


def _defined(scope: Scope) -> set[str]:
    return {symbol.get_name() for symbol in scope.symbols if symbol.is_assigned() or symbol.is_namespace()}


def is_mutants(path: str) -> bool:
    """Whether a file quotes sources."""
    return path.startswith("tests/mutants/") and path.endswith(".toml")


class MutantTable:
    """One file of mutants: `find` and `replace` follow the source that they quote."""

    def __init__(self, repository: Repository, sources: Mapping[str, str]) -> None:
        self._repository = repository
        self._before = sources
        self.problems: list[str] = []

    def rewrite(self, path: str, text: str) -> str:
        """The file for sources as they are now."""
        fields = list(TOML_FIELD.finditer(text))
        values = {match: str(tomllib.loads(f"x = {match['raw']}")["x"]) for match in fields}
        new: dict[re.Match[str], str] = {}
        file = find = None
        for match in fields:
            if match["key"] == "file":
                file = values[match]
            elif match["key"] == "find":
                find = match
            elif match["key"] == "replace" and find is not None and file is not None:
                quoted = self._requote(file, values[find], values[match])
                if quoted is None:
                    self.problems.append(f"{path}: no longer in {file}: {values[find]!r}")
                else:
                    new[find], new[match] = quoted
                find = None
        rules, parts, at = self._repository.rules_of(path), [], 0
        for match in fields:
            if match["key"] in ("find", "replace"):
                parts.append(rules.rewrite_text(text[at : match.start("raw")], (), prose=True))
                changed = match in new and new[match] != values[match]
                parts.append(format_toml(new[match], match["raw"]) if changed else match["raw"])
                at = match.end("raw")
        return self._repository.rewrite_modules("".join(parts) + rules.rewrite_text(text[at:], (), prose=True))

    def _requote(self, file: str, find: str, replace: str) -> tuple[str, str] | None:
        """The two texts after the run, or None when the place is lost."""
        repository = self._repository
        before = self._before.get(file)
        if before is None or before.count(find) != 1:
            return find, replace
        now = (repository.root / repository.moves.get(file, file)).read_text(encoding="utf-8")
        if not file.endswith(".py"):
            return (find, replace) if now.count(find) == 1 else None
        rules = repository.rules_of(file)
        if now.count(find) == 1 and not set(WORD.findall(find + replace)) & rules.words:
            return find, replace
        mutated = before.replace(find, replace)
        try:
            renamed, _ = repository.rewrite_python(before, rules)
            broken, _ = repository.rewrite_python(mutated, rules)
        except (cst.ParserSyntaxError, SyntaxError):
            renamed, broken = (rules.rewrite_text(one, (), prose=True) for one in (before, mutated))
        by_word = align(before, renamed, mutated, broken, find, replace)
        if by_word is not None:
            by_word = repository.rewrite_modules(by_word[0]), repository.rewrite_modules(by_word[1])
            if now.count(by_word[0]) == 1:
                return by_word
        try:
            formatted = run_ruff(
                repository.root, ["format", "-", "--stdin-filename", file], repository.rewrite_modules(broken)
            )
        except subprocess.CalledProcessError:
            return None
        return differing_lines(now, formatted)


def align(before: str, after: str, mutated: str, broken: str, find: str, replace: str) -> tuple[str, str] | None:
    """Both texts with the words of the renamed sources: renaming leaves the number of words as it was."""
    start = before.index(find)
    pieces = {
        name: re.split(r"(\w+)", text)
        for name, text in (("old", before), ("new", after), ("mutated", mutated), ("broken", broken))
    }
    if len(pieces["old"]) != len(pieces["new"]) or len(pieces["mutated"]) != len(pieces["broken"]):
        return None
    new_find = _same_span(pieces["old"], pieces["new"], start, len(find))
    new_replace = _same_span(pieces["mutated"], pieces["broken"], start, len(replace))
    return None if new_find is None or new_replace is None else (new_find, new_replace)


def _same_span(old: Sequence[str], new: Sequence[str], start: int, length: int) -> str | None:
    """The pieces of `new` that have the places of a span of `old`; a span may cut a word that stays as it is."""
    parts, at = [], 0
    for before, after in zip(old, new, strict=True):
        low, high = max(start - at, 0), min(start + length - at, len(before))
        at += len(before)
        if low >= high:
            continue
        if (low, high) == (0, len(before)):
            parts.append(after)
        elif before == after:
            parts.append(before[low:high])
        else:
            return None
    return "".join(parts)


def differing_lines(text: str, other: str) -> tuple[str, str] | None:
    """The lines by which two texts differ, with as many before them as make the first ones unique."""
    lines, others = text.splitlines(keepends=True), other.splitlines(keepends=True)
    first, last = 0, 0
    while first < min(len(lines), len(others)) and lines[first] == others[first]:
        first += 1
    while last < min(len(lines), len(others)) - first and lines[-1 - last] == others[-1 - last]:
        last += 1
    while first >= 0:
        find, replace = "".join(lines[first : len(lines) - last]), "".join(others[first : len(others) - last])
        if find and text.count(find) == 1:
            return find, replace
        first -= 1
    return None


def format_toml(value: str, like: str) -> str:
    """A TOML string in the quotes of another where they allow it."""
    if like.startswith("'''") and "'''" not in value:
        opening = "'''\n" if value.startswith("\n") else "'''"
        return f"{opening}{value}'''"
    if like.startswith("'") and not set("'\n") & set(value):
        return f"'{value}'"
    escaped = value.replace("\\", "\\\\")
    if "\n" in value or like.startswith('"""'):
        opening = '"""\n' if like.startswith('"""\n') or value.startswith("\n") else '"""'
        quoted = escaped.replace('"""', '\\"\\"\\"')
        return opening + (quoted[:-1] + '\\"' if quoted.endswith('"') else quoted) + '"""'
    return '"' + escaped.replace('"', '\\"').replace("\t", "\\t") + '"'


def run(root: Path, table: Table, *, dry_run: bool = False) -> int:
    """Apply a table; the exit code is 1 when it is refused or a mutant is lost."""
    repository = Repository(root, table)
    repository.rewrite_all()
    for refusal in repository.refusals:
        print(f"refused: {refusal}", file=sys.stderr)
    if repository.refusals:
        return 1
    for path in sorted(repository.changed):
        print(f"{path} changes")
    for old, new in sorted(repository.moves.items()):
        print(f"{old} moves to {new}")
    if dry_run:
        return 0
    quoting = [path for path in repository.paths if is_mutants(path)]
    sources = {path: (root / path).read_text(encoding="utf-8") for path in _quoted_files(root, quoting)}
    repository.write()
    mutants = MutantTable(repository, sources)
    for path in quoting:
        text = (root / path).read_text(encoding="utf-8")
        new = mutants.rewrite(path, text)
        if new != text:
            (root / path).write_text(new, encoding="utf-8")
    for problem in mutants.problems:
        print(f"mutant lost: {problem}", file=sys.stderr)
    return 1 if mutants.problems else 0


def _quoted_files(root: Path, tables: Sequence[str]) -> set[str]:
    files = set()
    for path in tables:
        for entry in tomllib.loads((root / path).read_text(encoding="utf-8")).get("mutant", ()):
            files.add(str(entry["file"]))
    return {path for path in files if (root / path).is_file()}


def main() -> int:
    """Read the tables and apply them."""
    parser = argparse.ArgumentParser(description="rename identifiers and modules from tables")
    parser.add_argument("tables", nargs="+", type=Path, metavar="TABLE", help="tab separated rules")
    parser.add_argument("--dry-run", action="store_true", help="list the files, change nothing")
    parser.add_argument("--root", type=Path, default=Path.cwd(), help="the repository (default: the current folder)")
    options = parser.parse_args()
    table = Table()
    try:
        for path in options.tables:
            parse_table(path.read_text(encoding="utf-8").splitlines(), table)
    except TableError as error:
        print(f"{path}: {error}", file=sys.stderr)
        return 2
    return run(options.root.resolve(), table, dry_run=options.dry_run)


if __name__ == "__main__":
    sys.exit(main())
