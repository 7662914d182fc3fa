"""Make the virtual environment: `python3 -m dev.environment .venv`. Standard library alone; run before anything else.

What is installed comes from requirements-dev.lock with its hashes, through pip as this machine has it set up.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from headgate.errors import Surroundings
from headgate.testing.cache import cache_root, require_room
from headgate.testing.progress import say, step

ROOT = Path(__file__).resolve().parent.parent
PYTHON_MIN = (3, 11)
NEEDS_MB = 1500


def require_python() -> None:
    """Refuse an older Python in one line."""
    if sys.version_info < PYTHON_MIN:
        raise Surroundings(
            "this Python is too old",
            remedy="run make PYTHON=python3.11 ... with a Python from 3.11 on",
            version=".".join(map(str, sys.version_info[:3])),
        )


def make_venv(venv: Path) -> None:
    """An empty environment; Debian keeps what makes one in a package of its own, fetched here if it is missing."""
    try:
        import ensurepip  # noqa: F401
    except ImportError:
        install_debian_venv()
    shutil.rmtree(venv, ignore_errors=True)
    subprocess.run([sys.executable, "-m", "venv", str(venv)], check=True, stdout=subprocess.DEVNULL)


def install_debian_venv() -> None:
    """Debian's python3-venv, where we may install it."""
    package = f"python3.{sys.version_info.minor}-venv"
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        raise Surroundings(
            "this Python cannot create virtual environments", remedy=f"apt-get install {package}", missing=package
        )
    with step(f"install {package} from Debian", expect_s=15):
        for words in (["update", "-q"], ["install", "-q", "-y", package]):
            done = subprocess.run(["apt-get", *words], check=False, capture_output=True)
    if done.returncode != 0:
        raise Surroundings(
            "a Debian package could not be installed", remedy=f"try: apt-get install {package}", package=package
        )


def install(venv: Path) -> None:
    """Everything of the lock file, then this tree itself, editable."""
    pip = [str(venv / "bin" / "python"), "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    environment = {**os.environ, "PIP_CACHE_DIR": str(cache_root() / "pip"), "PYTHONPATH": ""}
    for what in (
        ["--require-hashes", "-r", "requirements-dev.lock"],
        ["--no-deps", "--no-build-isolation", "--editable", "."],
    ):
        done = subprocess.run([*pip, *what], cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            telling = [line for line in done.stderr.splitlines() if line.strip()]
            raise Surroundings(
                "pip could not install the dependencies",
                remedy="check that the package index is reachable (pip config list shows which one)",
                answer=telling[-1] if telling else "none",
            )


def main(arguments: list[str]) -> int:
    """Make it whole, and mark it ready only then."""
    venv = ROOT / (arguments[0] if arguments else ".venv")
    try:
        require_python()
        require_room(ROOT, NEEDS_MB)
        with step("make the virtual environment", expect_s=180):
            make_venv(venv)
            install(venv)
    except Surroundings as error:
        say(f"headgate: {error}", to=sys.stderr)
        return 1
    (venv / "ready").write_text("")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
