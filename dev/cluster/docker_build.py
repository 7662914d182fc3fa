"""Builds the Dockerfile for real: by this machine's Docker engine, else by Debian's, unpacked into the cache.

Debian's engine can pull nothing in its namespace, so the image that the Dockerfile begins with is built locally and
imported under the tag that the Dockerfile names. It keeps its results, layer by layer, so that a build after a change
of our sources runs the last steps only. It knows nothing of clusters.
"""

from __future__ import annotations

import io
import os
import re
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from dev.cluster.base_image import base_image
from dev.cluster.debian import release
from dev.cluster.machine_settings import proxies, settings_for
from dev.cluster.oci import BUILD_TIME, Image, digest_of, write_image
from dev.cluster.surroundings import docker_runs
from dev.servers.docker_engine import DockerEngine
from headgate.errors import EnvironmentProblem, HeadgateError, Unavailable
from headgate.local.cache import cache_root, locked, require_disk_space
from headgate.local.progress import print_progress, step

TREE = Path(__file__).parents[2]
DOCKERFILE = TREE / "Dockerfile"
# Stages that seldom change. Under names of their own they survive the removal of unnamed layers.
KEPT_STAGES = {"headgate": ("packages", "builders"), "headgate-spark": ("builders", "spark-packages", "java")}
STAGE_NAME = "headgate-stage"
BASE_NAME = "headgate-base"
UNNAMED_STAY = "2h"
# The layer of the base leaves out what no container reads. apt and dpkg, in a build step, miss these of it.
EMPTY_DIRECTORIES = (
    "/var/cache",
    "/var/cache/apt",
    "/var/cache/apt/archives",
    "/var/cache/apt/archives/partial",
    "/var/log",
)
BUILD_TIMEOUT_S = 1800
NEEDS_MB = {"headgate": 2000, "headgate-spark": 6000}
_PASSED_ON = ("PIP_INDEX_URL",)
_BASE_ARGUMENT = re.compile(r"^ARG BASE=(\S+)$", re.MULTILINE)


@dataclass(frozen=True)
class Builder:
    """A Docker engine, as far as building needs one."""

    # The client's command, and the environment it runs in.
    client: tuple[str, ...]
    environment: Mapping[str, str]
    own: bool

    def docker(self, *arguments: str, timeout_s: float = 300) -> str:
        """The client's output; its failure in one line."""
        done = subprocess.run(
            [*self.client, *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
            timeout=timeout_s,
            env=dict(self.environment),
        )
        if done.returncode != 0:
            raise Unavailable(
                "docker failed", asked=arguments[0], cause=last_words(done.stderr.decode(errors="replace"))
            )
        return done.stdout.decode(errors="replace")

    def build(self, target: str, tag: str) -> None:
        """Build a target of the Dockerfile, and clear what earlier builds have left without a name."""
        if self.own:
            for stage in KEPT_STAGES[target]:
                self._build(stage, f"{STAGE_NAME}:{stage}")
        self._build(target, tag)
        if self.own:
            self.docker("image", "prune", "--force", "--filter", f"until={UNNAMED_STAY}")

    def save(self, tag: str, path: Path) -> None:
        """Write an image to a file."""
        self.docker("save", "--output", str(path), tag)

    def has(self, image: Image) -> bool:
        """Whether the engine has this very image under its tag."""
        return self.docker("image", "ls", "--no-trunc", "--quiet", image.tag).strip() == image.id

    def have(self, image: Image) -> None:
        """Load an image that is in the cache, unless the engine has it."""
        if self.has(image):
            return
        with tempfile.TemporaryDirectory(prefix="image-", dir=cache_root() / "docker") as scratch:
            archive = Path(scratch) / "image.tar"
            write_image(archive, image)
            self.docker("load", "--quiet", "--input", str(archive))

    def _build(self, target: str, tag: str) -> None:
        arguments = {name: os.environ[name] for name in _PASSED_ON if os.environ.get(name)} | proxies(os.environ)
        log = cache_root() / "log" / f"image-{target}.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        command = [
            *(*self.client, "build", "--network", "host", "--target", target, "--tag", tag),
            *(word for name, value in arguments.items() for word in ("--build-arg", f"{name}={value}")),
            str(TREE),
        ]
        with log.open("w") as output:
            done = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=dict(self.environment),
                timeout=BUILD_TIMEOUT_S,
                check=False,
            )
        if done.returncode != 0:
            raise EnvironmentProblem(
                "the Dockerfile could not be built",
                remedy=f"see {log}; check that the package registries are reachable",
                target=target,
                cause=last_words(log.read_text(errors="replace")),
            )


def last_words(output: str) -> str:
    """The last lines with an error, else the last, as one."""
    plain = re.sub(r"\x1b\[[0-9;]*m", "", output)
    lines = [line.strip() for line in plain.splitlines() if line.strip()] or ["(no output)"]
    reporting = [line for line in lines if re.match(r"(ERROR|E|error|Error)\b", line)]
    return " / ".join((reporting or lines)[-2:])[:400]


def obstacle() -> str | None:
    """Why no image can be built on this machine, if so."""
    if docker_runs():
        return None
    if os.geteuid() != 0:
        return "no Docker engine runs on this machine, and only root can start one"
    if shutil.which("apt-get") is None:
        return "no Docker engine runs on this machine, and only Debian's engine could be unpacked"
    return None


def require_builder() -> None:
    """Refuse with one line where no image can be built."""
    because = obstacle()
    if because is not None:
        raise EnvironmentProblem(
            "this machine cannot build an image", remedy="start Docker, or run it as root on Debian", because=because
        )


@contextmanager
def builder() -> Iterator[Builder]:
    """An engine that builds; one process at a time has ours."""
    if docker_runs():
        yield Builder(("docker",), os.environ, own=False)
        return
    require_builder()
    root = cache_root() / "docker"
    with locked(root / ".lock"):
        require_disk_space(root, NEEDS_MB["headgate"])
        with _started(root / "data") as engine:
            ours = Builder(tuple(engine.client()), engine.environment(), own=True)
            _have_base(ours)
            yield ours


def base_tag() -> str:
    """The base image of the Dockerfile."""
    result = _BASE_ARGUMENT.search(DOCKERFILE.read_text())
    assert result is not None, "the Dockerfile must contain `ARG BASE=...`"
    return result[1]


def base_identity() -> str:
    """The difference of one local base image from another: its layer and the machine's settings in it."""
    if docker_runs():
        return base_tag()
    base = base_image()
    settings = "".join(f"{path}\0{text}\0" for path, text in sorted(settings_for(release(), "python3").items()))
    output = "\0".join((base.layer.digest, *EMPTY_DIRECTORIES, settings))
    return digest_of(output.encode()).partition(":")[2][:12]


def _started(data: Path) -> DockerEngine:
    """Our engine, with its kept data; data on which an engine does not start is deleted."""
    data.mkdir(parents=True, exist_ok=True)
    try:
        return DockerEngine.start_to_build(data)
    except HeadgateError as failure:
        if not any(data.iterdir()):
            raise
        print_progress(f"    the Docker engine does not start on its old data ({failure.facts}); starting with none")
        subprocess.run(["rm", "-rf", "--one-file-system", str(data)], check=True)
        data.mkdir(parents=True)
        return DockerEngine.start_to_build(data)


def _have_base(ours: Builder) -> None:
    """Import the base image, unless it exists; the tag that the Dockerfile names may have meant an older one."""
    name = f"{BASE_NAME}:{base_identity()}"
    if not ours.docker("image", "ls", "--quiet", name).strip():
        with step("importing the base image", expect_s=5):
            _import_base(ours, name)
    ours.docker("tag", name, base_tag())


def _import_base(ours: Builder, name: str) -> None:
    archive = cache_root() / "docker" / "base.tar"
    try:
        copy_with_files(base_image().layer.path, archive, settings_for(release(), "python3"), EMPTY_DIRECTORIES)
        ours.docker("import", "--change", 'CMD ["python3"]', str(archive), name)
    finally:
        archive.unlink(missing_ok=True)


def copy_with_files(source: Path, target: Path, files: Mapping[str, str], empty: Sequence[str] = ()) -> None:
    """A tar with files and empty directories added; each replaces the entry at its path."""
    added = {path.lstrip("/"): text.encode() for path, text in files.items()}
    with tarfile.open(source) as old, tarfile.open(target, "w", format=tarfile.PAX_FORMAT) as new:
        for entry in old:
            if entry.name not in added:
                new.addfile(entry, old.extractfile(entry) if entry.isreg() else None)
        for directory in empty:
            entry = tarfile.TarInfo(directory.lstrip("/"))
            entry.type, entry.mtime, entry.mode = tarfile.DIRTYPE, BUILD_TIME, 0o755
            new.addfile(entry)
        for path, content in sorted(added.items()):
            entry = tarfile.TarInfo(path)
            entry.size, entry.mtime, entry.mode = len(content), BUILD_TIME, 0o644
            new.addfile(entry, io.BytesIO(content))
