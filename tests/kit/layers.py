"""Which package may import which: the rules of the layers as data, and the check of a source tree against them.

The rules are in RULES and nowhere else; CONTRIBUTING.md shows them as `rows()` writes them, and a test compares the
two. The checker reads text and returns what is wrong: it imports nothing of what it judges, so that a broken module
is judged as well, and it takes the tree as a mapping of path to source, so that a test can hand it a wrong one.

It sees `import`, `from ... import`, also relative, and `import_module("...")` or `__import__("...")` of a literal.
It does not see a name that is put together at run time. What an imported module imports in its turn is judged where
it stands, and for a rule with `through` also in the file that reaches it. The `__init__.py` of a package above an
imported module is not part of that: it is the package's public surface, and no file can leave it out.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOTS = ("workers", "operator", "spark")
"""Folders whose children are import packages: each lands on sys.path of an editable install."""

JUDGED = (*ROOTS, "dev", "bench")
"""Folders that are held against the rules; tests may name whatever they test."""

SHIPPED = ("workers/**", "operator/**", "spark/**")
STDLIB = "the standard library"
PYDANTIC = ("pydantic", "pydantic_core")
"""One library in two packages: what refuses a value by hand needs the error types of the second."""
ENTRY_POINTS = (
    "asyncio", "concurrent", "ftplib", "http", "logging", "multiprocessing", "os", "pathlib", "secrets", "select",
    "selectors", "shutil", "signal", "smtplib", "socket", "socketserver", "sqlite3", "ssl", "subprocess", "tempfile",
    "threading", "time", "urllib",
)  # fmt: skip
"""Standard modules by which a decision would reach the world, the clock or a source of chance."""


@dataclass(frozen=True)
class Rule:
    """The imports that the files of one part may have. `only` lists all of them; `never` lists forbidden ones."""

    name: str
    why: str
    files: tuple[str, ...]
    but: tuple[str, ...] = ()
    only: tuple[str, ...] = ()
    never: tuple[str, ...] = ()
    at_import: bool = False
    """Judge only what runs when the module is imported, not what a function imports when it is called."""
    through: bool = False
    """Judge also what the imported modules of the tree import when they are imported, and so on to the end."""


@dataclass(frozen=True)
class Violation:
    """One import, or one file, that a rule forbids."""

    rule: str
    path: str
    line: int
    what: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.what} [{self.rule}]"


@dataclass(frozen=True)
class Import:
    """One name that a file imports, as an absolute dotted name."""

    name: str
    line: int
    at_import: bool
    only_types: bool


DECIDERS = (
    "**/decide*.py",
    "workers/headgate/engines/**/rules*.py",
    "workers/headgate/engines/lanes/delivery_state.py",
    "workers/headgate/engines/lanes/read_budget.py",
    "workers/headgate/engines/lanes/settle_log.py",
    "workers/headgate/engines/lanes/rows.py",
    "workers/headgate/engines/lanes/settle_log_format.py",
    "workers/headgate/expiry.py",
)
APPLYING = ("workers/headgate/applying/decide*.py",)
COUNTER_TYPES = ("workers/headgate/counters/types/**",)
DECISIONS = (*DECIDERS, *COUNTER_TYPES)
YAML = ("workers/headgate/api/loader*.py", "workers/headgate/api/generate*.py")
CONTAINERS = ("dev/servers/cassandra/docker.py",)
PRIMITIVES = (
    "workers/headgate/errors.py",
    "workers/headgate/store/connection_variables.py",
    "workers/headgate/local/cache.py",
    "workers/headgate/local/processes.py",
    "workers/headgate/local/progress.py",
    "workers/headgate/local/ports.py",
    "workers/headgate/local/cassandra/**",
    "dev/servers/debian.py",
    "dev/servers/docker_engine.py",
    "dev/servers/namespaces.py",
    "dev/servers/network.py",
    "dev/servers/owned_server.py",
    "dev/servers/ownership.py",
    "dev/servers/relay.py",
    "dev/servers/wall_clock.py",
    "dev/servers/cassandra/**",
)

OPERATOR_VALUES = tuple(
    f"operator/headgate_operator/{name}.py" for name in ("effects", "kinds", "names", "partial_plan", "rbac", "world")
)
OPERATOR_DECIDERS = tuple(
    f"operator/headgate_operator/{name}.py"
    for name in (
        "build*", "decide*", "document_diff", "effects_on_world", "job_groups", "plan_offline", "plan_projection",
        "plan_text", "strategic_merge",
    )
)  # fmt: skip

CLUSTER_PORT = tuple(f"operator/headgate_operator/{name}.py" for name in ("kinds", "port", "rate_limit", "requests"))
SIMULATED_CLUSTER = "tests/kit/simulated_cluster/**"

RULES = (
    Rule(
        "driver",
        "one place to change when the driver does; everything else speaks statements as values",
        (*SHIPPED, "dev/**"),
        but=("workers/headgate/store/cassandra/**",),
        never=("cassandra",),
    ),
    Rule(
        "cluster client",
        "the cluster is behind one port, so that a simulated API server can replace it",
        SHIPPED,
        but=("operator/headgate_operator/api_server.py",),
        never=("kubernetes",),
    ),
    Rule(
        "kopf",
        "kopf only puts keys on our own work queue",
        (*SHIPPED, "dev/**"),
        but=("operator/headgate_operator/kopf_watch.py",),
        never=("kopf",),
    ),
    Rule(
        "pyspark",
        "the data plane and the operator run where no Java is",
        ("workers/**", "operator/**", "dev/**"),
        never=("pyspark",),
    ),
    Rule(
        "terminal",
        "rich is an extra: only what a terminal shows needs it",
        (*SHIPPED, "dev/**"),
        but=("workers/headgate/cli/terminal/**",),
        never=("rich",),
    ),
    Rule(
        "decisions",
        "decisions are pure, so that they can be simulated, replayed and explained",
        DECIDERS,
        but=(*APPLYING, *OPERATOR_DECIDERS),
        only=(STDLIB, *PYDANTIC, "workers/headgate/errors.py", *DECISIONS),
    ),
    Rule(
        "applying decisions",
        "as decisions; what they decide about is a resource, and its place in the store as values",
        APPLYING,
        only=(
            STDLIB,
            "workers/headgate/errors.py",
            "workers/headgate/api/**",
            "workers/headgate/applying/wanted.py",
            "workers/headgate/engines/registry.py",
            "workers/headgate/store/catalogue/entry.py",
            "workers/headgate/store/model/cql.py",
            "workers/headgate/store/model/drift.py",
            "workers/headgate/store/model/table.py",
            *DECISIONS,
        ),
    ),
    Rule(
        "operator decisions",
        "as decisions; what they decide about is a resource, its place in the store and in the cluster, as values",
        (*OPERATOR_DECIDERS, *OPERATOR_VALUES),
        only=(
            STDLIB,
            *PYDANTIC,
            "workers/headgate/errors.py",
            "workers/headgate/api/**",
            *APPLYING,
            "workers/headgate/applying/wanted.py",
            "workers/headgate/engines/registry.py",
            "workers/headgate/store/catalogue/entry.py",
            "workers/headgate/store/catalogue/tables.py",
            "workers/headgate/store/model/drift.py",
            "workers/headgate/store/model/table.py",
            "workers/headgate/store/model/types.py",
            *OPERATOR_DECIDERS,
            *OPERATOR_VALUES,
            *DECISIONS,
        ),
    ),
    Rule(
        "cluster port",
        "requests to a cluster are the same for every caller and every implementation",
        CLUSTER_PORT,
        only=(STDLIB, "workers/headgate/errors.py", *CLUSTER_PORT),
    ),
    Rule(
        "simulated cluster",
        "a simulation that knew the operator would be right whenever the operator is wrong",
        (SIMULATED_CLUSTER,),
        only=(
            STDLIB,
            "workers/headgate/api/**",
            "workers/headgate/testing/world/**",
            *CLUSTER_PORT,
            SIMULATED_CLUSTER,
        ),
    ),
    Rule(
        "counter types",
        "as decisions; the sketches' bytes are those of Apache DataSketches",
        COUNTER_TYPES,
        only=(STDLIB, *PYDANTIC, "datasketches", "workers/headgate/errors.py", *DECISIONS),
    ),
    Rule(
        "no doors",
        "a decision takes time and chance as arguments and does no I/O",
        (*DECISIONS, *OPERATOR_DECIDERS, *OPERATOR_VALUES),
        never=ENTRY_POINTS,
        through=True,
    ),
    Rule(
        "resource models",
        "the single source of the CRDs is read by the operator, the CLI and editors, with no server near",
        ("workers/headgate/api/**",),
        but=YAML,
        only=(STDLIB, *PYDANTIC, "workers/headgate/errors.py", "workers/headgate/api/**"),
    ),
    Rule(
        "resource files",
        "reading and generating are where it is known that resources are written in YAML",
        YAML,
        only=(STDLIB, *PYDANTIC, "yaml", "workers/headgate/errors.py", "workers/headgate/api/**"),
    ),
    Rule(
        "testing primitives",
        "they run before any virtual environment exists",
        PRIMITIVES,
        but=CONTAINERS,
        only=(
            STDLIB,
            *PRIMITIVES,
            "dev/servers/__init__.py",
            "workers/headgate/local/__init__.py",
            "workers/headgate/__init__.py",
        ),
    ),
    Rule(
        "containers",
        "one file starts containers, and only when it is asked to",
        CONTAINERS,
        only=(STDLIB, *PRIMITIVES, "testcontainers"),
    ),
    Rule(
        "doorsteps",
        "they run whenever a testing primitive is imported",
        ("workers/headgate/__init__.py", "workers/headgate/local/__init__.py", "dev/servers/__init__.py"),
        only=(STDLIB, *PRIMITIVES),
        at_import=True,
    ),
    Rule(
        "dispatcher",
        "lane, lease and dispatcher serve every engine and know none",
        ("workers/headgate/engines/lanes/**",),
        never=("headgate.engines.timeline", "headgate.engines.bucket", "headgate.engines.extent"),
    ),
    Rule(
        "engines",
        "engines and counters serve a worker, a gateway, a command and the simulation alike",
        ("workers/headgate/engines/**", "workers/headgate/counters/**"),
        never=(
            "headgate.client",
            "headgate.runtime",
            "headgate.gateway",
            "headgate.applying",
            "headgate.cli",
        ),
    ),
    Rule(
        "sdk",
        "an application that puts messages loads no worker, no gateway and no command",
        ("workers/headgate/client/**",),
        never=("headgate.runtime", "headgate.gateway", "headgate.applying", "headgate.cli", "headgate.testing"),
    ),
    Rule(
        "data plane",
        "a worker needs neither the operator nor Spark; both stand on the data plane",
        ("workers/**",),
        never=("headgate_operator", "headgate_spark"),
    ),
    Rule(
        "shipped",
        "installed code cannot depend on code that only a checkout has",
        SHIPPED,
        never=("dev", "tests", "bench"),
    ),
)

GROUPS = (
    (DECISIONS, "*decisions* and *counter types*"),
    (PRIMITIVES, "*testing primitives*"),
    ((*OPERATOR_DECIDERS, *OPERATOR_VALUES), "*operator decisions*"),
)
"""Sets of files that rules name as a whole."""

LAYOUT = ("roots", "shadows")
"""Rules on files rather than on imports; `layout_violations` holds them."""


def rows() -> list[str]:
    """The rules as rows of the table in CONTRIBUTING.md."""
    written = []
    for rule in RULES:
        files = _code(rule.files) + (f", but not {_code(rule.but)}" if rule.but else "")
        message = "names only " + _allowed(rule.only) if rule.only else "never names " + _code(rule.never)
        when = " when it is imported" if rule.at_import else ""
        when += ", nor reaches one through its imports" if rule.through else ""
        written.append(f"| {rule.name} | {files} | {message}{when} | {rule.why} |")
    return written


def _allowed(only: Sequence[str]) -> str:
    groups = [(group, f"the files of {title}") for group, title in GROUPS if set(group) <= set(only)]
    singly = [name for name in only if not any(name in group for group, _ in groups)]
    return ", ".join([_code(singly), *(title for _, title in groups)])


def _code(names: Sequence[str]) -> str:
    return ", ".join(name if name == STDLIB else f"`{name}`" for name in names)


def violations(tree: Mapping[str, str], rules: Sequence[Rule] = RULES) -> list[Violation]:
    """All imports in the tree that a rule forbids."""
    matches: list[Violation] = []
    imports: dict[str, list[Import]] = {}
    for path in sorted(tree):
        for rule in rules:
            if is_one_of(path, rule.files) and not is_one_of(path, rule.but):
                matches += _violations_of(rule, path, _imports_once(path, tree, imports))
                matches += _violations_through(rule, path, tree, imports) if rule.through else ()
    return matches


def _imports_once(path: str, tree: Mapping[str, str], imports: dict[str, list[Import]]) -> list[Import]:
    """The imports of a file, which is parsed once."""
    if path not in imports:
        imports[path] = list(imports_of(path, tree[path], tree))
    return imports[path]


def _violations_through(
    rule: Rule, path: str, tree: Mapping[str, str], imports: dict[str, list[Import]]
) -> Iterator[Violation]:
    """The files that this one brings in at import and that import what the rule forbids: each with the way to it."""
    ways: dict[str, tuple[int, str]] = {}
    waiting = [(path, 0, "")]
    while waiting:
        local, first_line, way = waiting.pop(0)
        for one in _imports_once(local, tree, imports):
            line = first_line or one.line
            target = next((at for at in _paths_of(one.name) if at in tree), None)
            if not one.at_import:
                continue
            if target is not None and target != path and target not in ways:
                ways[target] = (line, f"{way}{one.name} -> ")
                waiting.append((target, *ways[target]))
            elif local != path and any(_is_within(one.name, never) for never in rule.never):
                yield Violation(rule.name, path, line, f"reaches {way}{one.name}")


def _violations_of(rule: Rule, path: str, imports: Sequence[Import]) -> Iterator[Violation]:
    for one in imports:
        if rule.at_import and not one.at_import:
            continue
        if rule.never is ENTRY_POINTS and one.only_types:
            continue  # naming a type for its annotation opens no door
        beyond = rule.only and not any(_allows(may, one.name) for may in rule.only)
        if beyond or any(_is_within(one.name, never) for never in rule.never):
            yield Violation(rule.name, path, one.line, f"imports {one.name}")


def _allows(may: str, name: str) -> bool:
    if may == STDLIB:
        return name.partition(".")[0] in sys.stdlib_module_names
    if "/" in may:
        return any(is_one_of(path, (may,)) for path in _paths_of(name))
    return _is_within(name, may)


def _is_within(name: str, package: str) -> bool:
    return name == package or name.startswith(package + ".")


def imports_of(path: str, source: str, tree: Mapping[str, str]) -> Iterator[Import]:
    """Every import of a source; `from package import name` names the module `name` if the tree has one."""
    yield from _walk(ast.parse(source, path), path, tree, lazy=False, types=False)


def _walk(node: ast.AST, path: str, tree: Mapping[str, str], *, lazy: bool, types: bool) -> Iterator[Import]:
    if isinstance(node, ast.If) and ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING"):
        for guarded in node.body:
            yield from _walk(guarded, path, tree, lazy=lazy, types=True)
        for otherwise in node.orelse:
            yield from _walk(otherwise, path, tree, lazy=lazy, types=types)
        return
    for name in _names(node, path, tree):
        line = getattr(node, "lineno", 1)
        yield Import(name, line, at_import=not lazy and not types, only_types=types)
    inner = lazy or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
    for child in ast.iter_child_nodes(node):
        yield from _walk(child, path, tree, lazy=inner, types=types)


def _names(node: ast.AST, path: str, tree: Mapping[str, str]) -> list[str]:
    match node:
        case ast.Import(names=names):
            return [alias.name for alias in names]
        case ast.ImportFrom(module=module, names=names, level=level):
            base = _absolute(path, module, level)
            below = [f"{base}.{alias.name}" for alias in names]
            return [name if any(at in tree for at in _paths_of(name)) else base for name in below]
        case ast.Call(
            func=ast.Name(id="import_module" | "__import__") | ast.Attribute(attr="import_module"),
            args=[ast.Constant(value=str(name)), *_],
        ):
            return [name]
    return []


def _absolute(path: str, module: str | None, level: int) -> str:
    if level == 0:
        return module or ""
    package = module_of(path).split(".")
    if not path.endswith("/__init__.py"):
        package = package[:-1]
    package = package[: len(package) - (level - 1)]
    return ".".join([*package, module] if module else package)


def module_of(path: str) -> str:
    """The dotted name under which a file of the tree is imported."""
    parts = path.removesuffix(".py").removesuffix("/__init__").split("/")
    return ".".join(parts[1:] if parts[0] in ROOTS else parts)


@cache
def _paths_of(name: str) -> tuple[str, ...]:
    """The path that a module of that name would have in the tree."""
    below = name.replace(".", "/")
    return tuple(
        f"{root}{below}{end}" for root in ("workers/", "operator/", "spark/", "") for end in (".py", "/__init__.py")
    )


@cache
def _pattern(glob: str) -> re.Pattern[str]:
    pieces = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*"}
    return re.compile(re.sub(r"\*\*/|\*\*|\*|[^*]+", lambda m: pieces.get(m[0], re.escape(m[0])), glob))


def is_one_of(path: str, globs: Sequence[str]) -> bool:
    return any(_pattern(glob).fullmatch(path) for glob in globs)


def layout_violations(files: Sequence[str]) -> list[Violation]:
    """Files that would hide a module of the standard library when our folders are on sys.path."""
    matches = []
    for path in sorted(files):
        parts = path.split("/")
        if path in {f"{root}/__init__.py" for root in ROOTS}:
            matches.append(Violation("roots", path, 1, "makes a package of a folder that holds packages"))
        below = parts[1:] if parts[0] in ROOTS else parts
        # A folder without __init__.py loses against the standard library, wherever it stands on sys.path.
        tops_a_package = len(below) == 2 and below[1] == "__init__.py"
        name = below[0].removesuffix(".py") if len(below) == 1 or tops_a_package else ""
        if name in sys.stdlib_module_names and name != "__init__":
            matches.append(Violation("shadows", path, 1, f"hides the standard library's {name}"))
    return matches


def read_tree(root: Path) -> dict[str, str]:
    """The Python sources of the repository that are held against the rules, by their path within it."""
    files = [file for folder in JUDGED for file in (root / folder).rglob("*.py")]
    return {file.relative_to(root).as_posix(): file.read_text(encoding="utf-8") for file in files}


def read_python_paths(root: Path) -> list[str]:
    """Every Python file that stands where it could be imported from: in the judged folders and at the root."""
    return [*read_tree(root), *(file.name for file in root.glob("*.py")), *_at(root, "*/__init__.py")]


def _at(root: Path, glob: str) -> list[str]:
    return [file.relative_to(root).as_posix() for file in root.glob(glob)]


if __name__ == "__main__":
    sys.stdout.write("\n".join(rows()) + "\n")
