"""Splits the output of `docker save` into layers and configuration, each layer kept once in the cache.

So an image that Docker built can be imported into a node like any other: by its digests, without the layers it has
already. Archives of old and new engines are supported; a compressed layer is kept as the tar that it contains, which
the digest names.
"""

from __future__ import annotations

import gzip
import json
import shutil
import tarfile
from collections.abc import Iterable
from pathlib import Path
from typing import IO, Any

from dev.cluster.oci import Image, Layer, read_layer
from headgate.errors import EnvironmentProblem
from headgate.local.cache import cache_root, cached, is_cached

_LAYERS = "image-layers"
_GZIP = b"\x1f\x8b"


def read_saved(archive: Path, tag: str) -> Image:
    """The one image of the archive, under this tag."""
    with tarfile.open(archive) as saved:
        (manifest,) = json.loads(_blob(saved, "manifest.json"))
        config = _blob(saved, manifest["Config"])
        wanted = diff_ids(config)
        layers = [_kept(saved, name, diff_id) for name, diff_id in zip(manifest["Layers"], wanted, strict=True)]
    return Image(tag, tuple(layers), config)


def kept_image(tag: str, config: bytes) -> Image | None:
    """An image read earlier, from its configuration; None where a layer is not kept any more."""
    wanted = diff_ids(config)
    if not all(is_cached(_LAYERS, _entry(each)) for each in wanted):
        return None
    return Image(tag, tuple(_layer(each) for each in wanted), config)


def diff_ids(config: bytes) -> list[str]:
    """The digests of an image's layers, lowest first."""
    fields: dict[str, Any] = json.loads(config)
    return [str(each) for each in fields["rootfs"]["diff_ids"]]


def forget_layers_but(configs: Iterable[bytes]) -> None:
    """Delete the layers that no image of these has."""
    wanted = {_entry(each) for config in configs for each in diff_ids(config)}
    root = cache_root() / _LAYERS
    for entry in root.iterdir() if root.is_dir() else ():
        if entry.is_dir() and not entry.name.startswith(".") and entry.name not in wanted:
            shutil.rmtree(entry, ignore_errors=True)


def _kept(saved: tarfile.TarFile, name: str, diff_id: str) -> Layer:
    def make(directory: Path) -> None:
        path = directory / "layer.tar"
        with _opened(saved, name) as source, path.open("wb") as target:
            compressed = source.read(2) == _GZIP
            source.seek(0)
            content = gzip.GzipFile(fileobj=source) if compressed else source
            shutil.copyfileobj(content, target, 1 << 20)
        result = read_layer(path).digest
        if result != diff_id:
            raise EnvironmentProblem(
                "an image's layer differs from its configuration",
                remedy="check the free disk space, then build it again",
                expected=diff_id,
                actual=result,
            )

    size_mb = saved.getmember(name).size // (1 << 20)
    cached(_LAYERS, _entry(diff_id), make, needs_mb=size_mb + 64)
    return _layer(diff_id)


def _layer(diff_id: str) -> Layer:
    path = cache_root() / _LAYERS / _entry(diff_id) / "layer.tar"
    return Layer(path, diff_id, path.stat().st_size)


def _entry(diff_id: str) -> str:
    return diff_id.partition(":")[2]


def _blob(saved: tarfile.TarFile, name: str) -> bytes:
    with _opened(saved, name) as file:
        return file.read()


def _opened(saved: tarfile.TarFile, name: str) -> IO[bytes]:
    file = saved.extractfile(name)
    assert file is not None, f"{name} is a file in the output of docker save"
    return file
