"""Offers the API server of a cluster's network namespace at a port of this machine's 127.0.0.1.

A process of its own: `python3 -I forward.py NAMESPACE LISTEN_PORT TARGET_HOST TARGET_PORT`. It listens outside, then
moves into the namespace, so that everything it opens afterwards is opened inside, and nothing can leave the machine
by a missing route. A listening socket stays in the namespace where it was created. It knows nothing of the traffic.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import socket
import sys
from pathlib import Path

CLONE_NEWNET = 0x40000000
CHUNK = 64 * 1024


def enter_network(namespace: Path) -> None:
    """Move this process, which must have one thread only, into a network namespace."""
    descriptor = os.open(namespace, os.O_RDONLY)
    library = ctypes.CDLL(None, use_errno=True)
    if library.setns(descriptor, CLONE_NEWNET) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), str(namespace))
    os.close(descriptor)


async def pump(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    """Everything from one side to the other, its end too."""
    try:
        while chunk := await source.read(CHUNK):
            target.write(chunk)
            await target.drain()
        if target.can_write_eof():
            target.write_eof()
    except OSError:
        target.close()  # the other side is gone: so is this one


async def serve(listener: socket.socket, host: str, port: int) -> None:
    """Connect each caller until we are ended."""

    async def connect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            target_reader, target_writer = await asyncio.open_connection(host, port)
        except OSError:
            writer.close()
            return
        await asyncio.gather(pump(reader, target_writer), pump(target_reader, writer))
        target_writer.close()
        writer.close()

    server = await asyncio.start_server(connect, sock=listener)
    async with server:
        await server.serve_forever()


def main() -> None:
    namespace, listen_port, host, port = sys.argv[1:]
    listener = socket.create_server(("127.0.0.1", int(listen_port)), backlog=512)
    enter_network(Path(namespace))
    asyncio.run(serve(listener, host, int(port)))


if __name__ == "__main__":
    main()
