"""The lowest layer of our images: a small Debian with Python, made by debootstrap, once for each release.

It replaces the public image that the Dockerfile begins with, where none can be pulled. Needs root (debootstrap enters
its target). Nothing of it stays mounted, since it works in a mount namespace of its own. The mirror of the packages
is the machine's own setting.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from dev.cluster.debian import DEBOOTSTRAP, WRAPPERS, release, unpacked
from dev.cluster.machine_settings import mirror, proxy
from dev.cluster.oci import Layer, Source, read_layer, write_layer
from dev.servers.namespaces import require_root
from headgate.errors import EnvironmentProblem
from headgate.local.cache import cached, is_cached
from headgate.local.progress import step

NAME = "image-base"
VERSION = "2"
INCLUDED = ("python3", "python3-pip", "ca-certificates")
# Files that a container never reads, and files that differ from one build to the next.
WITHOUT = (
    "/var/cache",
    "/var/lib/apt/lists",
    "/var/log",
    "/usr/share/doc",
    "/usr/share/man",
    "/usr/share/info",
    "/usr/share/locale",
    "/proc",
    "/sys",
    "/dev",
    "/debootstrap",
    "/etc/resolv.conf",
    "/etc/hostname",
    "/etc/machine-id",
)


@dataclass(frozen=True)
class Base:
    """The base layer, and the Python in it."""

    layer: Layer
    python: str


def base_image() -> Base:
    """The base of our images, made when it is not in the cache yet."""
    version = f"{release()}-{VERSION}"
    if not is_cached(NAME, version):
        require_root("an image of the working tree")
        with step(f"making the base image with debootstrap ({release()})", expect_s=100):
            cached(NAME, version, _make, needs_mb=1500)
    directory = cached(NAME, version, _make)
    layer = Layer(
        directory / "layer.tar",
        (directory / "digest").read_text().strip(),
        (directory / "layer.tar").stat().st_size,
    )
    return Base(layer, (directory / "python").read_text().strip())


def _make(directory: Path) -> None:
    root = directory / "root"
    log = directory / "debootstrap.log"
    packages = unpacked(DEBOOTSTRAP)
    environment = {**os.environ, "PATH": f"{packages / WRAPPERS}:{os.environ.get('PATH', '')}:/usr/sbin:/sbin"}
    environment.setdefault("http_proxy", proxy())
    script = "mount --make-rprivate / && exec " + " ".join(
        [
            "debootstrap",
            "--variant=minbase",
            f"--include={','.join(INCLUDED)}",
            release(),
            f'"{root}"',
            f'"{mirror(release())}"',
        ]
    )
    with log.open("w") as output:
        done = subprocess.run(
            ["unshare", "--mount", "sh", "-c", script],
            stdout=output,
            stderr=output,
            env={name: value for name, value in environment.items() if value},
            check=False,
        )
    if done.returncode != 0:
        lines = [line for line in log.read_text().splitlines() if line.startswith("E:")] or ["(see apt's sources)"]
        raise EnvironmentProblem(
            "debootstrap could not create a base image",
            remedy="check the network, apt's sources and the free disk space",
            answer=lines[-1],
        )
    pythons = sorted(path.name for path in (root / "usr" / "bin").glob("python3.*") if path.name[8:].isdigit())
    layer = write_layer(directory / "layer.tar", [Source(root, "/", owner=None, without=WITHOUT)])
    (directory / "digest").write_text(layer.digest)
    (directory / "python").write_text(pythons[0].removeprefix("python"))
    shutil.rmtree(root)
    assert read_layer(layer.path) == layer, "the layer on disk is the one that was written"
