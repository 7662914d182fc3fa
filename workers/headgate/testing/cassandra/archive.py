"""A class-data archive: what the JVM learns of Cassandra's classes in one start, kept for all later ones.

It saves one to two seconds of each start. It belongs to one build of Java and one set of jars at one path, so both
are in its version; a JVM that finds it unfit goes on without it.
"""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path

from headgate.errors import Surroundings
from headgate.testing import progress
from headgate.testing.cache import cached, is_cached
from headgate.testing.cassandra.installation import Installation
from headgate.testing.cassandra.jars import VERSION, jars
from headgate.testing.cassandra.java import Java, find_java
from headgate.testing.cassandra.node import Node
from headgate.testing.cassandra.settings import NodeSettings, Place
from headgate.testing.ownership import temporary_directory
from headgate.testing.ports import server_ports

_FILE = "classes.jsa"
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
    """The archive for this Java and these jars, made once; none where this Java can not make one (before 13)."""
    if java.major < 13:
        return None
    # The JVM compares the path of each jar as text, so an archive made for another path is of no use.
    version = f"{VERSION}-java{java.build}-{hashlib.sha256(str(directory).encode()).hexdigest()[:8]}"

    def build(entry: Path) -> None:
        _learn(java, directory, entry / _FILE)

    if is_cached("cassandra-archive", version):
        return cached("cassandra-archive", version, build) / _FILE
    with progress.step("archiving Cassandra's classes for faster starts", expect_s=20):
        return cached("cassandra-archive", version, build, needs_mb=400) / _FILE


def _learn(java: Java, jar_directory: Path, archive: Path) -> None:
    directory = temporary_directory("headgate-cassandra-")
    native, storage, jmx = server_ports(3)
    place = Place(directory, "127.0.0.1", native, storage, jmx)
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
            raise Surroundings(
                "Java created no class-data archive",
                remedy=f"its last lines:\n{node.server.last_error_lines()}",
                java=java.program,
            )
    finally:
        node.kill()
        shutil.rmtree(directory, ignore_errors=True)
