"""A Docker engine of our own, from Debian's packages, that shares nothing with one that the machine may have.

It runs in a network namespace without a way out, with its own process and mount namespaces, so that everything it
started ends with it, however it ends: containers, shims and mounts go when its first process goes. Its data live in
a directory that is removed. What talks to its containers runs in its network namespace too (`command`). Needs root.
"""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

from penstock.errors import Surroundings, Unavailable
from penstock.testing import debian, namespaces
from penstock.testing.ownership import is_abandoned, maker_tag, temporary_directory
from penstock.testing.processes import Server, wait_until

PACKAGES = ("docker.io", "containerd", "runc", "iptables")
START_TIMEOUT_S = 60.0
_PREFIX = "psdocker-"
_numbers = itertools.count(1)
_CGROUPS = Path("/sys/fs/cgroup")


class DockerEngine:
    """A running engine; a context manager that ends it and all that it ran. Made by `DockerEngine.start`."""

    def __init__(self, directory: Path, namespace: str, root: Path) -> None:
        self.directory = directory
        self.namespace = namespace
        self._root = root
        self.socket = directory / "docker.sock"
        self._server = Server(
            "dockerd",
            [
                *("unshare", "--mount", "--pid", "--fork", "--kill-child=KILL", "--mount-proc"),
                str(root / "usr/sbin/dockerd"),
                *("--data-root", str(directory / "data"), "--exec-root", str(directory / "run")),
                *("--pidfile", str(directory / "docker.pid"), "--host", f"unix://{self.socket}"),
                *("--exec-opt", "native.cgroupdriver=cgroupfs", "--cgroup-parent", f"/{namespace}"),
                *("--default-ulimit", "nofile=20000:20000", "--oom-score-adjust", "0"),
                *("--storage-driver", "overlay2", "--userland-proxy-path", str(root / "usr/sbin/docker-proxy")),
            ],
            log=directory / "dockerd.log",
            env=debian.environment(root),
            namespace=namespace,
            ends_with_us=True,
        )

    @classmethod
    def start(cls) -> DockerEngine:
        """Start an engine, and return when it answers."""
        namespaces.require_root("a Docker engine")
        _remove_abandoned()
        root = debian.unpacked(*PACKAGES)
        directory = temporary_directory(_PREFIX)
        namespace = f"{_PREFIX}{maker_tag()}-{next(_numbers)}"
        engine = cls(directory, namespace, root)
        try:
            namespaces.add(namespace)
            engine._server.start()
            engine._wait_until_ready()
        except BaseException:
            engine.stop()
            raise
        return engine

    def __enter__(self) -> DockerEngine:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def docker(self, *arguments: str, timeout_s: float = 300.0) -> str:
        """What the command line client says to these arguments."""
        done = subprocess.run(
            [str(self._root / "usr/bin/docker"), *arguments],
            capture_output=True,
            text=True,
            check=False,
            timeout=timeout_s,
            env=self.environment(),
        )
        if done.returncode != 0:
            raise Unavailable("docker failed", said=done.stderr.strip()[-500:], asked=arguments[0])
        return done.stdout

    def environment(self) -> dict[str, str]:
        """The variables by which Docker's clients, testcontainers too, find this engine."""
        return {
            **debian.environment(self._root),
            "DOCKER_HOST": f"unix://{self.socket}",
            "DOCKER_CONFIG": str(self.directory / "config"),
            # Its helper container can not be pulled here; what ends the engine ends the containers.
            "TESTCONTAINERS_RYUK_DISABLED": "true",
        }

    def command(self, argv: Sequence[str]) -> list[str]:
        """The same command, run where the published ports of containers are reached."""
        return namespaces.enter(self.namespace, argv)

    def alive(self) -> bool:
        """Whether it runs."""
        return self._server.alive()

    def stop(self) -> None:
        """End it, its containers, and all that it left."""
        self._server.kill()
        namespaces.delete(self.namespace)
        _remove_cgroups(self.namespace)
        shutil.rmtree(self.directory, ignore_errors=True)

    def _wait_until_ready(self) -> None:
        def ready() -> bool:
            if not self._server.alive():
                raise Surroundings(
                    "the Docker engine did not start",
                    remedy=f"its last words:\n{self._server.last_error_lines()}",
                )
            return docker_answers(f"unix://{self.socket}")

        if not wait_until(ready, timeout_s=START_TIMEOUT_S, every_s=0.2):
            raise Unavailable(
                "the Docker engine does not answer",
                remedy=f"its last words:\n{self._server.last_error_lines()}",
            )


def docker_answers(host: str | None) -> bool:
    """Whether a Docker engine answers at `host` (as in DOCKER_HOST), or at the usual socket."""
    import http.client
    import socket

    where = host or "unix:///var/run/docker.sock"
    kind, _, address = where.partition("://")
    connection: http.client.HTTPConnection
    if kind == "unix":
        if not Path(address).exists():
            return False
        connection = http.client.HTTPConnection("localhost", timeout=3)
        connection.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.sock.settimeout(3)
    elif kind == "tcp":
        connection = http.client.HTTPConnection(address.rstrip("/"), timeout=3)
    else:
        return False
    try:
        if kind == "unix":
            connection.sock.connect(address)
        connection.request("GET", "/_ping")
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def _remove_abandoned() -> None:
    """What an engine left whose maker was killed: its processes are gone, names and cgroups are not."""
    if namespaces.NAMES.is_dir():
        for left in sorted(namespaces.NAMES.iterdir()):
            if is_abandoned(left.name, _PREFIX):
                namespaces.delete(left.name)
                _remove_cgroups(left.name)


def _remove_cgroups(name: str) -> None:
    """The empty groups of containers, in every hierarchy, innermost first."""
    for group in [_CGROUPS / name, *_CGROUPS.glob(f"*/{name}")]:
        if not group.is_symlink() and group.is_dir():
            for directory, _, _ in os.walk(group, topdown=False):
                wait_until(lambda left=Path(directory): _removed(left), timeout_s=5)  # type: ignore[misc]


def _removed(group: Path) -> bool:
    try:
        group.rmdir()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True
