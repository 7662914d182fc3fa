"""Results of slow builds, kept by version under ~/.cache/headgate (or HEADGATE_CACHE).

An entry is a directory that is either whole or absent. It is built in the same place under another name and renamed
in one step, so a killed build leaves nothing that seems finished. Two processes that want the same entry build it
once: the second waits on a file lock that the kernel releases when its holder dies.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from headgate.errors import EnvironmentProblem

Builder = Callable[[Path], None]


def cache_root() -> Path:
    """The directory of everything slow; it may be deleted at any time when nothing of ours runs."""
    named = os.environ.get("HEADGATE_CACHE")
    return Path(named) if named else Path.home() / ".cache" / "headgate"


def cached(name: str, version: str, build: Builder, *, needs_mb: int = 64) -> Path:
    """The entry `name/version`, built by `build(directory)` when it is missing."""
    entry = cache_root() / name / version
    if entry.is_dir():
        return entry
    with locked(entry.parent / f".{version}.lock"):
        if entry.is_dir():
            return entry
        require_disk_space(entry.parent, needs_mb)
        partial = entry.with_name(f".{version}.partial")
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        try:
            build(partial)
        except BaseException as error:
            shutil.rmtree(partial, ignore_errors=True)
            if isinstance(error, OSError) and error.errno == errno.ENOSPC:
                raise _disk_full(entry.parent, needs_mb) from None
            raise
        partial.rename(entry)
    return entry


def is_cached(name: str, version: str) -> bool:
    return (cache_root() / name / version).is_dir()


def require_disk_space(directory: Path, needs_mb: int) -> None:
    """Refuse early, with one line, when the disk has less than `needs_mb` left."""
    there = next(path for path in (directory, *directory.parents) if path.exists())
    if shutil.disk_usage(there).free < needs_mb * 1024 * 1024:
        raise _disk_full(directory, needs_mb)


def _disk_full(directory: Path, needs_mb: int) -> EnvironmentProblem:
    return EnvironmentProblem(
        "The disk is full",
        remedy=f"free {needs_mb} MB in it, or set HEADGATE_CACHE to a directory on another disk",
        directory=directory,
    )


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold an exclusive lock among processes; it ends with its holder, however that ends."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(handle, fcntl.LOCK_UN)
