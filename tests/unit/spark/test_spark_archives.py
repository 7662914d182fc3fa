"""Archives on the path of a Python worker: what has changed is found, and what has not is not read again."""

from __future__ import annotations

import importlib
import os
import sys
import zipimport
from collections.abc import Iterator
from pathlib import Path
from zipfile import ZipFile

import pytest

from headgate_spark.process.worker_connection import UnchangedArchive, spare_archives


@pytest.fixture
def archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An archive that has been imported from."""
    path = tmp_path / "of_the_worker.zip"
    pack(path, "first_of_the_archive")
    monkeypatch.syspath_prepend(str(path))
    importlib.import_module("first_of_the_archive")
    spare_archives()
    yield path
    for name in [name for name in sys.modules if name.endswith("_of_the_archive")]:
        del sys.modules[name]
    sys.path_importer_cache.pop(str(path), None)


def pack(path: Path, *modules: str) -> None:
    """Write it again."""
    with ZipFile(path, "w") as made:
        for name in modules:
            made.writestr(f"{name}.py", f"NAME = {name!r}\n")


def directories_read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The archives whose directories are read from now on."""
    read: list[str] = []
    plain = zipimport._read_directory  # type: ignore[attr-defined]  # what each of its ways to read comes to

    def reading(path: str) -> object:
        read.append(path)
        return plain(path)

    monkeypatch.setattr(zipimport, "_read_directory", reading)
    return read


def test_an_archive_that_is_as_it_was_is_not_read_again(archive: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read = directories_read(monkeypatch)
    importlib.invalidate_caches()
    assert str(archive) not in read


def test_without_it_python_reads_it_each_time(archive: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sys.path_importer_cache[str(archive)] = zipimport.zipimporter(str(archive))
    read = directories_read(monkeypatch)
    importlib.invalidate_caches()
    assert str(archive) in read


def test_what_was_added_to_an_archive_is_found(archive: Path) -> None:
    pack(archive, "first_of_the_archive", "second_of_the_archive")
    os.utime(archive, ns=(1, 1))
    importlib.invalidate_caches()
    assert "second_of_the_archive" == importlib.import_module("second_of_the_archive").NAME


def test_an_archive_that_is_gone_is_no_error(archive: Path) -> None:
    archive.unlink()
    importlib.invalidate_caches()
    spare_archives()


def test_each_archive_is_taken_once(archive: Path) -> None:
    first = sys.path_importer_cache[str(archive)]
    assert type(first) is UnchangedArchive
    spare_archives()
    assert first is sys.path_importer_cache[str(archive)]
