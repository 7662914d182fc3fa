"""Make a virtual environment: `python3 -m dev.environment .venv`. Standard library alone; run before anything else.

`.venv` is for work on Headgate: all of requirements-dev.lock, with PySpark. `.venv-dev` is for running it: what is
shipped, by requirements.lock, without Spark. Both have this tree itself, editable. uv installs them by their hashes,
from the index that pip is set up with.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from dev.uv_program import find_uv, install_failure, uv_environment
from headgate.errors import EnvironmentProblem
from headgate.local.cache import locked, require_disk_space
from headgate.local.progress import print_progress, step

ROOT = Path(__file__).resolve().parent.parent
PYTHON_MIN = (3, 11)


@dataclass(frozen=True)
class Environment:
    """A virtual environment of this checkout."""

    folder: str
    title: str
    locks: tuple[str, ...]
    expect_s: float
    needs_mb: int

    @property
    def path(self) -> Path:
        """Where it is."""
        return ROOT / self.folder

    @property
    def python(self) -> str:
        """Its interpreter."""
        return str(self.path / "bin" / "python")

    def is_ready(self) -> bool:
        """Whether it is whole, and holds what the lock files name now."""
        ready = self.path / "ready"
        return ready.exists() and ready.read_text() == self.fingerprint()

    def fingerprint(self) -> str:
        """Changes when a lock file, the project's metadata or the Python does."""
        digest = hashlib.sha256(f"{sys.base_prefix} {sys.version}".encode())
        for name in (*self.locks, "pyproject.toml"):
            digest.update((ROOT / name).read_bytes())
        return digest.hexdigest() + "\n"


WORK = Environment(".venv", "make the virtual environment", ("requirements-dev.lock",), 60, 1500)
RUN = Environment(
    ".venv-dev",
    "install Headgate with uv",
    # The second holds what builds this tree's own package.
    ("requirements.lock", "requirements-build.lock"),
    5,
    400,
)
ENVIRONMENTS = {each.folder: each for each in (WORK, RUN)}


def require_python() -> None:
    """Refuse an older Python in one line."""
    if sys.version_info < PYTHON_MIN:
        raise EnvironmentProblem(
            "this Python is too old",
            remedy="run make PYTHON=python3.11 ... with a Python from 3.11 on",
            version=".".join(map(str, sys.version_info[:3])),
        )


def require_environment(wanted: Environment) -> None:
    """Make it, unless it is ready."""
    if wanted.is_ready():
        return
    with locked(ROOT / "build" / f"{wanted.folder.strip('.')}.lock"):
        if wanted.is_ready():
            return
        require_disk_space(ROOT, wanted.needs_mb)
        with step(wanted.title, expect_s=wanted.expect_s):
            _make(wanted)


def _make(wanted: Environment) -> None:
    uv, environment = find_uv(), uv_environment()
    shutil.rmtree(wanted.path, ignore_errors=True)
    into = ("--python", wanted.python)
    locks = [word for name in wanted.locks for word in ("--requirement", name)]
    for words in (
        ("venv", "--python", sys.executable, "--no-project", wanted.folder),
        ("pip", "install", *into, "--require-hashes", *locks),
        ("pip", "install", *into, "--no-deps", "--no-build-isolation", "--editable", "."),
    ):
        done = subprocess.run(
            [uv, "--quiet", *words], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            raise install_failure("uv", done.stderr)
    (wanted.path / "ready").write_text(wanted.fingerprint())


def make_venv(venv: Path) -> None:
    """An empty environment with pip; Debian has venv in a package of its own, fetched here."""
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
        raise EnvironmentProblem(
            "this Python cannot create virtual environments", remedy=f"apt-get install {package}", missing=package
        )
    with step(f"install {package} from Debian", expect_s=15):
        for words in (["update", "-q"], ["install", "-q", "-y", package]):
            done = subprocess.run(["apt-get", *words], check=False, capture_output=True)
    if done.returncode != 0:
        raise EnvironmentProblem(
            "a Debian package could not be installed", remedy=f"try: apt-get install {package}", package=package
        )


def main(arguments: list[str]) -> int:
    """Make one by its folder's name; a mistake is one line."""
    wanted = ENVIRONMENTS.get(arguments[0] if arguments else WORK.folder)
    if wanted is None:
        print_progress(f"headgate: no such environment; name one of {', '.join(ENVIRONMENTS)}", to=sys.stderr)
        return 2
    try:
        require_python()
        require_environment(wanted)
    except EnvironmentProblem as error:
        print_progress(f"headgate: {error}", to=sys.stderr)
        return 1
    # Make compares times: it asks for the environment when a lock file is newer.
    (wanted.path / "ready").touch()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
