"""Hosts of our own, each in a network namespace, joined by a router in another: links that can be cut and delayed.

    host n1 ── to-n1 ┐
    host n2 ── to-n2 ┤ router namespace ── delay device ── relay process
    client c1 ─ to-c1 ┘

The router forwards all packets between hosts, so links are cut at the router. A rule drops the packets from one host
to another, silently, in that direction only, also within established connections. So `cut(a, b, one_way=True)` loses
the packets from a to b while those from b to a arrive. A TCP connection between them then carries nothing either way
in the end, because acknowledgements are packets too; but b notices a's silence, and a still receives from b. Not
every kernel has netem; a delay leads packets through a small process instead (relay.py).

Hosts are on sides: a client placed on a host's side shares every cut and delay of it. No host has a route out: no
packet leaves the machine. Needs root. Invariant: the rules in the router are a function of `_cuts`, `_delays` and
`_hosts` alone.
"""

from __future__ import annotations

import itertools
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TypeVar

from dev.servers import namespaces, relay
from dev.servers.namespaces import ip
from dev.servers.owned_server import OwnedServer
from dev.servers.ownership import is_abandoned, maker_tag
from headgate.errors import EnvironmentProblem, InvalidRequest
from headgate.local.processes import wait_until

T = TypeVar("T")

_PREFIX = "ps-"
_NET = "10.99.0"
_GATEWAY = f"{_NET}.1"
_CUT_PREFERENCE, _DELAY_PREFERENCE = 100, 200
_MOST_HOSTS = 200
_numbers = itertools.count(1)


@dataclass(frozen=True)
class NetworkHost:
    """A host of a network: an address of its own in a namespace of its own."""

    name: str
    side: str
    address: str
    namespace: str

    @property
    def link(self) -> str:
        """The router's end of its link; never a word that `ip` reads as a keyword."""
        return f"to-{self.name}"

    def inside(self) -> AbstractContextManager[None]:
        """The calling thread is on this host meanwhile: sockets it opens are this host's for life."""
        return namespaces.inside(self.namespace)

    def command(self, argv: Sequence[str]) -> list[str]:
        """The same command, run on this host."""
        return namespaces.enter(self.namespace, argv)

    def run(self, argv: Sequence[str], *, timeout_s: float = 60.0) -> subprocess.CompletedProcess[str]:
        """Run a command on this host, and return its output."""
        return subprocess.run(self.command(argv), capture_output=True, text=True, check=False, timeout=timeout_s)

    def call(self, function: Callable[[], T]) -> T:
        """Call a function in a thread on this host; threads it starts are on it too."""
        outcome: list[T] = []
        failure: list[BaseException] = []

        def on_host() -> None:
            try:
                with self.inside():
                    outcome.append(function())
            except BaseException as error:
                failure.append(error)

        thread = threading.Thread(target=on_host, name=f"on {self.name}")
        thread.start()
        thread.join()
        if failure:
            raise failure[0]
        return outcome[0]


class NamespaceNetwork:
    """A router and its hosts; a context manager that removes them all."""

    def __init__(self, directory: Path) -> None:
        namespaces.require_root("hosts in network namespaces")
        _remove_abandoned()
        self._tag = f"{_PREFIX}{maker_tag()}-{next(_numbers)}"
        self._directory = directory
        self._hosts: dict[str, NetworkHost] = {}
        self._cuts: set[tuple[str, str]] = set()
        self._delays: dict[tuple[str, str], tuple[float, OwnedServer]] = {}
        self._tables = 0
        self.router = f"{self._tag}-router"
        namespaces.add(self.router)
        self._set_up_router()

    def __enter__(self) -> NamespaceNetwork:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def add_host(self, name: str, *, near: str | None = None) -> NetworkHost:
        """A new host; `near` another it shares that one's side, including its current cuts and delays."""
        if name in self._hosts:
            raise InvalidRequest("the host exists already", remedy="choose another name", name=name)
        if not re.fullmatch(r"[a-z][a-z0-9-]{0,11}", name) or name == "router":
            raise InvalidRequest("invalid host name", remedy="use up to 12 of a-z, 0-9 and -", got=name)
        number = len(self._hosts) + 11
        if number > _MOST_HOSTS:
            raise InvalidRequest(
                "too many hosts in one network", remedy="create another network", most=_MOST_HOSTS - 11
            )
        side = name if near is None else self.host(near).side
        host = NetworkHost(name, side, f"{_NET}.{number}", f"{self._tag}-{name}")
        namespaces.add(host.namespace)
        ends = ("name", host.link, "type", "veth", "peer", "name", "eth0", "netns", host.namespace)
        ip("link", "add", *ends, namespace=self.router)
        ip("link", "set", "dev", host.link, "up", namespace=self.router)
        ip("addr", "add", f"{host.address}/32", "dev", "eth0", namespace=host.namespace)
        ip("link", "set", "dev", "eth0", "up", namespace=host.namespace)
        ip("route", "add", "default", "via", _GATEWAY, "dev", "eth0", "onlink", namespace=host.namespace)
        ip("route", "add", f"{host.address}/32", "dev", host.link, "src", _GATEWAY, namespace=self.router)
        self._hosts[name] = host
        self._apply()
        return host

    def cut(self, source: str, target: str, *, one_way: bool = False) -> None:
        """Drop packets from the side of `source` to the side of `target`; unless one_way, the other direction too.

        A client's name means that client alone.
        """
        self._cuts |= {(self.host(source).name, self.host(target).name)}
        if not one_way:
            self._cuts |= {(target, source)}
        self._apply()

    def delay(self, source: str, target: str, ms: float, *, one_way: bool = False) -> None:
        """Hold each packet between the two sides for `ms`, in each direction (a round trip takes twice that)."""
        for pair in ((source, target),) if one_way else ((source, target), (target, source)):
            self.host(pair[0]), self.host(pair[1])
            self._end_delay(pair)
            if ms > 0:
                self._delays[pair] = (ms, self._start_relay(ms))
        self._apply()

    def heal(self) -> None:
        """No cut and no delay any more."""
        self._cuts.clear()
        self._apply()
        for pair in list(self._delays):
            self._end_delay(pair)
        self._apply()

    def close(self) -> None:
        """Remove the hosts; all programs on them have to be stopped before."""
        for pair in list(self._delays):
            self._end_delay(pair)
        for host in self._hosts.values():
            namespaces.delete(host.namespace)
        namespaces.delete(self.router)
        self._hosts.clear()

    def host(self, name: str) -> NetworkHost:
        """The host of this name."""
        if name not in self._hosts:
            raise InvalidRequest("unknown host", remedy=f"one of {', '.join(self._hosts)}", name=name)
        return self._hosts[name]

    def _members(self, name: str) -> list[NetworkHost]:
        """The hosts of a name: a side if a side has this name, else the one host."""
        return [host for host in self._hosts.values() if host.side == name] or [self._hosts[name]]

    def _apply(self) -> None:
        """Set the router's rules to the cuts and delays."""
        wanted = [
            f"rule add pref {_CUT_PREFERENCE} iif {source.link} to {target.address} blackhole"
            for pair in sorted(self._cuts)
            for source in self._members(pair[0])
            for target in self._members(pair[1])
        ]
        wanted += [
            f"rule add pref {_DELAY_PREFERENCE} iif {source.link} to {target.address} lookup {_table(server)}"
            for pair, (_, server) in sorted(self._delays.items(), key=lambda item: item[0])
            for source in self._members(pair[0])
            for target in self._members(pair[1])
        ]
        # One batch in one process: old rules go and new ones come within a millisecond.
        there = ip("rule", "show", namespace=self.router)
        batch = [
            f"rule del pref {number}"
            for number in (_CUT_PREFERENCE, _DELAY_PREFERENCE)
            for line in there.splitlines()
            if line.startswith(f"{number}:")
        ]
        done = subprocess.run(
            ["ip", "-n", self.router, "-batch", "-"],
            input="\n".join([*batch, *wanted, ""]),
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise EnvironmentProblem(
                "the kernel refused a routing rule", answer=done.stderr.strip(), remedy="check its answer"
            )

    def _set_up_router(self) -> None:
        ip("addr", "add", f"{_GATEWAY}/32", "dev", "lo", namespace=self.router)
        with namespaces.inside(self.router):
            conf = Path("/proc/sys/net/ipv4/conf")
            Path("/proc/sys/net/ipv4/ip_forward").write_text("1")
            for name in ("all", "default"):
                # Packets from the relay come from a device that is not the route to their source.
                (conf / name / "rp_filter").write_text("0")
                (conf / name / "send_redirects").write_text("0")

    def _start_relay(self, ms: float) -> OwnedServer:
        self._tables += 1
        device = f"delay{self._tables}"
        log = self._directory / f"{device}.log"
        server = OwnedServer(
            f"relay {device}",
            [sys.executable, "-I", relay.__file__, device, str(ms)],
            log=log,
            namespace=self.router,
        )
        server.start()
        if not wait_until(lambda: log.exists() and relay.READY in log.read_text(), timeout_s=15):
            server.kill()
            raise EnvironmentProblem(
                "packets cannot be delayed on this machine",
                remedy="load the kernel module tun (modprobe tun)",
                cause=server.last_error_lines(1),
            )
        ip("link", "set", device, "up", "txqueuelen", "10000", namespace=self.router)
        ip("route", "add", "default", "dev", device, "table", _table(server), namespace=self.router)
        return server

    def _end_delay(self, pair: tuple[str, str]) -> None:
        if pair in self._delays:
            # Packets already held are lost with the relay; TCP sends them again.
            self._delays.pop(pair)[1].kill()


def _table(server: OwnedServer) -> str:
    """The routing table that leads to a relay's device."""
    return str(1000 + int(server.name.removeprefix("relay delay")))


def _remove_abandoned() -> None:
    """Namespaces whose creator was killed: the kernel keeps a name until it is removed."""
    if namespaces.NAMES.is_dir():
        for left in sorted(namespaces.NAMES.iterdir()):
            if is_abandoned(left.name, _PREFIX):
                namespaces.delete(left.name)
