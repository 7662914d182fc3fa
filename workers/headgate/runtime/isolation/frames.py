"""The messages between a worker and its child for crash suspects: a frame is a length and a pickle.

Values of this package alone, between a process and the child that it started itself, over a private socket. They are
defined in this module and not in `isolation/child_main.py`, because that one is run as a program, whose classes have
another name.
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
    delivery: Delivery
    queue: str
    deadline_s: float | None
    """In seconds since 1970."""


@dataclass(frozen=True)
class Begun:
    """From the child: it has the message. If it ends before that, this message is not the cause."""


@dataclass(frozen=True)
class Extension:
    """From the child: a request for this much more time. The answer is whether it was granted."""

    seconds: float


@dataclass(frozen=True)
class Granted:
    yes: bool
    deadline_s: float | None


def to_frame(value: object) -> bytes:
    payload = pickle.dumps(value)
    return HEAD.pack(len(payload)) + payload


def from_frame(payload: bytes) -> Any:
    return pickle.loads(payload)  # noqa: S301  between a process and its own child, over a private socket
