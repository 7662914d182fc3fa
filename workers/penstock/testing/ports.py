"""Ports for servers: free ones, and below the range that the kernel gives to outgoing connections.

So a server that was stopped finds its port free when it comes back, whatever clients did meanwhile.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from penstock.errors import Surroundings
from penstock.testing.processes import port_taken

FIRST, LAST = 20_000, 32_000


def server_ports(count: int, addresses: Sequence[str] = ("127.0.0.1",)) -> list[int]:
    """`count` different ports, each free on every one of the addresses now."""
    chosen: list[int] = []
    for port in random.sample(range(FIRST, LAST), 2_000):
        if not any(port_taken(address, port) for address in addresses):
            chosen.append(port)
        if len(chosen) == count:
            return chosen
    raise Surroundings(
        "no free port",
        remedy=f"is {' and '.join(addresses)} an address of this machine? end something that listens there",
        between=f"{FIRST} and {LAST}",
    )
