"""How this machine reaches package registries, as files for a base image built on it: no Dockerfile need contain it.

The Dockerfile is the same for all, with no certificate, mirror or proxy of one machine in it. The machine's settings
for a build step are in the base image that is built on it: the certificates that it trusts, pip's index, apt's
sources and proxies. Reads settings, changes none.
"""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path

from dev.cluster.surroundings import answer_of
from headgate.errors import EnvironmentProblem

CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
_PIP_KEYS = ("index-url", "extra-index-url", "trusted-host", "proxy", "timeout")
_APT_KEYS = re.compile(r'^(Acquire::(?:https?::Proxy|Check-Valid-Until)(?:::\S+)?) "([^"]+)";$', re.MULTILINE)


def settings_for(codename: str, python: str) -> dict[str, str]:
    """The files of a base image of this release, by their paths in it; `python` is one that has pip."""
    targets = _answer_of(["apt-get", "indextargets", "--format", SOURCE_FORMAT, "Identifier: Packages"])
    files = {
        "/etc/pip.conf": pip_settings(answer_of([python, "-m", "pip", "config", "list"], timeout_s=30) or ""),
        "/etc/apt/sources.list": apt_sources(targets, codename),
        "/etc/apt/apt.conf.d/80machine": apt_settings(_answer_of(["apt-config", "dump"])),
    }
    if CERTIFICATES.exists():
        files[str(CERTIFICATES)] = CERTIFICATES.read_text()
    return files


SOURCE_FORMAT = "$(REPO_URI) $(CODENAME) $(SUITE) $(COMPONENT)"


def pip_settings(listed: str) -> str:
    """A pip.conf from `pip config list`, of any origin; the certificates are the base image's own."""
    entries: dict[str, str] = {}
    # A command's own setting overrides the global one, and a variable overrides both.
    for section in ("global.", "install.", ":env:."):
        for line in listed.splitlines():
            name, _, value = line.partition("=")
            key = name.removeprefix(section)
            if name.startswith(section) and key in _PIP_KEYS:
                entries[key] = str(ast.literal_eval(value)).replace("\n", "\n    ")
    settings = {"cert": str(CERTIFICATES), **entries}
    return "[global]\n" + "".join(f"{key} = {value}\n" for key, value in sorted(settings.items()))


def apt_sources(targets: str, codename: str) -> str:
    """The apt sources of this release, its updates and security too, and nothing else that the machine may use."""
    lines = set()
    for line in targets.splitlines():
        place, its_codename, _, component = line.split(" ")
        if re.fullmatch(rf"{codename}(-updates|-security)?", its_codename) and place.startswith("http"):
            lines.add(f"deb {place} {its_codename} {component}")
    return "".join(f"{line}\n" for line in sorted(lines))


def apt_settings(dumped: str) -> str:
    """Proxies, and whether old lists are believed."""
    return "".join(f'{name} "{value}";\n' for name, value in _APT_KEYS.findall(dumped))


def mirror_of(answer: str, codename: str) -> str | None:
    """The mirror of a release itself in the output of `apt-get indextargets`."""
    for line in answer.splitlines():
        place, _, name = line.partition(" ")
        if name.strip() == codename and place.startswith("http"):
            return place
    return None


def mirror(codename: str) -> str:
    """Where the machine gets the packages of its own release from."""
    answer = _answer_of(["apt-get", "indextargets", "--format", "$(REPO_URI) $(CODENAME)", "Identifier: Packages"])
    result = mirror_of(answer, codename)
    if result is None:
        raise EnvironmentProblem(
            "apt does not list the sources of this release's packages",
            remedy="check /etc/apt/sources.list",
            release=codename,
        )
    return result


def proxy() -> str:
    """apt's proxy, or nothing."""
    return apt_proxy(_answer_of(["apt-config", "dump", "Acquire::http::Proxy"]))


def apt_proxy(answer: str) -> str:
    """The proxy in the output of `apt-config dump`, or nothing."""
    result = re.search(r'^Acquire::http::Proxy "(http[^"]*)";', answer, re.MULTILINE)
    return result[1] if result else ""


def proxies(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that Docker passes to build steps when they are named as build arguments."""
    names = ("http_proxy", "https_proxy", "no_proxy")
    return {name: environment[name] for each in names for name in (each, each.upper()) if environment.get(name)}


def _answer_of(argv: list[str]) -> str:
    try:
        return subprocess.run(argv, capture_output=True, text=True, check=False).stdout
    except FileNotFoundError:
        raise EnvironmentProblem(
            "images are built from Debian's packages, and this machine has no apt",
            remedy="start Docker, which builds the Dockerfile as it is",
            program=argv[0],
        ) from None
