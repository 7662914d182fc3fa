"""The contracts on packages (pyproject.toml) and on what a module reaches (tests/kit/reach.py): each holds, and each
fails on a wrong import."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterable
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

import grimp
import pytest
from importlinter import Contract
from importlinter.application import use_cases
from importlinter.configuration import configure
from importlinter.domain.contract import registry

from tests.kit.reach import RULES, Rule, modules_of, read_graph, violations

ROOT = Path(__file__).parents[3]
ROOTS = ("workers", "operator", "spark")
"""Folders whose children are import packages: each lands on sys.path of an editable install."""

configure()
OPTIONS = use_cases.read_user_options(str(ROOT / "pyproject.toml"))
use_cases._register_contract_types(OPTIONS)
CONTRACTS: dict[str, dict[str, Any]] = {each["id"]: each for each in OPTIONS.contracts_options}

WRONG = [
    ("checkout", "headgate.cli.dev", "dev.cluster.state"),
    ("checkout", "headgate_operator.decide.resource", "headgate_spark.options"),
    ("checkout", "headgate.client.queue", "headgate_spark.options"),
    ("tests", "headgate_operator.decide.resource", "tests"),
    ("rooms", "headgate.engines.lanes.ownership.lease", "headgate.client.queue"),
    ("rooms", "headgate.client.queue", "headgate.runtime.worker.worker"),
    ("rooms", "headgate.api.resources.queues", "headgate.store.store"),
    ("rooms", "headgate.runtime.worker.slots", "headgate.testing"),
    ("rooms", "headgate.new_room", "headgate.errors"),
    ("api", "headgate.api.resources.queues", "headgate.api.rules.rules"),
    ("api", "headgate.api.read.parse", "headgate.api.generate.schemas"),
    ("applying", "headgate.applying.decide_steps", "headgate.applying.perform_steps"),
    ("store", "headgate.store.model.table", "headgate.store.schema"),
    ("store", "headgate.store.store", "headgate.store.cassandra.session"),
    ("counters", "headgate.counters.types.registry", "headgate.counters.model.settings"),
    ("counters", "headgate.counters.write.mutator", "headgate.counters.read.reading"),
    ("client", "headgate.client.queue", "headgate.client.connection"),
    ("runtime", "headgate.runtime.policy.decide_pace", "headgate.runtime.worker.slots"),
    ("timeline", "headgate.engines.timeline.put.once", "headgate.engines.timeline.read.source"),
    ("lanes", "headgate.engines.lanes.dispatcher", "headgate.engines.timeline.model.tables"),
    ("lanes", "headgate.engines.receipts", "headgate.engines.registry"),
    ("engines", "headgate.cli.queues", "headgate.engines.timeline.engine"),
    ("rooms-of-others", "headgate_operator.process.main", "headgate.runtime.worker.worker"),
    ("rooms-of-others", "headgate_spark.options", "headgate.local.stack"),
    ("operator", "headgate_operator.informers.object_cache", "headgate_operator.decide.children"),
    ("operator", "headgate_operator.observe.world_builder", "headgate_operator.decide.resource"),
    ("operator", "headgate_operator.cli.kubectl_plugin", "headgate_operator.process.wiring"),
    ("operator", "headgate_operator.new_room", "headgate_operator.model.names"),
    ("operator-decisions", "headgate_operator.decide.status", "headgate_operator.store.sessions"),
    ("operator-decisions", "headgate_operator.manifests.pod", "headgate_operator.cluster.port"),
    ("operator-informers", "headgate_operator.informers.object_cache", "headgate_operator.manifests.document_diff"),
    ("spark", "headgate_spark.engines.contract", "headgate_spark.jobs.decide_batch"),
    ("spark", "headgate_spark.read.stream_reader", "headgate_spark.jobs.sinks"),
    ("spark", "headgate_spark.new_room", "headgate.errors"),
    ("spark-engines", "headgate_spark.jobs.tasks", "headgate_spark.engines.timeline.ids"),
    ("driver", "headgate.engines.lanes.ownership.lease", "cassandra"),
    ("driver", "dev.servers.cassandra.ready", "cassandra"),
    ("api-server", "headgate_operator.informers.kopf_watch", "kubernetes"),
    ("kopf", "headgate_operator.cluster.api_server", "kopf"),
    ("pyspark", "headgate.client.queue", "pyspark"),
    ("containers", "dev.servers.docker_engine", "testcontainers"),
    ("certificates", "dev.servers.network", "cryptography"),
    ("yaml", "headgate.api.resources.queues", "yaml"),
    ("terminal", "headgate.cli.messages", "rich"),
]
"""A contract, an importer, and an import that breaks the contract and no other."""

UNREACHABLE = [
    ("pure", "headgate.engines.lanes.delivery.delivery_state", "time"),
    ("pure", "headgate_operator.model.world", "headgate.store.store"),
    ("pure", "headgate.counters.types.registry", "numpy"),
    ("pure", "headgate.store.model.table", "random"),
    ("pure", "headgate.api.resources.queues", "headgate.api.read.loader"),
    ("standard library", "headgate.local.cache", "pytest"),
    ("standard library", "dev.servers.debian", "headgate.api.resources.queues"),
    ("standard library", "headgate", "headgate.client.connection"),
    ("simulated cluster", "tests.kit.simulated_cluster.server", "headgate_operator.decide.resource"),
    ("simulated cluster", "tests.kit.simulated_cluster.server", "kubernetes"),
]


@cache
def _every_import() -> grimp.ImportGraph:
    return grimp.build_graph(
        *OPTIONS.session_options["root_packages"], include_external_packages=True, cache_dir=None
    )


_reached = cache(read_graph)


def _with_import(graph: grimp.ImportGraph, importer: str, imported: str) -> grimp.ImportGraph:
    changed = deepcopy(graph)
    for module in {importer, imported} - changed.modules:
        changed.add_module(module, is_squashed="." not in module)
    changed.add_import(importer=importer, imported=imported, line_number=1, line_contents=f"import {imported}")
    return changed


def _is_kept(contract: str, graph: grimp.ImportGraph) -> bool:
    options = CONTRACTS[contract]
    kind: Callable[..., Contract] = registry.get_contract_class(options["type"])
    held = kind(name=options["name"], session_options=OPTIONS.session_options, contract_options=options)
    return held.check(deepcopy(graph), verbose=False).kept


@pytest.mark.parametrize("contract", CONTRACTS)
def test_no_package_imports_what_it_must_not(contract: str) -> None:
    assert _is_kept(contract, _every_import()), f"`make lint` prints the imports that break {contract}"


@pytest.mark.parametrize(("contract", "importer", "imported"), WRONG)
def test_a_wrong_import_breaks_its_contract(contract: str, importer: str, imported: str) -> None:
    assert not _is_kept(contract, _with_import(_every_import(), importer, imported))


def test_every_contract_is_shown_to_fail() -> None:
    assert set(CONTRACTS) == {contract for contract, _, _ in WRONG}


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_no_module_reaches_what_it_must_not(rule: Rule) -> None:
    assert [] == list(violations(_reached(), rule))


@pytest.mark.parametrize(("rule", "importer", "imported"), UNREACHABLE)
def test_what_is_reached_through_a_wrong_import_is_found(rule: str, importer: str, imported: str) -> None:
    [held] = [each for each in RULES if each.name == rule]
    chains = list(violations(_with_import(_reached(), importer, imported), held))
    assert [chain for chain in chains if f"{importer} -> {imported}" in chain] != []


def test_every_rule_is_shown_to_fail_and_matches_modules() -> None:
    assert {rule.name for rule in RULES} == {rule for rule, _, _ in UNREACHABLE}
    globs = {glob: Rule("", (glob,), frozenset()) for rule in RULES for glob in (*rule.modules, *rule.but)}
    assert [] == [glob for glob, alone in globs.items() if not modules_of(alone, _reached())]


def test_an_import_for_types_alone_reaches_nothing() -> None:
    assert _every_import().direct_import_exists(importer="headgate", imported="headgate.client.connection")
    assert not _reached().direct_import_exists(importer="headgate", imported="headgate.client.connection")


def _misplaced(files: Iterable[str]) -> list[str]:
    """Files that make a package of a folder of packages, or hide a module of the standard library."""
    misplaced = []
    for path in files:
        parts = path.split("/")
        below = parts[1:] if parts[0] in ROOTS else parts
        # A folder without __init__.py loses against the standard library, wherever it stands on sys.path.
        tops_a_package = len(below) == 2 and below[1] == "__init__.py"
        name = below[0].removesuffix(".py") if len(below) == 1 or tops_a_package else ""
        if name in {*sys.stdlib_module_names, "__init__"} and parts != ["__init__.py"]:
            misplaced.append(path)
    return misplaced


def test_no_file_hides_a_module_of_the_standard_library() -> None:
    folders = [*ROOTS, "dev", "bench"]
    files = [file for folder in folders for file in (ROOT / folder).rglob("*.py")]
    files += [*ROOT.glob("*.py"), *ROOT.glob("*/__init__.py")]
    assert [] == _misplaced(file.relative_to(ROOT).as_posix() for file in files)


@pytest.mark.parametrize(
    "path",
    ["operator/__init__.py", "operator/queue/__init__.py", "workers/types.py", "select.py", "code/__init__.py"],
)
def test_a_file_in_the_wrong_place_is_found(path: str) -> None:
    assert [path] == _misplaced(["workers/headgate/store/model/types.py", "dev/__init__.py", path])


@pytest.mark.parametrize(
    "module", modules_of(next(each for each in RULES if each.name == "standard library"), read_graph())
)
def test_what_starts_servers_is_imported_without_a_virtual_environment(module: str) -> None:
    """-S leaves site-packages out, so that only the standard library and this checkout are there."""
    ran = subprocess.run(
        [sys.executable, "-S", "-c", f"import {module}"],
        env={**os.environ, "PYTHONPATH": f"{ROOT / 'workers'}{os.pathsep}{ROOT}"},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (ran.returncode, ran.stderr) == (0, "")
