"""All that has to be on the machine before a node can start: a Java, the jars, the class-data archive."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from headgate.local.cassandra.java import Java
from headgate.local.cassandra.settings import NodeSettings, Profile


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

    def archive_for(self, settings: NodeSettings) -> Path | None:
        """The archive where a fast start matters; benchmarks run a JVM as production does."""
        return self.archive if settings.profile is Profile.FUNCTIONAL else None
