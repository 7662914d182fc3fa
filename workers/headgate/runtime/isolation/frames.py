"""The messages between a worker and its child for crash suspects: a frame is a length and a pickle.

Values of this package alone, between a process and the child that it started itself, over a private socket. They are
defined in this module and not in `isolation/child_main.py`, because that one is run as a program, whose classes have
another name. A child runs several works at a time, so each frame names its work by its number.
"""

from __future__ import annotations

import pickle
import struct
from dataclasses import dataclass
from typing import Any

from headgate.engines.contract import Delivery, Settle
from headgate.errors import HeadgateError

HEAD = struct.Struct("<I")


@dataclass(frozen=True)
class Work:
    number: int
    delivery: Delivery
    queue: str
    timeout_s: float | None


@dataclass(frozen=True)
class Cancel:
    """To the child: stop this handler."""

    number: int


@dataclass(frozen=True)
class Begun:
    """From the child: its handler starts. If the child ends before that, this message is not the cause."""

    number: int


@dataclass(frozen=True)
class Extension:
    """From the child: a request for this much more time. The answer is `Granted`."""

    number: int
    seconds: float


@dataclass(frozen=True)
class Granted:
    number: int
    answer: bool | HeadgateError
    deadline_s: float | None
    """In seconds since 1970."""


@dataclass(frozen=True)
class Result:
    """From the child: its handler ended. None where it was stopped."""

    number: int
    settle: Settle | None


def to_frame(value: object) -> bytes:
    payload = pickle.dumps(value)
    return HEAD.pack(len(payload)) + payload


def from_frame(payload: bytes) -> Any:
    return pickle.loads(payload)  # noqa: S301  between a process and its own child, over a private socket
