"""The images of the working tree, as the Dockerfile makes them: built when something that goes into them has changed.

A built image is kept in the cache by the digest of all inputs, its layers once each. So the next request gets it
without Docker, and a node is sent only missing layers. This module knows nothing of the readers of the image.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from dev.cluster.base_image import base_image
from dev.cluster.docker_archive import forget_layers_but, kept_image, read_saved
from dev.cluster.docker_build import NEEDS_MB, TREE, Builder, base_identity, builder, require_builder
from dev.cluster.oci import Image, Run, assemble
from headgate.errors import InvalidRequest
from headgate.local.cache import cache_root, cached, locked
from headgate.local.progress import step

TARGETS = ("headgate", "headgate-spark")
REGISTRY = "headgate.local"
_KEPT = "images"
_KEPT_OF_EACH = 6
_FORMAT = "1"
_EXPECT_S = {"headgate": 15, "headgate-spark": 20}
_FIRST_EXPECT_S = {"headgate": 90, "headgate-spark": 240}


def tag_of(target: str) -> str:
    """A node's name for the image of the working tree."""
    return f"{REGISTRY}/{target}:dev"


def build_image(target: str = "headgate") -> Image:
    """The image of the tree, built unless it is kept."""
    return build_images([target])[0]


def build_images(targets: Sequence[str]) -> list[Image]:
    """Several, with one engine."""
    for target in targets:
        if target not in TARGETS:
            raise InvalidRequest(
                "the Dockerfile has no such image", remedy=f"available: {', '.join(TARGETS)}", name=target
            )
    require_builder()
    identity = base_identity()
    entries = {target: _find(target, version_of(target, identity)) for target in targets}
    missing = [target for target in targets if entries[target] is None]
    if missing:
        # One process at a time: a second one reuses the first one's result.
        with locked(cache_root() / _KEPT / ".lock"), builder() as docker:
            for target in missing:
                entries[target] = _build(docker, target, version_of(target, identity))
            _forget_old()
    return [image for target in targets if (image := entries[target]) is not None]


def build_python_image() -> Image:
    """Only Debian and Python, for pods of tests that need no more; no Docker makes it."""
    base = base_image()
    run = Run(command=("python3",), user="65532:65532")
    return assemble(f"{REGISTRY}/python:{base.python}", (base.layer,), run)


def version_of(target: str, identity: str, tree: Path = TREE) -> str:
    """The name of all that goes into an image: another one where anything of it is another."""
    output = hashlib.sha256("\0".join((_FORMAT, target, identity, os.uname().machine)).encode())
    for path in context_files(tree):
        executable = b"x" if path.stat().st_mode & 0o100 else b"-"
        output.update(b"\0".join((str(path.relative_to(tree)).encode(), executable, path.read_bytes(), b"")))
    return f"{target}-{output.hexdigest()[:16]}"


def context_files(tree: Path = TREE) -> list[Path]:
    """The inputs of a build: the Dockerfile, and the files that .dockerignore includes."""
    ignore = (tree / ".dockerignore").read_text()
    named = [tree / name for name in ("Dockerfile", ".dockerignore", *re.findall(r"^!(\S+)$", ignore, re.MULTILINE))]
    return sorted(file for path in named for file in _files_below(path))


def _files_below(path: Path) -> Iterator[Path]:
    if path.is_file():
        yield path
        return
    for directory, names, files in os.walk(path):
        names[:] = [name for name in names if name != "__pycache__"]
        yield from (Path(directory) / name for name in files)


def _find(target: str, version: str) -> Image | None:
    config = cache_root() / _KEPT / version / "config.json"
    if not config.exists():
        return None
    image = kept_image(tag_of(target), config.read_bytes())
    if image is not None:
        os.utime(config.parent)
    return image


def _build(docker: Builder, target: str, version: str) -> Image:
    result = _find(target, version)
    if result is not None:
        return result
    first = not any(_entries(target))
    built: list[Image] = []

    def make(directory: Path) -> None:
        with tempfile.TemporaryDirectory(dir=directory) as scratch:
            archive = Path(scratch) / "image.tar"
            docker.build(target, tag_of(target))
            docker.save(tag_of(target), archive)
            built.append(read_saved(archive, tag_of(target)))
        (directory / "config.json").write_bytes(built[0].config)

    # An entry whose layers were deleted is useless.
    shutil.rmtree(cache_root() / _KEPT / version, ignore_errors=True)
    expect_s = (_FIRST_EXPECT_S if first else _EXPECT_S)[target]
    with step(f"building the image {target} from its Dockerfile", expect_s=expect_s):
        cached(_KEPT, version, make, needs_mb=NEEDS_MB[target])
    return built[0]


def _entries(target: str) -> list[Path]:
    """The versions that are kept, the last used first."""
    pattern = re.compile(rf"{target}-[0-9a-f]{{16}}")
    root = cache_root() / _KEPT
    there = [entry for entry in root.iterdir() if pattern.fullmatch(entry.name)] if root.is_dir() else []
    return sorted(there, key=lambda entry: entry.stat().st_mtime, reverse=True)


def _forget_old() -> None:
    for target in TARGETS:
        for entry in _entries(target)[_KEPT_OF_EACH:]:
            shutil.rmtree(entry, ignore_errors=True)
    kept = [entry / "config.json" for target in TARGETS for entry in _entries(target)]
    forget_layers_but(config.read_bytes() for config in kept)
