"""Values: every option does something, every mistake is one line, and the chart is what `helm lint` wants."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dev.cluster.helm import CHART, Helm, HelmRefused
from tests.system.chart.cases import BASE, CASES, KUBERNETES, MISTAKES, defaults, leaves, merged, rendered, with_base

HELM_PREFIX = "values don't meet the specifications of the schema(s) in the following chart(s)"


def reported_lines(helm: Helm, values: dict[str, Any]) -> list[str]:
    """The lines that report mistakes, without Helm's own words before each of them."""
    with pytest.raises(HelmRefused) as refused:
        helm.run("template", "headgate", str(CHART), *KUBERNETES, values=with_base(values))
    answer = str(refused.value.facts["answer"])
    assert "Traceback" not in answer
    lines = [line for line in answer.splitlines() if line.strip()]
    return [line for line in lines if HELM_PREFIX not in line and line != "headgate:" and "Use --debug" not in line]


@pytest.mark.parametrize("name", CASES)
def test_lint_finds_nothing_with_any_option(helm: Helm, name: str) -> None:
    assert (
        "" == helm.run("lint", "--strict", "--quiet", str(CHART), *KUBERNETES, values=with_base(CASES[name])).strip()
    )


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_one_line_that_names_it(helm: Helm, name: str) -> None:
    mistake = MISTAKES[name]
    (line,) = reported_lines(helm, mistake.values)
    assert mistake.line in line


def test_two_mistakes_are_two_lines(helm: Helm) -> None:
    assert 2 == len(reported_lines(helm, {"operator": {"replicas": 11}, "image": {"tag": 1}}))


def test_every_option_is_set_in_some_case_to_something_else() -> None:
    by_name = dict(leaves(defaults()))
    changed = {
        path
        for values in CASES.values()
        for path, value in leaves(merged(defaults(), with_base(values)))
        if path not in by_name or by_name[path] != value
    }
    below = {path for path in by_name if any(each == path or each.startswith(f"{path}.") for each in changed)}
    assert set() == set(by_name) - below


@pytest.mark.parametrize("name", [name for name in CASES if name != "the least"])
def test_every_case_changes_what_is_installed(helm: Helm, name: str) -> None:
    assert rendered(helm, {}) != rendered(helm, CASES[name])


def test_the_schema_names_every_option_and_no_other() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())
    named = {name: set(part["properties"]) for name, part in schema["properties"].items() if "properties" in part}
    values = {name: set(value) for name, value in defaults().items() if isinstance(value, dict)}
    assert values == named


def test_the_defaults_lack_nothing_but_the_way_to_cassandra(helm: Helm) -> None:
    assert ["Deployment"] == [each["kind"] for each in rendered(helm, BASE) if each["kind"] == "Deployment"]
