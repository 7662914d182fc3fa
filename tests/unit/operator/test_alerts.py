"""Every alert of the chart has a test that makes it fire, and a runbook."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.system.chart import test_chart_alerts, test_chart_alerts_long
from tests.system.chart.alert_scene import FIRED_BY, ROOT

PAGES = sorted((ROOT / "docs/runbooks").glob("Headgate*.md"))


def test_every_alert_has_a_test_that_fires_it_and_a_page() -> None:
    files = (test_chart_alerts, test_chart_alerts_long)
    assert {alert["alert"] for alert in test_chart_alerts.alerts()} == set(FIRED_BY)
    assert [] == [name for name in FIRED_BY.values() if not any(hasattr(file, name) for file in files)]
    assert set(FIRED_BY) == {page.stem for page in PAGES}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_has_a_diagnosis_and_a_remedy(page: Path) -> None:
    text = page.read_text()
    assert ["## Diagnosis", "## Remedy"] == re.findall(r"^## .*$", text, re.MULTILINE)
    assert text.startswith(f"# {page.stem}: ")
