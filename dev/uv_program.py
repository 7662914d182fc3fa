"""uv, which installs Python packages: the one on PATH, or the locked one, brought by pip into the cache.

uv does not read pip's configuration, so what pip is set up with (index, certificate, time limit) is passed to uv.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

from headgate.errors import EnvironmentProblem
from headgate.local.cache import cache_root, cached, is_cached
from headgate.local.progress import step

ROOT = Path(__file__).resolve().parent.parent
LOCK = ROOT / "requirements-dev.lock"
"""It pins uv with its hashes; of the rest of this file nothing is installed from here."""
_SETTING = re.compile(r"^(?P<scope>[^=\n]*?)\.(?P<name>[a-z-]+)='(?P<value>.*)'$", re.MULTILINE)
_OF_PIP = {
    "index-url": "UV_DEFAULT_INDEX",
    "extra-index-url": "UV_INDEX",
    "cert": "SSL_CERT_FILE",
    "default-timeout": "UV_HTTP_TIMEOUT",
    "timeout": "UV_HTTP_TIMEOUT",
}


def find_uv() -> str:
    """The path of uv, fetched once where PATH has none."""
    result = shutil.which("uv")
    if result is not None:
        return result
    requirement = locked_requirement(LOCK.read_text(encoding="utf-8"), "uv")
    version = requirement.split()[0].removeprefix("uv==")
    if is_cached("uv", version):
        return str(cached("uv", version, _fetch) / "bin" / "uv")
    with step("fetch uv with pip", expect_s=5):
        return str(cached("uv", version, _fetch, needs_mb=150) / "bin" / "uv")


def locked_requirement(text: str, name: str) -> str:
    """A distribution's version and hashes as a lock file pins them, in the form that pip reads. Pure."""
    result = re.search(rf"^{re.escape(name)}==(?:[^\n]*\\\n)*[^\n]*\n", text, re.MULTILINE)
    if result is None:
        raise EnvironmentProblem("the lock file does not pin a program", remedy="make lock", program=name)
    return result[0]


def uv_settings(of_pip: str, environment: Mapping[str, str]) -> dict[str, str]:
    """Variables for uv by the output of `pip config list`; what the environment sets already stays. Pure."""
    settings = {
        _OF_PIP[each["name"]]: each["value"]
        for each in _SETTING.finditer(of_pip)
        if each["scope"] in ("global", "install", ":env:") and each["name"] in _OF_PIP and each["value"]
    }
    return {name: " ".join(value.split("\\n")).strip() for name, value in settings.items() if name not in environment}


def uv_environment() -> dict[str, str]:
    """The environment of a run of uv, with a package cache of ours."""
    if not has_pip():
        settings = ""
    else:
        asked = [sys.executable, "-m", "pip", "--disable-pip-version-check", "config", "list"]
        settings = subprocess.run(asked, capture_output=True, text=True, check=False).stdout
    ours = {"UV_CACHE_DIR": str(cache_root() / "uv-cache"), "UV_NO_PROGRESS": "1", "PYTHONPATH": ""}
    return {**os.environ, **uv_settings(settings, os.environ), **ours}


def has_pip() -> bool:
    """Whether this Python has pip; Debian keeps it in a package of its own."""
    return find_spec("pip") is not None


def _fetch(entry: Path) -> None:
    from dev.environment import make_venv  # it needs uv in turn

    requirement = entry / "requirement.txt"
    requirement.write_text(locked_requirement(LOCK.read_text(encoding="utf-8"), "uv"))
    python, where = sys.executable, ["--target", str(entry)]
    if not has_pip():
        make_venv(entry / "venv")
        python, where = str(entry / "venv" / "bin" / "python"), ["--target", str(entry)]
    command = [python, "-m", "pip", "--disable-pip-version-check", "install", "--quiet", *where]
    done = subprocess.run(
        [*command, "--require-hashes", "--no-deps", "--requirement", str(requirement)],
        env={**os.environ, "PIP_CACHE_DIR": str(cache_root() / "pip"), "PYTHONPATH": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    shutil.rmtree(entry / "venv", ignore_errors=True)
    if done.returncode != 0:
        raise install_failure("pip", done.stderr)
    if not (entry / "bin" / "uv").is_file():
        raise EnvironmentProblem("pip installed no uv", remedy="install uv yourself, and put it on PATH")


def install_failure(program: str, output: str) -> EnvironmentProblem:
    """One line for an installation that failed, without the address of the index."""
    lines = [re.sub(r"https?://\S+", "(the index)", line).strip() for line in output.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith(("ERROR", "error", "Caused by"))]
    return EnvironmentProblem(
        f"{program} could not install the dependencies",
        remedy="check that the package index is reachable (pip config list shows which one)",
        answer=(errors or lines or ["none"])[-1][:300],
    )
