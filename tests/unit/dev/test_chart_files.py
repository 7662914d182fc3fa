"""The chart's copies of values from the code agree with the code."""

from __future__ import annotations

import shutil
from pathlib import Path

from dev.chart_files import CHART, generated_files, read_faults
from headgate_operator.install.decide_uninstall import OF_A_TEST
from headgate_operator.install.rbac import BRINGING, LEAVING, LEAVING_HOME, Right
from headgate_operator.model.names import SPARK_ACCOUNT, WORKER_ACCOUNT

ROOT = Path(__file__).parents[3]
HOOKS = (*BRINGING, *LEAVING, *LEAVING_HOME)


def test_generated_files_are_fresh_and_versions_are_the_projects() -> None:
    assert [] == read_faults()


def test_a_stale_file_and_another_version_are_named(tmp_path: Path) -> None:
    for path in ("pyproject.toml", "charts/headgate/Chart.yaml", *generated_files()):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / path, tmp_path / path)
    chart = tmp_path / "charts/headgate/Chart.yaml"
    chart.write_text(chart.read_text().replace("appVersion: ", "appVersion: 9."))
    (tmp_path / "charts/headgate/files/rights.yaml").write_text("everywhere: []\n")
    report = read_faults(tmp_path)
    assert ["rights.yaml is stale", "appVersion is 9."] == [
        part
        for fault, part in zip(report, ("rights.yaml is stale", "appVersion is 9."), strict=True)
        if part in fault
    ]


def test_the_hooks_write_secrets_accounts_and_definitions_by_name_alone() -> None:
    loose = {
        each.resource
        for each in HOOKS
        if {"create", "patch", "update", "delete"} & set(each.verbs) and not each.names
    }
    assert {"queues", "counters", "cronjobs"} == loose


def test_what_the_end_deletes_by_name_is_what_the_operator_makes_by_name() -> None:
    def names(each: Right) -> set[str]:
        return set(each.names)

    accounts = [names(each) for each in LEAVING if each.kind.kind == "ServiceAccount" and each.names]
    assert [{WORKER_ACCOUNT, SPARK_ACCOUNT}] == accounts


def test_the_label_of_what_helm_test_makes_is_the_one_that_the_end_searches_for() -> None:
    assert f"{OF_A_TEST}: " in (CHART / "templates/tests/messages.yaml").read_text()
