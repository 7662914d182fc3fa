"""Debian packages unpacked into a directory of the cache, for programs that tests run without an installation.

Nothing of the system changes: no package is configured, no script of a package runs. apt resolves the dependencies as
if nothing were installed, fetches the packages and checks their signatures; dpkg-deb unpacks them. Only the C library
and its parts are the system's own (unless the packages are standalone): two builds of it in one process end that
process. The entry is kept by the release of the system; delete it to get newer versions.
"""

from __future__ import annotations

import hashlib
import os
import platform
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from headgate.errors import EnvironmentProblem
from headgate.local import progress
from headgate.local.cache import cache_root, cached, is_cached, locked
from headgate.local.processes import require_program

_MERGED = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
_ALTERNATIVES = {
    # Names that a package's script would make by update-alternatives.
    "usr/sbin/iptables": "iptables-nft",
    "usr/sbin/iptables-save": "iptables-nft-save",
    "usr/sbin/iptables-restore": "iptables-nft-restore",
    "usr/sbin/ip6tables": "ip6tables-nft",
    "usr/sbin/ip6tables-save": "ip6tables-nft-save",
    "usr/sbin/ip6tables-restore": "ip6tables-nft-restore",
}
NEEDS_MB = 700
_VERSIONS = "packages.txt"
_THE_SYSTEMS_OWN = re.compile(r"libc6|libc-bin|libgcc-s1|gcc-\d+-base|libcrypt1|netbase")
"""Every Debian has them."""


def unpacked(*packages: str, standalone: bool = False) -> Path:
    """A root directory that contains the packages and their dependencies; created once.

    `standalone` includes the C library too, so that a container can use it as its root; else programs run from it
    with `environment(root)`.
    """
    names = sorted(set(packages))
    digest = hashlib.sha256(" ".join([*names, str(standalone)]).encode()).hexdigest()[:8]
    label = "-".join(names)[:60]
    version = f"{release()}-{platform.machine()}-{label}-{digest}"

    def build(entry: Path) -> None:
        unpack(names, entry, standalone=standalone)

    if is_cached("debian", version):
        return cached("debian", version, build)
    with progress.step(f"unpacking {', '.join(names)} from Debian's packages", expect_s=30):
        return cached("debian", version, build, needs_mb=NEEDS_MB)


def environment(root: Path) -> dict[str, str]:
    """The environment in which programs of `root` find each other and their libraries."""
    triplet = f"{platform.machine()}-linux-gnu"
    libraries = [root / "usr/lib" / triplet, root / "usr/lib"]
    programs = [root / "usr/sbin", root / "usr/bin"]
    return {
        **os.environ,
        "PATH": ":".join([*map(str, programs), os.environ.get("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")]),
        "LD_LIBRARY_PATH": ":".join(map(str, libraries)),
        "XTABLES_LIBDIR": str(libraries[0] / "xtables"),
    }


def is_debian() -> bool:
    """Whether this machine's packages are Debian's."""
    return _system().get("ID") == "debian"


def _system() -> dict[str, str]:
    """The system's description of itself; empty without one."""
    os_release = Path("/etc/os-release")
    return dict(re.findall(r'^(\w+)="?([^"\n]*)"?$', os_release.read_text(), re.M)) if os_release.exists() else {}


def release() -> str:
    """The release of this Debian, such as `debian12`; refused where the packages are not Debian's."""
    os_release = _system()
    if os_release.get("ID") != "debian":
        raise EnvironmentProblem(
            "only Debian's packages can be unpacked on this machine",
            remedy="install the programs yourself, and put them on PATH",
            system=os_release.get("PRETTY_NAME", "unknown"),
        )
    return f"{os_release['ID']}{os_release.get('VERSION_ID', '')}"


def unpack(names: Sequence[str], directory: Path, *, standalone: bool = False) -> None:
    """The packages and their dependencies, into an empty directory: for callers that keep an entry of their own."""
    require_program("apt-get", remedy="this needs Debian's apt-get")
    _refresh_lists(names)
    downloads = directory / ".downloads"
    try:
        wanted = _download(names, downloads, standalone=standalone)
    except EnvironmentProblem:
        # Lists that are out of date name versions that the registry has replaced by newer ones.
        _refresh_lists(names, anyway=True)
        wanted = _download(names, downloads, standalone=standalone)
    for name in _MERGED:
        (directory / "usr" / name).mkdir(parents=True, exist_ok=True)
        (directory / name).symlink_to(f"usr/{name}")
    for package in sorted(downloads.glob("*.deb")):
        # dpkg-deb --extract would put a directory in the place of each link of a merged /usr.
        content = downloads / "content.tar"
        _run(["sh", "-c", 'dpkg-deb --fsys-tarfile "$1" > "$2"', "sh", str(package), str(content)])
        _run(["tar", "--extract", "--keep-directory-symlink", "--file", str(content), "--directory", str(directory)])
        package.unlink()
        content.unlink()
    downloads.rmdir()
    for link, target in _ALTERNATIVES.items():
        if (directory / link).with_name(target).exists() and not (directory / link).exists():
            (directory / link).symlink_to(target)
    (directory / _VERSIONS).write_text("".join(f"{name} {version}\n" for name, version in sorted(wanted.items())))


def _download(names: Sequence[str], downloads: Path, *, standalone: bool) -> dict[str, str]:
    shutil.rmtree(downloads, ignore_errors=True)
    downloads.mkdir()
    wanted = _resolve(names, downloads, standalone=standalone)
    _apt("download", *(f"{name}={version}" for name, version in sorted(wanted.items())), cwd=downloads)
    return wanted


def _refresh_lists(names: Sequence[str], *, anyway: bool = False) -> None:
    """Fetch apt's lists when they do not contain the packages; one process at a time, since apt keeps a lock."""
    with locked(cache_root() / "debian" / ".lists.lock"):
        if not anyway and all(_known(name) for name in names):
            return
        if os.geteuid() != 0:
            raise EnvironmentProblem(
                "apt does not know the packages", remedy="run `apt-get update` as root once", packages=" ".join(names)
            )
        _apt("update")


def _known(name: str) -> bool:
    policy = _run(["apt-cache", "policy", name])
    return re.search(r"Candidate: (?!\(none\))\S", policy) is not None


def _resolve(names: Sequence[str], scratch: Path, *, standalone: bool) -> dict[str, str]:
    """The packages to unpack, by version."""
    nothing_installed = scratch / "status"
    nothing_installed.touch()
    without = ("-o", f"Dir::State::status={nothing_installed}")
    plan = read_plan(_apt("install", "--simulate", "--no-install-recommends", *without, *names))
    nothing_installed.unlink()
    return plan if standalone else without_system_packages(plan)


def read_plan(plan: str) -> dict[str, str]:
    """The packages, by version, that a simulated apt-get would install."""
    return dict(re.findall(r"^Inst (\S+) (?:\[[^\]]*\] )?\((\S+)", plan, re.M))


def without_system_packages(plan: dict[str, str]) -> dict[str, str]:
    """Those of a plan that can be run on a system that has its own C library."""
    return {name: version for name, version in plan.items() if not _THE_SYSTEMS_OWN.fullmatch(name)}


def _apt(*arguments: str, cwd: Path | None = None) -> str:
    # As root, apt would pass the download to a user of its own, which may not write into our cache.
    return _run(["apt-get", "-q", "-o", "APT::Sandbox::User=root", "-o", "Debug::NoLocking=1", *arguments], cwd=cwd)


def _run(argv: Sequence[str], *, cwd: Path | None = None) -> str:
    done = subprocess.run(
        argv, capture_output=True, text=True, check=False, cwd=cwd, env={**os.environ, "LC_ALL": "C.UTF-8"}
    )
    if done.returncode != 0:
        lines = [re.sub(r"https?://\S+", "(the registry)", line) for line in done.stderr.splitlines() if line.strip()]
        errors = [line for line in lines if line.startswith("E:")] or lines[-1:]
        raise EnvironmentProblem(
            "Debian's packages could not be fetched",
            remedy="check the network and the free disk space, then run it again",
            command=" ".join(argv[:1]),
            cause=" ".join(errors)[:300],
        )
    return done.stdout
