"""Images are written as OCI says, and the same content makes the same bytes."""

from __future__ import annotations

import json
import os
import tarfile
from pathlib import Path

import pytest

from dev.cluster.oci import Layer, Run, Source, digest_of, image_digest, read_layer, write_image, write_layer


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    root = tmp_path / "tree"
    (root / "package" / "__pycache__").mkdir(parents=True)
    (root / "package" / "__pycache__" / "a.pyc").write_bytes(b"compiled")
    (root / "package" / "a.py").write_text("A = 1\n")
    (root / "package" / "run").write_text("#!/bin/sh\n")
    (root / "package" / "run").chmod(0o700)
    (root / "package" / "link").symlink_to("a.py")
    (root / "var" / "cache").mkdir(parents=True)
    (root / "var" / "cache" / "big").write_text("not packed")
    (root / "etc").mkdir()
    return root


def entries(layer: Layer) -> list[tarfile.TarInfo]:
    with tarfile.open(layer.path) as archive:
        return archive.getmembers()


def blob(archive: tarfile.TarFile, digest: str) -> bytes:
    file = archive.extractfile(f"blobs/{digest.replace(':', '/')}")
    assert file is not None
    return file.read()


def test_the_same_content_makes_the_same_bytes_whenever_and_by_whomever_it_is_packed(
    tree: Path, tmp_path: Path
) -> None:
    first = write_layer(tmp_path / "1.tar", [Source(tree / "package", "/opt/package")])
    os.utime(tree / "package" / "a.py", (1, 1))
    (tree / "package" / "a.py").chmod(0o600)
    second = write_layer(tmp_path / "2.tar", [Source(tree / "package", "/opt/package")])
    assert (first.digest, first.size) == (second.digest, second.size)


def test_a_change_of_content_changes_the_digest(tree: Path, tmp_path: Path) -> None:
    first = write_layer(tmp_path / "1.tar", [Source(tree / "package", "/opt/package")])
    (tree / "package" / "a.py").write_text("A = 2\n")
    assert write_layer(tmp_path / "2.tar", [Source(tree / "package", "/opt/package")]).digest != first.digest


def test_a_layer_holds_the_parents_once_the_modes_that_matter_and_links(tree: Path, tmp_path: Path) -> None:
    layer = write_layer(
        tmp_path / "layer.tar",
        [
            Source(tree / "package", "/opt/site/package", without_names=("__pycache__",)),
            Source(tree / "package" / "a.py", "/opt/other/a.py"),
        ],
    )
    told = [(entry.name, oct(entry.mode), entry.uid, entry.linkname) for entry in entries(layer)]
    assert told == [
        ("opt", "0o755", 0, ""),
        ("opt/site", "0o755", 0, ""),
        ("opt/site/package", "0o755", 0, ""),
        ("opt/site/package/a.py", "0o644", 0, ""),
        ("opt/site/package/link", "0o755", 0, "a.py"),
        ("opt/site/package/run", "0o755", 0, ""),
        ("opt/other", "0o755", 0, ""),
        ("opt/other/a.py", "0o644", 0, ""),
    ]


def test_a_root_file_system_keeps_its_modes_and_loses_what_is_left_out(tree: Path, tmp_path: Path) -> None:
    layer = write_layer(tmp_path / "root.tar", [Source(tree, "/", owner=None, without=("/var/cache", "/package"))])
    assert [entry.name for entry in entries(layer)] == ["etc", "var"]


def test_an_image_names_its_layers_by_what_they_hold(tree: Path, tmp_path: Path) -> None:
    layers = [
        write_layer(tmp_path / "1.tar", [Source(tree / "package" / "a.py", "/a.py")]),
        write_layer(tmp_path / "2.tar", [Source(tree / "package" / "run", "/run")]),
    ]
    how = Run(command=("python3",), environment={"A": "1"}, user="7:7", directory="/work")
    digest = write_image(tmp_path / "image.tar", "penstock.local/x:dev", layers, how)
    with tarfile.open(tmp_path / "image.tar") as archive:
        layout = archive.extractfile("oci-layout")
        index_file = archive.extractfile("index.json")
        assert layout is not None
        assert index_file is not None
        assert json.loads(layout.read()) == {"imageLayoutVersion": "1.0.0"}
        (described,) = json.loads(index_file.read())["manifests"]
        assert described["digest"] == digest == image_digest(layers, how)
        assert described["annotations"]["io.containerd.image.name"] == "penstock.local/x:dev"
        manifest = json.loads(blob(archive, digest))
        config = json.loads(blob(archive, manifest["config"]["digest"]))
        for layer, named, diff in zip(layers, manifest["layers"], config["rootfs"]["diff_ids"], strict=True):
            assert named["digest"] == diff == layer.digest == digest_of(blob(archive, layer.digest))
            assert named["size"] == layer.size
    assert config["config"]["Cmd"] == ["python3"]
    assert config["config"]["User"] == "7:7"
    assert config["config"]["WorkingDir"] == "/work"
    assert "A=1" in config["config"]["Env"]


def test_a_layer_the_reader_has_is_named_and_not_sent(tree: Path, tmp_path: Path) -> None:
    layer = write_layer(tmp_path / "1.tar", [Source(tree / "package" / "a.py", "/a.py")])
    whole = write_image(tmp_path / "whole.tar", "x:1", [layer], Run())
    thin = write_image(tmp_path / "thin.tar", "x:1", [layer], Run(), without={layer.digest})
    assert thin == whole
    with tarfile.open(tmp_path / "thin.tar") as archive:
        assert f"blobs/{layer.digest.replace(':', '/')}" not in archive.getnames()


def test_a_layer_read_again_is_the_one_that_was_written(tree: Path, tmp_path: Path) -> None:
    layer = write_layer(tmp_path / "1.tar", [Source(tree / "package", "/p")])
    assert read_layer(layer.path) == layer
