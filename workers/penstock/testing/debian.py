"""Debian packages unpacked into a directory of the cache, for programs that tests run and nobody wants installed.

Nothing of the system changes: no package is configured, no script of a package runs. apt resolves what is needed
beyond the packages that the system has (or, standing alone, beyond nothing at all), dpkg-deb unpacks it. The entry is
kept by the release of the system; delete it to have newer versions.
"""

from __future__ import annotations

import hashlib
import os
import platform
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

from penstock.errors import Surroundings
from penstock.testing import progress
from penstock.testing.cache import cache_root, cached, is_cached, locked
from penstock.testing.processes import require_program

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
_NEEDS_MB = 700
_VERSIONS = "packages.txt"


def unpacked(*packages: str, standalone: bool = False) -> Path:
    """A root directory that holds the packages and what they depend on; made once.

    `standalone` takes all dependencies, so that a container can have it as its root; else the system's own packages
    are counted on, and programs run from here with `environment(root)`.
    """
    names = sorted(set(packages))
    digest = hashlib.sha256(" ".join([*names, str(standalone)]).encode()).hexdigest()[:8]
    label = "-".join(names)[:60]
    version = f"{_release()}-{platform.machine()}-{label}-{digest}"

    def build(entry: Path) -> None:
        _unpack(names, entry, standalone=standalone)

    if is_cached("debian", version):
        return cached("debian", version, build)
    with progress.step(f"unpacking {', '.join(names)} from Debian's packages", expect_s=30):
        return cached("debian", version, build, needs_mb=_NEEDS_MB)


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
    """What the system says of itself; nothing where it says nothing."""
    told = Path("/etc/os-release")
    return dict(re.findall(r'^(\w+)="?([^"\n]*)"?$', told.read_text(), re.M)) if told.exists() else {}


def _release() -> str:
    told = _system()
    if told.get("ID") != "debian":
        raise Surroundings(
            "only Debian's packages can be unpacked here",
            remedy="install the programs yourself, and put them on PATH",
            system=told.get("PRETTY_NAME", "unknown"),
        )
    return f"{told['ID']}{told.get('VERSION_ID', '')}"


def _unpack(names: Sequence[str], entry: Path, *, standalone: bool) -> None:
    require_program("apt-get", remedy="this needs Debian's apt-get")
    _refresh_lists(names)
    wanted = _resolve(names, entry, standalone=standalone)
    downloads = entry / ".downloads"
    downloads.mkdir()
    _apt("download", *(f"{name}={version}" for name, version in sorted(wanted.items())), cwd=downloads)
    for name in _MERGED:
        (entry / "usr" / name).mkdir(parents=True, exist_ok=True)
        (entry / name).symlink_to(f"usr/{name}")
    for package in sorted(downloads.glob("*.deb")):
        # dpkg-deb --extract would put a directory in the place of each link of a merged /usr.
        content = downloads / "content.tar"
        _run(["sh", "-c", 'dpkg-deb --fsys-tarfile "$1" > "$2"', "sh", str(package), str(content)])
        _run(["tar", "--extract", "--keep-directory-symlink", "--file", str(content), "--directory", str(entry)])
        package.unlink()
        content.unlink()
    downloads.rmdir()
    for link, target in _ALTERNATIVES.items():
        if (entry / link).with_name(target).exists() and not (entry / link).exists():
            (entry / link).symlink_to(target)
    (entry / _VERSIONS).write_text("".join(f"{name} {version}\n" for name, version in sorted(wanted.items())))


def _refresh_lists(names: Sequence[str]) -> None:
    """Fetch apt's lists when they do not know the packages; one process at a time, since apt keeps a lock."""
    with locked(cache_root() / "debian" / ".lists.lock"):
        if all(_known(name) for name in names):
            return
        if os.geteuid() != 0:
            raise Surroundings(
                "apt does not know the packages", remedy="run `apt-get update` as root once", packages=" ".join(names)
            )
        _apt("update")


def _known(name: str) -> bool:
    said = _run(["apt-cache", "policy", name])
    return re.search(r"Candidate: (?!\(none\))\S", said) is not None


def _resolve(names: Sequence[str], entry: Path, *, standalone: bool) -> dict[str, str]:
    """What has to be unpacked, by version: the packages and all that is not there already."""
    status = entry / ".status"
    status.touch()
    nothing_installed = ["-o", f"Dir::State::status={status}"] if standalone else []
    plan = _apt("install", "--simulate", "--no-install-recommends", *nothing_installed, *names)
    status.unlink()
    return read_plan(plan) | {name: _candidate(name) for name in names}


def read_plan(plan: str) -> dict[str, str]:
    """The packages, by version, that a simulated apt-get would install."""
    return dict(re.findall(r"^Inst (\S+) (?:\[[^\]]*\] )?\((\S+)", plan, re.M))


def _candidate(name: str) -> str:
    found = re.search(r"Candidate: (\S+)", _run(["apt-cache", "policy", name]))
    assert found is not None, "the lists were found to know it"
    return found[1]


def _apt(*arguments: str, cwd: Path | None = None) -> str:
    # As root apt would hand the download to a user of its own, who may not write into our cache.
    return _run(["apt-get", "-q", "-o", "APT::Sandbox::User=root", "-o", "Debug::NoLocking=1", *arguments], cwd=cwd)


def _run(argv: Sequence[str], *, cwd: Path | None = None) -> str:
    done = subprocess.run(
        argv, capture_output=True, text=True, check=False, cwd=cwd, env={**os.environ, "LC_ALL": "C.UTF-8"}
    )
    if done.returncode != 0:
        lines = [re.sub(r"https?://\S+", "(the registry)", line) for line in done.stderr.splitlines() if line.strip()]
        telling = [line for line in lines if line.startswith("E:")] or lines[-1:]
        raise Surroundings(
            "Debian's packages could not be had",
            remedy="is there a network? is the disk full? then run it again",
            command=" ".join(argv[:1]),
            said=" ".join(telling)[:300],
        )
    return done.stdout
