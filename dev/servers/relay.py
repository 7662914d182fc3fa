"""Holds packets for a while: a process that reads from a TUN device of its own and writes each packet back later.

Run as a program in the namespace of a router: `relay.py DEVICE MILLISECONDS`. Keeps their order, changes nothing in
them, and drops what exceeds its bound, as a router does. For kernels without netem, and the same on those with it.
"""

from __future__ import annotations

import fcntl
import os
import select
import struct
import sys
import time
from collections import deque

READY = "relay is ready"
MOST_HELD = 50_000

_TUNSETIFF = 0x400454CA
_IFF_TUN, _IFF_NO_PI = 0x0001, 0x1000


def open_tun(device: str) -> int:
    """A TUN device that lives as long as its descriptor."""
    descriptor = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(descriptor, _TUNSETIFF, struct.pack("16sH22x", device.encode(), _IFF_TUN | _IFF_NO_PI))
    return descriptor


def hold(descriptor: int, delay_s: float) -> None:
    """Write back all input, `delay_s` after it came; never returns."""
    held: deque[tuple[float, bytes]] = deque()
    while True:
        timeout_s = max(0.0, held[0][0] - time.monotonic()) if held else None
        readable, _, _ = select.select([descriptor], [], [], timeout_s)
        now = time.monotonic()
        if readable:
            _take(descriptor, held, now + delay_s)
        while held and held[0][0] <= now:
            _put(descriptor, held.popleft()[1])


def _take(descriptor: int, held: deque[tuple[float, bytes]], due: float) -> None:
    for _ in range(256):
        try:
            packet = os.read(descriptor, 65536)
        except OSError:
            return  # The device is empty, or not up yet.
        if len(held) < MOST_HELD:
            held.append((due, packet))


def _put(descriptor: int, packet: bytes) -> None:
    try:
        os.write(descriptor, packet)
    except OSError:
        return  # The kernel would not take it now: lost, as packets are.


if __name__ == "__main__":
    tun = open_tun(sys.argv[1])
    sys.stdout.write(READY + "\n")
    sys.stdout.flush()
    hold(tun, float(sys.argv[2]) / 1000)
