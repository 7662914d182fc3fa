"""A Docker engine of our own, from Debian's packages, that shares nothing with one that the machine may have.

It has its own process and mount namespaces, so that everything it started ends with it, however it ends: containers,
shims and mounts go when its first process goes. Needs root. There are two kinds:

- `start`, to run containers: in a network namespace without a way out; clients of its containers run in it too
  (`command`). Its data is deleted with it.
- `start_to_build`, to build images: in this machine's network, of which it changes nothing (no bridge, no rules), so
  that build steps with `--network host` reach the package registries. Its data stays where the caller chooses.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

from dev.servers import debian, namespaces
from dev.servers.owned_server import OwnedServer
from dev.servers.ownership import is_abandoned, maker_tag, temporary_directory
from headgate.errors import EnvironmentProblem, Unavailable
from headgate.local.processes import wait_until

PACKAGES = ("docker.io", "containerd", "runc", "iptables")
START_TIMEOUT_S = 60.0
_PREFIX = "psdocker-"
_numbers = itertools.count(1)
_CGROUPS = Path("/sys/fs/cgroup")
_LEAVES_THE_NETWORK = ("--bridge=none", "--iptables=false", "--ip6tables=false", "--ip-forward=false")
_GRACE_S = 20.0


class DockerEngine:
    """A running engine; a context manager that ends it and all its containers. Created by `start` or
    `start_to_build`."""

    def __init__(self, directory: Path, name: str, root: Path, *, kept: Path | None = None) -> None:
        self.directory = directory
        self.namespace = None if kept else name
        self._name = name
        self._root = root
        self._kept = kept
        self.socket = directory / "docker.sock"
        self._server = OwnedServer(
            "dockerd",
            [
                *("unshare", "--mount", "--pid", "--fork", "--kill-child=KILL", "--mount-proc"),
                str(root / "usr/sbin/dockerd"),
                *("--data-root", str(kept or directory / "data"), "--exec-root", str(directory / "run")),
                *("--pidfile", str(directory / "docker.pid"), "--host", f"unix://{self.socket}"),
                *("--exec-opt", "native.cgroupdriver=cgroupfs", "--cgroup-parent", f"/{name}"),
                *("--default-ulimit", "nofile=20000:20000", "--oom-score-adjust", "0"),
                *("--storage-driver", "overlay2"),
                *(_LEAVES_THE_NETWORK if kept else ("--userland-proxy-path", str(root / "usr/sbin/docker-proxy"))),
            ],
            log=directory / "dockerd.log",
            env=debian.environment(root),
            namespace=self.namespace,
        )

    @classmethod
    def start(cls) -> DockerEngine:
        """Start an engine that runs containers, and return when it answers."""
        return cls._started(None)

    @classmethod
    def start_to_build(cls, kept: Path) -> DockerEngine:
        """Start an engine that builds images and keeps them in `kept`, which one at a time may use."""
        return cls._started(kept)

    @classmethod
    def _started(cls, kept: Path | None) -> DockerEngine:
        namespaces.require_root("a Docker engine")
        _remove_abandoned()
        root = debian.unpacked(*PACKAGES)
        directory = temporary_directory(_PREFIX)
        engine = cls(directory, f"{_PREFIX}{maker_tag()}-{next(_numbers)}", root, kept=kept)
        try:
            if engine.namespace is not None:
                namespaces.add(engine.namespace)
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

    def client(self, *arguments: str) -> list[str]:
        """The command line client with these arguments, to be run with `environment()`."""
        return [str(self._root / "usr/bin/docker"), *arguments]

    def docker(self, *arguments: str, timeout_s: float = 300.0) -> str:
        """The output of the command line client for these arguments."""
        done = subprocess.run(
            self.client(*arguments),
            capture_output=True,
            text=True,
            check=False,
            timeout=timeout_s,
            env=self.environment(),
        )
        if done.returncode != 0:
            raise Unavailable("docker failed", cause=done.stderr.strip()[-500:], asked=arguments[0])
        return done.stdout

    def environment(self) -> dict[str, str]:
        """The variables by which Docker's clients, testcontainers too, find this engine."""
        return {
            **debian.environment(self._root),
            "DOCKER_HOST": f"unix://{self.socket}",
            "DOCKER_CONFIG": str(self.directory / "config"),
            # Its helper container cannot be pulled in this namespace; the end of the engine ends the containers.
            "TESTCONTAINERS_RYUK_DISABLED": "true",
        }

    def command(self, argv: Sequence[str]) -> list[str]:
        """The same command, run where the published ports of containers are reached."""
        return list(argv) if self.namespace is None else namespaces.enter(self.namespace, argv)

    def alive(self) -> bool:
        """Whether it runs."""
        return self._server.alive()

    def stop(self) -> None:
        """Stop it, its containers, and everything that it left. Its kept data is closed first."""
        if self._kept is not None:
            self._close()
        self._server.kill()
        if self.namespace is not None:
            namespaces.delete(self.namespace)
        _remove_cgroups(self._name)
        shutil.rmtree(self.directory, ignore_errors=True)

    def _close(self) -> None:
        """Signal the engine itself, below the process that holds its namespaces and ignores such a signal."""
        if self._server.alive():
            children = Path(f"/proc/{self._server.pid}/task/{self._server.pid}/children")
            with contextlib.suppress(OSError):
                for child in children.read_text().split():
                    os.kill(int(child), signal.SIGTERM)
                wait_until(lambda: not self._server.alive(), timeout_s=_GRACE_S)

    def _wait_until_ready(self) -> None:
        def ready() -> bool:
            if not self._server.alive():
                raise EnvironmentProblem(
                    "the Docker engine did not start",
                    remedy=f"its last lines:\n{self._server.last_error_lines()}",
                )
            return docker_answers(f"unix://{self.socket}")

        if not wait_until(ready, timeout_s=START_TIMEOUT_S, every_s=0.2):
            raise Unavailable(
                "the Docker engine does not answer",
                remedy=f"its last lines:\n{self._server.last_error_lines()}",
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
    """The remains of an engine whose creator was killed: its processes are gone, names and cgroups are not."""
    named = [path.name for path in namespaces.NAMES.iterdir()] if namespaces.NAMES.is_dir() else []
    grouped = [path.name for pattern in (f"{_PREFIX}*", f"*/{_PREFIX}*") for path in _CGROUPS.glob(pattern)]
    for left in sorted({*named, *grouped}):
        if is_abandoned(left, _PREFIX):
            namespaces.delete(left)
            _remove_cgroups(left)


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
