"""An image that was built by its Dockerfile, and its containers as strict clusters run them: as any number, on a root
that cannot be written, without capabilities and without a network."""

from __future__ import annotations

import json
import subprocess
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dev.cluster import docker_build, image
from dev.cluster.oci import Image

ROOT = Path(__file__).parents[3]
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
ANYBODY = "1234560000:0"
"""As OpenShift gives them out: a high number without a name, in the group of root."""
STRANGER = "12345:54321"
MIB = 1 << 20
CODE_AT_MOST = 20 * MIB
"""The amount that a node receives after a change of our sources alone."""
WITHOUT = ("gcc", "g++", "cc", "c++", "clang", "ld", "as", "make", "cmake", "go", "javac", "git", "curl", "wget")
TEMPORARY = ("/tmp", "/var/tmp", "/run/lock", "/var/local")  # noqa: S108 - of the containers


@dataclass(frozen=True)
class Ran:
    """How a container ended."""

    code: int
    out: str
    err: str


@dataclass(frozen=True)
class Built:
    """An image, and the engine that runs it."""

    docker: docker_build.Builder
    image: Image

    def run(self, *words: str, user: str = STRANGER, options: tuple[str, ...] = ()) -> Ran:
        """Run a container as a strict cluster would."""
        strict = ("--read-only", "--tmpfs", "/tmp", "--cap-drop", "ALL", "--security-opt", "no-new-privileges")  # noqa: S108
        command = ["run", "--rm", "--network", "none", "--user", user, *strict, *options, self.image.tag, *words]
        done = subprocess.run(
            [*self.docker.client, *command],
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
            stdin=subprocess.DEVNULL,
            env=dict(self.docker.environment),
        )
        return Ran(done.returncode, done.stdout, done.stderr)

    def output_of(self, *words: str, user: str = STRANGER) -> str:
        """The output of a container that succeeds."""
        ran = self.run(*words, user=user)
        assert 0 == ran.code, ran.err
        return ran.out.strip()

    @property
    def config(self) -> dict[str, Any]:
        """How it is run by default."""
        document: dict[str, Any] = json.loads(self.image.config)["config"]
        return document

    def left_of_the_build(self) -> list[str]:
        """Compilers, caches and sources: nothing is mounted over what the image has, and no entrypoint is first."""
        script = (
            f"for each in {' '.join(WITHOUT)}; do command -v $each; done;"
            " ls -d /build /root/.cache /tmp/* /var/lib/apt/lists/* /var/cache/apt/archives/*.deb 2>/dev/null;"
            " find / -xdev -name '*.whl' -path '*wheels*' 2>/dev/null; true"
        )
        bare = ("run", "--rm", "--network", "none", "--read-only", "--entrypoint", "sh", self.image.tag, "-c", script)
        return self.docker.docker(*bare).splitlines()

    def writable_by_anybody(self) -> list[str]:
        """Files that a user id in root's group, as on OpenShift, may write, except temporary ones."""
        script = (
            "find / -xdev \\( -type d -o -type f \\) \\( -perm -0002 -o -perm -0020 -group 0 \\) 2>/dev/null; true"
        )
        result = self.output_of("sh", "-c", script, user=ANYBODY).splitlines()
        return [path for path in result if not path.startswith(TEMPORARY)]

    def is_compiled(self) -> bool:
        """Whether Python finds our modules compiled, since it could not keep what it compiles."""
        script = "import headgate.errors as it, os; print(os.path.exists(it.__cached__))"
        return self.output_of("python3", "-c", script) == "True"

    def in_docker(self) -> tuple[str, list[str]]:
        """By what the engine that built it knows it and its layers."""
        asked = ("image", "inspect", "--format", "{{.Id}} {{json .RootFS.Layers}}", self.image.tag)
        report, _, layers = self.docker.docker(*asked).partition(" ")
        return report, json.loads(layers)


@contextmanager
def built(target: str) -> Iterator[Built]:
    """A target of the Dockerfile, and the engine that builds, with the image in it."""
    made = image.build_image(target)
    with docker_build.builder() as docker:
        docker.have(made)
        yield Built(docker, made)
