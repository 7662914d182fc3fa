"""Where alerts are made to fire: an operator that leads, workers, a Cassandra behind a gate that can be cut, and a
real Prometheus with the chart's rules that scrapes them.
"""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import headgate
from dev.cluster.fixtures import KubernetesUnderTest
from dev.cluster.helm import Helm
from dev.cluster.kubectl import Kubectl
from dev.servers.cassandra.serving import Serving
from headgate.local.processes import server_ports, wait_until
from tests.system.cassandra.gate import Gate
from tests.system.chart.cases import rendered
from tests.system.chart.prometheus_process import Prometheus, Rules, prometheus
from tests.system.operator.operator_process import Home, OperatorProcess, home, leading

ROOT = Path(__file__).parents[3]
LAG_S = 5
Test = TypeVar("Test", bound=Callable[..., None])
FIRED_BY: dict[str, str] = {}
"""Each alert, and the test that makes it fire."""


def fires(*alerts: str) -> Callable[[Test], Test]:
    """This test makes these fire."""

    def noted(test: Test) -> Test:
        FIRED_BY.update(dict.fromkeys(alerts, test.__name__))
        return test

    return noted


def rules_of(helm: Helm) -> Rules:
    """As the chart has them, with a bound for lag that is soon passed."""
    values = {"alerts": {"enabled": True, "queueLagSeconds": LAG_S}}
    (rule,) = [each for each in rendered(helm, values) if each["kind"] == "PrometheusRule"]
    groups: Rules = rule["spec"]["groups"]
    return groups


@dataclass
class Scene:
    """All of it."""

    home: Home
    operator: OperatorProcess
    store: Gate
    prometheus: Prometheus
    environment: dict[str, str]
    folder: Path
    stack: ExitStack
    targets: dict[str, int] = field(default_factory=dict)

    def namespace(self) -> Kubectl:
        """One of its own."""
        name = f"alerts-{secrets.token_hex(3)}"
        kubectl = self.home.kubectl
        kubectl.run("create", "namespace", name)
        self.stack.callback(kubectl.delete, "namespace", name, wait=False)
        return kubectl.in_namespace(name)

    def scrape(self, name: str, port: int) -> None:
        """This one too, from now on."""
        self.targets[name] = port
        self.prometheus.scrape(**self.targets)

    def worker(self, queue: str, handler: str, *options: str) -> subprocess.Popen[bytes]:
        """One that is scraped: what it counts from now on is seen as more than before."""
        (port,) = server_ports(1)
        name = f"worker{len(self.targets)}"
        command = [sys.executable, "-m", "headgate.cli.main", "worker", queue]
        command += [
            "--handler",
            f"tests.system.chart.alert_handlers:{handler}",
            "--health",
            f"127.0.0.1:{port}",
            *options,
        ]
        paths = os.pathsep.join((str(ROOT / "workers"), str(ROOT)))
        with (self.folder / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(
                command, cwd=ROOT, env={**os.environ, **self.environment, "PYTHONPATH": paths}, stdout=log, stderr=log
            )
        self.stack.callback(_ended, process)
        self.scrape(name, port)
        asked = f'headgate_worker_received_total{{queue="{queue}", job="{name}"}}'
        assert wait_until(lambda: self.value(asked) is not None, timeout_s=60), self.log(name)
        return process

    def log(self, name: str) -> str:
        """The last lines of a worker's log."""
        return (self.folder / f"{name}.log").read_text()[-4_000:]

    def put(self, queue: str, *payloads: bytes) -> None:
        """As a program does."""
        with headgate.connect_sync(self.environment) as connection:
            connection.queue(queue).put_many(list(payloads))

    def value(self, query: str) -> float | None:
        """The result of a query in Prometheus, if there is one."""
        result = self.prometheus.ask("query", query=query)["result"]
        return float(result[0]["value"][1]) if result else None

    def until_fires(self, alert: str, *, timeout_s: float = 90, **labels: str) -> None:
        """Wait until it does, for what has these labels."""
        wanted = {"alertname": alert, **labels}

        def does() -> bool:
            return any(wanted.items() <= each.items() for each in self.prometheus.alerts())

        began_s = time.monotonic()
        assert wait_until(does, timeout_s=timeout_s, every_s=0.5), (
            f"{wanted} does not fire; these do: {json.dumps(self.prometheus.alerts())}; "
            f"{self.operator.log.read_text()[-4_000:]}"
        )
        sys.stdout.write(f"{alert} fired after {time.monotonic() - began_s:.1f} s\n")


def _ended(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()


def queue(name: str, **spec: Any) -> dict[str, Any]:
    """With clocks that are near, so that nothing waits long."""
    values = {
        "shards": 1,
        "maxClockSkew": "100ms",
        "timeline": {"safetyLag": "200ms", "lease": {"ttl": "5s", "touch": "1s"}},
        "storage": {"tables": "shared"},
        **spec,
    }
    return {"apiVersion": "headgate.io/v1beta1", "kind": "Queue", "metadata": {"name": name}, "spec": values}


@contextmanager
def scene_of(
    kubernetes: KubernetesUnderTest, cassandra: Serving, helm: Helm, folder: Path, *options: str
) -> Iterator[Scene]:
    """One with an operator of these options."""
    environment = cassandra.environment()
    host, _, port = environment["CONTACT_POINTS"].rpartition(":")
    with ExitStack() as stack:
        store = stack.enter_context(Gate(host, int(port)).listening())
        variables = {**environment, "CONTACT_POINTS": f"127.0.0.1:{store.port}"}
        its_home = stack.enter_context(home(kubernetes, variables, folder))
        running = stack.enter_context(leading(its_home, *options))
        prometheus_folder = folder / "prometheus"
        prometheus_folder.mkdir()
        asked = stack.enter_context(prometheus(prometheus_folder, rules_of(helm)))
        variables["KEYSPACE"] = its_home.keyspace
        made = Scene(its_home, running, store, asked, variables, folder, stack)
        made.scrape("operator", running.port)
        assert wait_until(lambda: made.value("headgate_operator_leading") == 1.0, timeout_s=30)
        yield made
    cassandra.cql(f"DROP KEYSPACE IF EXISTS {its_home.keyspace}")
