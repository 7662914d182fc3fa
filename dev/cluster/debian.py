"""Programs from Debian's packages, unpacked privately into the cache: nothing is installed on the machine.

dev.servers.debian unpacks. This module adds wrappers that set the programs' paths to their private copies. Where
packages cannot be unpacked, the machine's own programs are used, and installed if need be. It knows nothing of the
programs' purpose.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from dev.servers import debian
from headgate.errors import EnvironmentProblem
from headgate.local.cache import cached, is_cached
from headgate.local.progress import print_progress, step

# Separate from the bin/ that a package may contain.
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
    # Directories of the packages that a program reads from a variable.
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
        output = Path("/etc/os-release").read_text()
    except FileNotFoundError:
        output = ""
    result = re.search(r'^VERSION_CODENAME="?(\w+)', output, re.MULTILINE)
    return result[1] if result else "unknown"


def unpacked(bundle: Bundle) -> Path:
    """The directory the packages are unpacked in; their programs are in its WRAPPERS."""
    version = f"{release()}-3"
    if is_cached(bundle.name, version):
        return cached(bundle.name, version, lambda _: None)
    with step(bundle.title, expect_s=bundle.expect_s):
        return cached(bundle.name, version, lambda directory: _unpack(bundle, directory), needs_mb=debian.NEEDS_MB)


def require_ip() -> None:
    """Have `ip` on PATH: the smallest Debian comes without."""
    if shutil.which("ip") is None:
        os.environ["PATH"] = f"{os.environ.get('PATH', '')}:{unpacked(IP) / WRAPPERS}"


def _unpack(bundle: Bundle, directory: Path) -> None:
    if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
        _use_installed(bundle, directory)
        return
    packages = directory / "packages"
    packages.mkdir()
    try:
        debian.unpack(bundle.packages, packages)
    except EnvironmentProblem as failure:
        shutil.rmtree(packages)
        _install(bundle, failure)
        _use_installed(bundle, directory)
    else:
        for path in packages.iterdir():
            path.rename(directory / path.name)
        packages.rmdir()
        _write_wrappers(bundle, directory)


def _install(bundle: Bundle, failure: EnvironmentProblem) -> None:
    """The last resort: the machine's own installation, with a message."""
    if os.geteuid() != 0:
        raise failure
    print_progress(
        f"    private copies cannot be fetched ({failure.facts.get('cause')}); installing {' '.join(bundle.packages)}"
    )
    command = ["apt-get", "-q", "install", "--yes", "--no-install-recommends", *bundle.packages]
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise failure


def _use_installed(bundle: Bundle, directory: Path) -> None:
    """Link the programs on PATH, where packages cannot be unpacked."""
    (directory / WRAPPERS).mkdir()
    path = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
    for name, _, _ in bundle.programs:
        result = shutil.which(name, path=path)
        if result is None:
            raise EnvironmentProblem("A program is missing, and this is not Debian", remedy=_NOT_DEBIAN, program=name)
        (directory / WRAPPERS / name).symlink_to(result)


def _write_wrappers(bundle: Bundle, directory: Path) -> None:
    """A wrapper finds its directory by its own path, since an entry is moved after it is made; no process but one."""
    libraries = sorted(f"$root/{path.relative_to(directory)}" for path in directory.glob("usr/lib/*-linux-*"))
    lines = ["#!/bin/sh", "root=${0%/*}/.."]
    if libraries:
        lines.append(f'export LD_LIBRARY_PATH="{":".join(libraries)}"')
    for variable, pattern in bundle.variables:
        matches = sorted(directory.glob(pattern))
        if matches:
            lines.append(f'export {variable}="$root/{matches[0].relative_to(directory)}"')
    (directory / WRAPPERS).mkdir(exist_ok=True)
    for name, file, first in bundle.programs:
        if not (directory / file).exists():
            raise EnvironmentProblem("a package lacks a program", remedy=_NOT_DEBIAN, program=file)
        wrapper = directory / WRAPPERS / name
        wrapper.write_text("\n".join([*lines, f'exec "$root/{file}" {first} "$@"']) + "\n")
        wrapper.chmod(0o755)
