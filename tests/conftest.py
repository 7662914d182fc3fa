"""Rules for all tests: which need servers, which share one, that every skip is declared, and that Ctrl-C works.

A shell's background processes ignore Ctrl-C, and so would all processes that a test starts."""

from __future__ import annotations

import gc
import os
import shutil
import signal
import tomllib
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import pytest

from dev.cluster.state import read_clusters
from dev.servers.debian import is_debian

pytest_plugins = ["dev.servers.fixtures", "dev.cluster.fixtures"]

FOLDER = Path(__file__).parent
DECLARED_SKIPS = tomllib.loads((FOLDER / "declared_skips.toml").read_text())["skip"]
SERVER_FIXTURES = {"cassandra", "cassandra_ring", "cassandra_hosts", "kubernetes", "k8s_namespace"}
KUBERNETES_FIXTURES = {"kubernetes", "k8s_namespace"}
POD_FIXTURES = {"headgate_image", "python_image", "spark_image"}
RING_FIXTURES = {"cassandra_ring", "cassandra_hosts"}
SYSTEM = FOLDER / "system"
POD_FOLDERS = {SYSTEM / "pods"}
OPERATOR_FOLDERS = {SYSTEM / "operator", SYSTEM / "gitops"}
RING_FOLDERS = {SYSTEM / "ring", FOLDER / "contract" / "store"}
SPARK_FOLDERS = {SYSTEM / "spark"}
APPLICATION_FOLDERS = {SYSTEM / "sdk", SYSTEM / "worker"}

HOLDS_LOCALLY: dict[str, Callable[[], bool]] = {
    "not root": lambda: os.geteuid() != 0,
    "no node": lambda: shutil.which("node") is None,
    "no go": lambda: shutil.which("go") is None,
    "no audit": lambda: any(not cluster.audit_log.exists() for cluster in read_clusters()),
    "not Debian": lambda: not is_debian(),
}
"""When a declared skip is true of this machine; a skip whose condition does not hold is a failure."""


def pytest_configure() -> None:
    """Before anything is started."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_finish() -> None:
    """Objects that live until the end are skipped by later collections: each took 0.2 s, two or three times that
    on a busy machine, and clients that run in this process stood still meanwhile."""
    gc.collect()
    gc.freeze()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what needs a server, and which: tests that share one run in one process (dev/tests.py: SERVER_GROUPS)."""
    for item in items:
        fixtures = set(getattr(item, "fixturenames", ()))
        folders = set(item.path.parents)
        if fixtures & SERVER_FIXTURES or SYSTEM in folders:
            item.add_marker("servers")
        if folders & SPARK_FOLDERS:
            item.add_marker("spark")
        if folders & APPLICATION_FOLDERS:
            item.add_marker("applications")
        if fixtures & KUBERNETES_FIXTURES:
            item.add_marker("kubernetes")
        if fixtures & POD_FIXTURES or folders & POD_FOLDERS:
            item.add_marker("pods")
        if folders & OPERATOR_FOLDERS:
            item.add_marker("operators")
        if fixtures & RING_FIXTURES or folders & RING_FOLDERS:
            item.add_marker("rings")


def undeclared(reason: str) -> str | None:
    """Why a skip does not count as declared, or None if it does."""
    for skip in DECLARED_SKIPS:
        if skip["reason"] in reason:
            holds = HOLDS_LOCALLY[skip["when"]]()
            return None if holds else f"declared for machines with {skip['when']!r}, which this one is not"
    return "not declared in tests/declared_skips.toml"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: Any) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Turn a skip that nobody declared into a failure."""
    report = yield
    if report.skipped and not hasattr(report, "wasxfail"):
        reason = str(report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr)
        problem = undeclared(reason)
        if problem is not None:
            report.outcome = "failed"
            report.longrepr = f"skipped ({reason}), {problem}"
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """A module skipped as a whole is a skip too."""
    report = yield
    if report.outcome == "skipped":
        problem = undeclared(str(report.longrepr))
        if problem is not None:
            report.outcome = "failed"
            report.longrepr = f"skipped as a whole ({report.longrepr}), {problem}"
    return report
