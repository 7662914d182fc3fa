"""Builds Go programs into the cache: our own small ones from this folder, others from their published modules.

The caches of the Go tool are under our own cache root while builds run and are deleted afterwards: they are twenty
times the size of the results. The checksums of every module stay verified: those of our own programs are in their
go.sum, those of others in `Published.module_sum` and in the go.sum that this sum covers.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from headgate.errors import EnvironmentProblem
from headgate.local.cache import cache_root, cached, is_cached
from headgate.local.processes import require_program

FOLDER = Path(__file__).parent
# The first Go that fetches by itself the toolchain that a module requires.
OLDEST_GO = (1, 21)
GO_REMEDY = "install Go 1.24 or later (https://go.dev/dl), or name a cluster you have: CONTEXT=name"
_FLAGS = ("-trimpath",)


@dataclass(frozen=True)
class Own:
    """A program whose source is next to this file, with its go.mod and go.sum."""

    name: str
    version: str
    title: str
    expect_s: float
    variables: Mapping[str, str] = field(default_factory=dict)
    aliases: tuple[str, ...] = ()
    needs_mb: int = 1000

    def fingerprint(self) -> str:
        """Changes when the source, a pinned version or a flag does."""
        digest = hashlib.sha256(repr((_FLAGS, sorted(self.variables.items()), self.aliases)).encode())
        for source in sorted((FOLDER / self.name).iterdir()):
            digest.update(source.name.encode() + b"\0" + source.read_bytes())
        return digest.hexdigest()[:8]


@dataclass(frozen=True)
class Published:
    """A program that others publish as a Go module of its own."""

    name: str
    version: str
    title: str
    expect_s: float
    module: str
    package: str
    module_sum: str
    variables: Mapping[str, str] = field(default_factory=dict)
    # The files of the module's sources that are needed besides the program, such as manifests: kept in `source/`.
    keep: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    # Further programs of the same module, by name: their shared code is compiled once.
    also: Mapping[str, str] = field(default_factory=dict)
    needs_mb: int = 4000

    def fingerprint(self) -> str:
        """Changes when the module, the package or a flag does."""
        output = repr((_FLAGS, self.module, self.package, self.module_sum, sorted(self.variables.items()), self.keep))
        more = repr((self.tags, sorted(self.also.items()))) if self.tags or self.also else ""
        return hashlib.sha256((output + more).encode()).hexdigest()[:8]


Program = Own | Published


def entry_version(program: Program) -> str:
    """The cache entry's version: a readable one, and a fingerprint of everything that goes in."""
    return f"{program.version}-{program.fingerprint()}"


def build(program: Program) -> Path:
    """The directory with the program in it, built when it is not in the cache yet."""

    def make(directory: Path) -> None:
        with _go_caches() as environment:
            if isinstance(program, Own):
                _compile(program, FOLDER / program.name, ".", directory / program.name, environment)
                for alias in program.aliases:
                    (directory / alias).symlink_to(program.name)
            else:
                _compile_published(program, directory, environment)

    return cached(program.name, entry_version(program), make, needs_mb=program.needs_mb)


def sources(program: Published) -> Path:
    """The directory with the kept files of a program's sources, such as manifests, without building it."""

    def make(directory: Path) -> None:
        with _go_caches() as environment:
            fetched = _fetch(program, environment)
            for kept in program.keep:
                shutil.copytree(fetched / kept, directory / kept)

    name, version = f"{program.name}-sources", entry_version(program)
    if not is_cached(name, version):
        cached(name, version, make, needs_mb=200)
        delete_go_caches()
    return cached(name, version, make)


def _compile_published(program: Published, directory: Path, environment: Mapping[str, str]) -> None:
    source = directory / "source"
    shutil.copytree(_fetch(program, environment), source)
    for path in (source, *source.rglob("*")):
        path.chmod(path.stat().st_mode | 0o200)
    for name, package in {program.name: program.package, **program.also}.items():
        _compile(program, source, package, directory / name, environment)
    for kept in program.keep:
        shutil.copytree(source / kept, directory / "kept" / kept)
    shutil.rmtree(source)
    if program.keep:
        (directory / "kept").rename(source)


def _fetch(program: Published, environment: Mapping[str, str]) -> Path:
    """The module's source, the very one whose sum is pinned."""
    wanted = f"{program.module}@v{program.version}"
    answer = _go(["mod", "download", "-json", wanted], cwd=cache_root(), environment=environment, what=program.name)
    output = json.loads(answer)
    if output["Sum"] != program.module_sum:
        raise EnvironmentProblem(
            "a Go module differs from the pinned one",
            remedy="do not use it; check what your module proxy serves",
            module=wanted,
            expected=program.module_sum,
            actual=output["Sum"],
        )
    return Path(output["Dir"])


def _compile(program: Program, source: Path, package: str, into: Path, environment: Mapping[str, str]) -> None:
    settings = " ".join(["-s", "-w", *(f"-X {name}={value}" for name, value in sorted(program.variables.items()))])
    tags = ["-tags", ",".join(program.tags)] if isinstance(program, Published) and program.tags else []
    _go(
        ["build", "-mod=readonly", *_FLAGS, *tags, "-ldflags", settings, "-o", str(into), package],
        cwd=source,
        environment=environment,
        what=program.name,
    )


def _go(arguments: list[str], *, cwd: Path, environment: Mapping[str, str], what: str) -> str:
    cwd.mkdir(parents=True, exist_ok=True)
    # A build may take every core for minutes; the machine should stay usable meanwhile.
    done = subprocess.run(
        ["nice", "-n", "5", "go", *arguments],
        cwd=cwd,
        env=dict(environment),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise EnvironmentProblem("a Go program did not build", remedy=remedy_for(done.stderr), program=what)
    return done.stdout


def remedy_for(output: str) -> str:
    """The remedy for a failed build, from the Go tool's output."""
    lines = [line.strip() for line in output.splitlines() if line.strip() and not line.startswith("go: downloading")]
    last = lines[-1] if lines else "(no output)"
    if "no space left on device" in output:
        return "The disk is full: free 8 GB, or set HEADGATE_CACHE (and TMPDIR) to a directory on another disk"
    if re.search(r"checksum mismatch|SECURITY ERROR", output):
        return f"a downloaded module is not the pinned one; do not use it: {last}"
    if re.search(
        r"dial tcp|no such host|i/o timeout|connection refused|TLS handshake|proxyconnect|Forbidden", output
    ):
        return f"the Go module proxy did not answer; check the network and GOPROXY: {last}"
    if "signal: killed" in output:
        return "the machine ran out of memory; a build of Kubernetes takes 2.5 GB"
    return f"the Go tool reports: {last}"


def go_version(answer: str) -> tuple[int, int] | None:
    """Major and minor of `go version`'s answer."""
    result = re.search(r"go(\d+)\.(\d+)", answer)
    return (int(result[1]), int(result[2])) if result else None


def require_go() -> None:
    """Refuse with one line where there is no Go, or one too old to fetch a newer one by itself."""
    require_program("go", remedy=GO_REMEDY)
    answer = subprocess.run(["go", "version"], capture_output=True, text=True, check=False).stdout.strip()
    version = go_version(answer)
    if version is None or version < OLDEST_GO:
        raise EnvironmentProblem("this Go is too old", remedy=GO_REMEDY, actual=answer)


@contextmanager
def _go_caches() -> Iterator[dict[str, str]]:
    """The environment of a build; the last build deletes the caches, unless they are to be kept."""
    require_go()
    root = cache_root() / "go"
    root.mkdir(parents=True, exist_ok=True)
    lock = (root / ".lock").open("a")
    with lock:
        fcntl.flock(lock, fcntl.LOCK_SH)
        flags = " ".join(part for part in (os.environ.get("GOFLAGS", ""), "-modcacherw", "-buildvcs=false") if part)
        yield {
            **os.environ,
            "GOMODCACHE": str(root / "mod"),
            "GOCACHE": str(root / "build"),
            "GOFLAGS": flags,
            "GOWORK": "off",
            "CGO_ENABLED": "0",
            **_collecting_less(os.environ),
        }
        fcntl.flock(lock, fcntl.LOCK_UN)


def _collecting_less(environment: Mapping[str, str]) -> dict[str, str]:
    """With memory to spare the compiler collects its garbage less often, which saves an eighth of its time."""
    if "GOGC" in environment:
        return {}
    try:
        free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError):  # macOS has no such number
        return {}
    return {"GOGC": "400"} if free > 6 * 1024**3 else {}


def delete_go_caches() -> None:
    """Delete the caches, unless a build runs or HEADGATE_KEEP_GO_CACHE keeps them."""
    root = cache_root() / "go"
    if os.environ.get("HEADGATE_KEEP_GO_CACHE") or not root.exists():
        return
    with (root / ".lock").open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return
        shutil.rmtree(root / "mod", ignore_errors=True)
        shutil.rmtree(root / "build", ignore_errors=True)
