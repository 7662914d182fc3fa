"""The Java for Cassandra: located, and its version checked before a JVM prints a page of complaints."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from headgate.errors import EnvironmentProblem

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
