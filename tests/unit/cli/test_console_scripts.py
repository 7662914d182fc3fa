"""The console scripts after a plain install: those of an extra refuse in one line, and the others work."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
SCRIPTS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["scripts"]
OF_EXTRAS = ("aiohttp", "datasketches", "kopf", "kubernetes", "opentelemetry", "prometheus_client", "pyspark")
"""Packages that a plain install lacks."""


def run_plain(script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A console script as pip writes it, where the libraries of all extras are hidden."""
    module, _, function = SCRIPTS[script].partition(":")
    program = (
        f"import sys; sys.modules.update(dict.fromkeys({OF_EXTRAS!r})); sys.argv[0] = {script!r};"
        f" from {module} import {function}; sys.exit({function}())"
    )
    return subprocess.run(
        [sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=False, timeout=60
    )


@pytest.mark.parametrize(
    ("script", "arguments", "refusal"),
    [
        (
            "headgate-operator",
            (),
            "the operator needs libraries that are not installed"
            " (missing=aiohttp, kopf, kubernetes, prometheus_client); install headgate[operator]\n",
        ),
        (
            "headgate-operator",
            ("--help",),
            "the operator needs libraries that are not installed"
            " (missing=aiohttp, kopf, kubernetes, prometheus_client); install headgate[operator]\n",
        ),
        (
            "headgate",
            ("worker", "shop/emails", "--handler", "m:f"),
            "headgate: a worker needs libraries that are not installed"
            " (missing=aiohttp, prometheus_client); install headgate[worker]\n",
        ),
    ],
)
def test_a_script_without_its_extra_refuses(script: str, arguments: tuple[str, ...], refusal: str) -> None:
    ran = run_plain(script, *arguments)
    assert (1, "", refusal) == (ran.returncode, ran.stdout, ran.stderr)


@pytest.mark.parametrize("script", [script for script in SCRIPTS if script != "headgate-operator"])
def test_the_other_scripts_need_no_extra(script: str) -> None:
    ran = run_plain(script, "--help")
    assert (0, "") == (ran.returncode, ran.stderr)
    assert ran.stdout.startswith("Usage: ")


def test_the_operator_starts_with_its_extra() -> None:
    module, _, function = SCRIPTS["headgate-operator"].partition(":")
    program = f"from {module} import {function}; {function}()"
    ran = subprocess.run(
        [sys.executable, "-c", program, "--help"], capture_output=True, text=True, check=False, timeout=60
    )
    assert (0, "") == (ran.returncode, ran.stderr)
    assert "--connection-secret" in ran.stdout
