"""What a module may reach through all its imports: the rules that a contract on packages cannot express.

A decision is pure, so that it can be simulated, replayed and explained: it reaches no clock, no chance and no I/O,
also not through what it imports. What starts servers reaches the standard library alone, since it runs before a
virtual environment exists. A simulated API server that knew the operator would be right whenever that one is wrong.

Imports under TYPE_CHECKING reach nothing; imports within functions count. The `__init__` of a package above an
imported module is not followed. `python -m tests.kit.reach` prints the chain of each violation.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase

import grimp

IMPURE = frozenset({
    "asyncio", "concurrent", "contextvars", "ftplib", "http", "logging", "multiprocessing", "os", "pathlib", "random",
    "secrets", "select", "selectors", "shutil", "signal", "smtplib", "socket", "socketserver", "sqlite3", "ssl",
    "subprocess", "tempfile", "threading", "time", "urllib",
})  # fmt: skip
"""Standard modules by which a decision would reach the world, the clock or a source of chance."""
VALUES = frozenset({"pydantic", "pydantic_core", "datasketches", "lz4"})
"""Libraries that only compute."""
STANDARD = frozenset(sys.stdlib_module_names)
OURS = ("headgate", "headgate_operator", "headgate_spark", "dev", "tests")


@dataclass(frozen=True)
class Rule:
    """Modules, as globs of dotted names, and what they may reach of others' and of our own."""

    name: str
    modules: tuple[str, ...]
    others: frozenset[str]
    but: tuple[str, ...] = ()
    ours: tuple[str, ...] = ("*",)


RULES = (
    Rule(
        "pure",
        (
            "headgate*.decide_*", "headgate.expiry", "headgate.store.clock.clock_state",
            "headgate.store.model.*", "headgate.counters.model.*", "headgate.counters.types.*",
            "headgate.engines.*.model.*", "headgate.engines.contract", "headgate.engines.packed_row",
            "headgate.engines.lanes.delivery.delivery_state", "headgate.engines.lanes.delivery.read_budget",
            "headgate.engines.lanes.delivery.rows", "headgate.engines.lanes.log.settle_log",
            "headgate.engines.lanes.log.settle_log_format", "headgate.api.*",
            *(f"headgate_operator.{name}" for name in (
                "model.*", "manifests.*", "decide.*", "cluster.port", "install.rbac",
                "dry_run.effects_on_world", "dry_run.offline", "dry_run.projection",
            )),
        ),
        STANDARD - IMPURE | VALUES,
        but=("headgate.api.read.loader*", "headgate.api.generate*"),
    ),
    Rule(
        "standard library",
        ("headgate", "headgate.errors", "headgate.local", "headgate.local.*", "dev.servers", "dev.servers.*"),
        STANDARD | {"testcontainers", "cryptography"},  # where a function asks for them
        # These run within the environment: fixtures, and the queue of `headgate dev`.
        but=(
            "dev.servers.fixtures", "headgate.local.first_*", "headgate.local.stack", "headgate.local.memory_stack",
            "headgate.local.declared",
        ),
    ),
    Rule(
        "simulated cluster",
        ("tests.kit.simulated_cluster", "tests.kit.simulated_cluster.*"),
        STANDARD | VALUES,
        ours=(
            "tests.kit.simulated_cluster*", "tests.kit.simulated_world*", "headgate.errors", "headgate.api.*",
            "headgate.testing.virtual_*",
            *(f"headgate_operator.{name}" for name in ("model.kinds", "cluster.port", "cluster.requests")),
        ),
    ),
)  # fmt: skip


def read_graph() -> grimp.ImportGraph:
    """What each module imports when it runs."""
    return grimp.build_graph(
        *("headgate", "headgate_operator", "headgate_spark", "dev"),
        *("tests.kit.simulated_cluster", "tests.kit.simulated_world"),
        include_external_packages=True,
        exclude_type_checking_imports=True,
        cache_dir=None,
    )


def is_one_of(module: str, globs: tuple[str, ...]) -> bool:
    return any(fnmatchcase(module, glob) for glob in globs)


def modules_of(rule: Rule, graph: grimp.ImportGraph) -> list[str]:
    """The modules that a rule holds."""
    return sorted(each for each in graph.modules if is_one_of(each, rule.modules) and not is_one_of(each, rule.but))


def violations(graph: grimp.ImportGraph, rule: Rule) -> Iterator[str]:
    """The shortest chain to each thing that a module of the rule reaches and may not."""
    for module in modules_of(rule, graph):
        for reached in sorted(graph.find_upstream_modules(module)):
            is_ours = reached.partition(".")[0] in OURS
            if not (is_one_of(reached, rule.ours) if is_ours else reached in rule.others):
                yield " -> ".join(graph.find_shortest_chain(module, reached) or ())


if __name__ == "__main__":
    for each in RULES:
        sys.stdout.writelines(f"{each.name}: {chain}\n" for chain in violations(read_graph(), each))
