"""Writes container images as archives, by the standard library alone: `ctr images import`, `docker load` read them.

The same content gives the same bytes: entries are sorted, times are set to one value, names of users are left out. So
an unchanged layer keeps its digest, and a store that has it need not be sent it again.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import tarfile
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

LAYER = "application/vnd.oci.image.layer.v1.tar"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
CONFIG = "application/vnd.oci.image.config.v1+json"
INDEX = "application/vnd.oci.image.index.v1+json"
# The time of everything in an image: the content must not depend on the time of packing.
BUILD_TIME = 1767225600
CREATED = "2026-01-01T00:00:00Z"
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


@dataclass(frozen=True)
class Layer:
    """A part of an image's file system: an uncompressed tar, known by its digest."""

    path: Path
    digest: str
    size: int


@dataclass(frozen=True)
class Source:
    """A file or directory, and where it comes to lie in the image."""

    path: Path
    destination: str
    # Its owner in the image; None keeps the file's own (a root file system has many owners).
    owner: tuple[int, int] | None = (0, 0)
    # Paths in the image that are left out, with everything below them.
    without: tuple[str, ...] = ()
    # Names that are left out anywhere.
    without_names: tuple[str, ...] = ()


@dataclass(frozen=True)
class Run:
    """The default command of an image."""

    entrypoint: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    environment: Mapping[str, str] | None = None
    user: str = ""
    directory: str = "/"


@dataclass(frozen=True)
class Image:
    """An image that no store has yet, of any origin."""

    tag: str
    layers: tuple[Layer, ...]
    # How it is run, and its layers' digests, as the bytes that name it: its id is their digest.
    config: bytes

    @property
    def id(self) -> str:
        """The name for Docker and a kubelet."""
        return digest_of(self.config)

    @property
    def digest(self) -> str:
        """The name for a registry or containerd."""
        return digest_of(build_manifest(self.layers, self.config))


def write_layer(path: Path, sources: Sequence[Source]) -> Layer:
    """Pack the sources, in order, into one layer."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w", format=tarfile.PAX_FORMAT) as archive:
        directories: set[str] = set()
        for source in sources:
            _add_parents(archive, source, directories)
            for each in _walk(source):
                _add(archive, source, each)
    return read_layer(path)


def read_layer(path: Path) -> Layer:
    """An existing layer."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return Layer(path, f"sha256:{digest.hexdigest()}", path.stat().st_size)


def _walk(source: Source) -> list[Path]:
    """The source and everything below it, in an order that depends on names only."""
    matches = [source.path]
    if source.path.is_dir() and not source.path.is_symlink():
        for directory, names, files in os.walk(source.path):
            names[:] = [name for name in names if _wanted(source, Path(directory) / name)]
            matches += [
                Path(directory) / name for name in (*names, *files) if _wanted(source, Path(directory) / name)
            ]
    return sorted(matches)


def _wanted(source: Source, path: Path) -> bool:
    place = "/" + _place(source, path)
    hidden = any(place == left_out or place.startswith(f"{left_out}/") for left_out in source.without)
    return not hidden and path.name not in source.without_names


def _place(source: Source, path: Path) -> str:
    """Where in the image, without the leading slash, as tar has it."""
    below = path.relative_to(source.path)
    return str(Path(source.destination.lstrip("/")) / below) if below.parts else source.destination.lstrip("/")


def _add(archive: tarfile.TarFile, source: Source, path: Path) -> None:
    place = _place(source, path)
    if place in ("", "."):
        return  # the root itself exists in every image
    entry = archive.gettarinfo(path, arcname=place)
    if entry is None:
        return  # a socket: it lives with its process only
    _normalise(entry, source.owner)
    if entry.isreg():
        with path.open("rb") as content:
            archive.addfile(entry, content)
    else:
        archive.addfile(entry)


def _normalise(entry: tarfile.TarInfo, owner: tuple[int, int] | None) -> None:
    entry.mtime = BUILD_TIME
    entry.uname = entry.gname = ""
    entry.pax_headers = {}
    if owner is not None:
        entry.uid, entry.gid = owner
        # The packer may have any umask.
        executable = entry.isdir() or bool(entry.mode & 0o100)
        entry.mode = 0o755 if executable else 0o644


def _add_parents(archive: tarfile.TarFile, source: Source, there: set[str]) -> None:
    """The directories above a destination, once each."""
    parents = [str(parent) for parent in Path(source.destination.lstrip("/")).parents if str(parent) != "."]
    for parent in reversed(parents):
        if parent not in there:
            there.add(parent)
            entry = tarfile.TarInfo(parent)
            entry.type = tarfile.DIRTYPE
            _normalise(entry, (0, 0))
            entry.mode = 0o755
            archive.addfile(entry)


def build_config(layers: Sequence[Layer], run: Run, machine: str) -> bytes:
    """The description of an image: its layers, and its run settings."""
    environment = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", **(run.environment or {})}
    settings: dict[str, Any] = {
        "Env": [f"{name}={value}" for name, value in environment.items()],
        "WorkingDir": run.directory,
    }
    for key, value in (("Entrypoint", list(run.entrypoint)), ("Cmd", list(run.command)), ("User", run.user)):
        if value:
            settings[key] = value
    return _json(
        {
            "architecture": ARCHITECTURES.get(machine, machine),
            "os": "linux",
            "created": CREATED,
            "config": settings,
            "rootfs": {"type": "layers", "diff_ids": [layer.digest for layer in layers]},
        }
    )


def build_manifest(layers: Sequence[Layer], config: bytes) -> bytes:
    """The manifest of layers and configuration; its digest is the image's."""
    return _json(
        {
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": {"mediaType": CONFIG, "digest": digest_of(config), "size": len(config)},
            "layers": [{"mediaType": LAYER, "digest": layer.digest, "size": layer.size} for layer in layers],
        }
    )


def assemble(tag: str, layers: Sequence[Layer], run: Run) -> Image:
    """An image of layers built on, and for, this machine."""
    return Image(tag, tuple(layers), build_config(layers, run, os.uname().machine))


def write_image(path: Path, image: Image, *, without: Collection[str] = ()) -> None:
    """Write the archive; layers that the reader has already may be left out of it, if it reads OCI."""
    machine = os.uname().machine
    manifest = build_manifest(image.layers, image.config)
    index = {
        "schemaVersion": 2,
        "mediaType": INDEX,
        "manifests": [
            {
                "mediaType": MANIFEST,
                "digest": digest_of(manifest),
                "size": len(manifest),
                "platform": {"architecture": ARCHITECTURES.get(machine, machine), "os": "linux"},
                "annotations": {
                    "io.containerd.image.name": image.tag,
                    "org.opencontainers.image.ref.name": image.tag.rpartition(":")[2],
                },
            }
        ],
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w") as archive:
        _put(archive, "oci-layout", b'{"imageLayoutVersion":"1.0.0"}')
        _put(archive, "index.json", _json(index))
        # The file for engines that read no OCI.
        for_docker = {
            "Config": _blob_name(image.id),
            "RepoTags": [image.tag],
            "Layers": [_blob_name(layer.digest) for layer in image.layers],
        }
        _put(archive, "manifest.json", _json([for_docker]))
        for blob in (image.config, manifest):
            _put(archive, _blob_name(digest_of(blob)), blob)
        for layer in {layer.digest: layer for layer in image.layers}.values():
            if layer.digest not in without:
                with layer.path.open("rb") as content:
                    archive.addfile(_entry(_blob_name(layer.digest), layer.size), content)


def digest_of(blob: bytes) -> str:
    """As OCI writes it."""
    return f"sha256:{hashlib.sha256(blob).hexdigest()}"


def _blob_name(digest: str) -> str:
    return f"blobs/{digest.replace(':', '/')}"


def _put(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    archive.addfile(_entry(name, len(content)), io.BytesIO(content))


def _entry(name: str, size: int) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.size = size
    entry.mtime = BUILD_TIME
    return entry


def _json(value: object) -> bytes:
    return json.dumps(value, sort_keys=True).encode()
