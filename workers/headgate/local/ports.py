"""Ports for servers: free ones, and below the range that the kernel gives to outgoing connections.

So a stopped server finds its port free when it comes back, whatever clients did meanwhile.
"""

from __future__ import annotations

import random
import socket
from collections.abc import Sequence

from headgate.errors import EnvironmentProblem
from headgate.local.processes import port_taken

FIRST, LAST = 20_000, 32_000


def server_ports(count: int, addresses: Sequence[str] = ("127.0.0.1",)) -> list[int]:
    """`count` different ports, each free on every one of the addresses now."""
    for address in addresses:
        require_own_address(address)
    chosen: list[int] = []
    for port in random.sample(range(FIRST, LAST), 2_000):
        if not any(port_taken(address, port) for address in addresses):
            chosen.append(port)
        if len(chosen) == count:
            return chosen
    raise EnvironmentProblem(
        "No free port",
        remedy="stop a program that listens on one",
        at=" and ".join(addresses),
        between=f"{FIRST}-{LAST}",
    )


def require_own_address(address: str) -> None:
    """Refuse, with one line, an address that is not this machine's."""
    try:
        with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET) as probe:
            probe.bind((address, 0))
    except OSError as error:
        raise EnvironmentProblem(
            "Not an address of this machine", remedy="run `ip address` to list them", address=address, why=error
        ) from None
