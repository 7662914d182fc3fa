"""All that has to be on the machine before a node can start: a Java, the jars, the class-data archive."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from penstock.testing.cassandra.archive import class_data_archive
from penstock.testing.cassandra.jars import jars
from penstock.testing.cassandra.java import Java, find_java
from penstock.testing.cassandra.settings import NodeSettings, Profile


@dataclass(frozen=True)
class Installation:
    """Where the parts lie."""

    java: Java
    jars: Path
    archive: Path | None

    def archive_for(self, settings: NodeSettings) -> Path | None:
        """The archive where a fast start is what counts; benchmarks run a JVM as production does."""
        return self.archive if settings.profile is Profile.FUNCTIONAL else None


def installation() -> Installation:
    """The parts, fetched and made when they are not cached yet (about a minute, once)."""
    java = find_java()
    directory = jars()
    return Installation(java, directory, class_data_archive(java, directory))
