"""The JVM connector that Spark reads are measured against: its jars, resolved by Maven and kept in the cache.

Without its extensions: with them no query runs on Spark 4.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from headgate.errors import EnvironmentProblem
from headgate.local import progress
from headgate.local.cache import cached, is_cached
from headgate.local.cassandra.installation import find_java, maven_failure
from headgate.local.processes import require_program

VERSION = "3.5.1"
NAME = "spark-cassandra-connector"
FORMAT = "org.apache.spark.sql.cassandra"
_COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"
_POM = f"""\
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>io.headgate</groupId>
  <artifactId>bench-spark</artifactId>
  <version>1</version>
  <packaging>pom</packaging>
  <dependencies>
    <dependency><groupId>com.datastax.spark</groupId><artifactId>{NAME}_2.13</artifactId><version>{VERSION}</version></dependency>
  </dependencies>
</project>
"""
_SPARK_HAS = "org.apache.spark,org.slf4j"
_SCALA = "scala-library,scala-reflect"
"""By their names: a group is left out with all groups that begin like it, and modules of Scala are wanted."""
_ENTRY = f"{VERSION}-with-modules"


def connector_jars() -> list[Path]:
    """The files that a session needs besides Spark; fetched once."""
    if not is_cached(NAME, _ENTRY):
        with progress.step(f"fetching {NAME} {VERSION} with Maven", expect_s=40):
            cached(NAME, _ENTRY, _fetch, needs_mb=200)
    return sorted(cached(NAME, _ENTRY, _fetch).glob("*.jar"))


def _fetch(entry: Path) -> None:
    maven = require_program("mvn", remedy="install Maven (Debian: apt-get install maven)")
    work = entry / ".maven"
    work.mkdir()
    (work / "pom.xml").write_text(_POM)
    done = subprocess.run(
        [
            *(maven, "--batch-mode", "--quiet", "--file", work / "pom.xml"),
            *(f"-Dmaven.repo.local={work / 'repository'}", _COPY, f"-DoutputDirectory={entry}"),
            *("-DincludeScope=runtime", f"-DexcludeGroupIds={_SPARK_HAS}", f"-DexcludeArtifactIds={_SCALA}"),
        ],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "JAVA_HOME": str(find_java().program.parent.parent)},
    )
    if done.returncode != 0:
        raise maven_failure(done.stdout + done.stderr)
    shutil.rmtree(work)
    if not (entry / f"{NAME}_2.13-{VERSION}.jar").is_file():
        raise EnvironmentProblem(
            "Maven downloaded no connector", remedy="check which `mvn` this machine uses", program=maven
        )
