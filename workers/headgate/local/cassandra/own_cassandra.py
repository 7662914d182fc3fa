"""A single node that outlives the command that started it: for `make demo` and `headgate dev`.

Its state directory contains all of it: data, log, identity (a pid file) and address (server.json). So a later command
finds it, stops exactly it, or starts it again with the same data at the same ports.

`OwnCassandra` is the node of a local stack, which is the stack's own from before it is started until it has ended. It
starts in a thread of its own, which alone launches the server and alone knows whether it did. So a stack that is
stopped at any time during the start aborts that start, waits for the thread, and leaves nothing. A server that ran
already, for another `headgate dev` of the same files, is used and not stopped.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from headgate.errors import Conflict, EnvironmentProblem, InvalidRequest
from headgate.local.cache import locked, require_disk_space
from headgate.local.cassandra.installation import (
    find_parts,
    forget_learned,
    keep_learned,
    learning_arguments,
    require_memory,
)
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
from headgate.local.processes import Server, port_taken, server_ports
from headgate.process.background_tasks import start_task

_DISK_MB = 500
_PID, _SERVER_FILE = "cassandra.pid", "server.json"
_RECORDED = ("address", "native_port", "storage_port", "jmx_port")
"""What one command records for the next, with the variables for people."""


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
        return self._given_up.is_set()


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
            _wait(_server(directory), before, starting)
            return build_environment(before)
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
        environment = build_environment(place)
        ports = {name: getattr(place, name) for name in _RECORDED}
        # Written before the start: a command that is killed meanwhile leaves what ends the server.
        _write(directory / _SERVER_FILE, json.dumps({**ports, "environment": environment}, indent=2) + "\n")
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
        return environment


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
    place = read_kept(directory.resolve())
    return build_environment(place) if place is not None and _server(place.directory).alive() else None


def read_kept(directory: Path) -> NodePlace | None:
    """Where the command that started it last has put it."""
    file = directory / _SERVER_FILE
    if not file.exists():
        return None
    try:
        record = json.loads(file.read_text())
        return NodePlace(directory, *(record[name] for name in _RECORDED))
    except (ValueError, TypeError, KeyError):
        raise InvalidRequest(
            "Not a state directory of a node", remedy="name another directory, or remove this one", file=file
        ) from None


def _server(directory: Path, *argv: str) -> Server:
    return Server("cassandra", argv, log=directory / "system.log", cwd=directory, pid_file=directory / _PID)


def _require_same_place(running: NodePlace, address: str, native_port: int | None) -> None:
    if running.address != address or native_port not in (None, running.native_port):
        raise Conflict(
            "The node of this directory runs at another address",
            remedy="stop it first, or name another state directory",
            runs_at=f"{running.address}:{running.native_port}",
        )


def _ports(before: NodePlace | None, address: str, native_port: int | None) -> tuple[int, int, int]:
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


class OwnCassandra:
    """The node of one run of a stack."""

    def __init__(self, directory: Path, print_line: Callable[[str], None], *, fresh: bool) -> None:
        self._directory = directory
        self._print_line = print_line
        self._fresh = fresh
        self._starting = Starting()
        self._bringing: asyncio.Future[dict[str, str]] | None = None

    async def bring(self) -> dict[str, str]:
        """The variables by which it is reached, once it answers. A caller that is cancelled leaves it to `end`."""
        if self._bringing is None:
            self._bringing = start_task("start of Cassandra", asyncio.to_thread(self._bring))
        return await asyncio.shield(self._bringing)

    async def end(self) -> None:
        """Abort a start that is under way, and stop the started server after a flush."""
        if self._bringing is None:
            return
        self._starting.give_up()
        done = await asyncio.gather(self._bringing, return_exceptions=True)
        if self._starting.launched and isinstance(done[0], dict):
            self._print_line("stopping; its data stays for the next run")
            await asyncio.to_thread(stop_kept, self._directory)

    def _bring(self) -> dict[str, str]:
        self._directory.mkdir(parents=True, exist_ok=True)
        running = find_kept(self._directory)
        if running is not None:
            if self._fresh:
                raise InvalidRequest(
                    "--fresh requires its Cassandra to be stopped", remedy="stop the other `headgate dev` first"
                )
            return running
        if self._fresh:
            shutil.rmtree(self._directory, ignore_errors=True)
        self._print_line("starting")
        return start_kept(self._directory, starting=self._starting)
