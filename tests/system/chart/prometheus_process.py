"""A real Prometheus on this machine, with the chart's rules, that scrapes the given targets each second.

Rules are taken as the chart renders them, but for `for`: how long something has to hold before a person is called is
Prometheus's own business, and would only be waited for here.
"""

from __future__ import annotations

import json
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from dev.cluster.programs import PROMETHEUS, require_built
from headgate.local.processes import server_ports, wait_until

Rules = list[dict[str, Any]]


def program(name: str) -> str:
    """`prometheus` or `promtool`, built when it is not in the cache yet."""
    return str(require_built([PROMETHEUS])[PROMETHEUS.name] / name)


def at_once(groups: Rules) -> Rules:
    """Groups of rules that fire as soon as they hold."""
    return [
        {
            **group,
            "rules": [{name: report for name, report in rule.items() if name != "for"} for rule in group["rules"]],
        }
        for group in groups
    ]


@dataclass
class Prometheus:
    """The process."""

    process: subprocess.Popen[bytes]
    port: int
    targets: Path

    def scrape(self, **ports: int) -> None:
        """These and no others, by name."""
        reports = [{"targets": [f"127.0.0.1:{port}"], "labels": {"job": name}} for name, port in ports.items()]
        partial = self.targets.with_suffix(".partial")
        partial.write_text(json.dumps(reports))
        partial.rename(self.targets)

    def ask(self, path: str, **query: str) -> Any:
        """Its API."""
        url = f"http://127.0.0.1:{self.port}/api/v1/{path}?{urllib.parse.urlencode(query)}"
        with urllib.request.urlopen(url, timeout=10) as answer:
            return json.load(answer)["data"]

    def is_ready(self) -> bool:
        """Whether it answers."""
        try:
            return bool(self.ask("status/buildinfo"))
        except OSError:
            return False

    def alerts(self) -> list[Mapping[str, str]]:
        """The labels of all that fire now."""
        return [each["labels"] for each in self.ask("alerts")["alerts"] if each["state"] == "firing"]

    def firing(self) -> set[str]:
        """Their names."""
        return {each["alertname"] for each in self.alerts()}

    def metrics(self) -> set[str]:
        """The names of all that was ever scraped."""
        return set(self.ask("label/__name__/values"))


@contextmanager
def prometheus(folder: Path, groups: Rules) -> Iterator[Prometheus]:
    """One with these rules."""
    (port,), targets = server_ports(1), folder / "targets.json"
    targets.write_text("[]")
    (folder / "rules.yaml").write_text(yaml.safe_dump({"groups": at_once(groups)}))
    settings = {
        "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
        "rule_files": ["rules.yaml"],
        "scrape_configs": [
            {
                "job_name": "headgate",
                "honor_labels": True,
                "file_sd_configs": [{"files": [targets.name], "refresh_interval": "1s"}],
            }
        ],
    }
    (folder / "prometheus.yml").write_text(yaml.safe_dump(settings))
    with (folder / "prometheus.log").open("w") as log:
        process = subprocess.Popen(
            [
                program("prometheus"),
                "--config.file=prometheus.yml",
                "--storage.tsdb.path=data",
                f"--web.listen-address=127.0.0.1:{port}",
                "--log.level=warn",
            ],
            cwd=folder,
            stdout=log,
            stderr=log,
        )
    running = Prometheus(process, port, targets)
    try:
        assert wait_until(running.is_ready, timeout_s=30), (folder / "prometheus.log").read_text()
        yield running
    finally:
        process.terminate()
        process.wait(timeout=30)
