"""Programs from Debian's packages, unpacked privately into the cache: nothing is installed on the machine.

apt-get finds the packages, fetches them and checks their signatures; dpkg unpacks them. Each comes with the libraries
it needs, but for those of the C library, which belong together with the machine's own. Small wrappers set
the paths to the private copies. Knows nothing of what the programs are for.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from penstock.errors import Surroundings
from penstock.testing.cache import cached, is_cached
from penstock.testing.progress import say, step

# Mixing two builds of these in one process ends it; every Debian has them.
_THE_MACHINES_OWN = re.compile(r"^(libc6|libc-bin|libgcc-s1|gcc-\d+-base|libcrypt1|netbase)$")
# Apart from the bin/ that a package may bring.
WRAPPERS = "wrappers"
_NOT_DEBIAN = (
    "install containerd, runc, the CNI plugins and iptables with your package manager,"
    " or name a cluster you have: CONTEXT=name, or start Docker and install kind"
)


@dataclass(frozen=True)
class Bundle:
    """Packages that are unpacked together, and the programs that are wanted of them."""

    name: str
    packages: tuple[str, ...]
    # The name of the wrapper, the file in the packages, and its first arguments.
    programs: tuple[tuple[str, str, str], ...]
    # Directories of the packages that a program is told of by a variable.
    variables: tuple[tuple[str, str], ...] = ()
    title: str = "fetching packages"
    expect_s: float = 10


NODE = Bundle(
    name="node-packages",
    packages=("containerd", "runc", "containernetworking-plugins", "iptables"),
    programs=(
        ("containerd", "usr/bin/containerd", ""),
        ("containerd-shim-runc-v2", "usr/bin/containerd-shim-runc-v2", ""),
        ("ctr", "usr/bin/ctr", ""),
        ("runc", "usr/sbin/runc", ""),
        *(
            (name, "usr/sbin/xtables-nft-multi", name)
            for base in ("iptables", "ip6tables")
            for name in (base, f"{base}-save", f"{base}-restore")
        ),
    ),
    variables=(("XTABLES_LIBDIR", "usr/lib/*/xtables"),),
    title="fetching containerd, runc, CNI plugins and iptables",
)
IP = Bundle(
    name="iproute2-packages",
    packages=("iproute2",),
    programs=(("ip", "bin/ip", ""),),
    title="fetching ip",
)
DEBOOTSTRAP = Bundle(
    name="debootstrap-packages",
    packages=("debootstrap", "wget"),
    programs=(("debootstrap", "usr/sbin/debootstrap", ""), ("wget", "usr/bin/wget", "")),
    variables=(("DEBOOTSTRAP_DIR", "usr/share/debootstrap"),),
    title="fetching debootstrap",
)


def release() -> str:
    """The name of this machine's release, such as `bookworm`."""
    try:
        told = Path("/etc/os-release").read_text()
    except FileNotFoundError:
        told = ""
    found = re.search(r'^VERSION_CODENAME="?(\w+)', told, re.MULTILINE)
    return found[1] if found else "unknown"


def unpacked(bundle: Bundle) -> Path:
    """The directory the packages are unpacked in; their programs are in its WRAPPERS."""
    version = f"{release()}-2"
    if is_cached(bundle.name, version):
        return cached(bundle.name, version, lambda _: None)
    with step(bundle.title, expect_s=bundle.expect_s):
        return cached(bundle.name, version, lambda directory: _unpack(bundle, directory), needs_mb=500)


def require_ip() -> None:
    """Have `ip` on PATH: the smallest Debian comes without."""
    if shutil.which("ip") is None:
        os.environ["PATH"] = f"{os.environ.get('PATH', '')}:{unpacked(IP) / WRAPPERS}"


def _unpack(bundle: Bundle, directory: Path) -> None:
    if shutil.which("apt-get") is None or shutil.which("dpkg") is None:
        _use_installed(bundle, directory)
        return
    archives = directory / "archives"
    archives.mkdir()
    try:
        _download(bundle, archives)
    except Surroundings as failure:
        _install(bundle, failure)
        _use_installed(bundle, directory)
    else:
        for archive in sorted(archives.glob("*.deb")):
            _run(["dpkg", "-x", str(archive), str(directory)], cwd=directory)
        _write_wrappers(bundle, directory)
    shutil.rmtree(archives)


def _download(bundle: Bundle, archives: Path) -> None:
    try:
        packages = _closure(bundle, archives)
    except Surroundings:
        # Lists that are missing or out of date look the same as a package that does not exist.
        say("    apt-get update: the package lists are missing or old")
        _run(["apt-get", "-q", "update"], cwd=archives)
        packages = _closure(bundle, archives)
    try:
        _run(["apt-get", "-q", "download", *packages], cwd=archives)
    except Surroundings:
        say("    apt-get update: a package has been replaced by a newer one")
        _run(["apt-get", "-q", "update"], cwd=archives)
        _run(["apt-get", "-q", "download", *_closure(bundle, archives)], cwd=archives)


def _closure(bundle: Bundle, scratch: Path) -> list[str]:
    """The packages and all they need, as if nothing were installed here."""
    nothing_installed = scratch / "status"
    nothing_installed.touch()
    answer = _run(
        [
            *("apt-get", "--print-uris", "--yes", "-qq", "--no-install-recommends"),
            *("-o", f"Dir::State::status={nothing_installed}", "-o", "Debug::NoLocking=1"),
            *("install", *bundle.packages),
        ],
        cwd=scratch,
    )
    return closure_of(answer)


def closure_of(answer: str) -> list[str]:
    """The package names in what `apt-get --print-uris` writes, without the machine's own."""
    names = re.findall(r"^'[^']*' ([^_\s]+)_\S+\.deb ", answer, re.MULTILINE)
    return sorted(name for name in names if not _THE_MACHINES_OWN.match(name))


def _install(bundle: Bundle, failure: Surroundings) -> None:
    """The last resort: the machine's own installation, said aloud."""
    if os.geteuid() != 0:
        raise failure
    say(f"    private copies can not be had ({failure.facts.get('answer')}); installing {' '.join(bundle.packages)}")
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    _run(
        ["apt-get", "-q", "install", "--yes", "--no-install-recommends", *bundle.packages],
        cwd=Path("/"),
        environment=environment,
    )


def _use_installed(bundle: Bundle, directory: Path) -> None:
    """Link what is on PATH, where packages can not be unpacked."""
    (directory / WRAPPERS).mkdir()
    path = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
    for name, _, _ in bundle.programs:
        found = shutil.which(name, path=path)
        if found is None:
            raise Surroundings("a program is missing, and this is no Debian", remedy=_NOT_DEBIAN, program=name)
        (directory / WRAPPERS / name).symlink_to(found)


def _write_wrappers(bundle: Bundle, directory: Path) -> None:
    """A wrapper finds its directory by its own path, since an entry is moved after it is made; no process but one."""
    libraries = sorted(
        f"$root/{path.relative_to(directory)}"
        for pattern in ("usr/lib/*-linux-*", "lib/*-linux-*")
        for path in directory.glob(pattern)
    )
    lines = ["#!/bin/sh", "root=${0%/*}/.."]
    if libraries:
        lines.append(f'export LD_LIBRARY_PATH="{":".join(libraries)}"')
    for variable, pattern in bundle.variables:
        found = sorted(directory.glob(pattern))
        if found:
            lines.append(f'export {variable}="$root/{found[0].relative_to(directory)}"')
    (directory / WRAPPERS).mkdir(exist_ok=True)
    for name, file, first in bundle.programs:
        if not (directory / file).exists():
            raise Surroundings("a package lacks a program", remedy=_NOT_DEBIAN, program=file)
        wrapper = directory / WRAPPERS / name
        wrapper.write_text("\n".join([*lines, f'exec "$root/{file}" {first} "$@"']) + "\n")
        wrapper.chmod(0o755)


def _run(argv: Sequence[str], *, cwd: Path, environment: dict[str, str] | None = None) -> str:
    done = subprocess.run(argv, cwd=cwd, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        lines = [line for line in done.stderr.splitlines() if line.strip()] or ["(it said nothing)"]
        raise Surroundings(
            "a package could not be had",
            remedy="check the network and apt's sources (apt-get update)",
            command=" ".join(argv[:2]),
            answer=lines[-1].strip(),
        )
    return done.stdout
