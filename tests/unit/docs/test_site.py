"""The documentation site builds from the pages without a warning, and needs no other site."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import click
import pytest
import yaml
from mkdocs.commands.build import build
from mkdocs.config import load_config
from mkdocs.exceptions import Abort

from dev.site_pages import relink
from headgate.cli.main import main
from tests.system.chart.alert_scene import FIRED_BY

ROOT = Path(__file__).parents[3]
_FETCHED = re.compile(
    r"""<(?:script|img|iframe)[^>]*\ssrc=["']?(https?:[^"'>\s]+)|<link[^>]*\shref=["']?(https?:[^"'>\s]+)"""
)
Build = Callable[..., Path]


def names_of_commands() -> list[str]:
    """Those that `headgate --help` lists."""
    context = click.Context(main, info_name="headgate")
    commands = {name: main.get_command(context, name) for name in main.list_commands(context)}
    return [name for name, command in commands.items() if command is not None and not command.hidden]


@pytest.fixture
def build_site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Build:
    """Builds the site, or one of other pages with the same settings."""
    monkeypatch.setenv("NO_MKDOCS_2_WARNING", "1")
    monkeypatch.chdir(ROOT)

    def build_into_folder(**other: object) -> Path:
        site = tmp_path / "site"
        build(load_config(str(ROOT / "mkdocs.yml"), site_dir=str(site), **other))
        return site

    return build_into_folder


def test_the_site_builds_without_a_warning_and_fetches_nothing_from_another_host(build_site: Build) -> None:
    site = build_site()
    pages = {each.relative_to(site).as_posix(): each.read_text(encoding="utf-8") for each in site.rglob("*.html")}
    assert (ROOT / "docs" / "README.md").is_file()
    assert {"index.html", "commands.html", "repository/CHANGELOG.html", "runbooks/HeadgateQueueLags.html"} <= set(
        pages
    )
    assert [] == [(page, result) for page, text in pages.items() for result in _FETCHED.findall(text)]
    shown = set(re.findall(r'id="headgate-([a-z]+)"', pages["commands.html"]))
    assert set() == {name for name in names_of_commands() if name not in shown}


def test_the_link_of_each_alert_leads_to_a_page_of_the_site(build_site: Build) -> None:
    chart = ROOT / "charts" / "headgate"
    template = (chart / "templates" / "alerts.yaml").read_text(encoding="utf-8")
    (suffix,) = re.findall(r'"runbook_url" \(printf "%s/%s(\.\w+)" \$\.Values\.alerts\.runbooks \.alert\)', template)
    folder = yaml.safe_load((chart / "values.yaml").read_text(encoding="utf-8"))["alerts"]["runbooks"].rpartition(
        "/"
    )[2]
    links = {f"{folder}/{name}{suffix}" for name in FIRED_BY}
    site = build_site()
    assert set() == {link for link in links if not (site / link).is_file()}


@pytest.mark.parametrize("target", ["gone.md", "README.md#gone", "#gone", "../gone.py", "/README.md"])
def test_a_dead_link_ends_the_build(target: str, build_site: Build, tmp_path: Path) -> None:
    docs = tmp_path / "docs"
    docs.mkdir()
    (docs / "README.md").write_text(f"# Here\n\n[there]({target})\n")
    with pytest.raises(Abort):
        build_site(docs_dir=str(docs), nav=["README.md"])


@pytest.mark.parametrize("target", ["README.md", "#here", "../pyproject.toml", "https://example.org/gone"])
def test_a_living_link_does_not(target: str, build_site: Build, tmp_path: Path) -> None:
    docs = tmp_path / "docs"
    docs.mkdir()
    (docs / "README.md").write_text(f"# Here\n\n[there]({target})\n")
    assert (build_site(docs_dir=str(docs), nav=["README.md"]) / "index.html").is_file()


@pytest.mark.parametrize(
    ("page", "target", "expected"),
    [
        ("chart.md", "../charts/headgate/values.yaml", "repository/charts/headgate/values.yaml"),
        ("runbooks/README.md", "../../CHANGELOG.md", "../repository/CHANGELOG.md"),
        ("gitops.md", "../examples/gitops", "repository/examples/gitops.md"),
        ("repository/CHANGELOG.md", "docs/chart.md", "../chart.md"),
        ("internals/formats.md", "../chart.md", "../chart.md"),
        ("chart.md", "https://example.org/docs", "https://example.org/docs"),
    ],
)
def test_a_link_out_of_docs_leads_to_a_copy_in_the_site(page: str, target: str, expected: str) -> None:
    assert f"[there]({expected}#a)\n```\n[code](x.md)\n```\n" == relink(
        page, f"[there]({target}#a)\n```\n[code](x.md)\n```\n"
    )
