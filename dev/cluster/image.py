"""Builds the image of the working tree without Docker: base, dependencies, sources, a layer each.

Only the layer of the sources changes from one edit to the next; the others come from the cache. Knows nothing of who
reads the image.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from dev.cluster.base_image import Base, base_image
from dev.cluster.oci import Layer, Run, Source, write_image, write_layer
from dev.cluster.surroundings import answers
from penstock.errors import Surroundings
from penstock.testing.cache import cached, is_cached
from penstock.testing.progress import step

TAG = "penstock.local/penstock:dev"
EXTRAS = ("operator", "worker", "gateway")
PACKAGES = ("workers/penstock", "operator/penstock_operator", "spark/penstock_spark")
SITE = "/opt/penstock/site"
TREE = Path(__file__).parents[2]
_NOT_PACKED = ("__pycache__", ".mypy_cache", ".ruff_cache", ".pytest_cache")


@dataclass(frozen=True)
class Image:
    """An image that is not written yet."""

    tag: str
    layers: tuple[Layer, ...]
    run: Run


def build_image(scratch: Path, tree: Path = TREE) -> Image:
    """The image of the tree; what is new of it is written below `scratch`."""
    base = base_image()
    layers = (base.layer, _dependencies(tree, base), _sources(tree, scratch))
    return Image(TAG, layers, how_to_run())


def build_python_image() -> Image:
    """Only Debian and Python, for pods of tests that need no more."""
    base = base_image()
    return Image(f"penstock.local/python:{base.python}", (base.layer,), Run(command=("python3",), user="65532:65532"))


def how_to_run() -> Run:
    """Python finds our packages and their dependencies; nobody is root."""
    return Run(
        command=("python3",),
        environment={"PYTHONPATH": SITE, "PYTHONUNBUFFERED": "1", "PATH": f"{SITE}/bin:/usr/local/bin:/usr/bin:/bin"},
        user="65532:65532",
        directory="/tmp",  # noqa: S108  # of the container, which has it to itself
    )


def write_archive(image: Image, path: Path) -> str:
    """Write it whole, for other stores than ours."""
    return write_image(path, image.tag, image.layers, image.run)


def _sources(tree: Path, scratch: Path) -> Layer:
    packages = [tree / package for package in PACKAGES if (tree / package).is_dir()]
    sources = [Source(path, f"{SITE}/{path.name}", without_names=_NOT_PACKED) for path in packages]
    sources += [Source(path, path_in_image) for path, path_in_image in _entry_points(tree, scratch)]
    sources.append(_distribution(tree, scratch))
    return write_layer(scratch / "sources.tar", sources)


def _entry_points(tree: Path, scratch: Path) -> list[tuple[Path, str]]:
    """The commands that an installation of the wheel would have."""
    scripts = tomllib.loads((tree / "pyproject.toml").read_text())["project"].get("scripts", {})
    written = []
    for name, target in sorted(scripts.items()):
        module, _, function = target.partition(":")
        script = scratch / "bin" / name
        script.parent.mkdir(parents=True, exist_ok=True)
        script.write_text(
            f"#!/usr/bin/python3\nimport sys\nfrom {module} import {function}\nsys.exit({function}())\n"
        )
        script.chmod(0o755)
        written.append((script, f"{SITE}/bin/{name}"))
    return written


def _distribution(tree: Path, scratch: Path) -> Source:
    """What an installation of the wheel tells of itself: its version, and what it brings to others' entry points."""
    project = tomllib.loads((tree / "pyproject.toml").read_text())["project"]
    directory = scratch / f"{project['name']}-{project['version']}.dist-info"
    directory.mkdir(parents=True, exist_ok=True)
    told = f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
    (directory / "METADATA").write_text(told)
    groups = {"console_scripts": project.get("scripts", {}), **project.get("entry-points", {})}
    lines = [line for group, names in groups.items() for line in (f"[{group}]", *map(" = ".join, names.items()), "")]
    (directory / "entry_points.txt").write_text("\n".join(lines))
    return Source(directory, f"{SITE}/{directory.name}")


def _dependencies(tree: Path, base: Base) -> Layer:
    wanted = requirements_of(tree)
    told = f"2\0{base.python}\0{os.uname().machine}\0{wanted.text}"
    version = hashlib.sha256(told.encode()).hexdigest()[:12]

    def make(directory: Path) -> None:
        (directory / "requirements.txt").write_text(wanted.text)
        _install(directory, wanted, base.python)
        layer = write_layer(
            directory / "layer.tar",
            # Compiled files hold the time of their sources, which is not kept.
            [Source(directory / "site", SITE, without_names=("__pycache__", "direct_url.json"))],
        )
        (directory / "digest").write_text(layer.digest)
        subprocess.run(["rm", "-rf", str(directory / "site")], check=True)

    if not is_cached("image-dependencies", version):
        with step("installing the image's dependencies", expect_s=25):
            cached("image-dependencies", version, make, needs_mb=500)
    directory = cached("image-dependencies", version, make)
    path = directory / "layer.tar"
    return Layer(path, (directory / "digest").read_text(), path.stat().st_size)


@dataclass(frozen=True)
class Requirements:
    """What is installed beside our own packages."""

    text: str
    hashed: bool


def requirements_of(tree: Path) -> Requirements:
    """What the image needs: the lock file's text where there is one, else what pyproject.toml asks for."""
    lock = tree / "requirements.lock"
    if lock.exists():
        return Requirements(lock.read_text(), hashed=True)
    project = tomllib.loads((tree / "pyproject.toml").read_text())["project"]
    optional = project.get("optional-dependencies", {})
    asked = {*project["dependencies"], *(each for extra in EXTRAS for each in optional.get(extra, ()))}
    return Requirements("".join(f"{each}\n" for each in sorted(asked)), hashed=False)


def _install(directory: Path, wanted: Requirements, python: str) -> None:
    command = [
        *(_python_with_pip(), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-compile"),
        *("--target", str(directory / "site"), "-r", str(directory / "requirements.txt")),
        *(["--require-hashes"] if wanted.hashed else []),
        *for_python(python, f"{sys.version_info[0]}.{sys.version_info[1]}", os.uname().machine),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        lines = [line for line in done.stderr.splitlines() if line.strip()] or ["(it said nothing)"]
        raise Surroundings(
            "the image's dependencies could not be installed",
            remedy="check the network and pip's configuration",
            answer=lines[-1],
        )


def for_python(python: str, own: str, machine: str) -> Sequence[str]:
    """What tells pip that the packages are for another Python than the one it runs on."""
    if python == own:
        return ()
    platforms = [f"--platform=manylinux_2_{minor}_{machine}" for minor in (36, 35, 34, 31, 28, 17)]
    platforms += [f"--platform=manylinux2014_{machine}"]
    return ("--only-binary=:all:", f"--python-version={python}", "--implementation=cp", *platforms)


def _python_with_pip() -> str:
    """The tree's own environment, else the Python that runs us."""
    candidates = [str(TREE / ".venv" / "bin" / "python"), sys.executable]
    found = next((each for each in candidates if answers([each, "-m", "pip", "--version"])), None)
    if found is None:
        raise Surroundings(
            "no pip is there to install the image's dependencies",
            remedy="make the virtual environment first: python3 -m dev.environment .venv",
            tried=", ".join(candidates),
        )
    return found
