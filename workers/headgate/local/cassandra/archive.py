"""The parts of a node on this machine: a Java, the jars, and where there is one a class-data archive.

The archive is the JVM's data on Cassandra's classes from one start, kept for all later ones. It saves two to five
seconds of each start. It belongs to one build of Java and one set of jars at one path, so both are in its version. A
JVM that rejects it continues without it. A node starts at once, without an archive, and leaves one when it ends.
"""

from __future__ import annotations

import hashlib
import shutil
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from headgate.local.cache import cache_root, cached, is_cached
from headgate.local.cassandra.jars import VERSION, jars
from headgate.local.cassandra.java import Java, find_java

ARCHIVE, FILE, _LEARNED = "cassandra-archive", "classes.jsa", ".learned.jsa"
FIRST_MAJOR = 13
"""Java 11 cannot make one."""


@dataclass(frozen=True)
class Installation:
    """Where the parts lie."""

    java: Java
    jars: Path
    archive: Path | None = None

    @property
    def class_path(self) -> str:
        """The jars in a fixed order, and no directory: with one the JVM silently skips its class-data archive."""
        return ":".join(str(jar) for jar in sorted(self.jars.glob("*.jar")))


def find_parts() -> Installation:
    """The parts, fetched where they are not cached; without an archive where none is cached."""
    java = find_java()
    directory = jars()
    archive = cache_root() / ARCHIVE / archive_version(java, directory) / FILE
    return Installation(java, directory, archive if archive.is_file() else None)


def learning_arguments(parts: Installation, state: Path) -> tuple[str, ...]:
    """By which the JVM writes an archive into its state directory when it ends, where none is cached."""
    if parts.archive is not None or parts.java.major < FIRST_MAJOR:
        return ()
    return (f"-XX:ArchiveClassesAtExit={_learned(state, archive_version(parts.java, parts.jars))}",)


def keep_learned(state: Path) -> None:
    """Move what a node wrote at its end, if it did, into the cache. Call it when the node has ended by itself."""
    for learned in state.glob(f"*{_LEARNED}"):
        version = learned.name.removesuffix(_LEARNED)
        if not is_cached(ARCHIVE, version):
            cached(ARCHIVE, version, partial(_move_into, learned), needs_mb=200)
        learned.unlink(missing_ok=True)


def _move_into(learned: Path, entry: Path) -> None:
    shutil.move(learned, entry / FILE)


def forget_learned(state: Path) -> None:
    """Remove what a node left that was killed while it wrote."""
    for learned in state.glob(f"*{_LEARNED}"):
        learned.unlink()


def _learned(state: Path, version: str) -> Path:
    return state / f"{version}{_LEARNED}"


def archive_version(java: Java, directory: Path) -> str:
    """Of the archive for this Java and these jars."""
    # The JVM compares the path of each jar as text, so an archive made for another path is of no use.
    return f"{VERSION}-java{java.build}-{hashlib.sha256(str(directory).encode()).hexdigest()[:8]}"
