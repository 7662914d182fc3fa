"""A class-data archive before the first start, for tests: a node of its own learns.

`headgate.local.cassandra.installation` keeps it.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from dev.servers.cassandra.node import Node
from dev.servers.cassandra.settings import NodeSettings
from dev.servers.ownership import temporary_directory
from headgate.errors import EnvironmentProblem
from headgate.local import progress
from headgate.local.cache import cached, is_cached
from headgate.local.cassandra.installation import (
    ARCHIVE,
    FILE,
    FIRST_MAJOR,
    Installation,
    Java,
    archive_version,
    find_java,
    jars,
)
from headgate.local.cassandra.node import NodePlace
from headgate.local.processes import server_ports

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


def class_data_archive(java: Java, directory: Path) -> Path | None:
    """The archive for this Java and these jars, created once; none where this Java cannot create one (before 13)."""
    if java.major < FIRST_MAJOR:
        return None
    version = archive_version(java, directory)

    def build(entry: Path) -> None:
        _learn(java, directory, entry / FILE)

    if is_cached(ARCHIVE, version):
        return cached(ARCHIVE, version, build) / FILE
    with progress.step("archiving Cassandra's classes for faster starts", expect_s=20):
        return cached(ARCHIVE, version, build, needs_mb=400) / FILE


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
