"""What a node on this machine is started from: a Java, the jars, and where there is one a class-data archive.

The Java is one that Cassandra accepts, and its version is checked before a JVM prints a page of complaints. The jars
are resolved by Maven from a package registry and kept in the cache by version. Maven's local repository is inside the
entry during the build and is removed from it, so ~/.m2 is not touched and nothing is kept twice.

The archive is the JVM's data on Cassandra's classes from one start, kept for all later ones. It saves two to five
seconds of each start. It belongs to one build of Java and one set of jars at one path, so both are in its version. A
JVM that rejects it continues without it. A node starts at once, without an archive, and leaves one when it ends.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from headgate.errors import EnvironmentProblem
from headgate.local import progress
from headgate.local.cache import cache_root, cached, is_cached
from headgate.local.processes import require_program

ACCEPTED = (11, 17)
SYSTEM = Path("/usr/lib/jvm")
ELSEWHERE = (
    # An installer of macOS; Homebrew, which puts none on PATH.
    "/Library/Java/JavaVirtualMachines/*17*/Contents/Home/bin",
    "/opt/homebrew/opt/openjdk@17/bin",
    "/usr/local/opt/openjdk@17/bin",
)
_MEMORY = Path("/proc/meminfo")
_REMEDY = (
    "install Java 17 (Debian: apt-get install openjdk-17-jre-headless; macOS: brew install openjdk@17),"
    " or set JAVA_HOME to one"
)
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
ARCHIVE, FILE, _LEARNED = "cassandra-archive", "classes.jsa", ".learned.jsa"
FIRST_MAJOR = 13
"""Java 11 cannot make one."""


# ---- Java


@dataclass(frozen=True)
class Java:
    """A Java installation that Cassandra accepts."""

    program: Path
    major: int
    build: str


def find_java() -> Java:
    """The first Java of JAVA_HOME, PATH and the system's directory that Cassandra accepts."""
    checked: list[str] = []
    for program in _candidates():
        output = subprocess.run([program, "-version"], capture_output=True, text=True, check=False).stderr
        major = parse_major(output)
        if major in ACCEPTED:
            return Java(program.resolve(), major, parse_build(output))
        if major is not None:  # macOS has a program `java` also where there is no Java
            checked.append(str(major))
    if not checked:
        raise EnvironmentProblem("Java is missing", remedy=_REMEDY)
    raise EnvironmentProblem(
        "Cassandra 5 requires Java 17 or 11", remedy=_REMEDY, version=" and ".join(sorted(set(checked)))
    )


def _candidates() -> Iterable[Path]:
    homes = [Path(os.environ["JAVA_HOME"]) / "bin"] if os.environ.get("JAVA_HOME") else []
    homes += [Path(entry) for entry in os.environ.get("PATH", "").split(os.pathsep) if entry]
    homes += [home / "bin" for home in sorted(SYSTEM.glob("*17*"))]
    homes += [home for pattern in ELSEWHERE for home in sorted(Path("/").glob(pattern.lstrip("/")))]
    return (home / "java" for home in homes if os.access(home / "java", os.X_OK))


def parse_major(output: str) -> int | None:
    """The 17 in `openjdk version "17.0.15"`, the 8 in `"1.8.0_392"`."""
    match = re.search(r'version "(?:1\.)?(\d+)', output)
    return int(match[1]) if match else None


def parse_build(output: str) -> str:
    """The exact build, fit for a file name; an archive of one build is useless to another."""
    match = re.search(r"\(build ([^,)]+)", output) or re.search(r'version "([^"]+)"', output)
    return re.sub(r"[^A-Za-z0-9.+-]", "_", match[1]) if match else "unknown"


def require_memory(needs_mb: int) -> None:
    """Refuse early where Linux would kill the server late; elsewhere the system swaps."""
    match = re.search(r"MemAvailable:\s+(\d+) kB", _MEMORY.read_text()) if _MEMORY.exists() else None
    if match is not None and int(match[1]) // 1024 < needs_mb:
        raise EnvironmentProblem(
            "Too little memory is free to start Cassandra",
            remedy="stop other programs, or start fewer nodes",
            free_mb=int(match[1]) // 1024,
            needs_mb=needs_mb,
        )


# ---- the jars


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


# ---- the archive


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
