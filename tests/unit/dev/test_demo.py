"""The demo's decisions, without a server: what it refuses before it begins, what it prints, what it keeps."""

from __future__ import annotations

import base64
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from dev.cluster.choice import Choice
from dev.demo import main, print_plan, require_containers
from dev.demo_day import MESSAGES
from dev.demo_setup import SHOP, Asked, Begun, secret_of, values_for, version
from headgate.api.read.loader import read_files
from headgate.errors import EnvironmentProblem, InvalidRequest


def test_a_cluster_that_is_named_needs_a_registry_that_it_pulls_from() -> None:
    with pytest.raises(InvalidRequest, match="cannot be imported into a cluster that you named"):
        Asked(context="prod").require_possible()
    Asked(context="prod", registry="registry.example").require_possible()
    Asked().require_possible()


def test_it_begins_by_saying_which_cluster_and_why_what_it_takes_and_what_is_quicker(
    capsys: pytest.CaptureFixture[str],
) -> None:
    print_plan(Choice("node", "no Docker engine runs, and we are root"))
    text = capsys.readouterr().out
    assert "node: no Docker engine runs, and we are root" in text
    assert f"{MESSAGES:,} messages" in text
    assert "First one message" not in text
    print_plan(Choice("node", "this user is root"), builds=True)
    text = capsys.readouterr().out
    assert "First one message is handled on this machine, without Kubernetes" in text


def test_where_no_container_runs_it_reports_it_before_anything_is_begun() -> None:
    with pytest.raises(EnvironmentProblem, match="runs no containers"):
        require_containers(Choice("kwok", "not root"))
    require_containers(Choice("node", "root"))


def test_the_secret_holds_the_contents_of_files_and_not_their_paths(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("-----BEGIN")
    variables = {"CONTACT_POINTS": "10.0.0.1", "PASSWORD": "p", "SSL_CA": str(tmp_path / "ca.pem"), "SSL_KEY": ""}
    data = secret_of(variables)["data"]
    assert isinstance(data, dict)
    entries = {name: base64.b64decode(value).decode() for name, value in data.items()}
    assert {"CONTACT_POINTS": "10.0.0.1", "PASSWORD": "p", "ca.crt": "-----BEGIN"} == entries


def test_what_was_begun_is_kept_for_the_command_that_ends_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADGATE_STATE", str(tmp_path))
    assert Begun.read() is None
    begun = Begun(cluster_started=True, crds_made=True).keep()
    assert begun == Begun.read()


@pytest.mark.parametrize(
    ("asked", "image", "spark"),
    [
        (Asked(), "headgate.local/headgate:dev", None),
        (Asked(spark=True), "headgate.local/headgate:dev", "headgate.local/headgate-spark:dev"),
        (Asked("prod", "r.example", "7", spark=True), "r.example/headgate:7", "r.example/headgate-spark:7"),
        (Asked("prod", "r.example", spark=True), "r.example/headgate", f"r.example/headgate-spark:{version()}"),
    ],
)
def test_the_chart_is_reported_the_images_of_this_tree_or_of_the_registry(
    asked: Asked, image: str, spark: str | None
) -> None:
    values: dict[str, Any] = dict(values_for(asked))
    report = values["image"]
    assert image == f"{report['registry']}/{report['repository']}" + (f":{report['tag']}" if "tag" in report else "")
    assert spark == values.get("spark", {}).get("image")


@pytest.mark.parametrize("command", ["down", "environment"])
def test_with_nothing_begun_it_is_one_line(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HEADGATE_STATE", str(tmp_path))
    code = main([command])
    text = capsys.readouterr()
    assert (0 if command == "down" else 1) == code
    assert 1 == len((text.out + text.err).splitlines())


def test_the_shop_has_what_the_day_shows() -> None:
    resources = {one.metadata.name: one for one in read_files([SHOP]).resources}
    assert {"emails", "emails-dead", "page-views"} == set(resources)
    text = SHOP.read_text()
    assert "async def send(" in text
    assert "async def send_or_ask(" in text


def test_the_environment_of_the_demo_is_printed_in_a_fresh_shell(tmp_path: Path) -> None:
    """As README prints the command: with nothing of ours in the environment."""
    shell = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "HEADGATE_CACHE": str(tmp_path)}
    root = Path(__file__).parents[3]
    done = subprocess.run(
        ["make", "-s", "environment"], cwd=root, env=shell, capture_output=True, text=True, check=False, timeout=60
    )
    assert "the demo's Cassandra does not run on this machine" in done.stderr.splitlines()[0]
    assert "Traceback" not in done.stderr
    assert (True, "") == (done.returncode != 0, done.stdout)
