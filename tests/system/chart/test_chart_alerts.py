"""Each alert of the chart is made to fire once by a fault: real processes, scraped by a real Prometheus with the
chart's rules. What takes minutes of a fault is in test_chart_alerts_long.py; that none is forgotten is a unit test.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from dev.cluster.fixtures import KubernetesUnderTest
from dev.cluster.helm import CHART, Helm
from dev.cluster.kubectl import has_condition
from dev.servers.cassandra.serving import Serving
from headgate.local.processes import wait_until
from tests.system.chart.alert_scene import Scene, fires, queue, rules_of, scene_of
from tests.system.chart.prometheus_process import program

pytestmark = pytest.mark.slow

METRIC = re.compile(r"\b(headgate_[a-z_]+|workqueue_[a-z_]+)\b")


@pytest.fixture(scope="module")
def scene(
    kubernetes: KubernetesUnderTest, cassandra: Serving, helm: Helm, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Scene]:
    with scene_of(kubernetes, cassandra, helm, tmp_path_factory.mktemp("alerts")) as made:
        yield made


def alerts() -> list[dict[str, Any]]:
    """All of the chart."""
    text = yaml.safe_load((CHART / "files/alerts.yaml").read_text())
    return [rule for group in text["groups"] for rule in group["rules"]]


def named_metrics() -> set[str]:
    """Metrics that the rules and the dashboard use."""
    panels = json.loads((CHART / "files/dashboard.json").read_text())["panels"]
    expressions = [target["expr"] for panel in panels for target in panel.get("targets", ())]
    expressions += [str(alert["expr"]) for alert in alerts()]
    return {result for expression in expressions for result in METRIC.findall(expression)}


def test_promtool_finds_nothing_in_the_rules(helm: Helm, tmp_path: Path) -> None:
    file = tmp_path / "rules.yaml"
    file.write_text(yaml.safe_dump({"groups": rules_of(helm)}))
    command = [program("promtool"), "check", "rules", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (0, f"{len(alerts())} rules found") == (done.returncode, done.stdout.strip().rpartition("SUCCESS: ")[2])


def test_nothing_fires_while_all_is_well(scene: Scene) -> None:
    client = scene.namespace()
    client.apply(queue("well"))
    client.wait_for("queue", "well", has_condition("Ready"), what="is Ready")
    name = f"{client.namespace}/well"
    scene.worker(name, "takes_a_while")
    scene.put(name, b"1", b"2")
    assert wait_until(lambda: scene.value(f'headgate_worker_acked_total{{queue="{name}"}}') == 2, timeout_s=60)
    ours = {"namespace": client.namespace, "queue": name}
    others = [each for each in scene.prometheus.alerts() if {"namespace", "queue"} & each.keys()]
    unconcerned = [each for each in others if not any(each.get(label) == report for label, report in ours.items())]
    assert [] == [each for each in scene.prometheus.alerts() if each not in unconcerned]


@fires("HeadgateResourceStalled", "HeadgateResourceNotReady")
def test_resources_that_wait_for_a_person_and_that_are_not_ready(scene: Scene) -> None:
    client = scene.namespace()
    client.apply(queue("a", deadLetter="b"), queue("b", deadLetter="a"), queue("lonely", deadLetter="nobody"))
    scene.until_fires("HeadgateResourceStalled", name="a", reason="DeadLetterCycle")
    scene.until_fires("HeadgateResourceNotReady", name="lonely", reason="DeadLetterMissing")
    assert "a" not in {each["name"] for each in scene.prometheus.alerts() if each["alertname"].endswith("NotReady")}


@fires("HeadgateLanesUnhealthy", "HeadgateQueueLags")
def test_messages_that_nobody_handles(scene: Scene) -> None:
    client = scene.namespace()
    client.apply(queue("unhandled"), queue("late"))
    for name in ("unhandled", "late"):
        client.wait_for("queue", name, has_condition("Ready"), what="is Ready")
    scene.put(f"{client.namespace}/unhandled", b"1")
    scene.worker(f"{client.namespace}/late", "lingers", "--concurrency", "1")
    scene.put(f"{client.namespace}/late", *(b"%d" % number for number in range(40)))
    scene.until_fires("HeadgateQueueLags", queue="late")
    scene.until_fires("HeadgateLanesUnhealthy", name="unhandled", reason="LanesUnprocessed")


@fires("HeadgateDeadLetters", "HeadgateWorkersThrottled")
def test_messages_that_are_refused_and_handlers_whose_world_is_unavailable(scene: Scene) -> None:
    client = scene.namespace()
    client.apply(queue("refused", deadLetter="dead"), queue("dead"), queue("failing", maxReceives=1000))
    for name in ("refused", "dead", "failing"):
        client.wait_for("queue", name, has_condition("Ready"), what="is Ready")
    patience = ("--backoff", "100ms", "--backoff-max", "1s")
    scene.worker(f"{client.namespace}/refused", "rejects")
    scene.worker(f"{client.namespace}/failing", "fails", "--concurrency", "4", *patience)
    scene.put(f"{client.namespace}/refused", b"1", b"2")
    scene.put(f"{client.namespace}/failing", *(b"%d" % number for number in range(60)))
    scene.until_fires("HeadgateDeadLetters", queue=f"{client.namespace}/refused")
    scene.until_fires("HeadgateWorkersThrottled", queue=f"{client.namespace}/failing")


def test_every_metric_that_rules_and_dashboard_name_is_exported_by_a_running_process(scene: Scene) -> None:
    assert set() == named_metrics() - scene.prometheus.metrics()


@fires("HeadgateOperatorNoLeader")
def test_an_operator_that_is_gone(scene: Scene) -> None:
    assert "HeadgateOperatorNoLeader" not in scene.prometheus.firing()
    scene.operator.kill()
    scene.until_fires("HeadgateOperatorNoLeader")
