"""A single node that outlives the command that started it: for `make demo` and `headgate dev`.

Its state directory contains all of it: data, log, identity (a pid file) and address (server.json). So a later command
finds it, stops exactly it, or starts it again with the same data at the same ports.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from headgate.errors import Conflict, EnvironmentProblem, InvalidRequest
from headgate.local.cache import cache_root, locked, require_disk_space
from headgate.local.cassandra.archive import find_parts, forget_learned, keep_learned, learning_arguments
from headgate.local.cassandra.java import require_memory
from headgate.local.cassandra.node import (
    FAST_JVM,
    MEMORY_MB,
    START_TIMEOUT_S,
    GivenUp,
    NodePlace,
    build_arguments,
    build_environment,
    build_yaml,
    query_superuser,
    wait_until_ready,
    write_files,
)
from headgate.local.ports import server_ports
from headgate.local.processes import Server, port_taken

_DISK_MB = 500
_PID, _SERVER_FILE = "cassandra.pid", "server.json"


@dataclass(frozen=True)
class KeptServer:
    """The record of one command for the next."""

    address: str
    native_port: int
    storage_port: int
    jmx_port: int
    environment: dict[str, str]


@dataclass
class Starting:
    """A start that another thread may abort at any time."""

    launched: bool = False
    """Whether a server was started, which is then ours to stop; one that ran already is not."""
    _given_up: threading.Event = field(default_factory=threading.Event)

    def give_up(self) -> None:
        """The start ends as soon as it can, and leaves no server that it has launched."""
        self._given_up.set()

    def is_given_up(self) -> bool:
        """Whether it was."""
        return self._given_up.is_set()


def default_state_directory() -> Path:
    """Where the node of the demo lives unless another place is named."""
    return cache_root() / "run" / "cassandra"


def start_kept(
    directory: Path,
    *,
    address: str = "127.0.0.1",
    native_port: int | None = None,
    jvm: tuple[str, ...] = FAST_JVM,
    overrides: Mapping[str, object] | None = None,
    starting: Starting | None = None,
) -> dict[str, str]:
    """Start the node of this directory, or find it running; return its variables when it answers, or `GivenUp`.
    `overrides` are settings of its cassandra.yaml."""
    directory = directory.resolve()
    starting = starting or Starting()
    with locked(directory / ".lock"):
        before = read_kept(directory)
        if before is not None and _server(directory).alive():
            _require_same_place(before, address, native_port)
            # It may still be starting, for a command that was ended meanwhile.
            place = NodePlace(directory, address, before.native_port, before.storage_port, before.jmx_port)
            _wait(_server(directory), place, starting)
            return before.environment
        parts = find_parts()
        require_memory(MEMORY_MB)
        require_disk_space(directory, _DISK_MB)
        place = NodePlace(directory, address, *_ports(before, address, native_port))
        forget_learned(directory)
        server = _server(
            directory,
            str(parts.java.program),
            *build_arguments(place, archive=parts.archive if jvm == FAST_JVM else None, jvm=jvm),
            *(learning_arguments(parts, directory) if jvm == FAST_JVM else ()),
            *("-cp", parts.class_path, "org.apache.cassandra.service.CassandraDaemon"),
        )
        kept = KeptServer(address, place.native_port, place.storage_port, place.jmx_port, build_environment(place))
        # Written before the start: a command that is killed meanwhile leaves what ends the server.
        _write(directory / _SERVER_FILE, json.dumps(kept.__dict__, indent=2) + "\n")
        if starting.is_given_up():
            raise GivenUp(at=f"{address}:{place.native_port}")
        starting.launched = True
        try:
            write_files(place, build_yaml(place) | dict(overrides or {}))
            server.start()
            _wait(server, place, starting)
        except BaseException:
            server.kill()
            raise
        return kept.environment


def _wait(server: Server, place: NodePlace, starting: Starting) -> None:
    wait_until_ready(
        server, place, lambda: query_superuser(place), timeout_s=START_TIMEOUT_S, is_given_up=starting.is_given_up
    )


def stop_kept(directory: Path) -> bool:
    """End the node of this directory, flushed; whether there was one. Its data stay."""
    server = _server(directory.resolve())
    was_alive = server.alive()
    if server.stop(grace_s=60) and was_alive:
        keep_learned(directory.resolve())
    return was_alive


def find_kept(directory: Path) -> dict[str, str] | None:
    """The variables of the node of this directory, when it runs."""
    server = read_kept(directory.resolve())
    return server.environment if server is not None and _server(directory.resolve()).alive() else None


def read_kept(directory: Path) -> KeptServer | None:
    """The record of the command that started it last."""
    file = directory / _SERVER_FILE
    if not file.exists():
        return None
    try:
        return KeptServer(**json.loads(file.read_text()))
    except (ValueError, TypeError):
        raise InvalidRequest(
            "Not a state directory of a node", remedy="name another directory, or remove this one", file=file
        ) from None


def _server(directory: Path, *argv: str) -> Server:
    return Server("cassandra", argv, log=directory / "system.log", cwd=directory, pid_file=directory / _PID)


def _require_same_place(running: KeptServer, address: str, native_port: int | None) -> None:
    if running.address != address or native_port not in (None, running.native_port):
        raise Conflict(
            "The node of this directory runs at another address",
            remedy="stop it first, or name another state directory",
            runs_at=f"{running.address}:{running.native_port}",
        )


def _ports(before: KeptServer | None, address: str, native_port: int | None) -> tuple[int, int, int]:
    """Those of last time where they are still free, else new ones; a requested native port is kept."""
    addresses = sorted({address, "127.0.0.1"})
    native, storage, jmx = server_ports(3, addresses)
    if before is not None and before.address == address:
        native = native if port_taken(address, before.native_port) else before.native_port
        storage = storage if port_taken(address, before.storage_port) else before.storage_port
    if native_port is not None and port_taken(address, native_port):
        raise EnvironmentProblem(
            "The port is taken",
            remedy="stop the program that listens on it, or do not set the port",
            port=f"{address}:{native_port}",
        )
    return native_port or native, storage, jmx


def _write(file: Path, text: str) -> None:
    """In one step, and for our eyes only: it holds a password."""
    file.parent.mkdir(parents=True, exist_ok=True)
    new_file = file.with_suffix(".new")
    new_file.touch(mode=0o600)
    new_file.write_text(text)
    new_file.replace(file)
