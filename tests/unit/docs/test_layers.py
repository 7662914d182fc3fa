"""The layers hold over the real import graph, and their checker can fail."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kit.layers import (
    JUDGED,
    LAYOUT,
    PRIMITIVES,
    ROOTS,
    RULES,
    Rule,
    imports_of,
    is_one_of,
    layout_violations,
    module_of,
    read_python_paths,
    read_tree,
    rows,
    violations,
)

ROOT = Path(__file__).parents[3]

NEIGHBOURS = dict.fromkeys(
    (
        "workers/headgate/api/__init__.py",
        "workers/headgate/api/queue.py",
        "workers/headgate/engines/__init__.py",
        "workers/headgate/engines/decide_hand_out.py",
        "workers/headgate/engines/timeline/__init__.py",
        "workers/headgate/engines/timeline/model/tables.py",
        "workers/headgate/store/__init__.py",
        "workers/headgate/store/cassandra/store.py",
        "dev/servers/fixtures.py",
    ),
    "",
)

WRONG = [
    ("driver", "workers/headgate/engines/lanes/lease.py", "import cassandra"),
    ("driver", "dev/servers/cassandra/ready.py", "from cassandra.cluster import Cluster"),
    ("driver", "operator/headgate_operator/tables.py", "def f():\n    import cassandra.query"),
    ("driver", "dev/probe.py", "from importlib import import_module\nimport_module('cassandra.cluster')"),
    ("cluster client", "operator/headgate_operator/kopf_watch.py", "from kubernetes import client"),
    ("cluster client", "workers/headgate/cli/main.py", "import kubernetes.aio as k"),
    ("kopf", "operator/headgate_operator/api_server.py", "import kopf"),
    ("kopf", "operator/headgate_operator/deeper/handlers.py", "__import__('kopf')"),
    ("terminal", "workers/headgate/cli/put.py", "def f():\n    from rich.progress import Progress"),
    ("pyspark", "workers/headgate/client/bulk.py", "from pyspark.sql import DataFrame"),
    ("pyspark", "operator/headgate_operator/decide_bulk.py", "if TYPE_CHECKING:\n    import pyspark"),
    ("operator decisions", "operator/headgate_operator/decide.py", "import yaml"),
    ("operator decisions", "operator/headgate_operator/decide.py", "from headgate.store import cassandra"),
    ("decisions", "workers/headgate/engines/timeline/rules_stamp.py", "from . import tables"),
    ("decisions", "workers/headgate/engines/lease/decide_take.py", "import datasketches"),
    ("decisions", "workers/headgate/expiry.py", "from headgate.store import clock"),
    ("applying decisions", "workers/headgate/applying/decide_steps.py", "from headgate.store import cassandra"),
    ("cluster port", "operator/headgate_operator/port.py", "import aiohttp"),
    ("simulated cluster", "tests/kit/simulated_cluster/server.py", "from headgate_operator import decide"),
    (
        "counter types",
        "workers/headgate/counters/types/total.py",
        "from headgate.counters.write.mutator import Mutator",
    ),
    ("counter types", "workers/headgate/counters/types/deep/total.py", "import numpy"),
    ("no doors", "workers/headgate/engines/decide_hand_out.py", "import time"),
    ("no doors", "workers/headgate/counters/types/total.py", "from os import urandom"),
    ("no doors", "workers/headgate/engines/extent/rules.py", "import asyncio"),
    ("resource models", "workers/headgate/api/queue.py", "import yaml"),
    ("resource models", "workers/headgate/api/deeper/queue.py", "from headgate.store import table"),
    ("resource models", "workers/headgate/api/queue.py", "from ..store import cassandra"),
    ("resource files", "workers/headgate/api/loader.py", "import requests"),
    ("testing primitives", "workers/headgate/local/cache.py", "import pytest"),
    ("testing primitives", "workers/headgate/local/cassandra/node.py", "def start():\n    import yaml"),
    ("testing primitives", "dev/servers/debian.py", "from dev.servers import fixtures"),
    ("testing primitives", "workers/headgate/errors.py", "import pydantic"),
    ("containers", "dev/servers/cassandra/docker.py", "def start():\n    import docker"),
    ("doorsteps", "workers/headgate/__init__.py", "from headgate.client import connect"),
    ("doorsteps", "workers/headgate/local/__init__.py", "try:\n    import pytest\nexcept ImportError:\n    pass"),
    ("dispatcher", "workers/headgate/engines/lanes/dispatcher.py", "from ..timeline import tables"),
    ("dispatcher", "workers/headgate/engines/lanes/loop.py", "import headgate.engines.extent"),
    ("engines", "workers/headgate/engines/timeline/repair/repair.py", "from headgate.client import generations"),
    ("engines", "workers/headgate/engines/registry.py", "import headgate.applying.apply"),
    ("sdk", "workers/headgate/client/queue.py", "from headgate.runtime import worker"),
    (
        "sdk",
        "workers/headgate/client/catalogue/process_context.py",
        "def f():\n    from headgate.testing import world",
    ),
    ("data plane", "workers/headgate/cli/main.py", "from headgate_operator import decide"),
    ("data plane", "workers/headgate/client/bulk.py", "import headgate_spark.source"),
    ("shipped", "workers/headgate/cli/dev.py", "from dev import cluster"),
    ("shipped", "operator/headgate_operator/decide.py", "import tests.unit"),
]

RIGHT = [
    ("workers/headgate/store/cassandra/store.py", "from cassandra.cluster import Cluster"),
    ("workers/headgate/store/cassandra/retry.py", "import cassandra"),
    ("workers/headgate/engines/lanes/lease.py", "from headgate.store import cassandra, table"),
    ("workers/headgate/cli/terminal/live.py", "def f():\n    from rich.live import Live"),
    ("operator/headgate_operator/api_server.py", "from kubernetes import aio\nimport asyncio"),
    ("operator/headgate_operator/kopf_watch.py", "import kopf\nfrom headgate.api import queue"),
    ("dev/cluster/ready.py", "from kubernetes import client"),
    ("spark/headgate_spark/source.py", "from pyspark.sql import datasource\nfrom headgate import api"),
    (
        "workers/headgate/client/queue.py",
        "from headgate.engines.timeline import tables\nfrom headgate.api import queue",
    ),
    (
        "operator/headgate_operator/decide.py",
        "from headgate.engines import decide_hand_out\nimport datetime, pydantic",
    ),
    ("workers/headgate/engines/decide_wake.py", "if TYPE_CHECKING:\n    from asyncio import Event"),
    ("workers/headgate/engines/extent/rules.py", "from headgate.expiry import is_silent\nfrom ..decide_x import y"),
    ("workers/headgate/counters/types/distinct.py", "import datasketches\nfrom .law import Law\nimport struct"),
    ("workers/headgate/api/queue.py", "from __future__ import annotations\nfrom . import duration\nimport pydantic"),
    ("workers/headgate/api/generate.py", "import json\nimport yaml"),
    ("workers/headgate/api/loader.py", "import yaml\nfrom headgate.errors import InvalidRequest"),
    ("workers/headgate/local/cache.py", "import fcntl\nfrom headgate.errors import EnvironmentProblem"),
    ("dev/servers/cassandra/ring.py", "from dev.servers import namespaces\nfrom .node import Node"),
    ("dev/servers/fixtures.py", "import pytest\nfrom headgate.testing import cassandra"),
    (
        "workers/headgate/__init__.py",
        "def __getattr__(name):\n    from headgate.client import connect\n    return connect",
    ),
]


def test_no_file_of_the_tree_knows_what_it_must_not() -> None:
    assert [str(one) for one in violations(read_tree(ROOT))] == []


def test_no_file_hides_a_module_of_the_standard_library() -> None:
    assert [str(one) for one in layout_violations(read_python_paths(ROOT))] == []


def test_the_checker_sees_the_real_tree() -> None:
    tree = read_tree(ROOT)
    assert {path.split("/")[0] for path in tree} >= set(ROOTS)
    cache = "workers/headgate/local/cache.py"
    assert "headgate.errors" in {one.name for one in imports_of(cache, tree[cache], tree)}
    assert set(JUDGED) == {*ROOTS, "dev", "bench"}


@pytest.mark.parametrize(("rule", "path", "source"), WRONG)
def test_a_forbidden_import_is_found(rule: str, path: str, source: str) -> None:
    result = violations({**NEIGHBOURS, path: source})
    assert (rule, path) in {(one.rule, one.path) for one in result}


REACHING = {
    **NEIGHBOURS,
    "workers/headgate/store/store.py": "import asyncio",
    "workers/headgate/store/entry.py": "from headgate.store.store import Row",
}


def test_a_door_that_is_reached_through_other_modules_is_found() -> None:
    path = "operator/headgate_operator/world.py"
    result = violations({**REACHING, path: "import json\nfrom headgate.store.entry import Entry"})
    reached = f"{path}:2: reaches headgate.store.entry -> headgate.store.store -> asyncio [no doors]"
    assert [reached] == [str(one) for one in result if one.rule == "no doors"]


@pytest.mark.parametrize(
    "source",
    [
        "if TYPE_CHECKING:\n    from headgate.store.entry import Entry",
        "def read():\n    from headgate.store.entry import Entry",
        "from headgate.store import cassandra",
    ],
)
def test_a_door_that_is_not_reached_at_import_is_not_found(source: str) -> None:
    result = violations({**REACHING, "operator/headgate_operator/world.py": source})
    assert [] == [str(one) for one in result if one.rule == "no doors"]


@pytest.mark.parametrize(("path", "source"), RIGHT)
def test_a_permitted_import_is_not_found(path: str, source: str) -> None:
    assert violations({**NEIGHBOURS, path: source}) == []


def test_every_rule_is_shown_to_fail() -> None:
    assert {rule for rule, _, _ in WRONG} == {rule.name for rule in RULES}


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_without_its_rule_a_forbidden_import_passes(rule: Rule) -> None:
    """So that no rule is there in name only, its work done by another."""
    others = [other for other in RULES if other is not rule]
    passed = [
        path
        for name, path, source in WRONG
        if name == rule.name and not violations({**NEIGHBOURS, path: source}, others)
    ]
    assert passed != []


@pytest.mark.parametrize(
    ("rule", "path"),
    [
        ("roots", "operator/__init__.py"),
        ("roots", "workers/__init__.py"),
        ("roots", "spark/__init__.py"),
        ("shadows", "operator/queue/__init__.py"),
        ("shadows", "workers/types.py"),
        ("shadows", "select.py"),
        ("shadows", "code/__init__.py"),
    ],
)
def test_a_file_in_the_wrong_place_is_found(rule: str, path: str) -> None:
    assert rule in LAYOUT
    assert rule in {one.rule for one in layout_violations(["workers/headgate/errors.py", path])}


@pytest.mark.parametrize(
    "path", ["workers/headgate/store/model/types.py", "dev/__init__.py", "spark/headgate_spark/io.py"]
)
def test_a_module_within_a_package_of_ours_hides_nothing(path: str) -> None:
    assert layout_violations([path]) == []


def test_relative_imports_are_given_by_their_absolute_names() -> None:
    source = "from . import a\nfrom .b import c\nfrom .. import d\nfrom ..e.f import g"
    inside = [one.name for one in imports_of("workers/headgate/store/x.py", source, {})]
    assert inside == ["headgate.store", "headgate.store.b", "headgate", "headgate.e.f"]
    package = [one.name for one in imports_of("workers/headgate/store/__init__.py", source, {})]
    assert package == ["headgate.store", "headgate.store.b", "headgate", "headgate.e.f"]


def test_contributing_shows_the_rules_as_they_are() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    _, _, after = text.partition("<!-- rules: tests/kit/layers.py -->\n")
    table, marker, _ = after.partition("\n<!-- end of rules -->")
    assert marker
    assert table.splitlines()[2:] == rows()


def test_the_layers_of_contributing_name_rules_that_exist() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    _, _, after = text.partition("<!-- layers -->\n")
    lines = after.partition("\n<!-- end of layers -->")[0].splitlines()[2:]
    named = {rule.strip() for line in lines for rule in line.split("|")[4].split(",")} - {"", "-"}
    assert named == {rule.name for rule in RULES} | set(LAYOUT)


def _primitives() -> list[str]:
    return sorted(module_of(path) for path in read_tree(ROOT) if is_one_of(path, PRIMITIVES))


@pytest.mark.parametrize("module", _primitives())
def test_a_testing_primitive_is_imported_without_a_virtual_environment(module: str) -> None:
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
