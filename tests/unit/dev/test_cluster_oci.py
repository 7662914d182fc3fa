"""Images are written by the rules of OCI, and the same content makes the same bytes."""

from __future__ import annotations

import gzip
import io
import json
import os
import tarfile
from pathlib import Path

import pytest

from dev.cluster.docker_archive import forget_layers_but, kept_image, read_saved
from dev.cluster.oci import Image, Layer, Run, Source, assemble, digest_of, read_layer, write_image, write_layer
from headgate.errors import EnvironmentProblem


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
    reports = [(entry.name, oct(entry.mode), entry.uid, entry.linkname) for entry in entries(layer)]
    assert reports == [
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
    image = assemble("headgate.local/x:dev", layers, how)
    write_image(tmp_path / "image.tar", image)
    with tarfile.open(tmp_path / "image.tar") as archive:
        layout = archive.extractfile("oci-layout")
        index_file = archive.extractfile("index.json")
        assert layout is not None
        assert index_file is not None
        assert json.loads(layout.read()) == {"imageLayoutVersion": "1.0.0"}
        (described,) = json.loads(index_file.read())["manifests"]
        assert described["digest"] == image.digest
        assert described["annotations"]["io.containerd.image.name"] == "headgate.local/x:dev"
        manifest = json.loads(blob(archive, image.digest))
        assert manifest["config"]["digest"] == image.id
        config = json.loads(blob(archive, image.id))
        for layer, named, diff in zip(layers, manifest["layers"], config["rootfs"]["diff_ids"], strict=True):
            assert named["digest"] == diff == layer.digest == digest_of(blob(archive, layer.digest))
            assert named["size"] == layer.size
    assert config["config"]["Cmd"] == ["python3"]
    assert config["config"]["User"] == "7:7"
    assert config["config"]["WorkingDir"] == "/work"
    assert "A=1" in config["config"]["Env"]


def test_a_layer_the_reader_has_is_named_and_not_sent(tree: Path, tmp_path: Path) -> None:
    layer = write_layer(tmp_path / "1.tar", [Source(tree / "package" / "a.py", "/a.py")])
    write_image(tmp_path / "thin.tar", assemble("x:1", [layer], Run()), without={layer.digest})
    with tarfile.open(tmp_path / "thin.tar") as archive:
        assert f"blobs/{layer.digest.replace(':', '/')}" not in archive.getnames()


def test_an_archive_is_read_back_by_what_docker_reads_and_is_the_same_image(
    tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADGATE_CACHE", str(tmp_path / "cache"))
    image = two_layers(tree, tmp_path)
    write_image(tmp_path / "image.tar", image)
    read = read_saved(tmp_path / "image.tar", "x:1")
    assert (read.id, read.digest) == (image.id, image.digest)
    assert [layer.path.read_bytes() for layer in read.layers] == [layer.path.read_bytes() for layer in image.layers]
    assert kept_image("x:1", image.config) == read


def test_a_compressed_layer_is_kept_as_the_tar_that_its_digest_names(
    tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADGATE_CACHE", str(tmp_path / "cache"))
    image = two_layers(tree, tmp_path)
    saved_by_docker(tmp_path / "saved.tar", image, [gzip.compress(each.path.read_bytes()) for each in image.layers])
    assert read_saved(tmp_path / "saved.tar", "x:1").digest == image.digest


def test_a_layer_that_is_not_what_the_configuration_states_is_refused(
    tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADGATE_CACHE", str(tmp_path / "cache"))
    image = two_layers(tree, tmp_path)
    saved_by_docker(tmp_path / "saved.tar", image, [b"cut off"] * 2)
    with pytest.raises(EnvironmentProblem, match="differs from its configuration"):
        read_saved(tmp_path / "saved.tar", "x:1")


def test_layers_that_no_kept_image_has_are_forgotten(
    tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADGATE_CACHE", str(tmp_path / "cache"))
    image = two_layers(tree, tmp_path)
    write_image(tmp_path / "image.tar", image)
    read_saved(tmp_path / "image.tar", "x:1")
    lower = assemble("x:2", image.layers[:1], Run())
    forget_layers_but([lower.config])
    assert (kept_image("x:1", image.config), kept_image("x:2", lower.config) is not None) == (None, True)


def two_layers(tree: Path, tmp_path: Path) -> Image:
    layers = [
        write_layer(tmp_path / "1.tar", [Source(tree / "package" / "a.py", "/a.py")]),
        write_layer(tmp_path / "2.tar", [Source(tree / "package" / "run", "/run")]),
    ]
    return assemble("x:1", layers, Run(command=("run",)))


def saved_by_docker(path: Path, image: Image, layers: list[bytes]) -> None:
    """As engines write it that know no OCI: a directory a layer."""
    files = {f"{number}/layer.tar": content for number, content in enumerate(layers)}
    manifest = [{"Config": "config.json", "RepoTags": [image.tag], "Layers": list(files)}]
    with tarfile.open(path, "w") as archive:
        for name, content in {
            **files,
            "config.json": image.config,
            "manifest.json": json.dumps(manifest).encode(),
        }.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))


def test_a_layer_read_again_is_the_one_that_was_written(tree: Path, tmp_path: Path) -> None:
    layer = write_layer(tmp_path / "1.tar", [Source(tree / "package", "/p")])
    assert read_layer(layer.path) == layer
