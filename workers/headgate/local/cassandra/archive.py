"""A class-data archive: the JVM's data on Cassandra's classes from one start, kept for all later ones.

It saves two to five seconds of each start. It belongs to one build of Java and one set of jars at one path, so both
are in its version. A JVM that rejects it continues without it.

Tests have a node of its own learn (`find_installation`). A node that a person waits for starts at once, without an
archive, and leaves one when it ends (`find_parts`, `learning_arguments`, `keep_learned`).
"""

from __future__ import annotations

import hashlib
import shutil
from functools import partial
from pathlib import Path

from headgate.errors import EnvironmentProblem
from headgate.local import progress
from headgate.local.cache import cached, is_cached
from headgate.local.cassandra.installation import Installation
from headgate.local.cassandra.jars import VERSION, jars
from headgate.local.cassandra.java import Java, find_java
from headgate.local.cassandra.node import Node
from headgate.local.cassandra.settings import NodePlace, NodeSettings
from headgate.local.ownership import temporary_directory
from headgate.local.ports import server_ports

_NAME, _FILE, _LEARNED = "cassandra-archive", "classes.jsa", ".learned.jsa"
_FIRST_MAJOR = 13
"""Java 11 cannot make one."""
_LESSONS = (
    "CREATE KEYSPACE lesson WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}",
    "CREATE TABLE lesson.rows (k text, c int, v blob, s int STATIC, PRIMARY KEY (k, c))",
    "INSERT INTO lesson.rows (k, c, v) VALUES ('a', 1, 0x00) USING TTL 600",
    "UPDATE lesson.rows SET s = 1 WHERE k = 'a' IF s = null",
    "BEGIN BATCH INSERT INTO lesson.rows (k, c) VALUES ('a', 2) DELETE FROM lesson.rows WHERE k = 'a' AND c = 1 "
    "APPLY BATCH",
    "SELECT * FROM lesson.rows WHERE k = 'a'",
    "DROP KEYSPACE lesson",
)


def find_installation() -> Installation:
    """The parts, fetched and made when they are not cached yet (about a minute, once)."""
    java = find_java()
    directory = jars()
    return Installation(java, directory, class_data_archive(java, directory))


def find_parts() -> Installation:
    """As `find_installation`, without an archive where none is cached: for a node that should start at once."""
    java = find_java()
    directory = jars()
    there = is_cached(_NAME, _version(java, directory))
    return Installation(java, directory, class_data_archive(java, directory) if there else None)


def learning_arguments(parts: Installation, state: Path) -> tuple[str, ...]:
    """By which the JVM writes an archive into its state directory when it ends, where none is cached."""
    if parts.archive is not None or parts.java.major < _FIRST_MAJOR:
        return ()
    return (f"-XX:ArchiveClassesAtExit={_learned(state, _version(parts.java, parts.jars))}",)


def keep_learned(state: Path) -> None:
    """Move what a node wrote at its end, if it did, into the cache. Call it when the node has ended by itself."""
    for learned in state.glob(f"*{_LEARNED}"):
        version = learned.name.removesuffix(_LEARNED)
        if not is_cached(_NAME, version):
            cached(_NAME, version, partial(_move_into, learned), needs_mb=200)
        learned.unlink(missing_ok=True)


def _move_into(learned: Path, entry: Path) -> None:
    shutil.move(learned, entry / _FILE)


def forget_learned(state: Path) -> None:
    """Remove what a node left that was killed while it wrote."""
    for learned in state.glob(f"*{_LEARNED}"):
        learned.unlink()


def _learned(state: Path, version: str) -> Path:
    return state / f"{version}{_LEARNED}"


def _version(java: Java, directory: Path) -> str:
    # The JVM compares the path of each jar as text, so an archive made for another path is of no use.
    return f"{VERSION}-java{java.build}-{hashlib.sha256(str(directory).encode()).hexdigest()[:8]}"


def class_data_archive(java: Java, directory: Path) -> Path | None:
    """The archive for this Java and these jars, created once; none where this Java cannot create one (before 13)."""
    if java.major < _FIRST_MAJOR:
        return None
    version = _version(java, directory)

    def build(entry: Path) -> None:
        _learn(java, directory, entry / _FILE)

    if is_cached(_NAME, version):
        return cached(_NAME, version, build) / _FILE
    with progress.step("archiving Cassandra's classes for faster starts", expect_s=20):
        return cached(_NAME, version, build, needs_mb=400) / _FILE


def _learn(java: Java, jar_directory: Path, archive: Path) -> None:
    directory = temporary_directory("headgate-cassandra-")
    native, storage, jmx = server_ports(3)
    place = NodePlace(directory, "127.0.0.1", native, storage, jmx)
    node = Node(
        NodeSettings(),
        place,
        installation=Installation(java, jar_directory),
        extra_arguments=(f"-XX:ArchiveClassesAtExit={archive}",),
    )
    try:
        node.start()
        for lesson in _LESSONS:
            node.cql(lesson)
        node.stop()
        if not archive.is_file():
            raise EnvironmentProblem(
                "Java created no class-data archive",
                remedy=f"its last lines:\n{node.server.last_error_lines()}",
                java=java.program,
            )
    finally:
        node.kill()
        shutil.rmtree(directory, ignore_errors=True)
