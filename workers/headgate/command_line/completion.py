"""Names of queues and counters for a shell's completion: read from the catalogue, within a second, or none.

A completion never prints an error and never blocks the shell: without a connection in the environment, or where
Cassandra does not answer in time, it offers nothing.
"""

from __future__ import annotations

import asyncio
import logging
import os
from typing import Literal

from headgate.errors import HeadgateError
from headgate.store.connection_variables import variable_names

WITHIN_S = 1.5
NAMES_MAX = 500

Kind = Literal["queues", "counters"]


def read_names(kind: str, within_s: float = WITHIN_S) -> list[str]:
    """The names, sorted; none where they cannot be read in time."""
    if "CONTACT_POINTS" not in variable_names(os.environ):
        return []
    logging.disable(logging.CRITICAL)
    try:
        return sorted(asyncio.run(_within(kind, within_s)))[:NAMES_MAX]
    except (HeadgateError, TimeoutError, OSError):
        return []
    finally:
        logging.disable(logging.NOTSET)


async def _within(kind: str, within_s: float) -> list[str]:
    async with asyncio.timeout(within_s):
        return await _names(kind)


async def _names(kind: str) -> list[str]:
    from headgate.client.connection import connect

    async with connect(dict(os.environ)) as connection:
        return await (connection.queues() if kind == "queues" else connection.counters())
