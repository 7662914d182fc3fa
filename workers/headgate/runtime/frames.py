"""What a worker and its child for suspects say to each other: a frame is a length and a pickle.

Values of this package alone, between a process and the child that it started itself, over a socket nobody else has.
They stand here, and not in `child.py`, since that one is run as a program, whose classes have another name.
"""

from __future__ import annotations

import pickle
import struct
from dataclasses import dataclass
from typing import Any

from headgate.engines.contract import Delivery

HEAD = struct.Struct("<I")


@dataclass(frozen=True)
class Work:
    """From the worker: handle this."""

    delivery: Delivery
    queue: str
    deadline_s: float | None
    """In seconds since 1970."""


@dataclass(frozen=True)
class Begun:
    """From the child: it has the message. What ends it before that is not this message."""


@dataclass(frozen=True)
class Extension:
    """From the child: so long more. Answered with whether it was granted."""

    seconds: float


@dataclass(frozen=True)
class Granted:
    """The answer."""

    yes: bool
    deadline_s: float | None


def to_frame(value: object) -> bytes:
    """As it goes over the socket."""
    told = pickle.dumps(value)
    return HEAD.pack(len(told)) + told


def from_frame(told: bytes) -> Any:
    """What the other side sent; it is a part of ourselves."""
    return pickle.loads(told)  # noqa: S301  between a process and its own child, over a socket that nobody else has
