"""Cassandra's jars, resolved by Maven from a package registry and kept in the cache by version.

Maven's local repository is inside the entry during the build and is removed from it, so ~/.m2 is not touched and
nothing is kept twice.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

from headgate.errors import EnvironmentProblem
from headgate.local import progress
from headgate.local.cache import cached, is_cached
from headgate.local.cassandra.java import find_java
from headgate.local.processes import require_program

VERSION = "5.0.9"
_DOWNLOAD_MB = 85
"""The jars, and Maven's own plugins."""
_COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"
_POM = """\
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>io.headgate</groupId>
  <artifactId>test-cassandra</artifactId>
  <version>1</version>
  <packaging>pom</packaging>
  <dependencies>
    <dependency><groupId>org.apache.cassandra</groupId><artifactId>cassandra-all</artifactId><version>{}</version></dependency>
  </dependencies>
</project>
"""
_NO_NETWORK = re.compile(r"Unknown host|Connection refused|timed out|Temporary failure|unreachable|offline", re.I)


def jars() -> Path:
    """The directory of the jars; fetched once."""
    # Without links: the class-data archive holds the path of each jar as text.
    if is_cached("cassandra", VERSION):
        return cached("cassandra", VERSION, _fetch).resolve()
    with progress.step(f"fetching Cassandra {VERSION} with Maven", expect_s=45):
        return cached("cassandra", VERSION, _fetch, needs_mb=400).resolve()


def require_maven() -> str:
    """The path of Maven; none is needed where the jars are cached."""
    if is_cached("cassandra", VERSION):
        return ""
    return require_program(
        "mvn",
        remedy="install Maven, which fetches Cassandra (Debian: apt-get install maven; macOS: brew install maven)",
    )


def _fetch(entry: Path) -> None:
    maven = require_maven()
    java = find_java()
    work = entry / ".maven"
    work.mkdir()
    (work / "pom.xml").write_text(_POM.format(VERSION))
    options = ("--batch-mode", "--quiet", "--file", work / "pom.xml", f"-Dmaven.repo.local={work / 'repository'}")
    with progress.download(f"Cassandra {VERSION}", work, expect_mb=_DOWNLOAD_MB):
        done = subprocess.run(
            [maven, *options, _COPY, f"-DoutputDirectory={entry}", "-DincludeScope=runtime"],
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "JAVA_HOME": str(java.program.parent.parent)},
        )
    if done.returncode != 0:
        raise maven_failure(done.stdout + done.stderr)
    shutil.rmtree(work)
    if not (entry / f"cassandra-all-{VERSION}.jar").is_file():
        raise EnvironmentProblem(
            "Maven downloaded no Cassandra", remedy="check which `mvn` this machine uses", program=maven
        )


def maven_failure(output: str) -> EnvironmentProblem:
    """One line for Maven's long error, without the addresses of its registry."""
    if "No space left on device" in output:
        return EnvironmentProblem("The disk is full", remedy="free 400 MB for Maven and the jars")
    errors = [line.removeprefix("[ERROR]").strip() for line in output.splitlines() if "[ERROR]" in line]
    line = re.sub(r"https?://\S+", "(the registry)", errors[0] if errors else output.strip()[-300:])
    if _NO_NETWORK.search(output):
        return EnvironmentProblem(
            "Maven cannot reach its registry",
            remedy="check the network; configure a proxy or mirror in Maven's settings.xml",
            cause=line[:300],
        )
    return EnvironmentProblem(
        "Maven could not resolve Cassandra's jars", remedy="run it again, or check Maven's output", cause=line
    )
